"""From an ONNX file to a graph, by the package `onnx` alone: torch is not needed.

network      the file as a graph and its weights
reading      the file, its limits, and its tensors as arrays
inputs       what a network takes: the sizes that a file leaves open, and where its batch is
translation  ONNX's nodes as ours, one by one; branches that are known in advance
folding      what depends on no input, computed: shapes above all
values       values, and where they have their batch
layers       the layers so far, with their shapes and weights
calls        a node of ONNX's, as a rule sees it
rules        one rule for each of ONNX's operators
"""

from asterism.graph.onnx.network import read_onnx

__all__ = ["read_onnx"]
