"""Figures live beside the experiments that made them; the site takes them from there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files


def on_files(files: Files, config: Any) -> Files:
    root = Path(config.docs_dir).parent
    for path in sorted(root.glob("experiments/*/*.svg")):
        name = path.relative_to(root).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    return markdown.replace("](../experiments/", "](experiments/")
