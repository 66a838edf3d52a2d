"""The compiled stream has the bits of the one in Python, and refuses what that refuses."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asterism import file
from asterism.errors import FormatError
from asterism.file import container
from asterism.file.small.compiled import Compiled, find_nonzeros, open_stream
from asterism.file.small.reference import Reference
from asterism.kernels import library
from support.files import ORDERED, any_bits, mutations, sort_rows

pytestmark = pytest.mark.skipif(library.load() is None, reason="the kernels are not built")


@contextmanager
def in_python():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASTERISM_KERNELS", "none")
        yield


def outcome(data: bytes) -> object:
    """All that a file decodes to, or the reason why it does not."""
    try:
        found = file.decode(data)
    except FormatError as error:
        return str(error)
    usage = {name: np.round(used.bytes, 6) for name, used in found.usage.items()}
    arrays = {name: (a.shape, a.dtype, a.tobytes()) for name, a in found.tensors.items()}
    return arrays, found.dtypes, usage


def assert_same_both_ways(tensors, **options) -> None:
    data = file.encode(tensors, **options)
    found = outcome(data)
    with in_python():
        assert file.encode(tensors, **options) == data
        assert outcome(data) == found
    assert not isinstance(found, str)


def test_each_is_chosen_where_it_should_be():
    assert isinstance(open_stream(), Compiled)
    with in_python():
        assert isinstance(open_stream(), Reference)


@settings(max_examples=40, deadline=None)
@given(arrays=st.lists(any_bits(), max_size=3))
def test_every_type_and_shape(arrays):
    tensors = {f"layer{i}.weight": array for i, (array, _) in enumerate(arrays)}
    assert_same_both_ways(
        tensors, dtypes={f"layer{i}.weight": name for i, (_, name) in enumerate(arrays)}
    )


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    shapes=st.lists(
        st.sampled_from([(30, 20), (12, 30), (12, 6, 3, 3), (5, 12, 2, 4), (7, 4, 9), (6, 108)]),
        min_size=1,
        max_size=4,
    ),
    density=st.sampled_from([0.02, 0.2, 0.7]),
    bits=st.sampled_from([None, 1, 4]),
    ordered=st.booleans(),
)
def test_layers_that_hint_at_each_other(seed, shapes, density, bits, ordered):
    random = np.random.default_rng(seed)
    tensors = {}
    for i, shape in enumerate(shapes):
        alive = random.random(shape) < density
        weight = np.where(alive, random.standard_normal(shape), 0).astype("f4")
        tensors[f"{i}.weight"] = sort_rows(weight) if ordered else weight
        tensors[f"{i}.bias"] = np.where(random.random(shape[0]) < 0.5, 0.5, 0).astype("f4")
    assert_same_both_ways(tensors, bits=bits)


@pytest.mark.parametrize("shape", [(1, 66_000), (1, 1, 66_000)])
def test_rows_that_are_longer_than_their_tables(shape):
    random = np.random.default_rng(0)
    weight = random.integers(1, 4, shape).astype(np.float32)
    weight[..., ::7] = 0
    weight[..., 66_000 // 2 :] *= random.random(66_000 // 2) < 0.02
    data = file.encode({"w": weight})
    assert file.decode(data).tensors["w"].tobytes() == weight.tobytes()
    with in_python():
        assert file.encode({"w": weight}) == data


def test_long_names_and_long_files():
    """Carries over many bytes, and an output that has to grow."""
    tensors = {"x" * 4096: np.zeros(1, np.float32), "w": np.arange(2000, dtype=np.uint64) ** 5}
    assert_same_both_ways(tensors)


@pytest.mark.parametrize("kind", ["small", ORDERED])
def test_mutations_have_the_same_outcome(kind):
    compiled = [outcome(data) for data in mutations(kind, 400, seed=5)]
    with in_python():
        plain = [outcome(data) for data in mutations(kind, 400, seed=5)]
    assert plain == compiled
    assert len({each for each in plain if isinstance(each, str)}) > 10


@given(
    seed=st.integers(0, 99),
    itemsize=st.sampled_from([1, 2, 4, 8]),
    size=st.integers(0, 200),
    start=st.integers(0, 3),
)
def test_non_zeros_are_found_wherever_they_are(seed, itemsize, size, start):
    random = np.random.default_rng(seed)
    words = random.integers(0, 256, (size + start) * itemsize, np.uint8)
    words[random.random(len(words)) < random.choice([0.5, 0.9, 0.99])] = 0
    block = words.view(f"<u{itemsize}")[start:]
    np.testing.assert_array_equal(find_nonzeros(block), np.flatnonzero(block))


@settings(max_examples=100, deadline=None)
@given(coded=st.binary(max_size=60), raw=st.binary(max_size=20))
def test_random_bytes_have_the_same_outcome(coded, raw):
    data = container.join({container.SMALL: bytes([len(coded)]) + coded + raw})
    found = outcome(data)
    with in_python():
        assert outcome(data) == found
