"""`asterism plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from asterism.cli.source import find_source


def plan(
    model: Annotated[
        str, typer.Argument(help="pkg.module:function or path/file.py:function; gives the model.")
    ],
    data: Annotated[
        str | None,
        typer.Option(
            help="Another such function, as for `asterism sparsify`: it gives (train_loader,"
            " valid_loader). Adds the work per example and the sensitivity of each layer."
        ),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Trained weights: .safetensors, .pt or .asterism.")
    ] = None,
    include: Annotated[
        list[str] | None, typer.Option(help="Only weights that fit this pattern; may be repeated.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(help="No weights that fit this pattern; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Dry run: what would be made sparse, what not and why, and how sensitive each layer is.

    Example:  asterism plan asterism.experiments.lenets:lenet5 --exclude conv1
    """
    import json

    from asterism.cli.factories import make_data, make_model
    from asterism.export.checkpoints import load_into
    from asterism.search.plan import plan as make_plan
    from asterism.search.task import supervised

    network = make_model(model)
    if weights is not None:
        load_into(network, find_source(weights).path)
    task = None if data is None else supervised(**make_data(data))
    found = make_plan(network, task, include=include or None, exclude=exclude or None)
    print(json.dumps(found.to_json(), indent=2) if as_json else found)
