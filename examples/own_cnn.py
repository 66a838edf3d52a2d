"""Your own network, as sparse as it gets within a tolerance, and running without torch.

    python examples/own_cnn.py --out runs/own-cnn
    asterism report runs/own-cnn --open

The data are scikit-learn's digits, so that nothing is downloaded.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import asterism
from asterism.experiments.data import Split, load


def make_model() -> nn.Module:
    """A stack of convolutions; any torch module would do."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 5),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def make_loader(split: Split, shuffle: bool) -> DataLoader:
    return DataLoader(TensorDataset(split.images, split.labels), batch_size=64, shuffle=shuffle)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="seconds, to see that it works")
    parser.add_argument("--out", type=Path, help="keep the search here, for `asterism report`")
    parser.add_argument("--file", type=Path, default=Path("own-cnn.asterism"))
    options = parser.parse_args()

    torch.manual_seed(0)
    data, model = load("digits"), make_model()
    task = asterism.supervised(make_loader(data.train, True), make_loader(data.validation, False))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    task.fit(model, optimizer, epochs=2 if options.quick else 12)
    print(f"dense: {task.evaluate(model):.1f} % right on validation data")

    epochs = 6 if options.quick else 60
    result = asterism.sparsify(model, task, max_drop=1.0, max_epochs=epochs, run=options.out)
    print(f"sparse: {result.best.nonzeros} weights ({result.best.density:.1%}),"
          f" {result.best.metric:.1f} % right; {result.stop_reason}")  # fmt: skip

    size = asterism.save(result.model, options.file, example_inputs=(data.test.images[:1],))
    net = asterism.runtime.load(options.file)  # this line and the next need no torch
    outputs = net(data.test.images.contiguous().numpy())
    right = (outputs.argmax(1) == data.test.labels.numpy()).mean()
    print(f"{options.file}: {size:,} bytes, {100 * right:.1f} % right on test data")


if __name__ == "__main__":
    main()
