"""What the wrapped optimizer must be, and what becomes of its state when q-space changes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from asterism.errors import InputError

# How state behaves when q → q·ratio: a gradient of q scales with omega, its square with omega².
POWERS = {
    "momentum_buffer": 1,
    "exp_avg": 1,
    "exp_avg_sq": 2,
    "max_exp_avg_sq": 2,
    "square_avg": 2,
    "sum": 2,
}

# They keep copies of the weights of their own, which no change of variables reaches.
UNSUPPORTED = {
    "AffineScaling": "it is wrapped already",
    "ZeroRedundancyOptimizer": "use FSDP2's fully_shard instead",
    "FP16Optimizer": "use FSDP2's fully_shard instead",
    "Lookahead": "wrap the optimizer inside it",
    "AdamWScheduleFree": "use an ordinary AdamW",
    "SGDScheduleFree": "use an ordinary SGD",
    "RAdamScheduleFree": "use an ordinary RAdam",
}


def check_supported(optimizer: Optimizer) -> None:
    """An error for optimizers that hold weights elsewhere than in the model."""
    if not isinstance(optimizer, Optimizer):
        raise InputError(f"expected a torch optimizer, found {type(optimizer).__name__}")
    for kind in type(optimizer).__mro__:
        if kind.__name__ in UNSUPPORTED:
            advice = UNSUPPORTED[kind.__name__]
            raise InputError(f"AffineScaling cannot wrap {type(optimizer).__name__}: {advice}")


def check_parameter(name: str, param: nn.Parameter) -> None:
    """An error for parameters whose precision or layout would lose q silently."""
    if type(param).__name__ == "FlatParameter":
        raise InputError(f"{name} is flattened by FSDP1: use FSDP2's fully_shard instead")
    if param.dtype not in (torch.float32, torch.float64):
        raise InputError(
            f"{name} is {param.dtype}, too coarse for q = theta / omega: keep the parameters in"
            " float32 and run the forward pass under torch.autocast"
        )


def follow(optimizer: Optimizer, param: nn.Parameter, before: Tensor | None, now: Tensor) -> None:
    """After a re-weighting: forget the state of the old q-space, or with `before` rescale it."""
    state = optimizer.state.get(param, {})
    if before is None or _is_joint(optimizer):
        reset(optimizer, param)
        return
    ratio = torch.where(before == 0, 0.0, now / before)
    for key, value in state.items():
        if not isinstance(value, Tensor) or value.shape != param.shape:
            continue
        if key not in POWERS:
            raise InputError(
                f"{type(optimizer).__name__} keeps {key!r}, which cannot be rescaled:"
                " use state='reset'"
            )
        value.mul_(ratio ** POWERS[key])


def reset(optimizer: Optimizer, param: nn.Parameter) -> None:
    """The state of one parameter, as if it had never taken a step."""
    if _is_joint(optimizer):
        optimizer.state.clear()
    optimizer.state.pop(param, None)


def forget_pruned(optimizer: Optimizer, param: nn.Parameter, kept: Tensor) -> None:
    """No momentum is left where a weight has gone."""
    if _is_joint(optimizer):
        optimizer.state.clear()
    for value in optimizer.state.get(param, {}).values():
        if isinstance(value, Tensor) and value.shape == param.shape:
            value.mul_(kept)


def _is_joint(optimizer: Optimizer) -> bool:
    """L-BFGS keeps one history for all parameters together."""
    return isinstance(optimizer, torch.optim.LBFGS)
