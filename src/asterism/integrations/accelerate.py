"""Accelerate: `model, optimizer, loader = prepare(accelerator, routine, model, optimizer, loader)`.

The state rides in `accelerator.save_state`.
"""

from __future__ import annotations

from typing import Any

from accelerate import Accelerator
from torch import nn
from torch.optim import Optimizer

from asterism.scaling.routine import Routine


def prepare(
    accelerator: Accelerator,
    routine: Routine,
    model: nn.Module,
    optimizer: Optimizer,
    *others: Any,
) -> tuple[Any, ...]:
    """As `accelerator.prepare`, with the optimizer wrapped once the model has its final form.

    accelerator  prepares all that it is given
    routine      when to re-weight and cut
    model        the network
    optimizer    its optimizer, which comes back wrapped
    others       loaders and schedulers, handed through
    """
    model, prepared, *rest = accelerator.prepare(model, optimizer, *others)
    scaling = routine.wrap(prepared.optimizer, model)
    # In place: the accelerator knows this object, and saves and loads its optimizer.
    type(prepared).__init__(prepared, scaling, device_placement=False, scaler=prepared.scaler)
    return (model, prepared, *rest)
