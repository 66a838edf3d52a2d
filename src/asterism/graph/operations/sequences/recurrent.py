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
        return int(units)

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
        args, steps = call.args, call.sizes[0]
        layers, both = args["num_layers"], 2 if args["bidirectional"] else 1
        each = (4 if args["has_biases"] else 2) * both
        if len(args["params"]) == (each + both) * layers:
            raise UnsupportedError("with proj_size")
        if not args["batch_first"] or args["train"]:
            raise UnsupportedError
        states = _states(args["hx"])
        zeros = all(map(call.is_zeros, states))
        given = [] if zeros else [call.state(state) for state in states]
        value, made = call.value(args["input"]), []
        for layer in range(layers):
            rows = [_rows(call, state, layer * both, both, layers * both) for state in given]
            own = args["params"][layer * each : (layer + 1) * each]
            value = call.add_layer(self.name, (value, *rows), _padded(own, both), self.told(call))
            value, *states_after = self.results(call, value, steps, both)
            made.append(states_after)
        for item in range(1, 1 + self.states):
            if call.wants(item):
                call.give(item, _together(call, [after[item - 1] for after in made]))
        return value

    def told(self, call: Call) -> dict[str, int]:
        """The settings of a layer that was called."""
        return {}

    def results(self, call: Call, value: int, steps: int, both: int) -> list[int]:
        """Of a layer's value: what it made of the steps, and each of its last states."""
        units = call.shape_of(call.args["params"][1])[1]
        return [value, last_state(call, value, steps, both, units) if call.wants(1) else value]

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

    def told(self, call: Call) -> dict[str, int]:
        return {"cells": int(call.wants(2))}

    def results(self, call: Call, value: int, steps: int, both: int) -> list[int]:
        if not call.wants(2):
            return [*super().results(call, value, steps, both), value]
        cells = part(call, value, 1, steps, 1)
        units = call.shape_of(call.args["params"][1])[1]
        cells = call.add("reshape", (cells,), (both, units)) if both > 1 else cells
        return [*super().results(call, part(call, value, 1, 0, steps), steps, both), cells]

    def step(self, given: Array, own: Array, state: list[Array]) -> list[Array]:
        enter, forget, new, leave = np.split(given + own, 4, axis=1)
        cells = _sigmoid(forget) * state[1] + _sigmoid(enter) * np.tanh(new)
        return [_sigmoid(leave) * np.tanh(cells), cells]

    def of_torch(self, torch: Any, node: NodeLike, results: Any) -> Any:
        if not node["cells"]:
            return results[0]
        return torch.cat([results[0], results[2].transpose(0, 1).flatten(1)[:, None]], 1)


class Gru(Recurrent):
    name, code, gates, states = "gru", 81, 3, 1
    captures = ("aten.gru.input",)
    kernels = ("GRU", "FC_SPARSE_ROWS", "FC_SPARSE_ONE", "FC_DENSE", "COPY_CHUNKS")
    examples = (
        Example((7, 5), weights=((9, 5), (9, 3), (9,), (9,))),
        Example((40, 11), weights=((54, 11), (54, 18), None, None) * 2),
    )

    def step(self, given: Array, own: Array, state: list[Array]) -> list[Array]:
        units = state[0].shape[1]
        both = _sigmoid(given[:, : 2 * units] + own[:, : 2 * units])
        reset, update = both[:, :units], both[:, units:]
        new = np.tanh(given[:, 2 * units :] + reset * own[:, 2 * units :])
        return [new + update * (state[0] - new)]


def directions_of(given: Sequence[Any]) -> list[Sequence[Any]]:
    """The four weights of each direction."""
    forward, backward = given[:4], given[4:]
    return [forward] if all(weight is None for weight in backward) else [forward, backward]


def part(call: Call, value: int, dim: int, start: int, size: int) -> int:
    """Some of a value's rows or columns."""
    return call.add("slice", (value,), {"dim": dim, "start": start, "size": size})


def last_state(call: Call, value: int, steps: int, both: int, units: int) -> int:
    """The last that each direction made: of the second that is the first step."""
    ends = [part(call, value, 1, start, 1) for start in (steps - 1, 0)[:both]]
    if both == 1:
        return ends[0]
    halves = [part(call, end, 2, place * units, units) for place, end in enumerate(ends)]
    return call.add("cat", tuple(halves), {"dim": 1})


def _rows(call: Call, state: int, first: int, count: int, whole: int) -> int:
    """A layer's own part of a state that all layers have together."""
    return state if count == whole else part(call, state, 1, first, count)


def _together(call: Call, states: list[int]) -> int:
    return states[0] if len(states) == 1 else call.add("cat", tuple(states), {"dim": 1})


def _padded(weights: Sequence[Any], both: int) -> list[Any]:
    """Four for each direction, None where there is no bias."""
    each = len(weights) // both
    parts = [weights[first : first + each] for first in range(0, len(weights), each)]
    return [weight for part in parts for weight in [*part, *[None] * (4 - each)]]


def _states(hx: Any) -> Sequence[Any]:
    return hx if isinstance(hx, list | tuple) else [hx]


def _sigmoid(x: Array) -> Array:
    out: Array = np.reciprocal(1 + np.exp(-x))
    return out


OPERATIONS = (Lstm(), Gru())
