"""The smallest file: a sparse LeNet-5, its values learnt in codebooks, saved with its graph.

    asterism reproduce --budget record --methods record@1239 --seeds 3 --out runs/record
    python experiments/file/lenet5.py runs/record/record@1239-0 --out experiments/file

Validation images chose the bits, by hand, on seed 0. The test images are read once, from
the written file, run by the runtime; --explore leaves them alone.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from asterism import compact, live_forward, runtime, save
from asterism.experiments.data import Dataset, Split, load
from asterism.experiments.data.augmentation import Shift
from asterism.experiments.jobs import load_model
from asterism.experiments.networks import lenet5
from asterism.experiments.training import batches
from asterism.export.codebooks import Codebooks
from asterism.scaling.schedules import warmup_cosine
from asterism.storage.atomic_files import read_json, write_json
from asterism.weights.metrics import error_percent
from asterism.weights.names import owner

BATCH = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path, help="the folder of a finished run")
    parser.add_argument("--bits", type=int, nargs=4, default=[4] * 4, help="of each layer")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--explore", action="store_true", help="read no test image")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    data, seed = load("mnist"), int(options.run.name.rpartition("-")[2])
    network = lenet5()
    network.load_state_dict(load_model(options.run / "model.safetensors"))
    small = compact(network).model
    by_layer = dict(zip(("conv1", "conv2", "fc1", "fc2"), options.bits, strict=True))
    bits = {name: by_layer[owner(name)] for name, _ in small.named_parameters()}
    quantise(small, data, bits, options.epochs, options.lr, seed)
    path = options.out / f"lenet5-{options.run.name}.asterism"
    size = save(small, path, example_inputs=data.train.images[:1], mode="small", bits=bits)
    result = {
        "file": path.name,
        "bytes": size,
        "seed": seed,
        "bits": options.bits,
        "epochs": options.epochs,
        "lr": options.lr,
        "nonzeros": sum(int(p.count_nonzero()) for p in small.parameters() if p.dim() > 1),
        "validation_error_percent": error_of_file(path, data.validation),
        "from": read_json(options.run / "result.json")["config"],
        "command": " ".join(["python", "experiments/file/lenet5.py", *sys.argv[1:]]),
    }
    if not options.explore:
        result["test_error_percent"] = error_of_file(path, data.test)
    write_json(path.with_suffix(".json"), result)
    print({key: value for key, value in result.items() if key not in ("from", "command")})


def quantise(
    network: nn.Module,
    data: Dataset,
    bits: dict[str, int],
    epochs: int,
    lr: float,
    seed: int,
) -> None:
    """Learns the codebooks on shifted images, through the live weights."""
    forward = live_forward(network, data.train.images[:1])
    sgd = torch.optim.SGD(network.parameters(), lr=lr, momentum=0.9, nesterov=True)
    optimizer = Codebooks(sgd, network, bits)
    images = len(data.train.labels)
    rate, steps = warmup_cosine(lr), epochs * -(-images // BATCH)
    for epoch in range(epochs):
        for batch in batches(data.train, images, seed + 5000, epoch, BATCH, Shift(1)):
            optimizer.param_groups[0]["lr"] = rate(optimizer.steps / steps)
            optimizer.zero_grad()
            loss = F.cross_entropy(forward(batch.images), batch.labels)
            torch.autograd.backward(loss)
            optimizer.step()
        error = error_percent(forward, data.validation.images, data.validation.labels)
        print(f"epoch {epoch + 1} of {epochs}: validation error {error:.2f} %", flush=True)


def error_of_file(path: Path, split: Split) -> float:
    """In per cent, of the file as the runtime runs it."""
    net = runtime.load(path)
    outputs = torch.from_numpy(net(split.images.numpy()))
    return 100 * int((outputs.argmax(1) != split.labels).sum()) / len(split.labels)


if __name__ == "__main__":
    main()
