"""A run directory: one method, one seed, everything needed to continue or repeat it.

config.json         what identifies the run; another config is refused
checkpoint*.pt      the state after the last epoch, while the run is unfinished
phase.*             the network after the last phase, while a run of several is unfinished
history.json        one record per epoch
model.safetensors   the network at the end, as a plain state_dict
result.json         the numbers of the table; its presence says that the run is finished
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import safetensors.torch
import torch
from torch import Tensor, nn

from asterism.errors import InputError
from asterism.experiments.data import Dataset, with_validation
from asterism.experiments.methods import Method
from asterism.experiments.networks import MODELS
from asterism.experiments.results import EpochRecord, PhaseRecord, RunResult
from asterism.experiments.training import Forward, Watch, train
from asterism.export.checkpoints import write_checkpoint
from asterism.graph.compaction import compact
from asterism.graph.live_forward import NotLiveError, live_forward, live_if_worth
from asterism.scaling.sparse_optimizer import SparseOptimizer
from asterism.storage.atomic_files import read_json, write_json
from asterism.storage.config import describe
from asterism.storage.provenance import provenance
from asterism.storage.provenance import versions as versions
from asterism.storage.run_folder import RESULT, own
from asterism.weights.metrics import density_percent, error_percent, nonzeros, total_density_percent
from asterism.weights.names import layer
from asterism.weights.targets import choose


@dataclass(frozen=True)
class Job:
    """One method on one seed."""

    key: str
    method: Method
    seed: int
    model: str
    batch_size: int = 128
    threads: int = field(default_factory=torch.get_num_threads)

    @property
    def name(self) -> str:
        return f"{self.key}-{self.seed}"

    def config(self, data: Dataset) -> dict[str, Any]:
        return {
            "method": self.key,
            "settings": describe(self.method),
            "seed": self.seed,
            "model": self.model,
            "data": data.name,
            "train_images": len(data.train.labels),
            "batch_size": self.batch_size,
            "threads": self.threads,
        }


class Monitor(Protocol):
    """A display of progress: called with each job, it gives what to call after each epoch."""

    def __call__(self, job: Job, epochs: int) -> AbstractContextManager[Watch]: ...


def make_model(job: Job) -> nn.Module:
    """The job's network as its seed initialises it; channels-last is the faster layout on a CPU."""
    torch.manual_seed(job.seed)
    model = MODELS[job.model]()
    for param in model.parameters():
        if param.ndim == 4:
            param.data = param.data.contiguous(memory_format=torch.channels_last)
    return model


def planned_epochs(job: Job) -> int:
    """The epochs of all phases, if none is skipped."""
    return sum(phase.setup(make_model(job)).epochs for phase in job.method.phases)


def planned_passes(job: Job) -> tuple[float, float]:
    """Passes over the images in the first phase, and in the others, which are on live weights."""
    first, *others = (phase.setup(make_model(job)).passes for phase in job.method.phases)
    return first, sum(others)


def run(
    job: Job,
    folder: Path,
    model: nn.Module,
    data: Dataset,
    *,
    start: Mapping[str, Tensor] | None = None,
    resume: bool = False,
    watch: Watch,
) -> RunResult:
    """Trains the model as the job says, and leaves everything in the folder.

    A finished run is read, not repeated. The test set is looked at once, at the very end.

    job     the method and the seed
    folder  the run's own; that of another config is refused
    model   trained in place
    data    training, validation and test images
    start   the weights to start from, None for those the model has
    resume  whether to continue an unfinished run that is in the folder
    watch   called with the record of each epoch
    """
    config = job.config(data)
    if (folder / RESULT).exists():  # how many threads it had does not matter any more
        config["threads"] = read_json(folder / RESULT)["config"]["threads"]
    with own(folder, config, resume) as owned:
        finished: RunResult | None = owned.result()
        if finished is not None:
            return finished
        owned.claim()
        torch.set_num_threads(job.threads)
        if start is not None:
            model.load_state_dict(start)
        history = train_phases(job, folder, model, data, resume=resume, watch=watch)
        write_checkpoint(folder / "model.safetensors", model.state_dict())
        weights = {target.name: target.param for target in choose(model)}
        result = summarise(job, model, weights, history, data)
        owned.finish(history, result)
        for path in (*folder.glob("checkpoint*.pt"), *folder.glob("phase.*")):
            path.unlink()
        return result


