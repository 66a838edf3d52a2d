"""`sparsify` with its defaults beside `reweighting=0`: same dense network, tolerance and epochs.

    python experiments/sparsify/compare.py transformer resnet8      # seeds 0, 1, 2
    python experiments/sparsify/compare.py mlp cnn --seeds 0 1 2 3 4 5 6 7 8 9
    python experiments/sparsify/compare.py lenet5 --dense runs/standard

The last one starts from the dense networks of `asterism reproduce`, the others train theirs. Each
finished search is added to ../compare/searches.json at once, and what is there is not done again;
one that was stopped is resumed. Validation data alone is seen: a search is judged by what it is
asked for.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

import asterism
from asterism.cli.factories import make_data, make_model
from asterism.experiments.jobs import load_model
from asterism.export.checkpoints import write_checkpoint
from asterism.storage.atomic_files import read_json, write_json

HERE = Path(__file__).parent
RESULTS = HERE.parent / "compare" / "searches.json"
RUNS = Path("runs/compare")
SEEDS = (0, 1, 2)


ADAMW = partial(torch.optim.AdamW, lr=2e-3)
SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)


class Case(NamedTuple):
    """A network and its data, each made by a function of a file beside this one.

    max_drop      how much worse it may become
    max_epochs    of a search
    dense_epochs  of its dense training, unless that is found elsewhere
    optimizer     of the same
    """

    model: str
    data: str
    max_drop: float
    max_epochs: int
    dense_epochs: int = 0
    optimizer: Callable[..., torch.optim.Optimizer] = ADAMW


CASES = {
    "mlp": Case("others.py:mlp", "others.py:digits", 1.0, 120, 60),
    "cnn": Case("others.py:cnn", "others.py:digits", 1.0, 120, 60),
    "transformer": Case("others.py:transformer", "others.py:text", 0.05, 60, 20),
    "lenet5": Case("lenet5.py:model", "lenet5.py:data", 0.2, 60),
    "resnet8": Case("resnet8.py:model", "resnet8.py:data", 2.0, 30, 20, SGD),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("networks", nargs="+", choices=CASES)
    parser.add_argument("--dense", type=Path, help="the folder of a reproduction")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="default 0 1 2")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    for name in options.networks:
        for seed in options.seeds:
            for own in ({}, {"reweighting": 0.0}):
                search(name, seed, own, options.dense)


def search(name: str, seed: int, own: dict[str, Any], dense: Path | None) -> None:
    """One search, unless its result is there.

    name   of the network
    seed   of its initial values, and of all that is random in the search
    own    options beside the defaults
    dense  where trained networks are, if they are not to be trained here
    """
    key = {"network": name, "seed": seed, "options": own}
    if any(key.items() <= each.items() for each in results()):
        return
    case = CASES[name]
    torch.manual_seed(seed)
    task = asterism.supervised(**make_data(f"{HERE / case.data}"))
    model = make_model(f"{HERE / case.model}")
    trained = (dense or RUNS / name) / f"dense-{seed}" / "model.safetensors"
    if dense is None and not trained.exists():
        task.fit(model, case.optimizer(model.parameters()), case.dense_epochs)
        trained.parent.mkdir(parents=True, exist_ok=True)
        write_checkpoint(trained, model.state_dict())
    model.load_state_dict(load_model(trained))
    torch.manual_seed(seed)  # both searches draw the same
    before = task.evaluate(model)
    folder = RUNS / f"{name}-{seed}-{len(own)}"
    asked: dict[str, Any] = {"max_drop": case.max_drop, "max_epochs": case.max_epochs, **own}
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
    write_json(RESULTS, [*results(), found])  # read again: other networks may be searched meanwhile


def results() -> list[dict[str, Any]]:
    """Of the searches that are done."""
    return list(read_json(RESULTS)) if RESULTS.exists() else []


if __name__ == "__main__":
    main()
