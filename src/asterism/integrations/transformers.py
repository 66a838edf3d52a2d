"""A Hugging Face Trainer: `SparseTrainer(model, args, ..., routine=routine)`."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.optim import Optimizer
from transformers import Trainer

from asterism.scaling.routine import Routine


class SparseTrainer(Trainer):
    """A Trainer whose optimizer is wrapped; the state rides in its own checkpoints."""

    optimizer: Any

    def __init__(self, *arguments: Any, routine: Routine, **options: Any) -> None:
        self.routine = routine
        super().__init__(*arguments, **options)

    def create_optimizer(self, model: nn.Module | None = None) -> Optimizer:
        if self.optimizer is None:
            optimizer = super().create_optimizer(model)
            wrapped_model: Any = self.model if model is None else model
            self.optimizer = self.routine.wrap(optimizer, wrapped_model)
        wrapped: Optimizer = self.optimizer
        return wrapped

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> Any:
        self.routine.check_reached(num_training_steps)
        return super().create_scheduler(num_training_steps, optimizer)
