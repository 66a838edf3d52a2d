import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from asterism import AffineScaling, ReweightedL1
from asterism.errors import InputError
from asterism.experiments.networks import lenet5
from asterism.weights.targets import choose, survey


def chosen(model: nn.Module, **patterns: Any) -> list[str]:
    return [candidate.name for candidate in choose(model, **patterns)]


def reasons(model: nn.Module, **patterns: Any) -> dict[str, str]:
    return {candidate.name: candidate.reason for candidate in survey(model, **patterns)}


# ---------------------------------------------------------------------- which layers


@pytest.mark.parametrize(
    ("make", "weights"),
    [
        (lambda: nn.Linear(2, 3), ["weight"]),
        (lambda: nn.Bilinear(2, 3, 4), ["weight"]),
        (lambda: nn.Conv1d(2, 3, 1), ["weight"]),
        (lambda: nn.Conv2d(2, 3, 1), ["weight"]),
        (lambda: nn.Conv3d(2, 3, 1), ["weight"]),
        (lambda: nn.ConvTranspose1d(2, 3, 1), ["weight"]),
        (lambda: nn.ConvTranspose2d(2, 3, 1), ["weight"]),
        (lambda: nn.ConvTranspose3d(2, 3, 1), ["weight"]),
        (lambda: nn.LSTM(2, 4, proj_size=3), ["weight_ih_l0", "weight_hh_l0", "weight_hr_l0"]),
        (lambda: nn.GRU(2, 3), ["weight_ih_l0", "weight_hh_l0"]),
        (
            lambda: nn.RNN(2, 3, bidirectional=True),
            ["weight_ih_l0", "weight_hh_l0", "weight_ih_l0_reverse", "weight_hh_l0_reverse"],
        ),
        (lambda: nn.RNNCell(2, 3), ["weight_ih", "weight_hh"]),
        (lambda: nn.LSTMCell(2, 3), ["weight_ih", "weight_hh"]),
        (lambda: nn.MultiheadAttention(4, 2), ["in_proj_weight", "out_proj.weight"]),
        (
            lambda: nn.MultiheadAttention(4, 2, kdim=3, vdim=3, add_bias_kv=True),
            ["q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.weight"],
        ),
    ],
)
def test_the_weights_of_a_layer_are_offered_and_its_biases_are_not(
    make: Callable[[], nn.Module], weights: list[str]
) -> None:
    assert chosen(make()) == weights