def train_phases(
    job: Job, folder: Path, model: nn.Module, data: Dataset, *, resume: bool, watch: Watch
) -> list[PhaseRecord]:
    """Each phase of the method in turn; from the second on, on the network without dead units."""
    entries = sum(target.param.numel() for target in choose(model))

    history: list[PhaseRecord] = []

    def of_all(record: EpochRecord) -> EpochRecord:
        """The density in the whole network, dead units included; epochs counted over all phases."""
        return {
            **record,
            "density_percent": 100 * record["nonzeros"] / entries,
            "epoch": len(history) + record["epoch"],
        }

    first = 0
    if resume and (folder / "phase.json").exists():
        history = read_json(folder / "phase.json")
        first = history[-1]["phase"] + 1
        model.load_state_dict(load_model(folder / "phase.safetensors"))
    for number, phase in list(enumerate(job.method.phases))[first:]:
        small = compact(model) if number else None
        network = model if small is None else small.model
        setup = phase.setup(network, job.seed)
        records = train(
            network,
            setup.optimizer,
            setup.stages,
            with_validation(data) if phase.all_images else data,
            seed=job.seed + 1000 * number,
            batch_size=job.batch_size,
            augment=setup.augment,
            forward=fast_forward(network, data, setup.optimizer, pays=small is not None),
            checkpoint=folder / f"checkpoint{number or ''}.pt",
            resume=resume,
            watch=lambda record: watch(of_all(record)),
        )
        history += [{**of_all(record), "phase": number} for record in records]
        if small is not None:
            model.load_state_dict(small.expand())
        if number < len(job.method.phases) - 1:
            write_checkpoint(folder / "phase.safetensors", model.state_dict())
            write_json(folder / "phase.json", history)
    return history


def fast_forward(
    network: nn.Module, data: Dataset, optimizer: SparseOptimizer, *, pays: bool
) -> Forward | None:
    """Through the live weights alone, where the network and this installation allow it.

    network    what is trained
    data       whose images it takes
    optimizer  its masks say which weights are alive
    pays       whether that is known to be faster, as without dead units it is; then what is zero
               stays zero, pruned or not
    """
    images = data.train.images
    if not pays:
        return live_if_worth(network, optimizer.masks, [images[:16]])
    try:
        return live_forward(network, images[:1])
    except NotLiveError:
        return None


def summarise(
    job: Job,
    model: nn.Module,
    weights: Mapping[str, Tensor],
    history: Sequence[EpochRecord],
    data: Dataset,
) -> RunResult:
    """One record of results.json: the job's trained model, its weights measured, on the test data.

    job      the method and the seed
    model    the network at the end
    weights  those that may be pruned, by name
    history  one record per epoch
    data     whose test and validation images are used
    """
    made = provenance()
    seen, validation = job.method.all_images, data.validation
    return {
        "method": job.key,
        "seed": job.seed,
        "cut": job.method.cut,
        "layers": {layer(name): share for name, share in density_percent(weights).items()},
        "density_percent": total_density_percent(weights),
        "nonzeros": sum(nonzeros(weights).values()),
        "test_error_percent": error_percent(model, data.test.images, data.test.labels),
        "validation_error_percent": (
            None if seen else error_percent(model, validation.images, validation.labels)
        ),
        "epochs": len(history),
        "seconds": sum(record["seconds"] for record in history),
        "versions": made.versions,
        "date": made.date,
        "commit": made.commit,
        "config": job.config(data),
    }


def load_model(path: Path) -> dict[str, Tensor]:
    """The state_dict of a run."""
    try:
        return safetensors.torch.load(path.read_bytes())
    except OSError as error:
        raise InputError(
            f"cannot read {path} ({error.strerror or error}): delete its folder to train it anew"
        ) from error
    except safetensors.SafetensorError as error:
        raise InputError(
            f"{path} is damaged ({error}): delete its folder to train it anew"
        ) from error
