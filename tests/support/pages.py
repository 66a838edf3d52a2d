"""What README and the pages of docs/ show: Python, commands, and commands named in a sentence."""

from __future__ import annotations

import re
from pathlib import Path

from support.paths import ROOT

README = ROOT / "README.md"
PAGES = [README, ROOT / "examples" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS = ("asterism", "python", "pip", "make")


def python_blocks(page: Path) -> list[str]:
    """The Python of a page, block by block."""
    return blocks(page, "python")


def blocks(page: Path, language: str) -> list[str]:
    """The code of a page in one language, block by block."""
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def languages(page: Path) -> set[str]:
    """The languages of the page's code."""
    return set(re.findall(r"^```(\w+)$", page.read_text(), re.MULTILINE))


def commands(page: Path) -> list[str]:
    """The commands in the page's blocks, in order, without their comments."""
    text = re.sub(r"```python\n.*?```", "", page.read_text(), flags=re.DOTALL)
    joined = text.replace("\\\n", " ")
    lines = re.findall(rf"^ {{4}}((?:{'|'.join(PROGRAMS)}) .*)$", joined, re.MULTILINE)
    return [" ".join(re.sub(r"\s+#.*", "", line).split()) for line in lines]


def named_commands(page: Path) -> list[str]:
    """The commands of ours in sentences and tables."""
    return re.findall(r"`(asterism [a-z][^`]*)`", page.read_text().replace("\n", " "))


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()
