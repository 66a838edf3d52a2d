"""The choice of bits per tensor: the fewest within a tolerance on validation data.

Owns the choice: one width for all tensors first, then one by one, the largest first, each as narrow
as it can be; then, where a `fit` is given, narrower still with the codebooks retrained and the mask
fixed. What it judges are the weights as the file will hold them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import Optimizer

from asterism.errors import InputError
from asterism.export.checkpoints import FLOAT_DTYPES
from asterism.export.few_values import round_to_codebook
from asterism.export.value_sharing import assign, share_values_
from asterism.file.quantising import MAX_BITS
from asterism.search.limits import Goal
from asterism.weights.copies import copied

Evaluate = Callable[[nn.Module], float]
Fit = Callable[[nn.Module, Optimizer, int], None]
Widths = dict[str, int]


@dataclass(frozen=True)
class Choice:
    """What was chosen.

    bits    of each tensor by name; one without bits is stored as it is
    model   the network that they make
    before  the metric without them
    after   the metric with them
    """

    bits: Widths
    model: nn.Module
    before: float
    after: float


def choose_bits(
    model: nn.Module,
    evaluate: Evaluate,
    goal: Goal,
    *,
    fit: Fit | None = None,
    epochs: int = 0,
    lr: float = 1e-3,
) -> Choice:
    """The fewest bits per tensor with which the metric stays within the goal.

    model     left as it is
    evaluate  evaluate(model) gives the metric on validation data
    goal      the tolerance
    fit       fit(model, optimizer, epochs) retrains the codebooks, if given
    epochs    of each retraining
    lr        learning rate of the retraining

    With `fit` and `epochs`, codebooks narrower by a bit are tried again as long as these epochs
    of training bring the metric back.
    """
    before = evaluate(model)
    if math.isnan(before):
        raise InputError("the model's metric is not a number before anything is quantised")
    judge = _Judge(model, evaluate, goal, before)
    best = judge.one_by_one(judge.uniform())
    return best if fit is None or not epochs else judge.retrained(best, fit, epochs, lr)


class _Judge:
    """Tries widths on copies of a model."""

    def __init__(self, model: nn.Module, evaluate: Evaluate, goal: Goal, before: float) -> None:
        self._model, self._evaluate, self._goal = model, evaluate, goal
        self._lossless = Choice({}, model, before, before)
        sizes = {
            name: int(tensor.count_nonzero())
            for name, tensor in model.state_dict().items()
            if tensor.dtype in FLOAT_DTYPES
        }
        self._names = sorted(sizes, key=lambda name: -sizes[name])

    def uniform(self) -> Choice:
        """One width for all, down to the last that holds."""
        best = self._lossless
        for width in range(MAX_BITS, 0, -1):
            bits = dict.fromkeys(self._names, width)
            found = self._judged(quantised(self._model, bits), bits)
            if found is None:
                break
            best = found
        return best

    def one_by_one(self, best: Choice) -> Choice:
        """Each tensor as narrow as the others' widths allow."""
        return self._narrow(best, lambda _, bits: quantised(self._model, bits))

    def retrained(self, best: Choice, fit: Fit, epochs: int, lr: float) -> Choice:
        """The same again, with the entries trained to make up for each bit."""

        def train(last: Choice, bits: Widths) -> nn.Module:
            model = quantised(last.model, bits)
            params = dict(model.named_parameters())
            shared = {name: assign(params[name]) for name in bits if name in params}
            with share_values_(model, shared):
                fit(model, torch.optim.Adam(model.parameters(), lr=lr), epochs)
            return quantised(model, bits)

        return self._narrow(best, train)

    def _narrow(self, best: Choice, make: Callable[[Choice, Widths], nn.Module]) -> Choice:
        for name in self._names:
            while best.bits.get(name, 0) > 1:
                bits = {**best.bits, name: best.bits[name] - 1}
                found = self._judged(make(best, bits), bits)
                if found is None:
                    break
                best = found
        return best

    def _judged(self, model: nn.Module, bits: Widths) -> Choice | None:
        before = self._lossless.before
        metric = self._evaluate(model)
        return Choice(bits, model, before, metric) if self._goal.holds(before, metric) else None


def quantised(model: nn.Module, bits: Mapping[str, int]) -> nn.Module:
    """A copy with the values that a file of these bits would hold."""
    twin = copied(model)
    with torch.no_grad():
        for name, tensor in twin.state_dict().items():
            if name in bits:
                try:
                    tensor.copy_(round_to_codebook(tensor, bits[name]))
                except InputError as error:
                    raise InputError(f"{name}: {error}") from error
    return twin
