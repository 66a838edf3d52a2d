"""From a PyTorch model to a graph, by `torch.export`.

translation      torch's operations as ours, node by node
fixed_values     masks and tables, which depend on no input
plain_attention  attention layers without torch's fast path
simplify         graphs without what does nothing
"""

from asterism.graph.capture.translation import RULES, capture

__all__ = ["RULES", "capture"]
