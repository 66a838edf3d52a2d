"""`asterism export`: an ending that it does not know is an error."""

from __future__ import annotations

import pytest
import torch

from asterism.export.checkpoints import save
from support import small
from support.command_line import asterism


@pytest.mark.parametrize("name", ["net.c", "net", "net.asterism"])
def test_an_unknown_ending_is_refused_and_nothing_is_written(name, tmp_path):
    save(small.trained().eval(), tmp_path / "a.asterism", example_inputs=(torch.zeros(1, 20),))
    done = asterism("export", tmp_path / "a.asterism", tmp_path / name)
    assert done.returncode == 2
    assert f"{name} must end in .onnx" in done.stderr
    assert not (tmp_path / name).exists()


def test_a_plain_checkpoint_is_told_from_a_damaged_file(tmp_path):
    torch.save(small.trained().state_dict(), tmp_path / "net.asterism")
    done = asterism("evaluate", tmp_path / "net.asterism", "--data", "digits")
    assert done.returncode == 2
    assert "this is not an .asterism file: make one with asterism.save" in done.stderr
