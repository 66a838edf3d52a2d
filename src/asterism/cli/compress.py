"""`asterism compress`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from asterism.checkpoints import SaveMode
    from asterism.goal import Goal
    from asterism.supervision import Supervised


class ModeName(str, Enum):
    auto = "auto"
    small = "small"
    fast = "fast"


def compress(
    checkpoint: Annotated[
        Path, typer.Argument(help="safetensors, .pt (weights only) or .asterism.")
    ],
    lossless: Annotated[
        bool, typer.Option("--lossless", help="Every weight bit for bit: the default.")
    ] = False,
    bits: Annotated[
        int | None, typer.Option(min=1, max=12, help="A codebook of 2^N values per tensor.")
    ] = None,
    max_drop: Annotated[
        float | None,
        typer.Option(help="The fewest bits with which the metric gets no worse than by this."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="With --max-drop: makes the model, as for sparsify.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="With --max-drop: makes the loaders, as for sparsify.")
    ] = None,
    epochs: Annotated[
        int, typer.Option(min=0, help="With --max-drop: retrain the codebooks for so many.")
    ] = 0,
    out: Annotated[
        Path | None, typer.Option(help="The file to write; default CHECKPOINT.asterism.")
    ] = None,
    mode: Annotated[
        ModeName, typer.Option(help="small: every bit counts; fast: for large networks.")
    ] = ModeName.auto,
) -> None:
    """A checkpoint as a file that is really small.

    Example:  asterism compress model.safetensors --bits 5 --out net.asterism

    Bits per tensor, chosen on validation data:  asterism compress model.safetensors --max-drop 0.1
    --model net.py:model --data net.py:loaders

    An --out that ends in .safetensors writes a plain checkpoint back.
    """
    from asterism.checkpoints import read_with_graph, save, write_checkpoint
    from asterism.errors import InputError
    from asterism.files import check_writable

    if lossless + (bits is not None) + (max_drop is not None) > 1:
        raise InputError("--lossless, --bits and --max-drop exclude each other: choose one")
    if len({max_drop is None, model is None, data is None}) > 1:
        raise InputError("--max-drop, --model and --data go together: give all three")
    if epochs and max_drop is None:
        raise InputError("--epochs is for --max-drop: give both")
    state, graph = read_with_graph(checkpoint)
    out = out or checkpoint.with_suffix(".asterism")
    if out.resolve() == checkpoint.resolve():
        raise InputError(f"{checkpoint} would be overwritten: choose another --out")
    check_writable(out)
    if out.suffix == ".safetensors":
        if bits is not None or max_drop is not None:
            raise InputError("few bits are for .asterism files: choose another --out")
        write_checkpoint(out, state)
        size = out.stat().st_size
    elif max_drop is not None and model is not None and data is not None:
        network, task, goal = _task(checkpoint, state, model, data, max_drop)
        size = _compress_within(network, task, goal, epochs, out, mode.value, graph)
    else:
        size = save(state, out, mode=mode.value, bits=bits, graph=graph)
    dense = sum(tensor.nbytes for tensor in state.values())
    smaller = f", {dense / size:.1f}× smaller than" if dense > size else " for"
    print(f"{out}: {size:,} bytes{smaller} the {dense:,} in memory")


def _task(
    checkpoint: Path, state: dict[str, Tensor], model: str, data: str, max_drop: float
) -> tuple[nn.Module, Supervised, Goal]:
    from asterism.checkpoints import put_into
    from asterism.factories import make_data, make_model
    from asterism.goal import Goal
    from asterism.supervision import supervised

    network = make_model(model)
    put_into(network, state, checkpoint)
    task = supervised(**make_data(data))
    return network, task, Goal(max_drop, task.higher_is_better)


def _compress_within(
    network: nn.Module,
    task: Supervised,
    goal: Goal,
    epochs: int,
    out: Path,
    mode: SaveMode,
    graph: bytes | None,
) -> int:
    from asterism.checkpoints import load_state_dict, save
    from asterism.precision import choose_bits

    choice = choose_bits(network, task.evaluate, goal, fit=task.fit, epochs=epochs)
    size = save(choice.model, out, mode=mode, bits=choice.bits, graph=graph)
    network.load_state_dict(load_state_dict(out))
    after = task.evaluate(network)  # of what is in the file
    for name in network.state_dict():
        width = choice.bits.get(name)
        print(f"{name}: {'as it is' if width is None else f'{width} bits'}")
    print(f"metric: {choice.before:.6g} before, {after:.6g} after")
    return size
