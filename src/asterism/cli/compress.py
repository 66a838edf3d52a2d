"""`asterism compress`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


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
    out: Annotated[
        Path | None, typer.Option(help="The file to write; default CHECKPOINT.asterism.")
    ] = None,
    mode: Annotated[
        ModeName, typer.Option(help="small: every bit counts; fast: for large networks.")
    ] = ModeName.auto,
) -> None:
    """A checkpoint as a file that is really small.

    Example:  asterism compress model.safetensors --bits 5 --out net.asterism

    An --out that ends in .safetensors writes a plain checkpoint back.
    """
    from asterism.checkpoints import read_checkpoint, save, write_checkpoint
    from asterism.errors import InputError

    if lossless and bits is not None:
        raise InputError("--lossless and --bits exclude each other: choose one")
    state = read_checkpoint(checkpoint)
    out = out or checkpoint.with_suffix(".asterism")
    if out.resolve() == checkpoint.resolve():
        raise InputError(f"{checkpoint} would be overwritten: choose another --out")
    if out.suffix == ".safetensors":
        if bits is not None:
            raise InputError("--bits is for .asterism files: choose another --out")
        write_checkpoint(out, state)
        size = out.stat().st_size
    else:
        size = save(state, out, mode=mode.value, bits=bits)
    dense = sum(tensor.nbytes for tensor in state.values())
    print(f"{out}: {size:,} bytes, {dense / size:.1f}× smaller than the {dense:,} in memory")
