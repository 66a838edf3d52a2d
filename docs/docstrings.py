"""Docstrings as we write them, for the site: examples become code, columns of arguments "Args"."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
"""From a prompt, which Markdown would take for a quotation, to the next empty line."""

ARGUMENT = r"^(\w+(?:, \w+)*) {2,}(\S.*(?:\n {2,}\S.*)*)"
"""A name, a gap, and what it is; further lines of it are indented."""

ARGUMENTS = re.compile(rf"(?:{ARGUMENT.replace('(', '(?:').replace('(?:?:', '(?:')}\n?)+", re.M)


class Docstrings(griffe.Extension):
    """Rewrites them as they are read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            fenced = EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
            obj.docstring.value = ARGUMENTS.sub(_section, fenced)


def _section(block: re.Match[str]) -> str:
    """Some arguments as a section that mkdocstrings lays out as a table."""
    found = re.findall(ARGUMENT, block.group(), re.MULTILINE)
    lines = [
        f"    {name}: {' '.join(meaning.split())}"
        for names, meaning in found
        for name in names.split(", ")
    ]
    return "\n".join(["Args:", *lines, ""])