@pytest.mark.parametrize(
    "layer",
    [
        nn.Embedding(5, 3),
        nn.EmbeddingBag(5, 3),
        nn.LayerNorm([2, 3]),  # a norm whose weight has rank 2
        nn.BatchNorm2d(4),
        nn.GroupNorm(2, 4),
        nn.PReLU(3),
        nn.ParameterList([torch.zeros(2, 2)]),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_other_layers_are_left_alone(layer: nn.Module) -> None:
    both = nn.ModuleDict({"fc": nn.Linear(2, 2), "other": layer})
    assert chosen(both) == ["fc.weight"]


def test_lenet_offers_its_four_weights() -> None:
    candidates = choose(lenet5())
    names = [candidate.name for candidate in candidates]
    assert names == ["conv1.weight", "conv2.weight", "fc1.weight", "fc2.weight"]
    assert sum(candidate.param.numel() for candidate in candidates) == 430_500


def test_a_subclass_counts_as_its_layer() -> None:
    class Rotated(nn.Linear):
        pass

    assert chosen(Rotated(2, 2)) == ["weight"]


# ---------------------------------------------------------------------- tied and frozen


def make_language_model() -> nn.ModuleDict:
    model = nn.ModuleDict(
        {"embedding": nn.Embedding(7, 4), "fc": nn.Linear(4, 4), "head": nn.Linear(4, 7)}
    )
    model["head"].weight = model["embedding"].weight
    return model


def test_a_head_tied_to_an_embedding_is_the_embedding() -> None:
    model = make_language_model()
    assert chosen(model) == ["fc.weight"]
    assert reasons(model)["embedding.weight"] == "belongs to Embedding"


@pytest.mark.parametrize("name", ["head", "embedding.weight"])
def test_it_is_included_under_either_name(name: str) -> None:
    (candidate,) = choose(make_language_model(), include=[name])
    assert candidate.names == ("embedding.weight", "head.weight")


def test_tied_weights_are_counted_once_under_both_names() -> None:
    model = nn.ModuleDict({"one": nn.Linear(3, 3), "two": nn.Linear(3, 3)})
    model["two"].weight = model["one"].weight
    (candidate,) = choose(model)
    assert candidate.names == ("one.weight", "two.weight")
    with pytest.raises(InputError, match="nothing to prune"):
        choose(model, exclude=["two"])


def test_a_module_that_is_used_twice_has_both_names() -> None:
    shared = nn.Linear(3, 3)
    (candidate,) = choose(nn.ModuleDict({"one": shared, "two": shared}), include=["two"])
    assert candidate.names == ("one.weight", "two.weight")


def test_frozen_weights_are_left_alone_even_by_name() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].weight.requires_grad_(False)
    assert chosen(model) == ["1.weight"]
    assert reasons(model, include=["0"])["0.weight"] == "frozen"


# ---------------------------------------------------------------------- lazy and computed weights


@pytest.mark.parametrize("lazy", [nn.LazyLinear(3), nn.LazyConv2d(3, 1)])
def test_a_lazy_layer_needs_a_batch_first(lazy: nn.Module) -> None:
    model = nn.Sequential(nn.Linear(2, 2), lazy)
    with pytest.raises(InputError, match=r"^1\.weight is lazy .*: run one batch through the model"):
        choose(model)
    assert chosen(model, exclude=["1"]) == ["0.weight"]
    assert chosen(model, include=["0"]) == ["0.weight"]


def test_a_lazy_layer_that_has_seen_a_batch_is_a_layer() -> None:
    model = nn.Sequential(nn.LazyLinear(3))
    model(torch.ones(1, 2))
    assert chosen(model) == ["0.weight"]


def legacy_weight_norm(layer: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return nn.utils.weight_norm(layer)


HIDDEN: dict[str, tuple[Callable[[nn.Module], nn.Module], str]] = {
    "legacy": (legacy_weight_norm, "hidden by WeightNorm"),
    "legacy spectral_norm": (nn.utils.spectral_norm, "hidden by SpectralNorm"),
    "weight_norm": (parametrizations.weight_norm, "hidden by WeightNorm"),
    "spectral_norm": (parametrizations.spectral_norm, "hidden by SpectralNorm"),
    "orthogonal": (parametrizations.orthogonal, "hidden by Orthogonal"),
}
each_way_to_hide = pytest.mark.parametrize(("hide", "reason"), HIDDEN.values(), ids=HIDDEN)


@each_way_to_hide
@pytest.mark.parametrize("include", [None, ["*"], ["plain", "normed*"]])
def test_computed_weights_are_left_alone_with_a_reason_and_a_warning(
    hide: Callable[[nn.Module], nn.Module], reason: str, include: list[str] | None
) -> None:
    model = nn.ModuleDict({"plain": nn.Linear(4, 4), "normed": hide(nn.Linear(4, 4))})
    with pytest.warns(UserWarning, match=rf"^left dense: normed\.\S+ \({reason}\).*first") as seen:
        assert chosen(model, include=include) == ["plain.weight"]
    assert len(seen) == 1
    assert "\n" not in str(seen[0].message)
    found = reasons(model, include=include)
    assert {found[name] for name in found if "plain" not in name} == {reason, "a bias or vector"}


@each_way_to_hide
def test_computed_weights_that_are_excluded_need_no_warning(
    hide: Callable[[nn.Module], nn.Module], reason: str
) -> None:
    model = nn.ModuleDict({"plain": nn.Linear(4, 4), "normed": hide(nn.Linear(4, 4))})
    assert chosen(model, exclude=["normed*"]) == ["plain.weight"]
    with pytest.raises(InputError, match=rf"nothing to prune \(.*{reason}.*\): make them plain"):
        choose(model, exclude=["plain"])


def test_other_layers_with_a_norm_need_no_warning() -> None:
    normed = parametrizations.weight_norm(nn.Embedding(3, 2))
    assert chosen(nn.ModuleDict({"embedding": normed, "fc": nn.Linear(2, 2)})) == ["fc.weight"]


def test_a_network_with_legacy_weight_norm_is_pruned_without_nan() -> None:
    model = nn.Sequential(nn.Linear(4, 6), legacy_weight_norm(nn.Linear(6, 5)))
    with pytest.warns(UserWarning, match="left dense"):
        optimizer = AffineScaling(
            torch.optim.SGD(model.parameters(), lr=0.1), model, ReweightedL1()
        )
    optimizer.prune(density=0.1)
    assert model(torch.randn(3, 4)).isfinite().all()


# ---------------------------------------------------------------------- patterns


def make_nested() -> nn.ModuleDict:
    encoder = nn.ModuleDict({"fc1": nn.Linear(2, 2), "fc2": nn.Linear(2, 2)})
    return nn.ModuleDict({"encoder": encoder, "fc1": nn.Linear(2, 2)})


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        ({"include": ["fc1"]}, ["fc1.weight"]),
        ({"include": ["fc1.weight"]}, ["fc1.weight"]),
        ({"include": ["encoder.*"]}, ["encoder.fc1.weight", "encoder.fc2.weight"]),
        ({"include": ["*fc1"]}, ["encoder.fc1.weight", "fc1.weight"]),
        ({"include": ["fc1", "*.fc2"]}, ["encoder.fc2.weight", "fc1.weight"]),
        ({"include": ["*"]}, ["encoder.fc1.weight", "encoder.fc2.weight", "fc1.weight"]),
        ({"exclude": ["fc1"]}, ["encoder.fc1.weight", "encoder.fc2.weight"]),
        ({"exclude": ["encoder.*"]}, ["fc1.weight"]),
        ({"include": ["*fc1"], "exclude": ["fc1"]}, ["encoder.fc1.weight"]),
        ({"include": None, "exclude": []}, chosen(make_nested())),
    ],
)
def test_patterns_fit_parameters_and_modules(patterns: Any, names: list[str]) -> None:
    assert chosen(make_nested(), **patterns) == names


