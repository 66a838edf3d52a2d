import copy
import math
import warnings
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from asterism.errors import InputError
from asterism.pruning.masks import apply_masks, choose_masks
from asterism.pruning.request import Request
from asterism.pruning.scores import count
from support.properties import examples

SHAPES = {"conv.weight": (4, 2, 3, 3), "fc1.weight": (20, 8), "fc2.weight": (5, 20)}
TOTAL = sum(math.prod(shape) for shape in SHAPES.values())
seeds = st.integers(0, 2**32 - 1)


def network(seed: int = 0) -> dict[str, Tensor]:
    """Three layers of very different sizes; some weights of equal magnitude."""
    generator = torch.Generator().manual_seed(seed)
    scale = {"conv.weight": 1.0, "fc1.weight": 0.1, "fc2.weight": 0.01}
    weights = {n: torch.randn(shape, generator=generator) for n, shape in SHAPES.items()}
    return {name: (theta * 20).round() / 20 * scale[name] for name, theta in weights.items()}


def all_of(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: torch.ones_like(theta, dtype=torch.bool) for name, theta in weights.items()}


def prune(
    weights: Mapping[str, Tensor], kept: Mapping[str, Tensor] | None = None, **asked: Any
) -> dict[str, Tensor]:
    chosen = choose_masks(weights, {} if kept is None else kept, Request(**asked))
    return {name: mask() for name, mask in chosen.items()}


def kept_in(masks: Mapping[str, Tensor]) -> int:
    return sum(int(mask.sum()) for mask in masks.values())


# ---------------------------------------------------------------------- the exactness contract


@pytest.mark.parametrize("score", ["lamp", "magnitude"])
@pytest.mark.filterwarnings("ignore:the cut would leave nothing")
@examples(100)
@given(seed=seeds, keep=st.integers(len(SHAPES), TOTAL))
def test_a_global_density_is_met_to_the_weight(score: str, seed: int, keep: int) -> None:
    masks = prune(network(seed), density=keep / TOTAL, score=score)
    assert kept_in(masks) == keep
    assert all(mask.any() for mask in masks.values())


@examples(100)
@given(seed=seeds, density=st.floats(0.02, 1))
def test_a_density_per_layer_is_met_in_each(seed: int, density: float) -> None:
    masks = prune(network(seed), density=density, per_layer=True)
    assert masks.keys() == SHAPES.keys()
    for mask in masks.values():
        assert int(mask.sum()) == count(density, mask.numel())


@examples(100)
@given(seed=seeds, conv=st.floats(0.02, 1), rest=st.floats(0.02, 1))
def test_densities_by_pattern_are_met_and_the_first_pattern_wins(
    seed: int, conv: float, rest: float
) -> None:
    masks = prune(network(seed), density={"conv": conv, "*": rest})
    for name, mask in masks.items():
        density = conv if name == "conv.weight" else rest
        assert int(mask.sum()) == count(density, mask.numel())


def test_layers_that_no_pattern_matches_are_left_alone() -> None:
    assert prune(network(), density={"fc*": 0.5}).keys() == {"fc1.weight", "fc2.weight"}
    assert prune(network(), threshold={"conv": 0.5}).keys() == {"conv.weight"}


@examples(100)
@given(seed=seeds, density=st.floats(0.1, 0.9))
def test_within_a_layer_the_largest_stay(seed: int, density: float) -> None:
    weights = network(seed)
    for name, mask in prune(weights, density=density).items():
        if not mask.all():
            assert weights[name][mask].abs().min() >= weights[name][~mask].abs().max()


def test_magnitude_compares_layers_as_they_are_and_lamp_does_not() -> None:
    weights = {"big": torch.tensor([3.0, 2.0, 4.0]), "small": torch.tensor([0.3, 0.2, 0.4])}
    by_magnitude = prune(weights, density=4 / 6, score="magnitude")
    by_lamp = prune(weights, density=4 / 6, score="lamp")
    assert [int(mask.sum()) for mask in by_magnitude.values()] == [3, 1]
    assert [int(mask.sum()) for mask in by_lamp.values()] == [2, 2]


@examples(100)
@given(seed=seeds, densities=st.lists(st.floats(0.05, 1), min_size=2, max_size=5))
def test_pruned_weights_never_come_back(seed: int, densities: list[float]) -> None:
    weights = network(seed)
    kept = all_of(weights)
    for density in sorted(densities, reverse=True):
        masks = prune(weights, kept, density=density)
        assert kept_in(masks) == count(density, TOTAL)
        assert not any((masks[name] & ~kept[name]).any() for name in kept)
        kept = masks
        # Even where the pruned weights are the largest of all.
        weights = {name: theta + 9 * ~kept[name] for name, theta in weights.items()}


