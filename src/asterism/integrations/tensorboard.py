"""TensorBoard: records as scalars and weights as histograms, as a `watch`.

sparsify(model, task, ..., watch=TensorBoard("runs/board", weights))
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from asterism.errors import missing

Record = Mapping[str, Any]


class TensorBoard:
    """Writes each record it is called with, at the record's epoch.

    folder   where the event files go
    weights  by name, to be drawn as histograms of what is not zero; they are read at each record
    """

    def __init__(self, folder: str | Path, weights: Mapping[str, Tensor] | None = None) -> None:
        try:
            writers = importlib.import_module("torch.utils.tensorboard")
        except ImportError as error:
            raise missing("--tensorboard needs tensorboard", "tensorboard") from error
        self.writer: Any = writers.SummaryWriter(str(folder))
        self.weights = weights or {}

    def __call__(self, given: Any) -> None:
        """A record: a mapping, or a dataclass such as the search's `TrialRecord`."""
        record: Record = given if isinstance(given, Mapping) else asdict(given)
        step = record["epoch"] if "epoch" in record else record["epochs"]
        for name, number in numbers(record):
            self.writer.add_scalar(name, number, step)
        for name, weight in self.weights.items():
            values = weight.detach().flatten()
            self.writer.add_histogram(name, values[values != 0], step)
        self.writer.flush()

    def close(self) -> None:
        """Ends the event file."""
        self.writer.close()


def numbers(record: Record, prefix: str = "") -> Iterator[tuple[str, float]]:
    """The numbers of a record by name, those inside of others as "kurtosis/fc1".

    >>> list(numbers({"stage": "cut", "epoch": 3, "kurtosis": {"fc1": 9.5}, "good": True}))
    [('epoch', 3.0), ('kurtosis/fc1', 9.5), ('good', 1.0)]
    """
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float):
            yield f"{prefix}{name}", float(value)
