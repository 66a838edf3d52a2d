from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism import file
from asterism.errors import InputError
from asterism.file.quantising import ROUNDS, codebook, nearest, quantise


def pruned(seed: int, size: int = 4000) -> np.ndarray:
    random = np.random.default_rng(seed)
    weight = random.standard_normal(size).astype(np.float32)
    return np.where(random.random(size) < 0.3, weight, 0).astype(np.float32)


@given(seed=st.integers(0, 1000), bits=st.integers(1, 6))
def test_few_values_the_same_zeros_and_idempotent(seed, bits):
    weight = pruned(seed)
    found = quantise(weight, bits)
    assert len(np.unique(found[found != 0])) <= 1 << bits
    np.testing.assert_array_equal(found == 0, weight == 0)
    np.testing.assert_array_equal(quantise(found, bits), found)
    assert found.dtype == weight.dtype


def test_the_error_is_that_of_a_good_quantiser():
    weight = pruned(0, 40_000)
    values = weight[weight != 0].astype(np.float64)
    # Lloyd and Max: mean squared error of the best 4- and 16-level quantisers of a Gaussian.
    for bits, best in ((2, 0.1175), (4, 0.00954)):
        book = codebook(values, bits)
        assert np.mean((book[nearest(values, book)] - values) ** 2) < 1.1 * best
        rounded = quantise(weight, bits)[weight != 0]
        assert np.mean((rounded - values) ** 2) < 1.15 * best


@given(seed=st.integers(0, 1000), bits=st.integers(1, 4), size=st.integers(200, 2000))
def test_a_codebook_is_that_of_the_plain_algorithm(seed, bits, size):
    """Each round: every weight to the nearest entry, every entry to the mean of its weights."""
    values = np.random.default_rng(seed).laplace(size=size).astype(np.float32).astype(np.float64)
    book = np.quantile(values, (np.arange(1 << bits) + 0.5) / (1 << bits))
    for _ in range(ROUNDS):
        place = nearest(values, book)
        book = np.array([values[place == i].mean() for i in np.unique(place)])
    np.testing.assert_allclose(codebook(values, bits), book, rtol=1e-10)


def test_few_weights_are_only_rounded():
    bias = np.array([0.1, -0.02, 3.3, 0.0], np.float32)
    np.testing.assert_allclose(quantise(bias, 5), bias, rtol=2**-8)


def test_tiny_weights_do_not_vanish():
    weight = np.array([1e-45, -1e-45, 1.0], np.float32)
    assert np.count_nonzero(quantise(weight, 2)) == 3
    assert np.count_nonzero(quantise(weight.astype(np.float16), 2)) == 1


def test_minus_zero_is_zero():
    assert not np.signbit(quantise(np.array([-0.0, 1.0], np.float32), 3)).any()


@pytest.mark.parametrize("bits", [0, 13, -1])
def test_bits_out_of_range(bits):
    with pytest.raises(InputError, match="bits must be 1 to 12"):
        quantise(np.ones(3, np.float32), bits)


def test_a_diverged_tensor_is_named():
    with pytest.raises(InputError, match=r"fc\.weight: cannot quantise infinities or NaN"):
        file.encode({"fc.weight": np.array([1.0, np.nan])}, bits=4)


@pytest.mark.parametrize("mode", ["small", "fast"])
def test_fewer_bits_make_a_smaller_file(mode):
    weight = pruned(1).reshape(50, 80)
    sizes = [len(file.encode({"w": weight}, mode=mode, bits=bits)) for bits in (3, 5, 7, None)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1] / 2
    found = file.decode(file.encode({"w": weight}, mode=mode, bits=5)).tensors["w"]
    np.testing.assert_array_equal(found, quantise(weight, 5))


def test_bits_by_name_and_integers_left_alone():
    tensors = {"a": pruned(1), "b": pruned(2), "n": np.arange(500)}
    found = file.decode(file.encode(tensors, bits={"a": 2})).tensors
    assert len(np.unique(found["a"])) <= 5
    np.testing.assert_array_equal(found["b"], tensors["b"])
    np.testing.assert_array_equal(
        file.decode(file.encode(tensors, bits=2)).tensors["n"], tensors["n"]
    )


def test_bfloat16():
    weight = (pruned(3).view(np.uint32) >> 16).astype(np.uint16)
    data = file.encode({"w": weight}, bits=3, dtypes={"w": "bfloat16"})
    found = file.decode(data).tensors["w"]
    assert len(np.unique(found)) <= 9
    numbers = [(each.astype(np.uint32) << 16).view(np.float32) for each in (found, weight)]
    assert np.abs(numbers[0] - numbers[1]).max() < 1.5
    assert np.corrcoef(*numbers)[0, 1] > 0.98
