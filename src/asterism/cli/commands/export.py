"""`asterism export`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asterism.cli.output import Csv, Json, is_text, print_data
from asterism.cli.source import CheckpointModel, Source, examples_of, find_source

if TYPE_CHECKING:
    from asterism.export.code import Written


class Aim(str, Enum):
    """What a C file is made for."""

    size = "size"
    speed = "speed"
    ram = "ram"


def export(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="An .asterism file with its graph, the folder of a run, or a checkpoint and"
            " --model.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="The file to write: its ending is .onnx, .c, .h, .html or .mjs."
        ),
    ],
    model: CheckpointModel = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:FUNCTION",
            help="With --model or --int8: the function that returns the loaders.",
        ),
    ] = None,
    aim: Annotated[
        Aim,
        typer.Option(
            "--for",
            help="Of a .c file: small tables, straight code that is faster and larger, or with"
            " --int8 the least RAM.",
        ),
    ] = Aim.size,
    header: Annotated[
        bool, typer.Option("--header", help="Of a .c file: write its header beside it.")
    ] = False,
    int8: Annotated[
        bool,
        typer.Option(
            "--int8",
            help="Of a .c file: whole numbers of 8 bits, with scales found on --data, where the"
            " metric is measured before and after.",
        ),
    ] = False,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Write a network without its dead units for other programs.

    A .c file is all that a microcontroller needs, an .html file shows the network in a browser, an
    .mjs file is for your own page: all are sparse. An .onnx file is dense, for other engines.

    Example:  asterism export net.asterism net.c
    """
    from asterism.errors import InputError

    text = is_text(as_json, as_csv)
    if (model is None) != (data is None) and not (int8 and model is None):
        raise InputError("--model and --data go together: give both")
    if out.suffix not in (".onnx", ".c", ".h", ".html", ".mjs"):
        raise InputError(f"{out} must end in .onnx, .c, .h, .html or .mjs")
    source = find_source(file, model, data)
    if int8:
        if aim is Aim.speed:
            raise InputError("--int8 and --for speed exclude each other: choose one")
        _print_written(*_int8(source, out, header, aim is Aim.ram), text, as_json)
        return
    if aim is Aim.ram:
        raise InputError("--for ram is for --int8: add it, or choose --for size")
    if out.suffix != ".onnx":
        _print_written(_code(source, out, aim is Aim.speed, header), {}, text, as_json)
        return
    if aim is Aim.speed or header:
        raise InputError(f"--for speed and --header are for .c files, and not for {out}")
    result = _onnx(source, model, out)
    if text:
        print("{file}: {bytes:,} bytes, {weights:,} of {weights_before:,} weights".format(**result))
    else:
        print_data(result, [result], as_json)


def _onnx(source: Source, model: str | None, out: Path) -> dict[str, Any]:
    """Writes an ONNX file; its size, and the weights before and after."""
    import torch

    from asterism.export.onnx import export_onnx
    from asterism.graph.rebuild import examples, rebuild

    if model is None and source.has_graph():
        net = source.net(threads=1)
        network: torch.nn.Module = rebuild(net.graph, net.weights)
        example = examples(net.graph)
    else:
        network = source.network()
        inputs = source.example_inputs(network)
        example = tuple(torch.cat([each[:1]] * 2) for each in inputs)
    smaller = export_onnx(network, example, out)
    before, after = (sum(p.numel() for p in each.parameters()) for each in (network, smaller))
    size = out.stat().st_size
    return {"file": str(out), "bytes": size, "weights": after, "weights_before": before}


def _code(source: Source, out: Path, speed: bool, header: bool) -> Written:
    from asterism.export.code import export_code

    net = source.net(threads=1)
    origin = source.path
    return export_code(net.graph, net.weights, out, origin=origin, speed=speed, header=header)


def _int8(
    source: Source, out: Path, header: bool, least_ram: bool
) -> tuple[Written, dict[str, Any]]:
    """Writes C of 8 bits; the metric before and after."""
    from asterism.cli.commands.evaluate import measure
    from asterism.errors import InputError
    from asterism.export.code import export_int8

    if source.data is None:
        raise InputError("--int8 finds its scales on examples: add --data net.py:loaders")
    net, task = source.net(threads=1), source.task()
    found = examples_of(task.train_loader, "--int8").astype("float32")
    rest: dict[str, Any] = {"origin": source.path, "header": header, "least_ram": least_ram}
    written, run = export_int8(net.graph, net.weights, out, found, **rest)
    before, after = measure(net, task), measure(run, task)
    return written, {"metric_float": before["metric"], "metric_int8": after["metric"]}


def _print_written(written: Written, metrics: dict[str, Any], text: bool, as_json: bool) -> None:
    if text:
        print(
            f"{' and '.join(written.files)}: {written.bytes:,} bytes;"
            f" {written.tables:,} bytes of tables, {written.workspace:,} bytes of workspace,"
            f" {written.work:,} multiply-adds"
        )
        if metrics:
            before, after = metrics.values()
            print(f"metric on the validation data: {before:.6g} in floats, {after:.6g} in 8 bits")
    else:
        result = {**written._asdict(), "files": " ".join(written.files), **metrics}
        print_data(result, [result], as_json)
