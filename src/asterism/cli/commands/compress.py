"""`asterism compress`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asterism.cli.onnx_options import Fix, Shape
from asterism.cli.output import Csv, Json, flat, is_text, print_data
from asterism.cli.source import Source, by_position, examples_of, find_source
from asterism.cli.voice import say_loading_torch
from asterism.errors import InputError

if TYPE_CHECKING:
    from torch import nn

    from asterism.search.bit_widths import Choice
    from asterism.search.task import Supervised


class ModeName(str, Enum):
    auto = "auto"
    small = "small"
    fast = "fast"


def compress(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A .safetensors, .pt, .onnx or .asterism file, or the folder of a run.",
        ),
    ],
    lossless: Annotated[
        bool, typer.Option("--lossless", help="Keep every weight bit for bit; this is the default.")
    ] = False,
    bits: Annotated[
        int | None,
        typer.Option(
            min=1, max=12, help="Bits per weight: each tensor gets a codebook of 2^N values."
        ),
    ] = None,
    max_drop: Annotated[
        float | None,
        typer.Option(
            help="Choose the fewest bits with which the metric gets worse by at most this."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:FUNCTION",
            help="The function that returns the model; its graph is saved too.",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:FUNCTION",
            help="The function that returns the loaders; goes with --model or --int16.",
        ),
    ] = None,
    epochs: Annotated[
        int, typer.Option(min=0, help="With --max-drop: epochs of retraining the codebooks.")
    ] = 0,
    fold_norms: Annotated[
        bool,
        typer.Option(
            "--fold-norms",
            help="Make batch norms part of the convolutions; their state_dict keys go.",
        ),
    ] = False,
    int16: Annotated[
        bool,
        typer.Option(
            "--int16",
            help="Run convolutions in whole numbers of 16 bits, with scales found on --data, where"
            " the metric is measured before and after.",
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="The file to write; default CHECKPOINT.asterism.")
    ] = None,
    mode: Annotated[
        ModeName, typer.Option(help="small for the smallest file, fast for large networks.")
    ] = ModeName.auto,
    shape: Shape = None,
    fix: Fix = None,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Compress a checkpoint into a small .asterism file.

    Example:  asterism compress model.safetensors --bits 5 --model net.py:model --data
    net.py:loaders

    Bits per tensor, chosen on validation data: the same with --max-drop 0.1 in the place of --bits.
    Without --model the file holds the weights alone, which the runtime cannot execute.

    A network of any framework, with its graph and without PyTorch:  asterism compress model.onnx

    Faster convolutions, for a file that has its graph:  asterism compress net.asterism --int16
    --data net.py:loaders --out fast.asterism

    An --out that ends in .safetensors writes a plain checkpoint back.
    """
    text = is_text(as_json, as_csv)
    if lossless + (bits is not None) + (max_drop is not None) > 1:
        raise InputError("--lossless, --bits and --max-drop exclude each other: choose one")
    source = find_source(checkpoint, model, data, shape, fix)
    checkpoint, model, data = source.path, source.model, source.data
    out = out or checkpoint.with_suffix(".asterism")
    if source.is_onnx:
        if model is not None or data is not None or max_drop is not None or fold_norms or int16:
            raise InputError(
                "an ONNX file has its own network: give --bits at most, and then evaluate it, or"
                " compress the new file with --int16"
            )
        _report(_from_onnx(source, out, mode, bits), text, as_json)
        return
    say_loading_torch()
    from asterism.export import folding
    from asterism.export.checkpoints import read_with_graph, save, write_checkpoint
    from asterism.search.bit_widths import choose_bits
    from asterism.search.limits import Goal
    from asterism.storage.atomic_files import check_writable

    if int16 and data is None:
        raise InputError("--int16 finds its scales on examples: add --data net.py:loaders")
    if (model is None) != (data is None) and not (int16 and model is None):
        raise InputError("--model and --data go together: give both")
    if max_drop is not None and model is None:
        raise InputError(
            "--max-drop measures the network: add --model net.py:model --data net.py:loaders"
        )
    if fold_norms and (model is None or out.suffix == ".safetensors"):
        raise InputError(
            "--fold-norms changes the network: add --model net.py:model --data net.py:loaders, and"
            " write an .asterism file"
        )
    if epochs and max_drop is None:
        raise InputError("--epochs is for --max-drop: give both")
    found: dict[str, Any] = {}
    state, graph = read_with_graph(checkpoint)
    if out.resolve() == checkpoint.resolve():
        raise InputError(f"{checkpoint} would be overwritten: choose another --out")
    check_writable(out)
    if int16 and model is None and graph is None:
        raise InputError(f"{checkpoint} holds weights alone: add --model net.py:model for --int16")
    plain = out.suffix == ".safetensors"
    if plain and (bits is not None or max_drop is not None or int16):
        raise InputError("few bits are for .asterism files: choose another --out")
    task = source.task() if data is not None and not plain else None
    rest: dict[str, Any] = {"mode": mode.value, "bits": bits}
    if int16 and task is not None:
        rest["int16"] = examples_of(task.train_loader, "--int16")
    if plain:
        write_checkpoint(out, state)
        size = out.stat().st_size
    elif model is None or task is None:
        size = save(state, out, graph=graph, **rest)
    else:
        network = source.network()
        example = by_position(network, task.example_inputs(network))
        if fold_norms:
            network = folding.fold_norms(network, example)
        if max_drop is None:
            size = save(network, out, example_inputs=example, **rest)
        else:
            goal = Goal(max_drop, task.higher_is_better)
            choice = choose_bits(network, task.evaluate, goal, fit=task.fit, epochs=epochs)
            rest["bits"] = choice.bits
            size = save(choice.model, out, example_inputs=example, **rest)
            found = _measured(choice, network, task, out)
    if int16 and task is not None:
        found |= _compared(out, task)
    dense = sum(tensor.nbytes for tensor in state.values())
    _report({"file": str(out), "bytes": size, "dense_bytes": dense, **found}, text, as_json)


