"""What TensorBoard is given can be read back by TensorBoard."""

from __future__ import annotations

from pathlib import Path

import torch
from tensorboard.backend.event_processing import event_accumulator as events

from asterism.cli.progress import also, print_lines
from asterism.experiments.jobs import Job
from asterism.experiments.methods import Dense
from asterism.integrations.tensorboard import TensorBoard

RECORD = {
    "stage": "retrain",
    "epoch": 3,
    "validation_error_percent": 1.25,
    "density_percent": 50.0,
    "kurtosis": {"fc": 9.5},
}


def read(folder: Path):
    found = events.EventAccumulator(str(folder), size_guidance={events.HISTOGRAMS: 0})
    found.Reload()
    return found


def test_scalars_and_histograms(tmp_path):
    weight = torch.tensor([0.0, 0.0, 1.0, -2.0])
    board = TensorBoard(tmp_path, {"fc.weight": weight})
    board(RECORD)
    weight[2] = 4.0  # what is drawn is what is there when a record comes
    board({"trial": "cut", "epochs": 4, "metric": None, "density": 0.5})
    board.close()
    found = read(tmp_path)
    assert [(e.step, e.value) for e in found.Scalars("kurtosis/fc")] == [(3, 9.5)]
    assert [(e.step, e.value) for e in found.Scalars("density")] == [(4, 0.5)]
    assert "metric" not in found.Tags()["scalars"]
    drawn = [(e.histogram_value.num, e.histogram_value.max) for e in found.Histograms("fc.weight")]
    assert drawn == [(2, 1.0), (2, 4.0)], "zeros are left out"


def test_each_job_of_a_reproduction_has_a_folder(tmp_path, capsys):
    with also(tmp_path, print_lines)(Job("dense", Dense(), 0, "lenet5"), 5) as watch:
        watch(RECORD)
    assert "epoch 3 of 5" in capsys.readouterr().err
    (scalar,) = read(tmp_path / "dense-0").Scalars("validation_error_percent")
    assert (scalar.step, scalar.value) == (3, 1.25)
