"""The network without its dead units, as a graph again."""

from __future__ import annotations

from collections.abc import Sequence

from asterism.export.checkpoints import to_arrays
from asterism.graph.capture import capture
from asterism.graph.compaction import compact
from asterism.graph.constants import settle
from asterism.graph.network import Graph
from asterism.graph.rebuild import examples, rebuild
from asterism.graph.stages import Array


def without_dead_units(graph: Graph, weights: Sequence[Array]) -> tuple[Graph, list[Array]]:
    """A smaller network with the same answers, up to rounding.

    A unit that nothing reads is gone, and so is one that has the same value for all inputs.
    """
    smaller = compact(rebuild(graph, weights)).model.eval()
    found = capture(smaller, examples(graph))
    arrays, _ = to_arrays(smaller.state_dict())
    settled, living = settle(found, [array.astype("f4") for array in arrays.values()])
    return settled, list(living)
