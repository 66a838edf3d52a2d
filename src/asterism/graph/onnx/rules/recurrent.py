"""LSTM and GRU: their gates in torch's order, and their results one by one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from asterism.graph.onnx.calls import OnnxCall, Result
from asterism.graph.onnx.values import BATCH, Sizes, Value
from asterism.graph.operations.operation import UnsupportedError

GATES = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2)}  # ONNX's places, in our order
STATES = {"LSTM": 2, "GRU": 1}
ACTIVATIONS = {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"]}
BOTH = "bidirectional"


def _recurrent(call: OnnxCall) -> Result:
    _check(call)
    value, batch_first = call.value(), bool(call.attr("layout", 0))
    if len(value.shape) != 3 or value.shape[0 if batch_first else 1] != BATCH:
        raise UnsupportedError("along the batch")
    steps, units = value.shape[1 if batch_first else 0], call.array(2).shape[2]
    both = 2 if call.attr("direction", "forward") == BOTH else 1
    _check_lengths(call, steps)
    cells = call.op == "LSTM" and call.wants(2)
    numbers = (value.number, *_states(call, both, units))
    settings = {"cells": 1} if cells else ()
    number = call.add(call.op.lower(), numbers, settings, *_weights(call, both))
    return _Results(call, number, steps, both, units, batch_first).all(cells)


def _check(call: OnnxCall) -> None:
    """That it is the usual one."""
    given = [name.decode().lower() for name in call.attr("activations") or []]
    wanted = ACTIVATIONS[call.op]
    if given not in ([], wanted, wanted * 2):
        raise UnsupportedError("with other activations")
    if call.attr("direction", "forward") == "reverse":
        raise UnsupportedError("backwards alone")
    if call.attr("clip") or call.attr("input_forget", 0) or call.has(7):
        raise UnsupportedError("with clip or peepholes")
    if call.op == "GRU" and not call.attr("linear_before_reset", 0):
        raise UnsupportedError("with linear_before_reset = 0")


def _check_lengths(call: OnnxCall, steps: int) -> None:
    """That all sequences of a batch are as long as the input."""
    if not call.has(4):
        return
    lengths = call.operand(4)
    known = call.layers.constant(lengths.number) if isinstance(lengths, Value) else lengths
    if known is None or not (known == steps).all():
        raise UnsupportedError("with sequences of several lengths")


def _weights(call: OnnxCall, both: int) -> list[int | None]:
    """Of each direction: of inputs, of the state, and their biases."""
    found: list[int | None] = []
    for place in range(both):
        for given in (1, 2):
            found.append(call.named(given, _ordered(call, call.array(given)[place])))
        if call.has(3):
            halves = np.split(call.array(3)[place], 2)
            found += [call.named(3, _ordered(call, half)) for half in halves]
        else:
            found += [None, None]
    return found


def _ordered(call: OnnxCall, weight: np.ndarray) -> np.ndarray:
    parts = np.split(weight, len(GATES[call.op]))
    return np.concatenate([parts[place] for place in GATES[call.op]])


def _states(call: OnnxCall, both: int, units: int) -> list[int]:
    """Where a layer begins, unless that is at zero."""
    given = [place for place in (5, 6)[: STATES[call.op]] if call.has(place)]
    numbers = [_state(call, place, (both, units)) for place in given]
    known = [call.layers.constant(number) for number in numbers]
    if all(numbers is not None and not numbers.any() for numbers in known):
        return []
    if len(numbers) != STATES[call.op]:
        raise UnsupportedError("with one state of two")
    return numbers


def _state(call: OnnxCall, place: int, sizes: Sizes) -> int:
    state, axis = call.operand(place), 0 if call.attr("layout", 0) else 1
    if not isinstance(state, Value):
        return call.spread(place, state.take(0, axis), (BATCH,)).number
    before = call.layers.maker(state.number)
    if before is not None and before.op == "expand":
        found = call.layers.constant(before.inputs[0])
        if found is not None and not found.any():  # zeros for each example
            return before.inputs[0]
    if call.layers.shapes[state.number] != sizes or state.shape[axis] != BATCH:
        raise UnsupportedError("with a state of another shape")
    return state.number


class _Results:
    """What a layer gives: the states after all steps, and the last ones."""

    def __init__(
        self, call: OnnxCall, number: int, steps: int, both: int, units: int, batch_first: bool
    ) -> None:
        self.call, self.number, self.steps = call, number, steps
        self.both, self.units, self.batch_first = both, units, batch_first

    def all(self, cells: bool) -> list[Value]:
        call, (both, units) = self.call, (self.both, self.units)
        rows = self._part(self.number, 1, 0, self.steps) if cells else self.number
        every = call.add("reshape", (rows,), (self.steps, both, units))
        shape = (self.steps, both, BATCH, units)
        found = [Value(every, (BATCH, self.steps, both, units) if self.batch_first else shape)]
        found.append(self._with_batch(self._last(rows)))
        if cells:
            row = self._part(self.number, 1, self.steps, 1)
            found.append(self._with_batch(call.add("reshape", (row,), (both, units))))
        return found

    def _last(self, rows: int) -> int:
        """Of the second direction the last step is the first."""
        ends = [self._part(rows, 1, start, 1) for start in (self.steps - 1, 0)[: self.both]]
        if self.both == 1:
            return ends[0]
        units = self.units
        halves = [self._part(end, 2, place * units, units) for place, end in enumerate(ends)]
        return self.call.add("cat", (halves[0], halves[1]), {"dim": 1})

    def _part(self, value: int, dim: int, start: int, size: int) -> int:
        if self.call.layers.shapes[value][dim - 1] == size:
            return value
        return self.call.add("slice", (value,), {"dim": dim, "start": start, "size": size})

    def _with_batch(self, number: int) -> Value:
        sizes = (self.both, self.units)
        shape = (BATCH, *sizes) if self.batch_first else (sizes[0], BATCH, sizes[1])
        return Value(number, shape)


RULES: dict[str, Callable[[OnnxCall], Result]] = {"LSTM": _recurrent, "GRU": _recurrent}
