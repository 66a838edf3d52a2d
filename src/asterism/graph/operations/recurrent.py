"""Layers that read a sequence step by step: LSTM and GRU.

A node is one layer, with one direction or both. Its inputs are the sequence, of shape (steps,
features), and, if the layer does not begin at zero, its state: of shape (directions, units), for an
LSTM one value for the hidden state and one for the cells.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from asterism.graph.operations.operation import (
    MAX_SIZE,
    Example,
    Operation,
    UnsupportedError,
    need,
    settings,
)
from asterism.graph.stages import Array, Call, FusedLayer, Given, NodeLike, Program, Shape

MAX_ROWS = 2**16  # of a recurrent matrix: the kernels hold their places in 16 bits


class Recurrent(Operation):
    """One layer; its weights are torch's of each direction: of inputs, of the state, two biases.

    gates   how many matrices of units × units a recurrent weight is
    states  how many values its state is
    """

    arity = -1
    weights = 8
    gates: int
    states: int

    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        need(len(inputs) in (1, 1 + self.states), f"{len(inputs)} inputs")
        need(len(inputs[0]) == 2 and inputs[0][0] > 0, "steps and features are needed")
        directions = directions_of(given)
        units = self._units(directions[0], inputs[0][1])
        need(all(self._units(each, inputs[0][1]) == units for each in directions), "its directions")
        size = inputs[0][0] * len(directions) * self.gates * units
        need(self.gates * units <= MAX_ROWS and size <= MAX_SIZE, "its size")
        state = (len(directions), units)
        need(all(each == state for each in inputs[1:]), f"states of shapes {list(inputs[1:])}")
        return (inputs[0][0] + self.extra_rows(node), len(directions) * units)

    def extra_rows(self, node: NodeLike) -> int:
        """Rows after those of the steps."""
        return 0

    def _units(self, weights: Given, features: int) -> int:
        """Of one direction whose weights fit together."""
        of_inputs, of_state, *biases = weights
        need(of_inputs is not None and of_state is not None, "a matrix is missing")
        assert of_inputs is not None
        assert of_state is not None
        need(of_inputs.ndim == 2 == of_state.ndim, "its weights are not matrices")
        rows, units = of_state.shape
        need(units > 0 and rows == self.gates * units, f"recurrent weight {of_state.shape}")
        need(of_inputs.shape == (rows, features), f"weight {of_inputs.shape}")
        need(all(b is None or b.shape == (rows,) for b in biases), "its bias has another size")
        return units

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        out = np.empty((len(inputs[0]), *shape), np.float32)
        directions = directions_of(given)
        units = shape[1] // len(directions)
        for place, weights in enumerate(directions):
            part = out[:, :, place * units : (place + 1) * units]
            state = [np.ascontiguousarray(value[:, place]) for value in inputs[1:]]
            zeros = [np.zeros((len(out), units), np.float32) for _ in range(self.states)]
            self._walk(inputs[0], weights, state or zeros, part, backward=place == 1)
        return out

    def _walk(
        self, x: Array, weights: Given, state: list[Array], out: Array, backward: bool
    ) -> None:
        """One direction, step by step."""
        of_inputs, of_state, *biases = weights
        assert of_inputs is not None
        assert of_state is not None
        first, second = (0 if bias is None else bias for bias in biases)
        given = x @ of_inputs.T + first
        steps = range(x.shape[1])
        for step in reversed(steps) if backward else steps:
            state = self.step(given[:, step], state[0] @ of_state.T + second, state)
            out[:, step] = state[0]
        if out.shape[1] > len(steps):
            out[:, len(steps)] = state[-1]

    @abstractmethod
    def step(self, given: Array, own: Array, state: list[Array]) -> list[Array]:
        """The next state, from what the inputs add to each gate, and what the state does."""

    def torch(
        self, torch: Any, node: NodeLike, given: Sequence[Any], shapes: Sequence[Shape]
    ) -> Any:
        directions, units = len(directions_of(given)), given[1].shape[1]
        function, count = getattr(torch, self.name), len(shapes)

        def run(x: Any, *rest: Any) -> Any:
            state = [value.transpose(0, 1) for value in rest[: count - 1]]
            state = state or [x.new_zeros(directions, x.shape[0], units)] * self.states
            flat = [weight for weight in rest[count - 1 :] if weight is not None]
            hx = state if self.states > 1 else state[0]
            biased = len(flat) == 4 * directions
            results = function(x, hx, flat, biased, 1, 0.0, False, directions == 2, True)
            return self.of_torch(torch, node, results)

        return run

    def of_torch(self, torch: Any, node: NodeLike, results: Any) -> Any:
        """The value of the node, of all that torch's function gives."""
        return results[0]

    def capture(self, call: Call) -> int:
        args, value = call.args, call.value(call.args["input"])
        both = 2 if args["bidirectional"] else 1
        weights = list(args["params"])
        each = 4 if args["has_biases"] else 2
        plain = len(weights) == each * both * args["num_layers"] and not args["train"]
        if not plain or not args["batch_first"] or not all(map(call.is_zeros, _states(args["hx"]))):
            raise UnsupportedError
        for layer in range(args["num_layers"]):
            own = weights[layer * each * both : (layer + 1) * each * both]
            padded = [
                w for at in range(0, len(own), each) for w in _with_biases(own[at : at + each])
            ]
            value = call.add_layer(self.name, (value,), padded)
        return value

    def emit(self, program: Program, layer: FusedLayer) -> None:
        program.recurrent(layer)