@pytest.mark.parametrize("score", ["lamp", "magnitude"])
def test_a_live_zero_goes_before_a_pruned_one(score: str) -> None:
    weights, kept = {"fc": torch.zeros(4)}, {"fc": torch.tensor([False, True, False, True])}
    masks = prune(weights, kept, density=0.5, score=score)
    assert torch.equal(masks["fc"], kept["fc"])


# ---------------------------------------------------------------------- a density as a limit


@examples(100)
@given(seed=seeds, first=st.floats(0.05, 1), second=st.floats(0.05, 1))
def test_at_most_cuts_what_is_above_the_density_and_nothing_else(
    seed: int, first: float, second: float
) -> None:
    weights = network(seed)
    before = prune(weights, density=first)
    after = before | prune(weights, before, density=second, at_most=True)
    if count(second, TOTAL) < count(first, TOTAL):
        plain = prune(weights, before, density=second)
        assert all(torch.equal(after[name], mask) for name, mask in plain.items())
    else:
        assert all(after[name] is before[name] for name in SHAPES)


def test_at_most_is_each_layers_own_limit_where_the_density_is() -> None:
    weights = network()
    kept = prune(weights, density={"fc1": 0.1, "*": 0.8})
    asked: list[dict[str, Any]] = [{"density": {"*": 0.5}}, {"density": 0.5, "per_layer": True}]
    for each in asked:
        masks = prune(weights, kept, at_most=True, **each)
        assert masks.keys() == {"conv.weight", "fc2.weight"}
        assert [int(mask.sum()) for mask in masks.values()] == [36, 50]


# ---------------------------------------------------------------------- the collapse guard


def test_the_guard_warns_and_keeps_the_total() -> None:
    weights = {"big": torch.arange(1.0, 9.0), "small": torch.tensor([1e-3, -2e-3, 1e-3])}
    with pytest.warns(UserWarning, match="leave nothing of small: the largest weight stays"):
        masks = prune(weights, density=4 / 11, score="magnitude")
    assert masks["big"].tolist() == [False] * 5 + [True] * 3
    assert masks["small"].tolist() == [False, True, False]


def test_the_guard_protects_only_what_is_alive() -> None:
    weights = {"big": torch.arange(1.0, 9.0), "small": torch.tensor([1e-3, -2e-3, 1e-3])}
    kept = all_of(weights) | {"small": torch.tensor([True, False, False])}
    with pytest.warns(UserWarning, match="leave nothing of small"):
        masks = prune(weights, kept, density=4 / 11, score="magnitude")
    assert masks["small"].tolist() == [True, False, False]
    assert kept_in(masks) == 4


@pytest.mark.parametrize("asked", [{"density": 0.5}, {"threshold": 4.5}])
def test_a_layer_that_is_dead_already_stays_so_without_a_warning(asked: dict[str, float]) -> None:
    weights = {"alive": torch.arange(1.0, 9.0), "dead": torch.zeros(2)}
    kept = all_of(weights) | {"dead": torch.zeros(2, dtype=torch.bool)}
    if "density" in asked:
        asked = {"density": 4 / 10}
    masks = prune(weights, kept, **asked)
    assert masks["alive"].tolist() == [False] * 4 + [True] * 4
    assert not masks["dead"].any()


def test_no_warning_where_nothing_is_wrong() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        prune(network(), density=0.1)
        prune(network(), threshold=0.0)
    assert not seen


# ---------------------------------------------------------------------- thresholds and masks


def test_weights_of_at_most_the_threshold_go() -> None:
    weights = {"fc": torch.tensor([0.0, -0.1, 0.1, 0.2, -0.3])}
    assert prune(weights, threshold=0.1)["fc"].tolist() == [False, False, False, True, True]
    assert prune(weights, threshold=0.0)["fc"].tolist() == [False, True, True, True, True]


def test_a_threshold_does_not_revive() -> None:
    weights = {"fc": torch.tensor([5.0, 3.0, 1.0])}
    kept = {"fc": torch.tensor([False, True, True])}
    assert prune(weights, kept, threshold=2.0)["fc"].tolist() == [False, True, False]


def test_a_threshold_above_everything_leaves_the_largest() -> None:
    weights = {"fc": torch.tensor([5.0, 3.0, 1.0])}
    kept = {"fc": torch.tensor([False, True, True])}
    with pytest.warns(UserWarning, match="leave nothing of fc"):
        assert prune(weights, kept, threshold=9.0)["fc"].tolist() == [False, True, False]


def test_thresholds_by_pattern() -> None:
    weights = {"a.weight": torch.tensor([1.0, 3.0]), "b.weight": torch.tensor([1.0, 3.0])}
    masks = prune(weights, threshold={"a": 2.0, "*": 0.5})
    assert [mask.tolist() for mask in masks.values()] == [[False, True], [True, True]]


