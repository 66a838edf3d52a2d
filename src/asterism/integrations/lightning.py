"""A Lightning callback: `Trainer(callbacks=[AffineScalingCallback(routine)])`."""

from __future__ import annotations

import lightning.pytorch as pl

from asterism.errors import InputError
from asterism.scaling.routine import Routine
from asterism.scaling.sparse_optimizer import SparseOptimizer


class AffineScalingCallback(pl.Callback):
    """Wraps the module's optimizer when fitting starts, before a checkpoint is restored to it.

    The state rides in Lightning's own checkpoints, as part of the optimizer's.
    """

    def __init__(self, routine: Routine) -> None:
        self.routine = routine
        self.scaling: SparseOptimizer | None = None

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if len(trainer.optimizers) != 1:
            raise InputError(f"expected one optimizer, found {len(trainer.optimizers)}")
        self.scaling = self.routine.wrap(trainer.optimizers[0], pl_module)
        trainer.strategy.optimizers = [self.scaling]
