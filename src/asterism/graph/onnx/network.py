"""An ONNX file as a graph and its weights."""

from __future__ import annotations

from pathlib import Path

from asterism.errors import FormatError, InputError, one_line
from asterism.graph.network import Graph
from asterism.graph.onnx.inputs import Fixed, Shapes, find_inputs
from asterism.graph.onnx.reading import read_model
from asterism.graph.onnx.translation import Translation
from asterism.graph.stages import Array


def read_onnx(
    path: str | Path, shape: Shapes = None, fixed: Fixed = None
) -> tuple[Graph, dict[str, Array]]:
    """The graph in an ONNX file, and its weights in the order in which the graph counts them.

    Its inputs and results have the batch first, of any size.

    path   the file
    shape  of one example, without the batch, where the file leaves sizes open; by the inputs'
           names, if there are several
    fixed  numbers in the place of inputs, by their names
    """
    model = read_model(path)
    try:
        return Translation(model, find_inputs(model.graph, shape, fixed)).network()
    except InputError as error:
        raise type(error)(f"{path}: {error}") from error
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # Names that are no text, references to nowhere: what protobuf does not look at.
        raise FormatError(f"{path} is damaged ({one_line(error)})") from error
