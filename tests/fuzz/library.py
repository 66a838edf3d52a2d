"""Hostile networks for libasterism, compiled with the sanitizers: each loaded and run once.

    python tests/fuzz/library.py [COUNT [SEED]]

The mutants are those of networks.py. None may end the process, or take longer than a second; each
is either refused with a message, or runs. What one of libasterism and the Python runtime refuses as
damaged and the other runs is told too, and so are answers that differ by much: rounding alone may
make any difference in a network of damaged numbers.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from asterism import runtime  # noqa: E402
from asterism.errors import FormatError, InputError  # noqa: E402
from networks import KEPT, mutant, seeds  # noqa: E402
from support.c_library import OK, Answer, build, expected, run  # noqa: E402

SLICE = 500
SECONDS = 2.0  # of two examples, with the sanitizers
DAMAGED = 2
LARGE = 1 << 20  # numbers of an output; a larger one may take longer in proportion


def python(path: Path, data: bytes) -> list[np.ndarray] | None:
    """The runtime's answers; None where it refuses the file."""
    path.write_bytes(data)
    try:
        return expected(runtime.load(path))
    except (FormatError, InputError):
        return None


def judged(answer: Answer, path: Path, data: bytes) -> str:
    """How it ended: ran, refused, or what is wrong with it."""
    size = sum(each.size for each in answer.outputs)
    if answer.seconds > SECONDS * max(1, size / LARGE):
        return f"{answer.seconds:.1f} s"
    if answer.status not in (OK, DAMAGED):
        return "refused"
    truth = python(path, data)
    if (truth is None) != (answer.status != OK):
        return f"status {answer.status} ({answer.message}), in Python {truth is not None}"
    if truth is None:
        return "refused"
    for mine, other in zip(answer.outputs, truth, strict=True):
        both = np.isfinite(mine) & np.isfinite(other)
        most = np.abs(other[both]).max(initial=1)
        if not np.allclose(mine[both], other[both], rtol=1e-2, atol=1e-2 * most):
            return "answers that differ"
    return "ran"


def main(count: int = 100_000, seed: int = 0) -> int:
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    ends: Counter[str] = Counter()
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder, corpus = Path(name), seeds()
        program = build(folder)
        for first in range(0, count, SLICE):
            numbers = list(range(first, min(first + SLICE, count)))
            while numbers:
                mutants = [mutant(corpus, number, seed) for number in numbers]
                answers, ended = run(program, mutants, folder)
                for number, data, answer in zip(numbers, mutants, answers, strict=False):
                    end = judged(answer, folder / "one.asterism", data)
                    ends[end if end in ("ran", "refused") else "wrong"] += 1
                    if end not in ("ran", "refused"):
                        _tell(number, data, end)
                numbers, mutants = numbers[len(answers) :], mutants[len(answers) :]
                if numbers:  # the next one ended the process
                    ends["wrong"] += 1
                    _tell(numbers.pop(0), mutants[0], ended[:2000])
            print(f"{first + SLICE:,} of {count:,}: {dict(ends)}", flush=True)
    return 1 if ends["wrong"] else 0


def _tell(number: int, data: bytes, what: str) -> None:
    print(f"  {number}: {what}", flush=True)
    (KEPT / f"library-{number}.asterism").write_bytes(data)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
