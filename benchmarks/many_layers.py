"""What a step costs where there are many small layers: every algorithm around AdamW and SGD."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

from asterism import AffineScaling, AllLayers, ProximalReweighting, ReweightedL1
from benchmarks.timing import median_ratio

LAYERS, WIDTH, ROUNDS = 200, 32, 100
INNERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "AdamW": partial(torch.optim.AdamW, lr=1e-5),
    "SGD": partial(torch.optim.SGD, lr=1e-5, momentum=0.9),
}
FORMS: dict[str, Callable[..., Any]] = {
    "AffineScaling": partial(AffineScaling, layers=AllLayers()),
    "AffineScaling, lam > 0": partial(AffineScaling, layers=AllLayers(), lam=1e-4),
    "ProximalReweighting, lam > 0": partial(ProximalReweighting, lam=1e-4),
}


def report() -> Iterator[str]:
    yield f"{LAYERS} layers of {WIDTH} × {WIDTH}, one thread; the step alone over the inner one's:"
    for inner, make in INNERS.items():
        for form, wrap in FORMS.items():
            ratio = step_ratio(make, wrap)
            yield f"  {form:29} around {inner:5} {100 * (ratio - 1):+5.1f} %   (at most +10 %)"


def step_ratio(make: Callable[..., torch.optim.Optimizer], wrap: Callable[..., Any]) -> float:
    plain, model = make_model(), make_model()
    alone = make(plain.parameters())
    around = wrap(make(model.parameters()), model, ReweightedL1(0.3))
    around.reweight()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return median_ratio(partial(step, model, around), partial(step, plain, alone), ROUNDS)
    finally:
        torch.set_num_threads(threads)


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    for param in model.parameters():
        param.grad = torch.randn_like(param) * 1e-3
    return model


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """With gradients as new: one is taken to q-space once."""
    gradients = [param.grad for param in model.parameters() if param.grad is not None]
    torch._foreach_add_(gradients, 0.0)
    optimizer.step()
