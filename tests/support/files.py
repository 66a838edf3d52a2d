"""Arrays of any bits, and files damaged in every way: what the tests of the format draw from."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from asterism import file
from asterism.file.dtypes import BY_NAME

MODES = ("small", "fast")
UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@st.composite
def any_bits(draw) -> tuple[np.ndarray, str]:
    """Arrays of every type with arbitrary bits (NaN payloads, −0, infinities), some sparse."""
    dtype = BY_NAME[draw(st.sampled_from(sorted(BY_NAME)))]
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6))
    words = draw(hnp.arrays(UNSIGNED[dtype.itemsize], shape))
    if draw(st.booleans()):
        words = words * (draw(hnp.arrays(np.uint8, shape)) < 40)
    if dtype.name == "bool":
        return np.asarray(words % 2).astype(np.bool_), dtype.name
    words = np.asarray(words, UNSIGNED[dtype.itemsize])
    return words.reshape(-1).view(dtype.storage).reshape(shape), dtype.name


def network() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(3)
    alive = generator.random((6, 4, 3, 3)) < 0.3
    levels = generator.integers(1, 5, (10, 24)) * (generator.random((10, 24)) < 0.2)
    return {
        "conv1.weight": np.where(alive, generator.standard_normal((6, 4, 3, 3)), 0).astype("f4"),
        "conv1.bias": np.where(generator.random(6) < 0.5, 1.5, 0).astype("f2"),
        "fc1.weight": levels.astype("f4"),
        "steps": np.array(1200),
    }


def sort_rows(weight: np.ndarray) -> np.ndarray:
    """By the place of each row's first element, those without any last."""
    mask = weight.reshape(len(weight), -1) != 0
    return weight[np.argsort(np.where(mask.any(1), mask.argmax(1), mask.shape[1]), kind="stable")]


def network_in_order() -> dict[str, np.ndarray]:
    tensors = network()
    return {**tensors, "fc1.weight": sort_rows(tensors["fc1.weight"])}


ORDERED = "in order"
FILES = {mode: file.encode(network(), mode=mode, graph=b"graph") for mode in MODES}
FILES[ORDERED] = file.encode(network_in_order(), graph=b"graph")
KINDS = tuple(FILES)


def sealed(body: bytes) -> bytes:
    """With the checksum that makes a mutation reach the decoder."""
    return body + zlib.crc32(body).to_bytes(4, "little")


def mutations(mode: str, count: int, seed: int) -> Iterator[bytes]:
    chance = random.Random(seed)
    whole = FILES[mode]
    for turn in range(count):
        data = bytearray(whole[:-4] if turn % 2 else whole)
        for _ in range(chance.choice((1, 1, 2, 4, 8))):
            at = chance.randrange(len(data))
            kind = chance.randrange(5)
            if kind == 0:
                data[at] ^= 1 << chance.randrange(8)
            elif kind == 1:
                data[at] = chance.choice((0, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            elif kind == 2:
                del data[at : at + chance.randrange(1, 5)]
            elif kind == 3:
                data[at:at] = chance.randbytes(chance.randrange(1, 5))
            else:
                data[at:] = chance.randbytes(len(data) - at)
            if not data:
                break
        yield sealed(bytes(data)) if turn % 2 else bytes(data)
