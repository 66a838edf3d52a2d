"""From a PyTorch model to a graph, by `torch.export`.

tracing           the graph of a model: examples, free sizes, torch's errors
translation       torch's operations as ours, node by node
draft             the graph so far
calls             a call of torch's as an operation sees it
exported          what torch knows of a node of its program
fixed_values      masks and tables, which depend on no input
plain_attention   attention layers without torch's fast path
recurrent_shapes  LSTM and GRU without a walk through their steps
"""

from asterism.graph.capture.tracing import capture
from asterism.graph.capture.translation import RULES

__all__ = ["RULES", "capture"]
