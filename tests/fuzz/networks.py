"""Hostile networks by the million: each is loaded and run once, in a process with little memory.

    python tests/fuzz/networks.py [COUNT [SEED]]

Starts from a file of every operation, and of whole networks; changes bytes of the graph, puts
large and negative numbers into it, or damages the whole file; mends the checksum. Each must either
run, or be refused with FormatError or InputError, within a second of processor time. Prints what
does not, with its number, and keeps its file in build/fuzz.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import resource
import shutil
import sys
import tempfile
import time
import warnings
import zlib
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asterism import file, runtime
from asterism.errors import FormatError, InputError

SLICE = 1_000  # mutants of one process
MEMORY = 2 << 30  # bytes that a process may take beside what it has at its start
SECONDS = 1.0
LARGE = 4 << 20  # bytes of an input; a larger one may take longer in proportion
PATIENCE = 600  # seconds for a slice, then it is ended
KEPT = Path("build/fuzz")
NUMBERS = (1, 2, 3, 127, 128, 255, 4096, 65535, 2**20, 2**23, 2**26, 2**31 - 1, 2**32 - 1)


class Seed(NamedTuple):
    """What mutants are made from."""

    tensors: dict[str, np.ndarray]
    graph: bytes


def seeds() -> list[Seed]:
    """A network of each operation's examples, and whole ones."""
    from asterism.graph.capture import capture
    from asterism.graph.network import encode
    from support.operations import CASES
    from support.transformers import GPT
    from support.vision import make_vision

    found = []
    for case in (param.values[0] for param in CASES):
        tensors = {f"w{i}": weight for i, weight in enumerate(case.weights)}
        found.append(Seed(tensors, encode(case.graph)))
    import torch

    networks = [(make_vision(name, 0.1)) for name in ("mobilenet v3", "u-net", "resnet option a")]
    for model, shape in networks:
        found.append(_captured(model, torch.zeros(1, *shape), capture, encode))
    found.append(_with_ranges(found[-1]))
    found.append(_captured(GPT(), torch.zeros(1, 4, dtype=torch.long), capture, encode))
    return found


def _captured(model, example, capture, encode) -> Seed:
    tensors = {name: value.numpy() for name, value in model.state_dict().items()}
    return Seed(tensors, encode(capture(model, example)))


def _with_ranges(seed: Seed) -> Seed:
    """The same, for whole numbers of 16 bits."""
    from asterism.graph.network import Graph, decode, encode

    graph = decode(seed.graph)
    ranges = (1.0,) * (len(graph.inputs) + len(graph.nodes))
    return seed._replace(graph=encode(Graph(graph.inputs, graph.nodes, graph.outputs, ranges)))


def mutant(corpus: list[Seed], number: int, seed: int) -> bytes:
    """The file of this number."""
    chance = random.Random(f"{seed} {number}")
    tensors, graph = chance.choice(corpus)
    if chance.random() < 0.2:
        mode = chance.choice(("small", "fast"))
        body = _damaged(file.encode(tensors, mode=mode, graph=graph)[:-4], chance)
        return body + _checksum(body)
    return file.encode(tensors, mode="fast", graph=_damaged(graph, chance))


