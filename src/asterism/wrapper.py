"""An optimizer around another one, which everything else takes for an ordinary optimizer.

Parameter groups and state are the inner optimizer's own, by property, since loading replaces those
objects: learning-rate schedulers and GradScaler act on the real ones.
"""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer


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
