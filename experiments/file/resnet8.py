"""The smallest file with MLPerf Tiny's accuracy on CIFAR-10, 85 %: a sparse ResNet-8.

    asterism reproduce --budget cifar10 --methods slowly_l1@15 --threads 1 --out runs/cifar10
    python experiments/file/resnet8.py runs/cifar10/slowly_l1@15-0
    python experiments/file/resnet8.py runs/cifar10/slowly_l1@15-0 --measure

Dead units leave, and the weights are learnt in codebooks while batch norms follow them. Then each
norm becomes two vectors, and the last epochs give these few values as well. Validation images chose
the settings. The test images are read by --measure alone, from the written file, run by the
runtime.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from asterism import compact, save
from asterism.experiments.data import load
from asterism.experiments.data.augmentation import CROP_AND_FLIP
from asterism.experiments.jobs import load_model
from asterism.experiments.networks import ResNet, resnet8
from asterism.experiments.networks.resnets import Block
from asterism.experiments.small_files import (
    Learning,
    bits_by_parameter,
    error_of_file,
    learn_codebooks,
    weight_names,
)
from asterism.export.folding import even_channels_, standardise_norms_
from asterism.storage.atomic_files import read_json, write_json

BITS = [4, 4, 4, 4, 3, 3, 3, 3, 3, 4]
SETTINGS = ("bits", "scale_bits", "bias_bits", "price", "epochs", "lr", "last_epochs", "last_lr")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path, help="the folder of a trained network")
    parser.add_argument(
        "--bits", type=int, nargs="+", default=BITS, help="of a weight's value: all, or by layer"
    )
    parser.add_argument("--scale-bits", type=int, default=4, help="of what a norm multiplies by")
    parser.add_argument("--bias-bits", type=int, default=6)
    parser.add_argument("--price", type=float, default=0.0022, help="of a bit, at the end")
    parser.add_argument("--epochs", type=int, default=14, help="with batch norms")
    parser.add_argument("--lr", type=float, default=0.03)
    parser.add_argument("--last-epochs", type=int, default=5, help="with all values few")
    parser.add_argument("--last-lr", type=float, default=0.003)
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
    drop_biases_(network)
    small, example = compact(network).model.train(), data.train.images[:1]
    even_channels_(small, example)
    bits = bits_by_parameter(small, options.bits, options.bias_bits)
    bits |= {name: options.scale_bits for name in bits if "bn" in name and name.endswith("weight")}
    weights = {name: bits[name] for name in weight_names(small)}
    how = Learning(options.epochs, options.lr, options.price, 64, CROP_AND_FLIP)
    learn_codebooks(small, data, weights, how, seed + 5000, report)
    small = compact(small).model.eval()  # bits have a price: more weights may be zero now
    standardise_norms_(small)
    how = Learning(options.last_epochs, options.last_lr, options.price, 64, CROP_AND_FLIP)
    learn_codebooks(small, data, bits, how, seed + 6000, report)
    small = compact(small).model
    size = save(small, path, example_inputs=example, mode="small", bits=bits)
    return {
        "file": path.name,
        "bytes": size,
        "seed": seed,
        **{key: getattr(options, key) for key in SETTINGS},
        "nonzeros": sum(int(p.count_nonzero()) for p in small.parameters() if p.dim() > 1),
        "validation_error_percent": error_of_file(path, data.validation),
    }


@torch.no_grad()
def drop_biases_(network: ResNet) -> None:
    """Adds the biases of shortcuts to those of the norms whose results they are added to."""
    for block in (*network.stage2, *network.stage3):
        assert isinstance(block, Block)
        assert block.shortcut is not None
        assert block.shortcut.bias is not None
        block.bn2.bias.add_(block.shortcut.bias)
        block.shortcut.bias = None


def report(epoch: int, error: float) -> None:
    print(f"epoch {epoch}: validation error {error:.2f} %", flush=True)


if __name__ == "__main__":
    main()