class Lstm(Recurrent):
    """With `cells`, the last cells are a row after those of the steps."""

    name, code, gates, states = "lstm", 80, 4, 2
    defaults = settings(cells=0)
    captures = ("aten.lstm.input",)
    kernels = ("LSTM", "FC_SPARSE_ROWS", "FC_SPARSE_ONE", "FC_DENSE", "COPY_CHUNKS")
    examples = (
        Example((7, 5), weights=((12, 5), (12, 3), (12,), (12,))),
        Example((40, 11), weights=((72, 11), (72, 18), None, None) * 2),
    )

    def extra_rows(self, node: NodeLike) -> int:
        need(node["cells"] in (0, 1), "its settings")
        return node["cells"]

    def step(self, given: Array, own: Array, state: list[Array]) -> list[Array]:
        enter, forget, new, leave = np.split(given + own, 4, axis=1)
        cells = _sigmoid(forget) * state[1] + _sigmoid(enter) * np.tanh(new)
        return [_sigmoid(leave) * np.tanh(cells), cells]

    def of_torch(self, torch: Any, node: NodeLike, results: Any) -> Any:
        y, _, cells = results
        if not node["cells"]:
            return y
        return torch.cat([y, cells.transpose(0, 1).flatten(1)[:, None]], 1)


class Gru(Recurrent):
    name, code, gates, states = "gru", 81, 3, 1
    captures = ("aten.gru.input",)
    kernels = ("GRU", "FC_SPARSE_ROWS", "FC_SPARSE_ONE", "FC_DENSE", "COPY_CHUNKS")
    examples = (
        Example((7, 5), weights=((9, 5), (9, 3), (9,), (9,))),
        Example((40, 11), weights=((54, 11), (54, 18), None, None) * 2),
    )

    def step(self, given: Array, own: Array, state: list[Array]) -> list[Array]:
        reset, update, new = np.split(given, 3, axis=1)
        own_reset, own_update, own_new = np.split(own, 3, axis=1)
        reset, update = _sigmoid(reset + own_reset), _sigmoid(update + own_update)
        new = np.tanh(new + reset * own_new)
        return [new + update * (state[0] - new)]


def directions_of(given: Sequence[Any]) -> list[Sequence[Any]]:
    """The four weights of each direction."""
    forward, backward = given[:4], given[4:]
    return [forward] if all(weight is None for weight in backward) else [forward, backward]


def _with_biases(weights: Sequence[Any]) -> list[Any]:
    return [*weights, *[None] * (4 - len(weights))]


def _states(hx: Any) -> Sequence[Any]:
    return hx if isinstance(hx, list | tuple) else [hx]


def _sigmoid(x: Array) -> Array:
    out: Array = 1 / (1 + np.exp(-x))
    return out


OPERATIONS = (Lstm(), Gru())
