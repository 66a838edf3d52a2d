import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from asterism.errors import InputError
from asterism.weights.metrics import (
    density_percent,
    error_percent,
    evaluate,
    kurtosis,
    live_units,
    nonzeros,
    total_density_percent,
)

seeds = st.integers(0, 2**32 - 1)


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_kurtosis_of_a_gaussian_is_three() -> None:
    assert kurtosis(random(1000, 1000, seed=0)) == pytest.approx(3, abs=0.02)


@given(st.integers(1, 50), st.integers(1, 50))
def test_kurtosis_of_zeros_and_ones_is_bernoullis(ones: int, zeros: int) -> None:
    p = ones / (ones + zeros)
    weights = torch.cat([torch.ones(ones), torch.zeros(zeros)])
    assert kurtosis(weights) == pytest.approx(1 / (p * (1 - p)) - 3)


@given(seeds, st.sampled_from([-3.0, 1e-20, 1e15]))
def test_kurtosis_does_not_depend_on_scale(seed: int, scale: float) -> None:
    weights = random(4, 5, seed=seed)
    assert kurtosis(scale * weights) == pytest.approx(kurtosis(weights), rel=1e-4)


def test_kurtosis_is_computed_in_double_precision() -> None:
    # In float32 the mean swallows the unit steps.
    assert kurtosis(torch.tensor([2.0**24 - 1, 2.0**24 - 2] * 50)) == pytest.approx(1)


@pytest.mark.parametrize(
    "weights", [torch.full((7,), 0.1, dtype=torch.float64), torch.zeros(5), torch.zeros(0)]
)
def test_kurtosis_of_a_constant_is_not_a_number(weights: Tensor) -> None:
    assert math.isnan(kurtosis(weights))


def test_density_is_counted_by_layer_and_in_total() -> None:
    tensors = {"conv": torch.tensor([[0.0, -1.0], [0.0, 0.0]]), "fc": torch.ones(12)}
    assert nonzeros(tensors) == {"conv": 1, "fc": 12}
    assert density_percent(tensors) == {"conv": 25.0, "fc": 100.0}
    assert total_density_percent(tensors) == 81.25


def test_density_of_nothing_is_not_a_number() -> None:
    assert math.isnan(total_density_percent({}))
    assert math.isnan(density_percent({"fc": torch.zeros(0, 3)})["fc"])


@given(st.sets(st.integers(0, 5)), st.sets(st.integers(0, 3)))
def test_live_units_are_those_left_alive(outputs: set[int], inputs: set[int]) -> None:
    weight = torch.zeros(6, 4, 3, 3)
    for output in outputs:
        for channel in inputs:
            weight[output, channel, 1, 2] = -0.5
    expected = (len(outputs), len(inputs)) if outputs and inputs else (0, 0)
    assert live_units(weight) == expected


def test_live_units_refuses_a_bias() -> None:
    with pytest.raises(InputError, match=r"\(10,\)"):
        live_units(torch.ones(10))


@given(seeds, st.integers(1, 30), st.integers(1, 40))
def test_evaluate_does_not_depend_on_the_batch_size(seed: int, n: int, batch_size: int) -> None:
    logits = random(n, 5, seed=seed)
    labels = torch.arange(n) % 5
    loss, error = evaluate(nn.Identity(), logits, labels, batch_size)
    assert loss == pytest.approx(nn.functional.cross_entropy(logits, labels).item(), rel=1e-5)
    assert error == pytest.approx(100 * (logits.argmax(1) != labels).float().mean().item())


def test_error_is_the_percentage_of_wrong_answers() -> None:
    logits = torch.eye(4)
    assert error_percent(nn.Identity(), logits, torch.tensor([0, 1, 2, 0]), batch_size=3) == 25.0


def test_evaluate_runs_in_eval_mode_and_restores_each_module() -> None:
    # A dropout of everything would make every answer the first class.
    model = nn.Sequential(nn.Dropout(1.0), nn.Identity())
    model[1].eval()
    assert error_percent(model, torch.eye(3), torch.arange(3)) == 0.0
    assert [module.training for module in model.modules()] == [True, True, False]


@pytest.mark.parametrize(("images", "labels"), [(0, 0), (3, 2)])
def test_evaluate_refuses_what_does_not_match(images: int, labels: int) -> None:
    with pytest.raises(InputError, match=f"{images} images against {labels} labels"):
        evaluate(nn.Identity(), torch.zeros(images, 2), torch.zeros(labels, dtype=torch.long))
