"""`asterism bench`: the table of engines, and of the layers with their measured times."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from asterism.export import dense_engines
from asterism.export.checkpoints import save
from support import small
from support.command_line import asterism


@pytest.mark.parametrize("compiler", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("batches", "plans"), [("1", 1), ("1,8,64", 2)])
def test_every_layer_is_measured_in_every_plan_that_was_timed(
    batches: str, plans: int, compiler: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiler:  # which takes longest, and which test_dense_engines.py has, too
        monkeypatch.setattr(dense_engines, "compiled", dense_engines.eager)
    file = tmp_path / "net.asterism"
    save(small.trained().eval(), file, example_inputs=(torch.zeros(1, 20),))
    done = asterism("bench", file, "--batch", batches, "--seconds", "0.1")
    assert done.returncode == 0, done.stderr
    layers = re.findall(r"^\d+ linear.*", done.stderr, re.MULTILINE)
    assert len(layers) == 2 * plans
    assert all(re.search(r"µs +\d+\.\d+ µs$", line) for line in layers), layers
