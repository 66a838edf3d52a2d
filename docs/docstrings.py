"""Docstrings as we write them, in Markdown: examples become code, columns of arguments lists."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
"""From a prompt, which Markdown would take for a quotation, to the next empty line."""

ARGUMENT = re.compile(r"^(\w+(?:, \w+)*) {2,}(\S.*(?:\n {2,}\S.*)*)", re.MULTILINE)
"""A name, a gap, and what it is; lines that go on are indented."""


class Docstrings(griffe.Extension):
    """Rewrites them as they are read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            fenced = EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
            obj.docstring.value = ARGUMENT.sub(_item, fenced)


def _item(found: re.Match[str]) -> str:
    names, meaning = found.groups()
    return f"- `{names}`: {' '.join(meaning.split())}"
