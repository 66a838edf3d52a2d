"""PyTorch's side of the file: models and state dicts in, state dicts out, plain checkpoints too.

Owns the way between tensors and arrays; the bytes are those of `asterism.file`. Nothing is ever
unpickled but what torch calls weights only.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from asterism import file
from asterism.errors import FormatError, InputError, one_line
from asterism.file.dtypes import DTYPES, FLOATS
from asterism.graph.constants import settle
from asterism.graph.network import decode, encode
from asterism.graph.shapes import infer
from asterism.graph.work import Work
from asterism.storage.atomic_files import write_atomically

# Types that numpy lacks travel as unsigned integers of their size.
_HELD: dict[torch.dtype, torch.dtype] = {
    getattr(torch, dtype.name): getattr(torch, np.dtype(dtype.storage).name)
    for dtype in DTYPES
    if dtype.kind == "f" and np.dtype(dtype.storage).kind == "u"
}

FLOAT_DTYPES: tuple[torch.dtype, ...] = tuple(getattr(torch, name) for name in FLOATS)
"""The types of weights, as torch's."""
_PLAIN = torch.strided


def save(
    model: nn.Module | Mapping[str, Tensor],
    path: str | Path,
    *,
    example_inputs: Any = None,
    mode: file.SaveMode = "auto",
    bits: file.Bits = None,
    graph: bytes | None = None,
    int16: Any = None,
) -> int:
    """Writes a model's state dict to an .asterism file; returns its size in bytes.

    Lossless unless `bits` is given, but for one thing: −0, which masks leave behind by the
    thousand, becomes 0.

    model           the model, or its state dict
    path            the file to write, whole or not at all
    example_inputs  what the model is called with: the graph of the network is saved too, and the
                    runtime can execute the file
    mode            "small" for the smallest file, "fast" for large networks, "auto" by size
    bits            a codebook of 2^bits values for each floating tensor, or for those named
    graph           the graph, where it is known already
    int16           a batch of examples, as example_inputs: the runtime then computes convolutions
                    in whole numbers of 16 bits, with scales found on these, where that is faster
    """
    state = model.state_dict() if isinstance(model, nn.Module) else dict(model)
    arrays, dtypes = to_arrays(without_minus_zero(state))
    if example_inputs is not None:
        if not isinstance(model, nn.Module):
            raise InputError("example_inputs need the model, not its state dict")
        graph = _capture(model, example_inputs, list(arrays.values()))
    if int16 is not None:
        if graph is None:
            raise InputError("int16 is for networks with their graph: add example_inputs")
        graph = _with_ranges(graph, state, int16)
    return file.write(
        path, arrays, graph=graph, mode=file.choose_mode(arrays, mode), bits=bits, dtypes=dtypes
    )


def load_state_dict(path: str | Path) -> dict[str, Tensor]:
    """The state dict in an .asterism file."""
    contents = file.read(path)
    return to_tensors(contents.tensors, contents.dtypes)


def as_contents(state: Mapping[str, Tensor]) -> file.Contents:
    """A state dict as it would be in an .asterism file, without writing one."""
    arrays, dtypes = to_arrays(without_minus_zero(state))
    return file.decode(file.encode(arrays, mode=file.choose_mode(arrays, "auto"), dtypes=dtypes))


def read_checkpoint(path: str | Path) -> dict[str, Tensor]:
    """A state dict from an .asterism or safetensors file, or from torch's with weights only."""
    return read_with_graph(path)[0]


def read_with_graph(path: str | Path) -> tuple[dict[str, Tensor], bytes | None]:
    """The state dict of a file of any kind, and the graph that may be with it."""
    path = Path(path)
    if file.recognises(path) or path.suffix == ".asterism":
        contents = file.read(path)
        return to_tensors(contents.tensors, contents.dtypes), contents.graph
    if path.suffix == ".safetensors":
        try:
            return _in_order(safetensors.torch.load_file(path)), None
        except (safetensors.SafetensorError, ValueError, KeyError) as error:
            raise InputError(f"{path} is not a safetensors file ({error})") from error
    return _read_torch(path), None


def load_into(model: nn.Module, path: str | Path) -> None:
    """The weights of any file that `read_checkpoint` reads, every one of them and no others."""
    put_into(model, read_checkpoint(path), path)


def put_into(model: nn.Module, state: Mapping[str, Tensor], path: str | Path) -> None:
    """The weights that were read from a file, every one of them and no others.

    model  gets them
    state  the weights by name
    path   the file, which an error names
    """
    try:
        model.load_state_dict(dict(state))
    except RuntimeError as error:
        raise InputError(f"{path} does not fit the model: {one_line(error)}") from error


def write_checkpoint(path: str | Path, state: Mapping[str, Tensor]) -> None:
    """A plain state dict as safetensors, shared tensors under each of their names."""
    unshared = {name: tensor.detach().clone().contiguous() for name, tensor in state.items()}
    write_atomically(Path(path), safetensors.torch.save(unshared))


