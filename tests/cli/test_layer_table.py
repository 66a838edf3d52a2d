"""What a person sees while a network trains."""

from __future__ import annotations

import io

import torch
from rich.console import Console
from rich.progress import Progress

from asterism.cli.layer_table import MOST_ROWS, LayerStatus, board, layer_statuses, layer_table
from asterism.cli.progress import Bar
from asterism.experiments.jobs import Job
from asterism.experiments.methods import Dense


def drawn(*what: object) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(*what)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_a_line_for_each_layer_with_its_weights_and_tails():
    weights = {"conv.weight": torch.tensor([[0.0, 2.0, 0.0, 0.0]]), "fc.weight": torch.eye(2)}
    lines = drawn(layer_table(layer_statuses(weights))).splitlines()
    assert [line.split() for line in lines[1:3]] == [
        ["conv", "1", "4", "25.0", "%"],
        ["fc", "2", "4", "50.0", "%"],
    ]


def test_of_many_layers_the_largest_are_shown_in_their_own_order():
    rows = [LayerStatus(f"layer{number}", number, 100) for number in range(MOST_ROWS + 5)]
    lines = drawn(layer_table(rows)).splitlines()
    shown = [line.split()[0] for line in lines[1 : MOST_ROWS + 1]]
    assert shown == [f"layer{number}" for number in range(5, MOST_ROWS + 5)]
    assert "and 5 more" in lines[MOST_ROWS + 1]


def test_a_run_is_shown_as_it_goes():
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    record = {
        "stage": "reweight 1",
        "epoch": 1,
        "validation_error_percent": 1.25,
        "density_percent": 50.0,
        "layers": {"fc1": 1234, "fc2": 50},
        "kurtosis": {"fc1": 9.5, "fc2": 3.0},
    }
    with board(Progress(console=console), console) as shown:
        bar = Bar(shown, total=2)
        with bar(Job("dense", Dense(), 0, "lenet5"), 2) as watch:
            watch(record)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "1,234" in text
    assert "9.5" not in text
    assert "validation error 1.25 %" in text
