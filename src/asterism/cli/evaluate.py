"""`asterism evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def evaluate(
    file: Annotated[Path, typer.Argument(help="A network saved with its graph.")],
    data: Annotated[str, typer.Option(help="mnist, or digits, which needs no network.")] = "mnist",
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """The test error of a file's network, run by the sparse runtime.

    Example:  asterism evaluate net.asterism --data mnist
    """
    import json
    import time

    import numpy as np

    from asterism.data import load as load_data
    from asterism.runtime import load

    net = load(file, threads=threads)
    test = load_data(data).test
    images, labels = np.ascontiguousarray(test.images.numpy()), test.labels.numpy()
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
