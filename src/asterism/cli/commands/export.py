"""`asterism export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
        str | None, typer.Option(help="For a plain checkpoint: makes the model, as for sparsify.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="With --model: makes the loaders, whose inputs it takes.")
    ] = None,
) -> None:
    """The network without its dead units, dense, for other engines: ONNX.

    Example:  asterism export net.asterism net.onnx
    """
    import torch

    from asterism.errors import InputError
    from asterism.export.onnx import export_onnx
    from asterism.graph.rebuild import rebuild

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
    print(f"{out}: {out.stat().st_size:,} bytes, {after:,} of {before:,} weights")
