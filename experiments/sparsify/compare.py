"""`sparsify` with its defaults beside `reweighting=0`: same dense network, tolerance and epochs.

    python experiments/sparsify/compare.py mlp cnn transformer      # seeds 0, 1, 2
    python experiments/sparsify/compare.py lenet5 --dense runs/standard
    python experiments/sparsify/compare.py resnet8 --dense runs/cifar10

The last two start from the dense networks of `asterism reproduce`, the others train theirs. Each
finished search is added to compare.json at once, and what is there is not done again. Validation
data alone is seen: the search is judged by what it is asked for.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from others import EPOCHS, Batches, cnn, digits, mlp, text, transformer
from torch import Tensor, nn

import asterism
from asterism.experiments.data import load
from asterism.experiments.data.augmentation import CROP_AND_FLIP, Augment
from asterism.experiments.jobs import load_model
from asterism.experiments.networks import lenet5, resnet8
from asterism.storage.atomic_files import read_json, write_json

RESULTS = Path(__file__).with_suffix(".json")
SEEDS = 3


@dataclass(frozen=True)
class Augmented:
    """The batches of another loader, each changed at random."""

    batches: Batches
    augment: Augment

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for images, labels in self.batches:
            yield self.augment(images, torch.default_generator), labels


def images(name: str, augment: Augment | None = None) -> dict[str, Any]:
    """The metric is the accuracy in per cent."""
    data = load(name)
    batches = Batches(data.train.images, data.train.labels, 128, shuffle=True)
    validation = data.validation
    return {
        "train_loader": batches if augment is None else Augmented(batches, augment),
        "valid_loader": Batches(validation.images, validation.labels, 1000, shuffle=False),
    }


class Case(NamedTuple):
    """A network, its data, and how much worse it may become in how many epochs."""

    make: Callable[[], nn.Module]
    data: Callable[[], dict[str, Any]]
    max_drop: float
    max_epochs: int


CASES = {
    "mlp": Case(mlp, digits, 1.0, 120),
    "cnn": Case(cnn, digits, 1.0, 120),
    "transformer": Case(transformer, text, 0.05, 60),
    "lenet5": Case(lenet5, partial(images, "mnist"), 0.2, 60),
    "resnet8": Case(resnet8, partial(images, "cifar10", CROP_AND_FLIP), 2.0, 60),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("networks", nargs="+", choices=CASES)
    parser.add_argument("--dense", type=Path, help="the folder of a reproduction")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    for name in options.networks:
        for seed in range(SEEDS):
            for own in ({}, {"reweighting": 0.0}):
                record(name, seed, own, options.dense)


def record(name: str, seed: int, own: dict[str, float], dense: Path | None) -> None:
    """One search, unless its result is there.

    name   of the network
    seed   of its initial values, and of all that is random in the search
    own    options beside the defaults
    dense  where a trained network is found, if it is not to be trained here
    """
    known = read_json(RESULTS) if RESULTS.exists() else []
    key = {"network": name, "seed": seed, "options": own}
    if any(key.items() <= each.items() for each in known):
        return
    case = CASES[name]
    task = asterism.supervised(**case.data())
    torch.manual_seed(seed)
    model = case.make()
    if dense is None:
        task.fit(model, torch.optim.AdamW(model.parameters(), lr=2e-3), EPOCHS[name])
    else:
        model.load_state_dict(load_model(dense / f"dense-{seed}" / "model.safetensors"))
    before = task.evaluate(model)
    folder = Path("runs/compare") / f"{name}-{seed}-{len(own)}"
    asked = {"max_drop": case.max_drop, "max_epochs": case.max_epochs, **own}
    result = asterism.sparsify(model, task, run=folder, resume=folder.exists(), **asked)
    found = {
        **key,
        "max_drop": case.max_drop,
        "max_epochs": case.max_epochs,
        "dense": round(before, 4),
        "weights": result.best.nonzeros,
        "metric": round(result.best.metric, 4),
    }
    print(found, flush=True)
    write_json(RESULTS, [*known, found])


if __name__ == "__main__":
    main()
