"""One plain training loop over stages, with history, checkpoints and exact resumption.

Owns batches, evaluation, history and checkpoints. Knows no method by name: a method hands it a
list of stages, each with a learning rate, something to do at its beginning and at every step.

Batches are drawn from tensors in memory, in an order that depends only on the seed and the epoch,
so that a resumed run sees what an undisturbed one would have seen.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asterism.errors import DivergedError, InputError
from asterism.experiments.data import Dataset, Split
from asterism.experiments.data.augmentation import Augment
from asterism.experiments.results import EpochRecord, History, Measurement
from asterism.scaling.schedules import Schedule
from asterism.scaling.sparse_optimizer import SparseOptimizer
from asterism.storage.snapshots import read_snapshot, write_snapshot
from asterism.weights.metrics import (
    error_percent,
    evaluating,
    kurtosis,
    nonzeros,
    total_density_percent,
)
from asterism.weights.names import layer

Watch = Callable[[EpochRecord], None]
Forward = Callable[[Tensor], Tensor]
Snapshot = dict[str, Any]

CHECKPOINT = {"model", "optimizer", "rng", "stage", "epoch", "history"}


def _nothing(*_: Any) -> None:
    pass


def _never(_: History) -> bool:
    return False


@dataclass(frozen=True)
class Stage:
    """Some epochs of training under one learning-rate schedule.

    begin    called once before the first step, e.g. to re-weight or prune
    on_step  called before each step with the progress through the stage, 0 to 1
    share    of the images that an epoch takes, drawn anew for each epoch
    skip     asked once with the history so far: a converged run skips what is left
    whole    asked before each step: whether pruned weights need their gradients too

    The first two are given the setup's optimizer, of whatever class it is. A parameter group may
    have a "rate" of its own, by which the stage's learning rate is multiplied.
    """

    name: str
    epochs: int
    lr: Schedule
    begin: Callable[[Any], Any] = _nothing
    on_step: Callable[[Any, float], Any] = _nothing
    skip: Callable[[History], bool] = _never
    share: float = 1.0
    whole: Callable[[], bool] = lambda: False


@dataclass
class Progress:
    """Where a run stands: what a checkpoint holds beside the weights."""

    stage: int = 0
    epoch: int = 0
    history: History = field(default_factory=list)

    @property
    def epochs_done(self) -> int:
        return len(self.history)


def train(
    model: nn.Module,
    optimizer: SparseOptimizer,
    stages: Sequence[Stage],
    data: Dataset,
    *,
    seed: int = 0,
    batch_size: int = 128,
    augment: Augment | None = None,
    forward: Forward | None = None,
    checkpoint: Path | None = None,
    resume: bool = False,
    watch: Watch = _nothing,
) -> History:
    """Runs the stages in turn; one record of the history for each epoch.

    model       trained in place; on an error it holds the last good state
    optimizer   the wrapped optimizer of the model
    stages      what to do, in turn
    data        training images, and validation images for the history
    seed        decides the order of the images and their augmentation
    batch_size  images a step
    augment     changes the images of each batch
    forward     computes what the model would, with the same parameters, in some faster way
    checkpoint  where the state is saved after each epoch
    resume      continue from the checkpoint, to the same bits as a run that was never interrupted
                (at a fixed number of threads)
    watch       called with the record of each epoch
    """
    progress = Progress()
    if resume and checkpoint is not None and checkpoint.exists():
        progress = _restore(_load(checkpoint), model, optimizer)
    good = _snapshot(model, optimizer, progress)
    while progress.stage < len(stages):
        stage = stages[progress.stage]
        if progress.epoch == 0:
            if stage.skip(progress.history):
                progress.stage += 1
                continue
            stage.begin(optimizer)
        while progress.epoch < stage.epochs:
            started = time.perf_counter()
            images = math.ceil(stage.share * len(data.train.labels))
            drawn = batches(data.train, images, seed, progress.epochs_done, batch_size, augment)
            count = math.ceil(images / batch_size)
            model.train()
            ways = (forward or model, model)
            loss = _train_epoch(ways, optimizer, stage, progress.epoch, drawn, count)
            if not (math.isfinite(loss) and _is_finite(model)):
                _restore(good, model, optimizer)
                raise DivergedError(
                    f"training diverged in stage {stage.name!r}, epoch {progress.epoch + 1}:"
                    " the loss or a weight is not finite. The last good state is kept; lower the"
                    " learning rate"
                )
            progress.epoch += 1
            with evaluating(model):  # `forward` too computes as the model's mode tells
                measured = measure(forward or model, optimizer, data.validation)
            record: EpochRecord = {
                **measured,
                "stage": stage.name,
                "epoch": progress.epochs_done + 1,
                "loss": loss,
                "seconds": time.perf_counter() - started,
            }
            progress.history.append(record)
            good = _snapshot(model, optimizer, progress)
            if checkpoint is not None:
                write_snapshot(checkpoint, good)
            watch(record)
        progress.stage, progress.epoch = progress.stage + 1, 0
    return progress.history


def measure(model: Forward, optimizer: SparseOptimizer, validation: Split) -> Measurement:
    """What the history holds of a network: error, density, kurtosis, re-weightings so far."""
    weights = optimizer.weights()
    kept = nonzeros(weights)
    return {
        "t": optimizer.iteration,
        "validation_error_percent": error_percent(model, validation.images, validation.labels),
        "nonzeros": sum(kept.values()),
        "layers": {layer(name): count for name, count in kept.items()},
        "density_percent": total_density_percent(weights),
        "kurtosis": {layer(name): kurtosis(weight) for name, weight in weights.items()},
    }


def _train_epoch(
    ways: tuple[Forward, nn.Module],
    optimizer: SparseOptimizer,
    stage: Stage,
    epoch: int,
    batches: Iterator[Split],
    count: int,
) -> float:
    """One pass over the data; the mean loss, or NaN as soon as it diverges.

    Of the two ways through the network the second gives every weight its gradient.
    """
    total, images = torch.zeros(()), 0
    for number, batch in enumerate(batches):
        through = (epoch + number / count) / stage.epochs
        for group in optimizer.param_groups:
            group["lr"] = stage.lr(through) * group.get("rate", 1.0)
        stage.on_step(optimizer, through)
        optimizer.zero_grad()
        forward = ways[stage.whole()]
        loss = F.cross_entropy(forward(batch.images), batch.labels)
        if not loss.isfinite():
            return math.nan
        torch.autograd.backward(loss)
        optimizer.step()
        total += loss.detach() * len(batch.labels)
        images += len(batch.labels)
    return float(total) / images


def batches(
    split: Split, count: int, seed: int, epoch: int, size: int, augment: Augment | None
) -> Iterator[Split]:
    """`count` images in an order, and with changes, that depend on the seed and the epoch alone."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order = torch.randperm(len(split.labels), generator=generator)
    for chosen in torch.split(order[:count], size):
        images = split.images[chosen]
        if augment is not None:
            images = augment(images, generator)
        yield Split(images, split.labels[chosen])


