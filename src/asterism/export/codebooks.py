"""Training with few values, straight-through: quantisation that lives in the optimizer.

The model holds quantised weights at all times, and they are what is evaluated and saved. Behind
each of them a latent one keeps learning by the gradient that the quantised one got (straight
through), and after each step the model shows the codebook's nearest entries. Zeros stay zero.

    optimizer = Codebooks(torch.optim.SGD(model.parameters(), lr=0.01), model, bits=3)
    train(model, optimizer)                     # your own loop
    save(model, "net.asterism", bits=3)

Against `share_values_`, which moves the entries of a fixed assignment, weights may change their
entry here: what makes the difference at two or three bits.

With a `price`, bits are weighed against accuracy (rate–distortion): a weight takes the entry, or
zero, for which

    (weight − entry)² / mean square of the layer's weights + price · bits of the entry

is least. A common entry takes few bits and a zero none, so rare values and weights that matter
little give way. What became zero may return, as its latent weight learns on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from asterism.errors import InputError
from asterism.export.few_values import BitWidths, parameters_by_width, round_to_codebook
from asterism.scaling.stepping.interrupts import uninterrupted
from asterism.scaling.stepping.optimizer_wrapper import OptimizerWrapper, hooked

ROUNDS = 3
"""In which the lengths of codes settle: they depend on who takes which entry, and that on them."""


@dataclass
class _Quantised:
    """One parameter: its non-zeros by their place, what they would be, what they may be.

    lengths  of each entry, in bits, position included; that of zero first. None: there is no price
    """

    param: nn.Parameter
    bits: int
    live: Tensor
    latent: Tensor
    book: Tensor
    lengths: Tensor | None = None

    def show_latent(self) -> None:
        self.param.view(-1)[self.live] = self.latent

    def show_quantised(self, price: float) -> None:
        self.param.zero_()  # the inner optimizer has moved the zeros too
        self.param.view(-1)[self.live] = self._entries[self._choose(price)]

    def renew_book(self, price: float) -> None:
        """By Lloyd's algorithm, rounded as the file rounds; then the lengths of its entries."""
        self.book = torch.unique(round_to_codebook(self.latent, self.bits))
        self.lengths = None
        if not price or self.param.dim() < 2:  # biases are never pruned
            return
        counts = torch.full_like(self.book, len(self.live) / len(self.book))
        for _ in range(ROUNDS):
            self.lengths = torch.cat([counts.new_zeros(1), self._code_lengths(counts)])
            counts = torch.bincount(self._choose(price), minlength=len(self.lengths))[1:]

    @property
    def _entries(self) -> Tensor:
        if self.lengths is None:
            return self.book
        return torch.cat([self.book.new_zeros(1), self.book])

    def _code_lengths(self, counts: Tensor) -> Tensor:
        """Of a non-zero: its value's, by how often it occurs, and of its position about
        log₂(zeros / non-zeros).
        """
        often = (counts + 0.5) / (counts + 0.5).sum()  # an entry that nobody takes can be taken
        alive = max(1.0, float(counts.sum()))
        position = math.log2(max(1.0, (self.param.numel() - alive) / alive))
        return position - often.log2()

    def _choose(self, price: float) -> Tensor:
        """The place of the best entry for each latent weight."""
        if self.lengths is None:
            return torch.bucketize(self.latent, (self.book[1:] + self.book[:-1]) / 2)
        scale = self.latent.square().mean()
        order = self._entries.argsort()
        taken, between = regions(self._entries[order], scale * price * self.lengths[order])
        return order[taken[torch.bucketize(self.latent, between)]]


def regions(entries: Tensor, costs: Tensor) -> tuple[Tensor, Tensor]:
    """Where (x − entry)² + cost is least: the entries that are best somewhere, and between which x.

    entries  ascending
    costs    of each

    >>> regions(torch.tensor([0.0, 1.0, 2.0]), torch.tensor([0.0, 5.0, 0.0]))
    (tensor([0, 2]), tensor([1.]))
    """
    # x = ((b² − a²) + cost of b − cost of a) / 2 (b − a) is as near to a as to b, costs included.
    height = entries.square() + costs
    apart = entries[None, :] - entries[:, None]
    equal = (height[None, :] - height[:, None]) / (2 * apart)
    after = apart > 0
    low = equal.masked_fill(~after.T, -math.inf).amax(1)  # from those before it
    high = equal.masked_fill(~after, math.inf).amin(1)
    taken = (low < high).nonzero().squeeze(1)
    return taken, low[taken][1:]


class Codebooks(OptimizerWrapper):
    """Wraps the optimizer of `model`, each of whose parameters gets 2^bits values beside zero.

    optimizer    whatever trains the latent weights
    model        whose parameters it has
    bits         for all parameters, or by name for those that are to be quantised
    renew_every  steps after which the codebooks follow the latent weights
    price        of a bit in the file, as above; 0 keeps every weight. It may be changed meanwhile:
                 best is to raise it slowly

    >>> model = nn.Linear(8, 4, bias=False)
    >>> optimizer = Codebooks(torch.optim.SGD(model.parameters(), lr=0.1), model, bits=1)
    >>> model(torch.ones(3, 8)).square().sum().backward()
    >>> optimizer.step()
    >>> len(model.weight.unique())
    2
    """

    def __init__(
        self,
        optimizer: Optimizer,
        model: nn.Module,
        bits: BitWidths,
        *,
        renew_every: int = 100,
        price: float = 0.0,
    ) -> None:
        super().__init__(optimizer)
        if renew_every < 1:
            raise InputError(f"renew_every must be at least 1, got {renew_every}")
        if not 0 <= price < math.inf:
            raise InputError(f"price must be finite and at least 0, got {price}")
        self.renew_every, self.price, self.steps = renew_every, price, 0
        wanted = parameters_by_width(model, bits)
        self._quantised = [_quantise(param, width) for param, width in wanted.values()]
        self._show()

    @hooked
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """The inner optimizer's step on the latent weights."""
        if closure is not None:
            raise InputError("Codebooks takes no closure: call backward, then step()")
        with uninterrupted():
            for each in self._quantised:
                each.show_latent()
            try:
                self.optimizer.step()
                for each in self._quantised:
                    each.latent = each.param.detach().view(-1)[each.live]
                self.steps += 1
            finally:
                self._show()

    @torch.no_grad()
    def _show(self) -> None:
        for each in self._quantised:
            if self.steps % self.renew_every == 0:
                each.renew_book(self.price)
            each.show_quantised(self.price)

    def state_dict(self) -> dict[str, Any]:
        """The inner optimizer's, with the latent weights and the codebooks."""
        held = [
            {"latent": each.latent, "book": each.book, "lengths": each.lengths}
            for each in self._quantised
        ]
        own = {"codebooks": held, "steps": self.steps, "price": self.price}
        return {**self.optimizer.state_dict(), **own}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        inner = dict(state_dict)
        held, self.steps, self.price = (inner.pop(key) for key in ("codebooks", "steps", "price"))
        self.optimizer.load_state_dict(inner)
        for each, saved in zip(self._quantised, held, strict=True):
            each.latent, each.book = saved["latent"].clone(), saved["book"].clone()
            each.lengths = saved["lengths"]
            each.show_quantised(self.price)


def _quantise(param: nn.Parameter, bits: int) -> _Quantised:
    """Parameters are changed through a flat view, so they must be contiguous."""
    if not param.is_contiguous():
        param.data = param.data.contiguous()
    live = param.detach().view(-1).nonzero().squeeze(1)
    latent = param.detach().view(-1)[live]
    return _Quantised(param, bits, live, latent, latent)
