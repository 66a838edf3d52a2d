"""What the wrapped optimizer must be, and what becomes of its state when q-space changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from asterism.errors import InputError
from asterism.scaling.stepping.zeroing import keep_
from asterism.weights.connections import Weight, locate
from asterism.weights.sharding import whole
from asterism.weights.targets import choose

# How state behaves when omega → omega·ratio: a gradient of q scales with it, its square with the
# square.
POWERS = {
    "momentum_buffer": 1,
    "grad_avg": 1,
    "exp_avg": 1,
    "exp_avg_sq": 2,
    "max_exp_avg_sq": 2,
    "square_avg": 2,
    "sum": 2,
}

# Its momentum is of gradients over their own size, which no scale reaches.
POWERS_OF_RMSPROP = POWERS | {"momentum_buffer": 0}

# One weight's step depends on no other weight: what happens where a weight is pruned stays there.
ELEMENTWISE = (
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.Adamax,
    torch.optim.Adagrad,
    torch.optim.Adadelta,
    torch.optim.RMSprop,
    torch.optim.Rprop,
    torch.optim.ASGD,
)

# They keep copies of the weights of their own, which no change of variables reaches.
UNSUPPORTED = {
    "SparseOptimizer": "it is wrapped already",
    "ZeroRedundancyOptimizer": "use FSDP2's fully_shard instead",
    "FP16Optimizer": "use FSDP2's fully_shard instead",
    "Lookahead": "wrap the optimizer inside it, without Lookahead",
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
            raise InputError(f"asterism cannot wrap {type(optimizer).__name__}: {advice}")


def check_model(model: nn.Module) -> None:
    """An error for models whose parameters are pieces of something else."""
    if any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()):
        raise InputError("FSDP1 flattens the parameters: use FSDP2's fully_shard instead")


def check_parameter(name: str, param: nn.Parameter) -> None:
    """An error for parameters that cannot be scaled in place, or whose precision would lose q."""
    if param.is_meta:
        raise InputError(
            f"{name} is on the meta device, where weights have no values: load the model onto a"
            " real device first"
        )
    if has_repeats(param):
        raise InputError(
            f"entries of {name} share their memory (it was expanded): give it memory of its own,"
            " param.data = param.data.clone()"
        )
    if param.is_complex():
        raise InputError(f"{name} is complex: only real weights can be made sparse")
    if param.dtype not in (torch.float32, torch.float64):
        raise InputError(
            f"{name} is {param.dtype}, too coarse for q = theta / omega: keep the parameters in"
            " float32 and run the forward pass under torch.autocast"
        )


def refuse_change(name: str, param: Tensor, omega: Tensor) -> NoReturn:
    """An error for a parameter that was converted or moved after it was wrapped."""
    if param.device != omega.device:
        raise InputError(
            f"{name} was on {omega.device} when it was wrapped, and is on {param.device} now: bring"
            " the model to its device first, wrap its optimizer then"
        )
    raise InputError(
        f"{name} was {omega.dtype} when it was wrapped, and is {param.dtype} now: convert the model"
        " first, wrap its optimizer then; for less precision run the forward pass under"
        " torch.autocast"
    )


def has_repeats(tensor: Tensor) -> bool:
    """Whether several entries are one number in memory, as `expand` leaves them."""
    strides = tensor.stride()
    return 0 in strides and any(
        stride == 0 and size > 1 for stride, size in zip(strides, tensor.shape, strict=True)
    )


def targets(
    optimizer: Optimizer,
    model: nn.Module,
    include: Sequence[str] | None,
    exclude: Sequence[str] | None,
) -> list[tuple[Weight, nn.Parameter]]:
    """The parameters to make sparse, each one held by the optimizer and fit to be scaled."""
    check_model(model)
    model = _unwrapped(model)
    held = {param for group in optimizer.param_groups for param in group["params"]}
    found = []
    for candidate in choose(model, include, exclude):
        if candidate.param not in held:
            raise InputError(
                f"the optimizer does not hold {candidate.name}: build it from this model's"
                f" parameters, or exclude=['{candidate.name}']"
            )
        check_parameter(candidate.name, candidate.param)
        found.append((locate(model, candidate.name), candidate.param))
    return found


def is_rehearsal(optimizer: Optimizer) -> bool:
    """Whether nothing can move: lr = 0 and every gradient 0.

    torch.distributed.checkpoint takes such a step to make room for the state that it loads.
    """
    groups = optimizer.param_groups
    for group in groups:
        rate = group.get("lr", 1.0)
        # A rate that lies on a device is no rehearsal's, and to look at it would be to wait.
        if (isinstance(rate, Tensor) and not rate.is_cpu) or rate != 0:
            return False
    gradients = [param.grad for group in groups for param in group["params"]]
    return not any(bool(whole(grad.any())) for grad in gradients if grad is not None)


def learning_rates(optimizer: Optimizer) -> list[tuple[float, list[nn.Parameter]]]:
    """The step size of each group, which the penalty's own steps share."""
    if any("lr" not in group for group in optimizer.param_groups):
        raise InputError(f"lam > 0 needs a learning rate, and {type(optimizer).__name__} has none")
    return [(float(group["lr"]), group["params"]) for group in optimizer.param_groups]


