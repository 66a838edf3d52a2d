"""A network of another framework, from an ONNX file: to run it, and to save it small.

Owns what Python and the command line give for `model.onnx`; needs numpy and the package `onnx`,
and no torch.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from asterism import file
from asterism.errors import FormatError, InputError
from asterism.graph.network import Graph, encode
from asterism.graph.shapes import infer
from asterism.graph.stages import Array
from asterism.graph.work import Work

if TYPE_CHECKING:
    from asterism.graph.onnx.inputs import Fixed, Shapes
    from asterism.runtime import Net


def from_onnx(path: str | Path, *, shape: Shapes = None, fixed: Fixed = None) -> Imported:
    """The network in an ONNX file, with its weights as float32.

        network = asterism.from_onnx("model.onnx")
        network.save("model.asterism")
        answers = network.net()(x)

    Whatever the file's order is, inputs and results have the batch first, of any size.

    path   the file
    shape  of one example, without the batch, where the file leaves sizes open: (3, 224, 224), or
           by the inputs' names, if there are several
    fixed  numbers in the place of inputs, by their names: {"sr": 16000}
    """
    from asterism.graph.onnx import read_onnx

    return Imported(*read_onnx(path, shape, fixed), str(path))


class Imported:
    """A network that was read: `from_onnx` makes it.

    graph    its layers; what the runtime has no operation for is there by its name
    tensors  its weights by name, in the order in which the graph counts them
    source   the file that it came from, for messages
    """

    def __init__(self, graph: Graph, tensors: dict[str, Array], source: str) -> None:
        # −0, which masks leave behind by the thousand, becomes 0, as in every file of ours.
        self.graph, self.source = graph, source
        self.tensors: dict[str, Array] = {
            name: array + np.float32(0) for name, array in tensors.items()
        }

    def __repr__(self) -> str:
        count = sum(array.size for array in self.tensors.values())
        why = "" if self.missing is None else f"; cannot run: {self.missing}"
        return f"Imported({self.source}: {len(self.graph.nodes)} layers, {count:,} weights{why})"

    @property
    def missing(self) -> str | None:
        """Why the runtime cannot run it, as the first operation that it lacks; None if it can."""
        weights = list(self.tensors.values())
        try:
            Work.allowed(weights).check(self.graph, infer(self.graph, weights))
        except FormatError as error:
            return str(error)
        return None

    def net(self, threads: int = 1) -> Net:
        """The network, ready to run; InputError where an operation is missing."""
        from asterism.runtime import Net

        try:
            return Net(self.graph, self.tensors, threads=threads)
        except FormatError as error:
            raise InputError(f"{self.source} cannot be run: {error}") from error

    def contents(self, mode: file.SaveMode = "auto", bits: file.Bits = None) -> file.Contents:
        """What would be in the file, without writing one."""
        chosen = file.choose_mode(self.tensors, mode)
        return file.decode(
            file.encode(self.tensors, graph=encode(self.graph), mode=chosen, bits=bits)
        )

    def save(
        self, path: str | Path, *, mode: file.SaveMode = "auto", bits: file.Bits = None
    ) -> int:
        """Writes an .asterism file with its graph; returns its size in bytes.

        A warning names the first operation that is missing, where the runtime cannot run it.

        path  the file to write, whole or not at all
        mode  "small" for the smallest file, "fast" for large networks, "auto" by size
        bits  a codebook of 2^bits values for each tensor, or for those named; lossless without
        """
        if self.missing is not None:
            warnings.warn(f"the file is written, but cannot be run: {self.missing}", stacklevel=2)
        chosen = file.choose_mode(self.tensors, mode)
        return file.write(path, self.tensors, graph=encode(self.graph), mode=chosen, bits=bits)
