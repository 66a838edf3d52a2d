"""All operations that a graph may have: one class each, in the file of its family.

operation    what an operation is, and what families share
convolution  conv
linear       linear
pooling      max and average, sliding and adaptive
norms        batch norm, layer norm, group norm
reductions   mean, softmax
activations  functions of each number by itself
joining      sums, products and their like of two values; concatenation
shaping      flatten, reshape, permute, slices
constants    weights as values
sequences    embedding, attention, masks, lstm, gru
images       resizing, transposed convolutions and those of three dimensions

`python -m asterism.graph.operations` prints the page about them in the documentation.
"""

from __future__ import annotations

import asterism.graph.operations.activations as activations
import asterism.graph.operations.constants as constants
import asterism.graph.operations.convolution as convolution
import asterism.graph.operations.images.resizing as resizing
import asterism.graph.operations.images.taps as taps
import asterism.graph.operations.joining as joining
import asterism.graph.operations.linear as linear
import asterism.graph.operations.norms as norms
import asterism.graph.operations.pooling as pooling
import asterism.graph.operations.reductions as reductions
import asterism.graph.operations.sequences.attention as attention
import asterism.graph.operations.sequences.embedding as embedding
import asterism.graph.operations.sequences.masks as masks
import asterism.graph.operations.sequences.recurrent as recurrent
import asterism.graph.operations.sequences.tables as tables
import asterism.graph.operations.shaping as shaping
from asterism.graph.operations.operation import Operation

_FAMILIES = (
    *(convolution, linear, recurrent, pooling, norms, reductions, activations),
    *(joining, shaping, constants, resizing, taps, embedding, attention, masks, tables),
)
OPERATIONS: dict[str, Operation] = {
    operation.name: operation for family in _FAMILIES for operation in family.OPERATIONS
}
