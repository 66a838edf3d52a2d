"""`asterism bench`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from asterism.cli.onnx_options import Fix, Shape
from asterism.cli.output import Csv, Json, is_text, print_data
from asterism.cli.source import CheckpointModel, NetworkFile, find_source
from asterism.cli.voice import say
from asterism.errors import InputError

if TYPE_CHECKING:
    from asterism.export.dense_engines import Timing


def bench(
    file: NetworkFile,
    batch: Annotated[str, typer.Option(help="Batch sizes, separated by commas.")] = "1,64,1024",
    threads: Annotated[int, typer.Option(min=1, help="CPU threads of every engine.")] = 1,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="About how long to time each batch size.")
    ] = 3.0,
    tune: Annotated[
        bool, typer.Option("--tune", help="Measure which kernel suits each layer best, first.")
    ] = False,
    model: CheckpointModel = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:FUNCTION", help="With --model: the function that returns the loaders."
        ),
    ] = None,
    shape: Shape = None,
    fix: Fix = None,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Time a sparse network against every dense engine that is installed.

    torch eager, torch.compile, ONNX Runtime, OpenVINO (its sparse decompression of weights off and
    on), LiteRT and MNN, as far as they are installed, run the same network in turn with ours; times
    are medians, and the speed-up is the median of the ratios. The plan follows, layer by layer,
    with the time predicted and measured; the kernels are measured once on a machine, for that.
    With --tune every layer takes the kernel that is fastest here, as after `net.tune()`.

    Example:  asterism bench net.asterism --batch 1,64 --threads 1
    """
    from asterism.export import dense_engines as engines
    from asterism.graph.rebuild import rebuild
    from asterism.runtime.sized import FEW

    text, batches = is_text(as_json, as_csv), _batches(batch)
    _calibrate()
    net = find_source(file, model, data, shape, fix).net(threads)
    if tune:
        say("asterism: measuring each layer by every kernel …")
        net.tune(max(*batches, FEW))
    say("asterism: setting up the dense engines; torch.compile takes longest …")
    found = engines.find(rebuild(net.graph, net.weights), net.example(2), threads)
    rows = engines.compare(net, found, batches, seconds)
    if not text:
        print_data(rows, rows, as_json)
        return
    print(f"{'batch':>6}  {'engine':14} {'µs per image':>13} {'asterism is':>14}")
    for row in rows:
        print(_line(row))
    say("\n" + ("; ".join(engines.ahead(rows)) or "no dense engine is faster"))
    for size in _largest(batches):
        say(f"\n{net.explain(*net.example(size))}")


def _calibrate() -> None:
    """Has the planner know this machine, which it does not measure by itself."""
    from asterism.runtime.choice import calibration

    if calibration.is_calibrated():
        return
    say("asterism: measuring the kernels on this machine, once …")
    try:
        calibration.calibrate()
    except InputError as error:  # it is known for now
        say(f"asterism: {error}")


def _largest(batches: list[int]) -> list[int]:
    """Of the batch sizes, by plan: of single images, and of blocks."""
    from asterism.runtime.sized import FEW

    sizes = [max((size for size in batches if few == (size < FEW)), default=0) for few in (1, 0)]
    return [size for size in sizes if size]


def _line(row: Timing) -> str:
    ratio = row["speed_up"]
    if row["engine"] == "asterism":
        verdict = ""
    elif ratio >= 1:
        verdict = f"{ratio:.2f}× faster"
    else:
        verdict = f"{1 / ratio:.2f}× slower"
    times = row["microseconds_per_image"]
    return f"{row['batch']:>6}  {row['engine']:14} {times:>13.2f} {verdict:>14}"


def _batches(text: str) -> list[int]:
    try:
        batches = [int(size) for size in text.split(",") if size.strip()]
    except ValueError as error:
        raise InputError(f"--batch takes numbers, as in 1,64,1024, not {text!r}") from error
    if not batches or min(batches) < 1:
        raise InputError(f"--batch takes sizes of 1 or more, not {text!r}")
    return batches