def test_masks_given_are_used_and_revive_nothing() -> None:
    weights, kept = {"fc": torch.ones(3)}, {"fc": torch.tensor([False, True, True])}
    masks = prune(weights, kept, masks={"fc": torch.tensor([True, True, False])})
    assert masks["fc"].tolist() == [False, True, False]


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"density": 1.5}, r"density must lie in \(0, 1\], got 1\.5"),
        ({"density": math.nan}, r"density must lie in \(0, 1\], got nan"),
        ({"density": 2 / TOTAL}, "would keep 2 weights in 3 layers: every layer needs at least"),
        ({"density": 0.004, "per_layer": True}, r"would keep 0 weights in conv\.weight: every"),
        ({"density": {"fc2": 0.001}}, r"would keep 0 weights in fc2\.weight: every layer"),
        ({"density": {"fc3": 0.5}}, r"no layer matches the pattern 'fc3'; there are conv\.weight"),
        ({"threshold": -1.0}, r"at least 0 and finite, got -1\.0 for conv\.weight"),
        ({"threshold": {"fc1": math.nan}}, r"at least 0 and finite, got nan for fc1\.weight"),
        ({"threshold": math.inf}, r"at least 0 and finite, got inf for conv\.weight"),
        ({"threshold": {"nope": 0.1}}, "no layer matches the pattern 'nope'"),
        ({"masks": {"fc3.weight": torch.ones(1)}}, r"no layer is called 'fc3\.weight'; there are"),
        (
            {"masks": {"fc1.weight": torch.ones(20, 8)}},
            r"mask of fc1\.weight must be bool of shape \(20, 8\), found torch\.float32",
        ),
        (
            {"masks": {"fc1.weight": torch.ones(8, 20, dtype=torch.bool)}},
            r"must be bool of shape \(20, 8\), found torch\.bool of shape \(8, 20\)",
        ),
        (
            {"masks": {"fc1.weight": torch.zeros(20, 8, dtype=torch.bool)}},
            r"the mask of fc1\.weight keeps none of its weights",
        ),
    ],
)
def test_a_request_that_cannot_be_met_names_the_culprit(asked: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        prune(network(), **asked)


def test_a_density_above_what_is_left_is_refused() -> None:
    weights = network()
    kept = prune(weights, density=0.5)
    with pytest.raises(InputError, match="asks for 199 weights in 3 layers, but only 166 are left"):
        prune(weights, kept, density=0.6)
    with pytest.raises(InputError, match=r"weights in fc1\.weight, but only"):
        prune(weights, kept, density={"fc1": 1.0})


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_named(bad: float) -> None:
    weights = network()
    weights["fc1.weight"][3, 4] = bad
    with pytest.raises(InputError, match=r"fc1\.weight holds NaN or infinity: has training"):
        prune(weights, density=0.5)


# ---------------------------------------------------------------------- copies


class Wrapper(nn.Module):
    """As torch.compile wraps: the model is a child of this name."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._orig_mod = model


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))


MASKS = {
    "0.weight": torch.arange(12).view(4, 3) % 2 == 0,
    "1.weight": torch.arange(8).view(2, 4) % 3 == 0,
}


@pytest.mark.parametrize(
    "wrap",
    [copy.deepcopy, AveragedModel, Wrapper, lambda model: AveragedModel(Wrapper(model))],
    ids=["copy", "averaged", "compiled", "averaged and compiled"],
)
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod."])
def test_any_copy_of_the_model_is_masked(wrap: Any, prefix: str) -> None:
    model = make_model()
    twin = wrap(copy.deepcopy(model))
    apply_masks(twin, {prefix + name: mask for name, mask in MASKS.items()})
    for (name, before), after in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert torch.equal(after, before * MASKS.get(name, torch.ones(())))


def test_a_models_own_child_called_module_keeps_its_name() -> None:
    model = nn.ModuleDict({"fc": nn.Linear(2, 2), "module": nn.ModuleDict({"fc": nn.Linear(2, 2)})})
    apply_masks(model, {"fc.weight": torch.zeros(2, 2, dtype=torch.bool)})
    zeroed = [name for name, param in model.named_parameters() if not param.any()]
    assert zeroed == ["fc.weight"]


def test_a_copy_that_does_not_fit_is_named() -> None:
    with pytest.raises(InputError, match=r"no parameter 2\.weight of shape \(1, 1\)"):
        apply_masks(make_model(), {"2.weight": torch.ones(1, 1, dtype=torch.bool)})
    with pytest.raises(InputError, match=r"no parameter 0\.weight of shape \(3, 4\)"):
        apply_masks(make_model(), {"0.weight": torch.ones(3, 4, dtype=torch.bool)})
