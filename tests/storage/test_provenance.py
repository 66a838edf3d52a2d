"""When and with what a run was made."""

from __future__ import annotations

import subprocess
from datetime import datetime, timezone

import torch

import asterism
from asterism.storage.provenance import commit, provenance


def git(*command: str, folder) -> str:
    author = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    done = subprocess.run(
        ["git", *author, *command], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_versions_and_the_date_are_those_of_now():
    made = provenance()
    assert made.versions["asterism"] == asterism.__version__
    assert made.versions["torch"] == torch.__version__
    age = datetime.now(timezone.utc) - datetime.fromisoformat(made.date)
    assert 0 <= age.total_seconds() < 60


def test_a_commit_and_changes_after_it_are_seen(tmp_path):
    git("init", "-q", folder=tmp_path)
    (tmp_path / "net.py").write_text("1")
    git("add", "net.py", folder=tmp_path)
    git("commit", "-q", "-m", "First", folder=tmp_path)
    git("tag", "v1", folder=tmp_path)
    head = git("rev-parse", "HEAD", folder=tmp_path)
    assert commit(tmp_path) == head[:12], "no tag's name"
    (tmp_path / "net.py").write_text("2")
    assert commit(tmp_path) == f"{head[:12]}-dirty"


def test_outside_of_a_repository_and_without_git_there_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit(tmp_path) is None
    monkeypatch.setenv("PATH", "")
    assert commit(tmp_path) is None
