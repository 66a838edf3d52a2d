"""An optimizer around another one, which everything else takes for an ordinary optimizer.

Parameter groups and state are the inner optimizer's own, by property, since loading replaces those
objects: learning-rate schedulers and GradScaler act on the real ones.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer
from torch.optim import optimizer as of_torch


def hooked(step: Callable[..., Any]) -> Callable[..., Any]:
    """A wrapper's `step`, in torch's hooks if there are any.

    torch would put them around each step, with a record for the profiler, which the inner step
    makes as well: that took longer than q-space itself.
    """
    in_hooks = Optimizer.profile_hook_step(step)

    @functools.wraps(step)
    def step_as_needed(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        any_hook = (
            self._optimizer_step_pre_hooks
            or self._optimizer_step_post_hooks
            or of_torch._global_optimizer_pre_hooks
            or of_torch._global_optimizer_post_hooks
        )
        return (in_hooks if any_hook else step)(self, *args, **kwargs)

    step_as_needed.hooked = True  # type: ignore[attr-defined]
    return step_as_needed


class OptimizerWrapper(Optimizer):
    """Delegates to `optimizer` all that a step does not change."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        # Optimizer's own __init__ would take over the parameter groups; its __setstate__ installs
        # the hooks alone.
        super().__setstate__({})

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        return self.optimizer.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        return self.optimizer.state

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        return self.optimizer.defaults

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Parameters added later are trained as they are."""
        self.optimizer.add_param_group(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none)

    def __getstate__(self) -> dict[str, Any]:
        # Learning-rate schedulers put a `step` of their own on the instance.
        return {name: value for name, value in self.__dict__.items() if name != "step"}