def _is_finite(model: nn.Module) -> bool:
    """The last step of an epoch can ruin the weights after its loss was taken."""
    return all(bool(param.isfinite().all()) for param in model.parameters())


def _snapshot(model: nn.Module, optimizer: SparseOptimizer, progress: Progress) -> Snapshot:
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    return {
        **_clone(state),
        "rng": torch.get_rng_state(),
        "stage": progress.stage,
        "epoch": progress.epoch,
        "history": list(progress.history),
    }


def _restore(snapshot: Snapshot, model: nn.Module, optimizer: SparseOptimizer) -> Progress:
    model.load_state_dict(snapshot["model"])
    optimizer.load_state_dict(_clone(snapshot["optimizer"]))
    torch.set_rng_state(snapshot["rng"])
    return Progress(snapshot["stage"], snapshot["epoch"], list(snapshot["history"]))


def _clone(state: Any) -> Any:
    if isinstance(state, Tensor):
        return state.clone()
    if isinstance(state, dict):
        return {key: _clone(value) for key, value in state.items()}
    return [_clone(each) for each in state] if isinstance(state, list) else state


def _load(path: Path) -> Snapshot:
    snapshot = read_snapshot(path)
    if not snapshot.keys() >= CHECKPOINT:
        raise InputError(f"cannot read {path}, it is no checkpoint: delete it to start anew")
    return snapshot