def _from_onnx(source: Source, out: Path, mode: ModeName, bits: int | None) -> dict[str, Any]:
    """Writes the network of an ONNX file; torch is not needed."""
    from asterism.storage.atomic_files import check_writable

    if out.suffix != ".asterism":
        raise InputError(f"an ONNX file becomes an .asterism file, and not {out}")
    network = source.imported()
    check_writable(out)
    size = network.save(out, mode=mode.value, bits=bits)
    dense = sum(array.nbytes for array in network.tensors.values())
    return {"file": str(out), "bytes": size, "dense_bytes": dense}


def _report(result: dict[str, Any], text: bool, as_json: bool) -> None:
    if not text:
        print_data(result, [flat(result)], as_json)
        return
    _describe(result)
    size, dense = result["bytes"], result["dense_bytes"]
    smaller = f", {dense / size:.1f}× smaller than" if dense > size else " for"
    print(f"{result['file']}: {size:,} bytes{smaller} the {dense:,} in memory")


def _measured(choice: Choice, network: nn.Module, task: Supervised, out: Path) -> dict[str, Any]:
    """The bits of each tensor, and the metric before and after, the latter from the file itself.

    choice   what was chosen
    network  the model, which gets the file's weights
    task     the data and the metric
    out      the file
    """
    from asterism.export.checkpoints import load_state_dict

    bits = {name: choice.bits.get(name) for name in network.state_dict()}
    network.load_state_dict(load_state_dict(out))
    return {"bits": bits, "before": choice.before, "after": task.evaluate(network)}


def _compared(out: Path, task: Supervised) -> dict[str, Any]:
    """The metric of a file's network in floats and in 16 bits, and how many layers have these."""
    from asterism.cli.commands.evaluate import measure
    from asterism.runtime import load
    from asterism.runtime.sixteen_bits import is_short

    floats, short = load(out, int16=False), load(out)
    plans = short.plans if short.layers else ()  # a network of views alone has none
    layers = {step.layer.place for plan in plans for step in plan.steps if is_short(step)}
    before, after = (measure(net, task)["metric"] for net in (floats, short))
    return {"metric_float": before, "metric_int16": after, "int16_layers": len(layers)}


def _describe(found: dict[str, Any]) -> None:
    for name, width in found.get("bits", {}).items():
        print(f"{name}: {'as it is' if width is None else f'{width} bits'}")
    if "before" in found:
        print(f"metric: {found['before']:.6g} before, {found['after']:.6g} after")
    if "int16_layers" in found:
        floats, short = found["metric_float"], found["metric_int16"]
        print(f"metric on the validation data: {floats:.6g} in floats, {short:.6g} in 16 bits")
        print(f"layers in 16 bits on this machine: {found['int16_layers']}")
