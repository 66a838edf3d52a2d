"""`asterism export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from asterism.cli.output import Csv, Json, is_text, print_data
from asterism.cli.source import find_source


def export(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="An .asterism file with its graph, the folder of a run, or a checkpoint and"
            " --model.",
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT.onnx", help="The file to write.")],
    model: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:FUNCTION",
            help="For a plain checkpoint: the function that returns the model.",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:FUNCTION", help="With --model: the function that returns the loaders."
        ),
    ] = None,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Write a network without its dead units as a dense ONNX file, for other engines.

    Example:  asterism export net.asterism net.onnx
    """
    import torch

    from asterism.errors import InputError
    from asterism.export.onnx import export_onnx
    from asterism.graph.rebuild import rebuild

    text = is_text(as_json, as_csv)
    if (model is None) != (data is None):
        raise InputError("--model and --data go together: give both")
    if out.suffix != ".onnx":
        raise InputError(f"{out} must end in .onnx, the one format that export writes")
    source = find_source(file, model, data)
    if model is None and source.has_graph():
        net = source.net(threads=1)
        network: torch.nn.Module = rebuild(net.graph, net.weights)
        example = torch.zeros(2, *net.input_shape)
    else:
        network = source.network()
        inputs = source.task().example_inputs(network)[0]
        example = torch.cat([inputs[:1]] * 2)
    smaller = export_onnx(network, example, out)
    before, after = (sum(p.numel() for p in each.parameters()) for each in (network, smaller))
    size = out.stat().st_size
    if text:
        print(f"{out}: {size:,} bytes, {after:,} of {before:,} weights")
    else:
        result = {"file": str(out), "bytes": size, "weights": after, "weights_before": before}
        print_data(result, [result], as_json)
