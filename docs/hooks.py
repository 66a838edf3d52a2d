"""What pages link to under experiments/ lives beside what made it; the site takes it from there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

OUTSIDE = re.compile(r"\]\(\.\./(experiments/[^)#]+)")


def on_files(files: Files, config: Any) -> Files:
    docs = Path(config.docs_dir)
    pages = "\n".join(page.read_text(encoding="utf-8") for page in docs.glob("*.md"))
    for name in sorted(set(OUTSIDE.findall(pages))):
        if (path := docs.parent / name).is_file():  # a link to anything else is a warning
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    return OUTSIDE.sub(r"](\1", markdown)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """A notebook's links are right where the notebook is; mkdocs-jupyter does not change them."""
    is_notebook = page.file.src_uri.endswith(".ipynb")
    return re.sub(r'href="([\w/-]+)\.md"', r'href="\1.html"', html) if is_notebook else html
