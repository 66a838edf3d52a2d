"""`asterism plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from asterism.cli.common import to_device
from asterism.cli.output import Csv, Json, flat, is_text, print_data
from asterism.cli.source import find_source


def plan(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="The function that returns the model: file.py:function or pkg.module:function.",
        ),
    ],
    data: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:FUNCTION",
            help="The function that returns (train_loader, valid_loader). Adds the work per example"
            " and how sensitive each layer is.",
        ),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Trained weights: .safetensors, .pt or .asterism.")
    ] = None,
    include: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN", help="Only weights that match this pattern; may be repeated."
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN", help="No weights that match this pattern; may be repeated."
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="Where to measure: cpu, cuda, mps.")
    ] = None,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Show what would be made sparse, what not and why, and how sensitive each layer is.

    Example:  asterism plan asterism.experiments.networks:lenet5 --exclude conv1
    """
    from asterism.cli.factories import make_data, make_model
    from asterism.export.checkpoints import load_into
    from asterism.search.plan import plan as make_plan
    from asterism.search.task import supervised

    text, network = is_text(as_json, as_csv), make_model(model)
    if weights is not None:
        load_into(network, find_source(weights).path)
    task = None if data is None else supervised(**make_data(data))
    network = to_device(network, device)
    found = make_plan(network, task, include=include or None, exclude=exclude or None)
    if text:
        print(found)
    else:
        plain = found.to_json()
        print_data(plain, [flat(row) for row in plain["parameters"]], as_json)