def test_embeddings_and_bare_parameters_can_be_included_by_name() -> None:
    model = nn.ModuleDict({"embedding": nn.Embedding(3, 2), "fc": nn.Linear(2, 2)})
    model.register_parameter("mixing", nn.Parameter(torch.ones(2, 2)))
    assert chosen(model, include=["embedding", "mixing"]) == ["mixing", "embedding.weight"]


def test_biases_cannot_be_included() -> None:
    model = nn.MultiheadAttention(4, 2, add_bias_kv=True)
    assert chosen(model, include=["*"]) == ["in_proj_weight", "out_proj.weight"]


@pytest.mark.parametrize("option", ["include", "exclude"])
def test_an_unknown_pattern_is_named_beside_what_there_is(option: str) -> None:
    with pytest.raises(InputError, match=r"no layer matches the pattern 'fc9'; there are 0\."):
        choose(nn.Sequential(nn.Linear(2, 2)), **{option: ["fc9"]})


@pytest.mark.parametrize("option", ["include", "exclude"])
def test_a_string_is_not_a_list_of_patterns(option: str) -> None:
    with pytest.raises(InputError, match=r"lists of patterns: write \['fc1'\]"):
        choose(make_nested(), **{option: "fc1"})


@pytest.mark.parametrize(
    ("model", "patterns", "message"),
    [
        (nn.ReLU(), {}, r"ReLU has nothing to prune \(no parameters at all\)"),
        (nn.LayerNorm(3), {}, r"LayerNorm has nothing to prune \(a bias or vector\)"),
        (nn.Linear(2, 2), {"exclude": ["*"]}, r"Linear has nothing to prune \(excluded by name\)"),
        (nn.Linear(2, 2), {"include": ["bias"]}, r"\(a bias or vector; not included\)"),
        (nn.Linear(2, 2), {"include": []}, r"\(not included\): name weights with include"),
    ],
)
def test_nothing_to_prune_says_why(model: nn.Module, patterns: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        choose(model, **patterns)


def test_the_survey_gives_every_parameter_its_reason() -> None:
    model = nn.ModuleDict(
        {
            "embedding": nn.Embedding(3, 2),
            "conv": nn.Conv1d(2, 2, 1),
            "norm": nn.LayerNorm(2),
            "old": nn.Linear(2, 2, bias=False).requires_grad_(False),
            "skipped": nn.Linear(2, 2, bias=False),
        }
    )
    assert reasons(model, exclude=["skipped"]) == {
        "embedding.weight": "belongs to Embedding",
        "conv.weight": "weight of Conv1d",
        "conv.bias": "a bias or vector",
        "norm.weight": "a bias or vector",
        "norm.bias": "a bias or vector",
        "old.weight": "frozen",
        "skipped.weight": "excluded by name",
    }
    assert reasons(model, include=["conv"])["conv.weight"] == "included by name"
    assert [each.chosen for each in survey(model)] == [
        each.reason.startswith("weight of") for each in survey(model)
    ]
