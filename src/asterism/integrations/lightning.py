"""A Lightning callback: `Trainer(callbacks=[AffineScalingCallback(routine)])`."""

from __future__ import annotations

import math
from typing import Any

import lightning.pytorch as pl

from asterism.errors import InputError
from asterism.scaling.routine import Routine
from asterism.scaling.sparse_optimizer import SparseOptimizer


class AffineScalingCallback(pl.Callback):
    """Wraps the module's optimizer when fitting starts, before a checkpoint is restored to it.

    The state rides in Lightning's own checkpoints, as part of the optimizer's. A second `fit` of
    the same module continues the routine: its zeros stay, its steps are counted on.
    """

    def __init__(self, routine: Routine) -> None:
        self.routine = routine
        self.scaling: SparseOptimizer | None = None

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if len(trainer.optimizers) != 1:
            raise InputError(f"expected one optimizer, found {len(trainer.optimizers)}")
        before = self.scaling
        self.scaling = self.routine.wrap(trainer.optimizers[0], pl_module)
        if before is not None and self.scaling.wraps_what(before):
            self.scaling.take_over(before)
        trainer.strategy.optimizers = [self.scaling]

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Once a checkpoint is restored: how many steps are to come, where that is known."""
        assert self.scaling is not None
        ahead = trainer.estimated_stepping_batches - trainer.global_step
        if math.isfinite(ahead):
            self.routine.check_reached(self.scaling.steps + int(ahead))

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Other callbacks may have put back weights from before the cut, such as averages."""
        if batch_idx == 0:
            self._apply_masks(pl_module)

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._apply_masks(pl_module)

    def _apply_masks(self, pl_module: pl.LightningModule) -> None:
        if self.scaling is not None:
            self.scaling.apply_masks(pl_module)
