"""Snapshots of a run between two of its steps: written whole, read without running any code."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from asterism.errors import FormatError, InputError
from asterism.storage.atomic_files import write_atomically


def write_snapshot(path: Path, content: Mapping[str, Any]) -> None:
    """Tensors, numbers, strings and containers of them, whole or not at all."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_atomically(path, buffer.getvalue())


def read_snapshot(path: Path) -> dict[str, Any]:
    """What `write_snapshot` wrote; nothing in a file from a stranger is run."""
    try:
        content = torch.load(io.BytesIO(path.read_bytes()), weights_only=True, map_location="cpu")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except Exception as error:  # a damaged file may raise anything
        raise FormatError(f"cannot read {path}, it is damaged: delete it to start anew") from error
    if not isinstance(content, dict):
        raise FormatError(f"cannot read {path}, it is no checkpoint: delete it to start anew")
    return content
