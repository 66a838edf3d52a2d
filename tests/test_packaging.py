"""What a release says about itself is true in every place that says it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import asterism

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_version_is_the_same_everywhere():
    citation = (ROOT / "CITATION.cff").read_text()
    assert asterism.__version__ == PROJECT["version"]
    assert re.findall(r"^version: (\S+)$", citation, re.MULTILINE) == [PROJECT["version"]]


def test_every_extra_is_documented():
    page = (ROOT / "docs" / "install.md").read_text()
    for extra in PROJECT["optional-dependencies"]:
        assert f"asterism[{extra}]" in page, extra


def test_the_hosted_ci_runs_what_ours_does():
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert re.findall(r"- run: (.*)", workflow) == [".ci/run"]
