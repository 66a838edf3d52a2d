"""The smallest file with MLPerf Tiny's accuracy on CIFAR-10, 85 %: a sparse ResNet-8.

    asterism reproduce --budget cifar10 --methods slowly_l1@15 --threads 1 --out runs/cifar10
    python experiments/file/resnet8.py runs/cifar10/slowly_l1@15-0
    python experiments/file/resnet8.py runs/cifar10/slowly_l1@15-0 --measure

Dead units leave, batch norms become part of the convolutions, and the values are learnt in
codebooks: the first layers, which are the most sensitive, with more bits than the others.
Validation images chose the settings. The test images are read by --measure alone, from the written
file, run by the runtime.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from asterism import compact, fold_norms, save
from asterism.experiments.data import load
from asterism.experiments.data.augmentation import CROP_AND_FLIP
from asterism.experiments.few_values import (
    Learning,
    bits_by_parameter,
    error_of_file,
    learn_codebooks,
)
from asterism.experiments.jobs import load_model
from asterism.experiments.networks import resnet8
from asterism.storage.atomic_files import read_json, write_json

BITS = [6, 6, 5, 4, 3, 3, 3, 3, 3, 4]
SETTINGS = ("bits", "bias_bits", "price", "epochs", "lr")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path, help="the folder of a trained network")
    parser.add_argument(
        "--bits", type=int, nargs="+", default=BITS, help="of a weight's value: all, or by layer"
    )
    parser.add_argument("--bias-bits", type=int, default=5)
    parser.add_argument("--price", type=float, default=0.0035, help="of a bit, at the end")
    parser.add_argument("--epochs", type=int, default=13)
    parser.add_argument("--lr", type=float, default=0.005)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--measure", action="store_true", help="read the test images, no more")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    path = options.out / f"cifar10-{options.run.name}.asterism"
    record = path.with_suffix(".json")
    result = measured(path, record) if options.measure else made(path, options)
    write_json(record, result)
    print(result)


def measured(path: Path, record: Path) -> dict[str, Any]:
    """What is known of a file, with its test error."""
    return {**read_json(record), "test_error_percent": error_of_file(path, load("cifar10").test)}


def made(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Writes the file; what it holds, and its validation error."""
    data, seed = load("cifar10"), int(options.run.name.rpartition("-")[2])
    network = resnet8()
    network.load_state_dict(load_model(options.run / "model.safetensors"))
    small = fold_norms(compact(network).model, data.train.images[:1])
    bits = bits_by_parameter(small, options.bits, options.bias_bits)
    how = Learning(options.epochs, options.lr, options.price, 64, CROP_AND_FLIP)
    learn_codebooks(small, data, bits, how, seed + 5000, report)
    small = compact(small).model  # bits have a price: more weights may be zero now
    size = save(small, path, example_inputs=data.train.images[:1], mode="small", bits=bits)
    return {
        "file": path.name,
        "bytes": size,
        "seed": seed,
        **{key: getattr(options, key) for key in SETTINGS},
        "nonzeros": sum(int(p.count_nonzero()) for p in small.parameters() if p.dim() > 1),
        "validation_error_percent": error_of_file(path, data.validation),
    }


def report(epoch: int, error: float) -> None:
    print(f"epoch {epoch}: validation error {error:.2f} %", flush=True)


if __name__ == "__main__":
    main()
