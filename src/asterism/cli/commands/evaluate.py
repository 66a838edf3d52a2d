"""`asterism evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from numpy.typing import NDArray


def evaluate(
    file: Annotated[Path, typer.Argument(help="A network saved with its graph.")],
    data: Annotated[
        str,
        typer.Option(
            help="mnist, digits (which needs no network), or what makes the loaders, as for"
            " sparsify: the validation images are taken."
        ),
    ] = "mnist",
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """How often a file's network is wrong, run by the sparse runtime.

    Example:  asterism evaluate net.asterism --data net.py:loaders
    """
    import json
    import time

    from asterism.runtime import load

    net = load(file, threads=threads)
    images, labels = _examples(data)
    started = time.perf_counter()
    answers = net(images)
    seconds = time.perf_counter() - started
    wrong = int((answers.argmax(1) != labels).sum())
    result = {
        "file": str(file),
        "data": data,
        "images": len(labels),
        "wrong": wrong,
        "error_percent": 100 * wrong / len(labels),
        "seconds": seconds,
    }
    if as_json:
        print(json.dumps(result, indent=2))
    else:
        print(f"{result['error_percent']:.2f} % error: {wrong} of {len(labels)} images of {data}")
        print(f"{1e6 * seconds / len(labels):.1f} µs per image on {threads} thread(s)")


def _examples(data: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Test images of a dataset by name, or the validation images of the user's own loaders."""
    import numpy as np
    import torch

    from asterism.cli.factories import make_data
    from asterism.errors import InputError
    from asterism.experiments.data.mnist import load

    if ":" not in data:
        test = load(data).test
        return np.ascontiguousarray(test.images.numpy()), test.labels.numpy()
    try:
        images, labels = zip(*make_data(data)["valid_loader"], strict=True)
        return torch.cat(images).numpy(), torch.cat(labels).numpy()
    except (TypeError, ValueError) as error:
        raise InputError(f"{data} must give batches of tensors (images, labels)") from error
