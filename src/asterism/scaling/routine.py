"""When to re-weight and when to cut, counted in optimizer steps: one routine for all trainers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torch.optim import Optimizer

from asterism.errors import InputError
from asterism.scaling.affine_scaling import AffineScaling
from asterism.scaling.penalties import Penalty, ReweightedL1
from asterism.scaling.schedules import AllLayers


@dataclass(frozen=True)
class Routine:
    """Re-weights at regular steps, then cuts once, and from there on trains what is left.

    density         the share of the weights that stays
    cut_at          after how many steps
    reweight_every  steps from one re-weighting to the next, until then
    options         further arguments of AffineScaling

    It hangs on the optimizer's own step, so it counts neither micro-batches nor skipped steps,
    and continues where a checkpoint left off: the number of steps is part of the optimizer's state.
    """

    density: float
    cut_at: int
    reweight_every: int
    penalty: Penalty = field(default_factory=ReweightedL1)
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.cut_at < 1 or self.reweight_every < 1:
            raise InputError(f"cut_at and reweight_every count steps, from 1 on: got {self}")

    def wrap(self, optimizer: Optimizer, model: nn.Module) -> AffineScaling:
        """The optimizer, wrapped, with this routine in its step."""
        options = {"layers": AllLayers(), **self.options}
        scaling = AffineScaling(optimizer, model, self.penalty, **options)
        seen = scaling.steps

        def follow(*_: Any) -> None:
            nonlocal seen
            if scaling.steps != seen:  # a step may be a mere rehearsal
                seen = scaling.steps
                self.after(scaling)

        scaling.register_step_post_hook(follow)
        return scaling

    def after(self, scaling: AffineScaling) -> None:
        """What is due after this step."""
        if scaling.steps == self.cut_at:
            scaling.flatten()
            scaling.prune(density=self.density)
        elif scaling.steps < self.cut_at and scaling.steps % self.reweight_every == 0:
            scaling.reweight()
