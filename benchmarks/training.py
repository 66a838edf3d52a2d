"""What AffineScaling costs per step, and what our loop gains over the obvious one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from asterism import AffineScaling, AllLayers, ReweightedL1, SparseOptimizer, Splicing
from asterism.experiments.data import Dataset, Split
from asterism.experiments.methods import Dense
from asterism.experiments.networks import lenet5
from asterism.experiments.training import Forward, train
from benchmarks.timing import median_ratio

BATCH = 128
Make = Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]

OPTIMIZERS: dict[str, Make] = {
    "SGD": lambda params: torch.optim.SGD(params, lr=0.01, momentum=0.9, nesterov=True),
    "AdamW": lambda params: torch.optim.AdamW(params, lr=1e-3),
}


def report() -> Iterator[str]:
    yield "LeNet-5, batch 128, forward, backward and step; AffineScaling over the optimizer alone:"
    for name, make in OPTIMIZERS.items():
        for stage in ("re-weighted", "pruned to 1 %, flat", "pruned to 1 %, re-weighted"):
            ratio = step_overhead(make, stage)
            yield f"  {name:6} {stage:27} {100 * (ratio - 1):+5.1f} %   (at most +3 %)"
    yield f"our loop over the obvious one, images per second: {loop_gain():.2f}×   (at least 1.4×)"
    yield "extra memory of AffineScaling, in sizes of the weights:"
    for name, size in extra_memory().items():
        yield f"  {name:27} {size:.2f}"


def step_overhead(make: Make, stage: str) -> float:
    plain, wrapped = channels_last(lenet5()), channels_last(lenet5())
    alone = make(plain.parameters())
    around = AffineScaling(
        make(wrapped.parameters()), wrapped, ReweightedL1(0.1), layers=AllLayers()
    )
    around.reweight()
    if "pruned" in stage:
        around.prune(density=0.01)
    if "flat" in stage:
        around.flatten()
    images, labels = batch()
    return median_ratio(
        lambda: step(wrapped, around, images, labels),
        lambda: step(plain, alone, images, labels),
        rounds=400,
    )


def step(
    forward: Forward, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor
) -> None:
    optimizer.zero_grad()
    F.cross_entropy(forward(images), labels).backward()
    optimizer.step()


def loop_gain() -> float:
    """`train` against contiguous tensors, a DataLoader over a TensorDataset, and plain SGD."""
    images, labels = batch(BATCH * 60)
    few = Split(images[:BATCH], labels[:BATCH])
    data = Dataset("random", Split(images, labels), few, few)

    def ours() -> None:
        model = channels_last(lenet5())
        setup = Dense(epochs=1).setup(model)
        train(model, setup.optimizer, setup.stages, data, batch_size=BATCH)

    loader = DataLoader(TensorDataset(images.contiguous(), labels), BATCH, shuffle=True)

    def obvious() -> None:
        model = lenet5()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
        for inputs, targets in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), targets).backward()
            optimizer.step()

    return median_ratio(obvious, ours, rounds=7)


def extra_memory() -> dict[str, float]:
    model = lenet5()
    optimizer = AffineScaling(OPTIMIZERS["SGD"](model.parameters()), model, ReweightedL1())
    sizes = {"re-weighted": held_by(optimizer)}
    optimizer.prune(density=0.01)
    sizes["pruned"] = held_by(optimizer)
    latent = Splicing(OPTIMIZERS["SGD"](model.parameters()), model, ReweightedL1())
    return {**sizes, "with latent weights": held_by(latent)}


def held_by(optimizer: SparseOptimizer) -> float:
    """Bytes of the tensors that the wrapper keeps, over the bytes of the weights."""
    tensors = [
        value
        for layer in optimizer._layers
        for name, value in vars(layer).items()
        if isinstance(value, Tensor) and name != "param"
    ]
    held = sum(tensor.nbytes for tensor in tensors)
    return held / sum(weight.nbytes for weight in optimizer.weights().values())


def batch(size: int = BATCH) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    images = torch.rand(size, 1, 28, 28).to(memory_format=torch.channels_last)
    return images, torch.randint(0, 10, (size,))


def channels_last(model: nn.Module) -> nn.Module:
    return model.to(memory_format=torch.channels_last)
