"""The dry run: every parameter has its line, and nothing moves."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from asterism import AffineScaling, InputError, ReweightedL1, Task, plan
from asterism.experiments.networks import lenet5
from asterism.search.plan import Row, suggest
from support.explicit import loss, make_model, train


def judged_by(evaluate: Callable[[nn.Module], float]) -> Task:
    """A task that can be measured and not trained, which is all that a plan needs."""

    def fit(model: nn.Module, optimizer: torch.optim.Optimizer, epochs: int) -> None:
        raise AssertionError("a plan never trains")

    return Task(fit, evaluate)


def make_evaluate(model: nn.Module) -> Callable[[nn.Module], float]:
    """The loss of a trained network on one batch."""
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), range(50))
    return lambda model: loss(model, 0).item()


def test_it_touches_what_the_optimizer_would() -> None:
    model = lenet5()
    for patterns in ({}, {"include": ["fc*"]}, {"exclude": ["conv1"]}):
        found = plan(model, **patterns)  # type: ignore[arg-type]
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer = AffineScaling(sgd, model, ReweightedL1(), **patterns)  # type: ignore[arg-type]
        assert {row.name for row in found.touched} == optimizer.weights().keys()
        assert sum(row.size for row in found.rows) == 431_080


def test_what_is_left_alone_says_why() -> None:
    model = nn.Sequential(nn.Embedding(4, 3), nn.Linear(3, 3), nn.LayerNorm(3), nn.Linear(3, 2))
    model[3].weight.requires_grad_(False)
    reasons = {row.name: row.reason for row in plan(model, exclude=["1.bias"]).rows}
    assert reasons["0.weight"] == "belongs to Embedding"
    assert reasons["1.weight"] == "weight of Linear"
    assert reasons["1.bias"] == "excluded by name"
    assert reasons["2.weight"] == "a bias or vector"
    assert reasons["3.weight"] == "frozen"
    table = str(plan(model))
    assert "left alone: belongs to Embedding" in table
    assert "9 of 38 parameters would be made sparse" in table


def test_tied_weights_have_one_line_with_both_names() -> None:
    model = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)})
    model["b"].weight = model["a"].weight
    found = plan(model)
    assert [(row.name, row.also) for row in found.touched] == [("a.weight", ("b.weight",))]
    assert "a.weight = b.weight" in str(found)


def test_the_work_of_each_weight_is_shown_if_inputs_are_given() -> None:
    found = plan(lenet5(), example_inputs=torch.rand(2, 1, 28, 28))
    assert {row.name: row.macs for row in found.touched} == {
        "conv1.weight": 288_000,
        "conv2.weight": 1_600_000,
        "fc1.weight": 400_000,
        "fc2.weight": 5_000,
    }
    assert "1,600,000" in str(found)


def test_sensitivity_is_the_metric_of_the_model_with_one_layer_cut() -> None:
    model = make_model()
    evaluate = make_evaluate(model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = plan(model, judged_by(evaluate), densities=(0.5, 0.125))
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    assert found.metric == evaluate(model)
    with torch.no_grad():
        flat = model.fc2.weight.view(-1)
        flat[flat.abs().argsort()[: 24 - 3]] = 0.0
    row = next(row for row in found.rows if row.name == "fc2.weight")
    assert row.metrics[0.125] == evaluate(model)
    assert all(not row.metrics for row in found.rows if not row.touched)
    assert "at 0.125" in str(found)


def test_the_weights_come_back_when_the_metric_raises() -> None:
    model = make_model()
    before = model.fc1.weight.detach().clone()

    def evaluate(model: nn.Module) -> float:
        if (model.get_parameter("fc1.weight") == 0).any():
            raise RuntimeError("out of data")
        return 1.0

    with pytest.raises(RuntimeError, match="out of data"):
        plan(model, judged_by(evaluate))
    assert torch.equal(model.fc1.weight, before)


def test_a_metric_must_be_a_number_for_the_model_as_it_is() -> None:
    with pytest.raises(InputError, match="evaluate gave nan for the model as it is"):
        plan(make_model(), judged_by(lambda model: math.nan))

    def fragile(model: nn.Module) -> float:
        return math.nan if (model.get_parameter("fc1.weight") == 0).any() else 1.0

    found = plan(make_model(), judged_by(fragile))
    text = json.dumps(found.to_json(), allow_nan=False)
    assert json.loads(text)["parameters"][0]["metrics"]["0.5"] is None
    assert found.suggestion.densities["fc1.weight"] == 1
    assert found.suggestion.densities["fc2.weight"] == 0.05


# ---------------------------------------------------------------------- the suggestion


def row(name: str, size: int, *metrics: float) -> Row:
    return Row(name, (size, 1), True, "", metrics=dict(zip((0.5, 0.25, 0.1), metrics, strict=True)))


def test_the_suggestion_stops_before_the_first_harmful_cut() -> None:
    rows = [
        row("robust", 900, 90.0, 89.5, 89.0),
        row("middling", 100, 89.0, 60.0, 90.0),
        row("fragile", 20, 10.0, 10.0, 10.0),
    ]
    suggestion = suggest(rows, 90.0)
    assert suggestion.densities == {"robust": 0.1, "middling": 0.5}
    assert suggestion.exclude == ("fragile",)
    assert suggestion.density == pytest.approx((90 + 50 + 20) / 1020)
    assert "exclude=['fragile']" in str(suggestion)


def test_the_direction_of_the_metric_does_not_matter() -> None:
    rows = [row("a", 90, 1.0, 1.1, 9.0), row("b", 90, 1.0, 8.0, 9.0)]
    assert suggest(rows, 1.0).densities == {"a": 0.25, "b": 0.5}
    turned = [
        Row(r.name, r.shape, True, "", metrics={d: -m for d, m in r.metrics.items()}) for r in rows
    ]
    assert suggest(turned, -1.0).densities == suggest(rows, 1.0).densities


def test_without_a_metric_every_layer_is_treated_alike() -> None:
    suggestion = plan(make_model()).suggestion
    assert suggestion.densities == {"fc1.weight": 0.1, "fc2.weight": 0.1}
    assert suggestion.why == "no metric to go by"


def test_the_densities_suggested_are_what_prune_takes() -> None:
    model = make_model()
    found = plan(model, judged_by(make_evaluate(model)))
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    options = {"exclude": list(found.suggestion.exclude)} if found.suggestion.exclude else {}
    optimizer = AffineScaling(sgd, model, ReweightedL1(), **options)  # type: ignore[arg-type]
    optimizer.prune(density=found.suggestion.densities)


def test_a_model_no_better_than_its_ruin_is_doubted() -> None:
    model = nn.Linear(8, 8)
    nn.init.normal_(model.weight, std=0.9)  # not as PyTorch would
    constant = Task(lambda *_: None, lambda _: 50.0)
    found = plan(model, constant)
    assert "is the model trained?" in found.doubt
    assert "no worse" in str(found)
