"""Training a network whose weights take few values: quantisation that lives in the optimizer.

The model holds quantised weights at all times, and so it is what is evaluated and saved. Behind
each of them a latent one goes on learning by the gradient that the quantised one got (straight
through), and after each step the model shows the codebook's nearest entries. Zeros stay zero.

    optimizer = Codebooks(torch.optim.SGD(model.parameters(), lr=0.01), model, bits=3)
    train(model, optimizer)                     # your own loop
    save(model, "net.asterism", bits=3)

Against `share_values_`, which moves the entries of a fixed assignment, weights may change their
entry here: what makes the difference at two or three bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from asterism.errors import InputError
from asterism.file.quantising import quantise
from asterism.scaling.stepping.interrupts import uninterrupted
from asterism.scaling.stepping.optimizer_wrapper import OptimizerWrapper, hooked


@dataclass
class _Quantised:
    """One parameter: its non-zeros by their place, what they would be, what they may be."""

    param: nn.Parameter
    bits: int
    live: Tensor
    latent: Tensor
    book: Tensor

    def show_latent(self) -> None:
        self.param.view(-1)[self.live] = self.latent

    def show_quantised(self) -> None:
        between = (self.book[1:] + self.book[:-1]) / 2
        self.param.zero_()  # the inner optimizer has moved the zeros too
        self.param.view(-1)[self.live] = self.book[torch.bucketize(self.latent, between)]

    def renew_book(self) -> None:
        """By Lloyd's algorithm, rounded as the file rounds."""
        found = quantise(self.latent.double().cpu().numpy(), self.bits)
        self.book = torch.unique(torch.from_numpy(found).to(self.latent))


class Codebooks(OptimizerWrapper):
    """Wraps the optimizer of `model`, each of whose parameters gets 2^bits values beside zero.

    bits         for all parameters, or by name for those that are to be quantised
    renew_every  steps after which the codebooks follow the latent weights

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
        bits: int | Mapping[str, int],
        *,
        renew_every: int = 100,
    ) -> None:
        super().__init__(optimizer)
        if renew_every < 1:
            raise InputError(f"renew_every must be at least 1, got {renew_every}")
        named = dict(model.named_parameters())
        wanted = dict.fromkeys(named, bits) if isinstance(bits, int) else dict(bits)
        unknown = wanted.keys() - named.keys()
        if unknown:
            raise InputError(f"the model has no parameters {', '.join(sorted(unknown))}")
        self.renew_every, self.steps = renew_every, 0
        self._quantised = [_quantise(named[name], width) for name, width in wanted.items()]
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
                each.renew_book()
            each.show_quantised()

    def state_dict(self) -> dict[str, Any]:
        """The inner optimizer's, with the latent weights and the codebooks."""
        held = [{"latent": each.latent, "book": each.book} for each in self._quantised]
        return {**self.optimizer.state_dict(), "codebooks": held, "steps": self.steps}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        inner = dict(state_dict)
        held, self.steps = inner.pop("codebooks"), inner.pop("steps")
        self.optimizer.load_state_dict(inner)
        for each, saved in zip(self._quantised, held, strict=True):
            each.latent, each.book = saved["latent"].clone(), saved["book"].clone()
            each.show_quantised()


def _quantise(param: nn.Parameter, bits: int) -> _Quantised:
    """Parameters are changed through a flat view, so they must be contiguous."""
    if not param.is_contiguous():
        param.data = param.data.contiguous()
    live = param.detach().view(-1).nonzero().squeeze(1)
    latent = param.detach().view(-1)[live]
    return _Quantised(param, bits, live, latent, latent)