def unfuse(optimizer: Optimizer) -> list[dict[str, Any]]:
    """The groups in which some momenta start anew, taken off torch's fused SGD for this step.

    It wants all momenta of a group or none.
    """
    if not isinstance(optimizer, torch.optim.SGD):
        return []
    mixed = [group for group in optimizer.param_groups if group["fused"]]
    mixed = [group for group in mixed if _starts_in_part(optimizer, group)]
    for group in mixed:
        group["fused"] = False
    return mixed


def _starts_in_part(optimizer: Optimizer, group: dict[str, Any]) -> bool:
    states = [optimizer.state.get(param, {}) for param in group["params"]]
    return len({state.get("momentum_buffer") is None for state in states}) > 1


def is_separate(optimizer: Optimizer) -> bool:
    """Whether each parameter has a state of its own; L-BFGS has one history for all."""
    return not isinstance(optimizer, torch.optim.LBFGS)


def is_elementwise(optimizer: Optimizer) -> bool:
    """Whether pruned weights may keep their gradients; not sure of strangers and subclasses."""
    return type(optimizer) in ELEMENTWISE


def check_rescalable(optimizer: Optimizer, param: nn.Parameter) -> None:
    """An error where a parameter's state holds what `rescale` does not know."""
    for key in _tensors(optimizer, param):
        if key not in POWERS:
            raise InputError(
                f"{type(optimizer).__name__} keeps {key!r}, which cannot be rescaled:"
                " use on_reweight='reset'"
            )


def rescale(optimizer: Optimizer, param: nn.Parameter, before: Tensor, now: Tensor) -> None:
    """Takes the state of a parameter along into the new q-space."""
    powers = POWERS_OF_RMSPROP if isinstance(optimizer, torch.optim.RMSprop) else POWERS
    ratio = torch.where(before == 0, 0.0, now / before)
    for key, value in _tensors(optimizer, param).items():
        value.mul_(ratio ** powers[key])


def reset(optimizer: Optimizer, param: nn.Parameter) -> None:
    """The state of one parameter, as if it had never taken a step."""
    if not is_separate(optimizer):
        optimizer.state.clear()
    optimizer.state.pop(param, None)


def forget_pruned(optimizer: Optimizer, param: nn.Parameter, omega: Tensor) -> None:
    """No momentum is left where a weight has gone."""
    if not is_separate(optimizer):
        optimizer.state.clear()
    tensors = [value for value in _tensors(optimizer, param).values() if value.shape == param.shape]
    if tensors:
        keep_(tensors, omega != 0)


def _tensors(optimizer: Optimizer, param: nn.Parameter) -> dict[str, Tensor]:
    """A parameter's state without its counters."""
    state = optimizer.state.get(param, {}).items()
    return {key: value for key, value in state if isinstance(value, Tensor) and value.ndim > 0}


def _unwrapped(model: nn.Module) -> nn.Module:
    """The user's own model: names, and the noise they seed, do not depend on what wraps it."""
    if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        return _unwrapped(model.module)
    compiled_from = getattr(model, "_orig_mod", None)
    return model if compiled_from is None else _unwrapped(compiled_from)
