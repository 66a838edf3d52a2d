"""`asterism evaluate`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asterism.cli.onnx_options import Fix, Shape
from asterism.cli.output import Csv, Json, is_text, print_data
from asterism.cli.source import CheckpointModel, NetworkFile, Source, find_source
from asterism.cli.voice import say
from asterism.errors import InputError

if TYPE_CHECKING:
    from asterism.runtime import Net
    from asterism.search.task import Supervised


def evaluate(
    file: NetworkFile,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:FUNCTION",
            help="The function that returns the loaders, as for sparsify; the validation data and"
            " its metric are used. Or mnist or digits. Not needed for the folder of a run.",
        ),
    ] = None,
    model: CheckpointModel = None,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
    shape: Shape = None,
    fix: Fix = None,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Measure a saved network on your validation data with your metric.

    Example:  asterism evaluate net.asterism --data net.py:loaders
    """
    text = is_text(as_json, as_csv)
    source = find_source(file, model, data, shape, fix)
    # Data that is given is read first: its errors are no reason to measure with torch.
    task = None if source.data is None else source.task(test=True)
    engine, run = _engine(source, threads)
    if task is None:
        source = replace(source, data=_dataset_of(run, source.path))
        task = source.task(test=True)
    found = measure(run, task)
    result = {"file": str(file), "data": source.data, "engine": engine, **found}
    if ":" not in str(source.data):
        result |= _as_error(result)
    if text:
        print(_describe(result, threads))
    else:
        print_data(result, [result], as_json)


def _engine(source: Source, threads: int) -> tuple[str, Any]:
    """The sparse runtime; torch for a model that the runtime cannot execute."""
    try:
        return "asterism", source.net(threads)
    except InputError as error:
        if source.path.suffix == ".asterism" or source.model is None or source.data is None:
            raise
        network = source.network()
        say(f"asterism: measured with torch: {error}")
        return "torch", network


def measure(run: Any, task: Supervised) -> dict[str, Any]:
    """The task's own metric of a network, and the time that the network takes.

    run   a network of torch's, or one that the runtime executes
    task  the data and the metric
    """
    timed = _timed(run)
    metric = task.evaluate(timed)
    return {
        "examples": timed.examples,
        "metric_name": getattr(task.metric, "__name__", type(task.metric).__name__),
        "metric": metric,
        "higher_is_better": task.higher_is_better,
        "seconds": timed.seconds,
    }


def _timed(run: Any) -> Any:
    """A module of torch's around any network, which a task can measure."""
    import numpy as np
    import torch
    from torch import Tensor, nn

    class Timed(nn.Module):
        examples, seconds = 0, 0.0

        def forward(self, *inputs: Tensor, **named: Tensor) -> Any:
            tensors = _flat([*inputs, *named.values()])
            arrays = [] if isinstance(run, nn.Module) else [each.numpy() for each in tensors]
            started = time.perf_counter()
            answers = run(*arrays) if arrays else run(*inputs, **named)
            self.seconds += time.perf_counter() - started
            self.examples += len(tensors[0])
            return torch.from_numpy(answers) if isinstance(answers, np.ndarray) else answers

    return Timed()


def _flat(inputs: Sequence[Any]) -> list[Any]:
    """The inputs one by one, where a loader gives several together."""
    return [one for each in inputs for one in (each if isinstance(each, tuple | list) else [each])]


def _dataset_of(net: Net, path: Path) -> str:
    """The data of a network of the experiments; for any other it must be given."""
    from asterism.experiments.networks import DATA, INPUT_SHAPES, weight_shapes

    shapes = [weight.shape for weight in net.weights if weight.ndim > 1]
    for key, shape in INPUT_SHAPES.items():
        if net.input_shape == shape and shapes == list(weight_shapes(key).values()):
            return DATA[key]
    raise InputError(
        f"{path} does not tell its data: add --data net.py:loaders, a function that returns"
        " (train_loader, valid_loader), or a dict that adds metric and higher_is_better"
    )


def _as_error(result: dict[str, Any]) -> dict[str, Any]:
    """For the images of the paper the error, which is its measure."""
    wrong = round(result["examples"] * (1 - result["metric"] / 100))
    error = 100 * wrong / result["examples"]
    return {"images": result["examples"], "wrong": wrong, "error_percent": error}


def _describe(result: dict[str, Any], threads: int) -> str:
    if "wrong" in result:
        found = (
            f"{result['error_percent']:.2f} % error:"
            f" {result['wrong']} of {result['images']} test images of {result['data']}"
        )
    else:
        name = result["metric_name"] if result["metric_name"].isidentifier() else "metric"
        better = "higher" if result["higher_is_better"] else "lower"
        found = (
            f"{name}: {result['metric']:.6g} on {result['examples']:,} validation examples of"
            f" {result['data']} ({better} is better)"
        )
    each = 1e6 * result["seconds"] / result["examples"]
    return f"{found}\n{each:.1f} µs per example on {threads} thread{'s' * (threads > 1)}"