def without_minus_zero(state: Mapping[str, Any]) -> dict[str, Any]:
    """The same numbers, each zero the plain one; what is no tensor is left to complain about."""
    return {
        name: torch.where(tensor == 0, 0, tensor)
        if isinstance(tensor, Tensor) and tensor.dtype in FLOAT_DTYPES and tensor.layout == _PLAIN
        else tensor
        for name, tensor in state.items()
    }


def to_arrays(state: Mapping[str, Any]) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Numpy arrays of the same bits, and the name of each dtype.

    >>> arrays, dtypes = to_arrays({"w": torch.ones(2, dtype=torch.bfloat16)})
    >>> arrays["w"].dtype.name, dtypes["w"]
    ('uint16', 'bfloat16')
    """
    arrays, dtypes = {}, {}
    for name, tensor in state.items():
        if not isinstance(tensor, Tensor):
            raise InputError(f"{name} is a {type(tensor).__name__}: a state dict holds tensors")
        if tensor.layout != _PLAIN or tensor.is_quantized:
            raise InputError(f"{name} is stored as {tensor.layout}: make it a plain dense tensor")
        if tensor.is_meta:
            raise InputError(f"{name} has a shape but no numbers: it was saved on the meta device")
        plain = tensor.detach().cpu().contiguous()
        arrays[name] = plain.view(_HELD.get(plain.dtype, plain.dtype)).numpy()
        dtypes[name] = str(plain.dtype).removeprefix("torch.")
    return arrays, dtypes


def to_tensors(arrays: Mapping[str, NDArray[Any]], dtypes: Mapping[str, str]) -> dict[str, Tensor]:
    """The inverse of `to_arrays`."""
    return {
        name: torch.from_numpy(np.ascontiguousarray(array).reshape(array.shape)).view(
            getattr(torch, dtypes[name])
        )
        for name, array in arrays.items()
    }


def _in_order(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """By name, numbers by their value: safetensors keeps no order of its own."""
    parts = {name: re.split(r"(\d+)", name) for name in state}

    def key(name: str) -> list[str | int]:  # words and numbers in turn
        return [int(part) if i % 2 else part for i, part in enumerate(parts[name])]

    return {name: state[name] for name in sorted(state, key=key)}


def _read_torch(path: Path) -> dict[str, Tensor]:
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file may raise anything
        raise InputError(
            f"{path} is no checkpoint that can be read safely ({type(error).__name__}): give"
            " safetensors, or torch.save of model.state_dict(); a whole model would need pickle,"
            " which may run any code"
        ) from error
    if isinstance(found, dict) and isinstance(found.get("state_dict"), dict):
        found = found["state_dict"]
    if not isinstance(found, dict) or not all(isinstance(t, Tensor) for t in found.values()):
        raise InputError(f"{path} holds {_kind(found)}, not a state dict of tensors")
    return {str(name): tensor for name, tensor in found.items()}


def _kind(found: Any) -> str:
    if not isinstance(found, dict):
        return f"a {type(found).__name__}"
    names = ", ".join(map(str, list(found)[:5]))
    return f"a dict with {names}{', …' if len(found) > 5 else ''}"


def _capture(model: nn.Module, example_inputs: Any, weights: list[NDArray[Any]]) -> bytes:
    """The graph, and a warning where the runtime could not run it."""
    from asterism.graph.capture import capture  # torch.export takes long to import

    graph = capture(model, example_inputs)
    try:
        plain, all_weights = settle(graph, weights)
        Work.allowed(all_weights).check(plain, infer(plain, all_weights))
    except FormatError as error:
        warnings.warn(f"the file is written, but cannot be run: {error}", stacklevel=3)
    return encode(graph)


def _with_ranges(graph: bytes, state: Mapping[str, Tensor], examples: Any) -> bytes:
    """The graph with the ranges that its values have on examples."""
    from asterism.runtime.ranges import with_ranges

    arrays, _ = to_arrays({name: tensor.float() for name, tensor in state.items()})
    batches = examples if isinstance(examples, tuple | list) else (examples,)
    given = [example_array(each, "int16") for each in batches]
    return encode(with_ranges(decode(graph), arrays, given))


def example_array(batch: Any, what: str) -> NDArray[Any]:
    """A batch of examples as an array; floats of a tensor become single, as numpy lacks some.

    batch  a tensor or an array, with one example or more
    what   it is for, which an error names
    """
    if isinstance(batch, Tensor):
        batch = (batch.float() if batch.is_floating_point() else batch).detach().cpu().numpy()
    if not isinstance(batch, np.ndarray) or batch.ndim == 0 or not len(batch):
        found = "none" if isinstance(batch, np.ndarray) else f"a {type(batch).__name__}"
        raise InputError(f"{what} needs a batch of examples, a tensor or an array, found {found}")
    return batch