def _damaged(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.randrange(len(changed) + 1)
        kind = chance.randrange(5)
        if kind == 0:
            changed[at : at + 1] = _varint(chance.choice(NUMBERS))
        elif kind == 1:
            changed[at : at + 1] = chance.randbytes(1)
        elif kind == 2:
            del changed[at : at + chance.randrange(1, 5)]
        elif kind == 3:
            changed[at:at] = chance.randbytes(chance.randrange(1, 5))
        else:
            begin = chance.randrange(len(changed) + 1)
            changed[at:at] = changed[begin : begin + chance.randrange(1, 16)]
    return bytes(changed)


def _varint(number: int) -> bytes:
    found = bytearray()
    while number >= 128:
        found.append(number % 128 + 128)
        number //= 128
    return bytes([*found, number])


def _checksum(body: bytes) -> bytes:
    return zlib.crc32(body).to_bytes(4, "little")


def attempt(path: Path, data: bytes) -> str:
    """How it ended: ran, refused, or what is wrong with it."""
    path.write_bytes(data)
    started, allowed = time.process_time(), SECONDS
    try:
        net = runtime.load(path)
        example = net.example(1)
        allowed = SECONDS * max(1, sum(each.nbytes for each in example) / LARGE)
        net(*example)
        end = "ran"
    except (FormatError, InputError):
        end = "refused"
    except Exception as error:  # whatever it is, it is a failure
        end = f"{type(error).__name__}: {error}"
    taken = time.process_time() - started
    return end if taken < allowed else f"{taken:.1f} s, then {end}"


def run_slice(corpus_file: Path, first: int, count: int, seed: int, report: Path) -> None:
    """A process of its own: says in `report` where it is, and what it found."""
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    stored = np.load(corpus_file, allow_pickle=False)
    corpus = [
        Seed(
            {name: stored[key] for name, key in each["tensors"].items()},
            bytes(stored[each["graph"]]),
        )
        for each in json.loads(str(stored["index"]))
    ]
    attempt(report.with_suffix(".asterism"), file.encode(*corpus[0][:1], graph=corpus[0].graph))
    have = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (have + MEMORY, have + MEMORY))
    ends: Counter[str] = Counter()
    wrong: list[tuple[int, str]] = []
    for number in range(first, first + count):
        report.write_text(json.dumps({"at": number, "ends": ends, "wrong": wrong}))
        end = attempt(report.with_suffix(".asterism"), mutant(corpus, number, seed))
        ends[end if end in ("ran", "refused") else "wrong"] += 1
        if end not in ("ran", "refused"):
            wrong.append((number, end))
            keep(report.with_suffix(".asterism"), number)
    report.write_text(json.dumps({"at": None, "ends": ends, "wrong": wrong}))


def keep(path: Path, number: int) -> None:
    """A copy of the file, to look into it."""
    KEPT.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, KEPT / f"{number}.asterism")


def store(corpus: list[Seed], path: Path) -> None:
    """All seeds in one file of numpy's: the processes need no torch."""
    arrays: dict[str, np.ndarray] = {}
    index = []
    for place, each in enumerate(corpus):
        names = {name: f"{place}.{i}" for i, name in enumerate(each.tensors)}
        arrays |= {names[name]: array for name, array in each.tensors.items()}
        arrays[f"{place}.graph"] = np.frombuffer(each.graph, np.uint8)
        index.append({"tensors": names, "graph": f"{place}.graph"})
    np.savez(path, index=np.array(json.dumps(index)), **arrays)


def main(count: int = 1_000_000, seed: int = 0) -> int:
    ends: Counter[str] = Counter()
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        corpus, report = Path(folder, "seeds.npz"), Path(folder, "report.json")
        store(seeds(), corpus)
        first = 0
        while first < count:
            size = min(SLICE, count - first)
            found = in_a_process(corpus, first, size, seed, report)
            first = first + size if found["at"] is None else found["at"] + 1
            ends += Counter(found["ends"])
            print(f"{first:,} of {count:,}: {dict(ends)}", flush=True)
            for number, what in found["wrong"]:
                failures += 1
                print(f"  {number}: {what}", flush=True)
    return 1 if failures else 0


def in_a_process(corpus: Path, first: int, size: int, seed: int, report: Path) -> dict[str, Any]:
    """What a slice found, and at which file its process ended, if it did."""
    context = multiprocessing.get_context("spawn")
    child = context.Process(target=run_slice, args=(corpus, first, size, seed, report))
    child.start()
    child.join(PATIENCE)
    hangs = child.is_alive()
    child.kill()
    child.join()
    found: dict[str, Any] = json.loads(report.read_text())
    if found["at"] is not None:
        how = "does not end" if hangs else f"ended its process: {child.exitcode}"
        found["wrong"].append((found["at"], how))
        keep(report.with_suffix(".asterism"), found["at"])
    return found


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    sys.exit(main(*map(int, sys.argv[1:])))
