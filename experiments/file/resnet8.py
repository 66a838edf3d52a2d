"""The smallest file with MLPerf Tiny's accuracy on CIFAR-10, 85 %: a sparse ResNet-8.

    asterism reproduce --budget cifar10 --methods slowly_l1@15 --threads 1 --out runs/cifar10
    python experiments/file/resnet8.py runs/cifar10/slowly_l1@15-0 --bits 3

Dead units leave, batch norms become part of the convolutions, and the values are learnt in
codebooks. Validation images chose the settings. The test images are read once, from the written
file, run by the runtime; --explore leaves them alone.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

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
from asterism.storage.atomic_files import write_json

SETTINGS = ("bits", "bias_bits", "price", "epochs", "lr")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path, help="the folder of a trained network")
    parser.add_argument(
        "--bits", type=int, nargs="+", default=[3], help="of a weight's value: all, or by layer"
    )
    parser.add_argument("--bias-bits", type=int, default=6)
    parser.add_argument("--price", type=float, default=0.0, help="of a bit, at the end")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--explore", action="store_true", help="read no test image")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    data, seed = load("cifar10"), int(options.run.name.rpartition("-")[2])
    network = resnet8()
    network.load_state_dict(load_model(options.run / "model.safetensors"))
    small = fold_norms(compact(network).model, data.train.images[:1])
    bits = bits_by_parameter(small, options.bits, options.bias_bits)
    how = Learning(options.epochs, options.lr, options.price, 64, CROP_AND_FLIP)
    learn_codebooks(small, data, bits, how, seed + 5000, report)
    small = compact(small).model  # bits have a price: more weights may be zero now
    path = options.out / f"cifar10-{options.run.name}.asterism"
    size = save(small, path, example_inputs=data.train.images[:1], mode="small", bits=bits)
    result = {
        "file": path.name,
        "bytes": size,
        "seed": seed,
        **{key: getattr(options, key) for key in SETTINGS},
        "nonzeros": sum(int(p.count_nonzero()) for p in small.parameters() if p.dim() > 1),
        "validation_error_percent": error_of_file(path, data.validation),
        "command": " ".join(["python", "experiments/file/resnet8.py", *sys.argv[1:]]),
    }
    if not options.explore:
        result["test_error_percent"] = error_of_file(path, data.test)
    write_json(path.with_suffix(".json"), result)
    print({key: value for key, value in result.items() if key != "command"})


def report(epoch: int, error: float) -> None:
    print(f"epoch {epoch}: validation error {error:.2f} %", flush=True)


if __name__ == "__main__":
    main()
