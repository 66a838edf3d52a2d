"""DeepSparse's process in `benchmarks.deepsparse`: its answers first, then its times when asked.

Runs in an environment of its own, without asterism and torch.
"""

from __future__ import annotations

import sys

import numpy as np

from benchmarks.timing import seconds
from deepsparse import Engine


def main(model: str, examples: str, answers: str) -> None:
    x = np.load(examples)
    engine = Engine(model=model, batch_size=len(x), num_cores=1)
    np.save(answers, engine.run([x])[0])
    print("ready", flush=True)
    for calls in sys.stdin:
        print(seconds(lambda: engine.run([x], val_inp=False), int(calls)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
