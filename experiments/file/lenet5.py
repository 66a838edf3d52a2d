"""The smallest file: a sparse LeNet-5, its values learnt in codebooks, saved with its graph.

    python experiments/file/lenet5.py experiments/record/lenet5-record@1239-0.asterism

The networks are those of `asterism reproduce --budget record`, kept without loss. With --nonzeros
they first lose more of their weights, in rounds of regrowth. Validation images chose the settings,
by hand, on seed 0; with --all-images they are trained on too. The test images are read once, from
the written file, run by the runtime; --explore leaves them alone.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from torch import nn

from asterism import compact, live_forward, load_state_dict, save
from asterism.experiments.data import Dataset, load, with_validation
from asterism.experiments.data.augmentation import Distort, Shift
from asterism.experiments.methods import Regrowth
from asterism.experiments.networks import lenet5
from asterism.experiments.small_files import (
    Learning,
    bits_by_parameter,
    error_of_file,
    learn_codebooks,
)
from asterism.experiments.training import train
from asterism.storage.atomic_files import write_json

SETTINGS = ("bits", "bias_bits", "price", "epochs", "lr")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("network", type=Path, help="a file without loss")
    parser.add_argument(
        "--nonzeros", type=int, nargs="*", default=[], help="weights after each round of regrowth"
    )
    parser.add_argument("--all-images", action="store_true", help="train on validation images too")
    parser.add_argument(
        "--bits", type=int, nargs="+", default=[4], help="of a weight's value: all, or by layer"
    )
    parser.add_argument("--bias-bits", type=int, default=4)
    parser.add_argument("--price", type=float, default=0.0, help="of a bit, at the end")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--explore", action="store_true", help="read no test image")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    data, seed = load("mnist"), int(options.network.stem.rpartition("-")[2])
    if options.all_images:
        data = with_validation(data)
    network = lenet5()
    network.load_state_dict(load_state_dict(options.network))
    for number, nonzeros in enumerate(options.nonzeros):
        regrow(network, data, nonzeros, seed + 1000 * number)
    small = compact(network).model
    bits = bits_by_parameter(small, options.bits, options.bias_bits)
    how = Learning(options.epochs, options.lr, options.price, augment=Shift(1))
    learn_codebooks(small, data, bits, how, seed + 5000, report)
    small = compact(small, in_order=True).model  # bits have a price: more weights are zero now
    path = options.out / options.network.name
    size = save(small, path, example_inputs=data.train.images[:1], mode="small", bits=bits)
    result = {
        "file": path.name,
        "bytes": size,
        "seed": seed,
        **{key: getattr(options, key) for key in SETTINGS},
        "nonzeros": sum(int(p.count_nonzero()) for p in small.parameters() if p.dim() > 1),
        "command": " ".join(["python", "experiments/file/lenet5.py", *sys.argv[1:]]),
    }
    if not options.all_images:
        result["validation_error_percent"] = error_of_file(path, data.validation)
    if not options.explore:
        result["test_error_percent"] = error_of_file(path, data.test)
    write_json(path.with_suffix(".json"), result)
    print({key: value for key, value in result.items() if key != "command"})


def report(epoch: int, error: float) -> None:
    print(f"epoch {epoch}: validation error {error:.2f} %", flush=True)


def regrow(network: nn.Module, data: Dataset, nonzeros: int, seed: int) -> None:
    """One round, on distorted images, through the live weights."""
    small = compact(network)
    one = Regrowth(nonzeros, epochs=12, lam=0.006, settled=0.05, augment=Distort())
    setup = one.setup(small.model, seed)
    train(
        small.model,
        setup.optimizer,
        setup.stages,
        data,
        seed=seed,
        augment=setup.augment,
        forward=live_forward(small.model, data.train.images[:1]),
        watch=lambda record: print(record["nonzeros"], record["validation_error_percent"]),
    )
    network.load_state_dict(small.expand())


if __name__ == "__main__":
    main()
