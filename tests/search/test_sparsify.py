"""sparsify(): what it finds, what it promises, and what it does when things go wrong."""

from __future__ import annotations

import copy
import inspect
import math
from contextlib import nullcontext
from dataclasses import MISSING, fields

import pytest
import torch
from torch import nn

import asterism
from asterism import InputError, Task
from asterism.experiments.training import DivergedError
from support.small import loaders, task, task_with, trained, untrained

TARGETS = ("0.weight", "4.weight")
TOTAL = 20 * 32 + 32 * 3


@pytest.fixture(scope="module")
def dense() -> nn.Module:
    return trained()


@pytest.fixture
def model(dense: nn.Module) -> nn.Module:
    return copy.deepcopy(dense)


def nonzeros(model: nn.Module) -> int:
    state = model.state_dict()
    return sum(int(state[name].count_nonzero()) for name in TARGETS)


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in other)


def test_finds_a_sparse_network_within_the_tolerance(model):
    whole, before = task(), task().evaluate(model)
    result = asterism.sparsify(model, whole, max_drop=2.0, max_epochs=30)
    assert result.model is model
    assert whole.evaluate(model) == result.best.metric >= before - 2.0
    assert nonzeros(model) == result.best.nonzeros < 0.25 * TOTAL
    assert result.history[0].metric == before
    assert result.history[-1].epochs <= 30
    assert result.stop_reason


def kinds(result: asterism.SparsifyResult) -> list[str]:
    return [record.trial for record in result.history]


def test_it_reweights_before_it_cuts(model):
    result = asterism.sparsify(model, task(), max_drop=2.0, max_epochs=20)
    first_cut = kinds(result).index("cut")
    assert kinds(result)[:3] == ["dense", "settle", "reweight"]
    assert "reweight" not in kinds(result)[first_cut:]
    assert "no re-weighting" not in result.history[1].note


@pytest.mark.parametrize(("reweighting", "said"), [(0.2, True), (0.0, False)])
def test_a_budget_too_short_for_reweighting_is_said(model, reweighting, said):
    options = {"max_epochs": 6, "reweighting": reweighting}
    result = asterism.sparsify(model, task(), max_drop=2.0, **options)
    assert "reweight" not in kinds(result)
    assert ("no re-weighting: its share" in result.history[1].note) == said


def test_the_front_is_one_and_its_weights_can_be_had(model):
    whole = task()
    result = asterism.sparsify(model, whole, max_drop=2.0, max_epochs=20)
    metrics = [point.metric for point in result.front]
    sizes = [point.nonzeros for point in result.front]
    assert sizes == sorted(set(sizes), reverse=True)
    assert metrics == sorted(set(metrics), reverse=True)
    assert result.best in result.front
    for point in result.front:
        model.load_state_dict(point.state_dict())
        assert (nonzeros(model), whole.evaluate(model)) == (point.nonzeros, point.metric)


def test_the_same_seed_gives_the_same_bits(dense):
    states = []
    for _ in range(2):
        torch.manual_seed(1)
        model = copy.deepcopy(dense)
        asterism.sparsify(model, task(), max_drop=2.0, max_epochs=10)
        states.append(model.state_dict())
    assert same(*states)


def test_a_second_call_starts_from_the_sparse_model(model):
    first = asterism.sparsify(model, task(), max_drop=2.0, max_epochs=12)
    zero = {name: model.state_dict()[name] == 0 for name in TARGETS}
    again = asterism.sparsify(model, task(), max_drop=2.0, max_epochs=12)
    assert again.history[0].density == first.best.density
    assert again.best.nonzeros <= first.best.nonzeros
    assert all(not model.state_dict()[name][zero[name]].any() for name in TARGETS)


def test_nothing_within_the_tolerance_leaves_the_dense_model(model):
    before = copy.deepcopy(model.state_dict())
    judged = [0]

    def evaluate(model: nn.Module) -> float:
        judged[0] += 1
        return 1.0 if judged[0] == 1 else 0.0

    result = asterism.sparsify(model, Task(task().fit, evaluate), max_drop=0.0, max_epochs=12)
    assert same(model.state_dict(), before)
    assert result.best.density == 1.0
    assert "nothing sparser holds the tolerance" in result.stop_reason


def test_a_metric_where_less_is_better_is_followed(model):
    train, valid = loaders()
    loss = nn.functional.cross_entropy
    whole = asterism.supervised(train, valid, metric=loss, higher_is_better=False)
    before = whole.evaluate(model)
    result = asterism.sparsify(model, whole, max_drop=0.05, max_epochs=12)
    assert result.best.metric <= before + 0.05
    assert result.best.density < 1


def test_patterns_leave_layers_alone(model):
    result = asterism.sparsify(model, task(), max_drop=2.0, max_epochs=8, exclude=["4"])
    assert model.state_dict()["4.weight"].all()
    assert result.best.nonzeros == int(model.state_dict()["0.weight"].count_nonzero())


def test_layers_keep_the_densities_that_patterns_give_them(model):
    options = {"max_epochs": 12, "densities": {"4": 0.5}}
    result = asterism.sparsify(model, task(), max_drop=5.0, **options)
    state = result.model.state_dict()
    assert result.best.density < 0.4
    assert int(state["4.weight"].count_nonzero()) == 48
    assert result.best.nonzeros == nonzeros(model)


def test_penalties_by_pattern_reweight_and_groups_are_cut_whole(model):
    penalty = {"0": asterism.Group(asterism.ReweightedL1(0.3), by="filter")}
    result = asterism.sparsify(model, task(), max_drop=5.0, max_epochs=20, penalty=penalty)
    rows = model.state_dict()["0.weight"].count_nonzero(1)
    assert "reweight" in kinds(result)
    assert result.best.density < 0.9
    assert set(rows.tolist()) == {0, 20}, "a unit is there or it is not"
    assert result.best.nonzeros == nonzeros(model)


def test_the_users_optimizer_takes_the_steps(model):
    made = []

    def optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
        made.append(torch.optim.Adam(params, lr=0.003))
        return made[-1]

    options = {"max_drop": 2.0, "max_epochs": 6, "optimizer": optimizer}
    result = asterism.sparsify(model, task(), **options)
    trials = sum(record.trial != "probe" for record in result.history) - 1
    assert sum(bool(each.state) for each in made) == trials >= 4, "a fresh one for each trial"


def test_a_time_budget_ends_the_search(model):
    result = asterism.sparsify(model, task(), max_drop=0.0, max_minutes=1e-9)
    assert [record.trial for record in result.history] == ["dense", "settle"]
    assert "the budget is spent" in result.stop_reason


@pytest.mark.parametrize("interrupted", [False, True])
def test_every_module_is_left_in_the_mode_in_which_it_came(model, interrupted):
    model.eval()
    model[3].train()
    before = [module.training for module in model.modules()]

    def fit(model: nn.Module, optimizer: torch.optim.Optimizer, epochs: int) -> None:
        task().fit(model, optimizer, epochs)
        assert model.training
        if interrupted:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) if interrupted else nullcontext():
        asterism.sparsify(model, task_with(fit=fit), max_drop=2.0, max_epochs=2)
    assert [module.training for module in model.modules()] == before


def test_names_do_for_the_optimizer_and_the_penalty(dense):
    """The same in Python as in a recipe, and the same as the objects that they name."""
    ends = []
    by_name = {"optimizer": "adamw", "lr": 0.002, "penalty": {"0": "reweighted_l2"}}
    by_object = {
        "optimizer": lambda params: torch.optim.AdamW(params, lr=0.002),
        "penalty": {"0": asterism.ReweightedL2()},
    }
    for options in (by_name, by_object):
        torch.manual_seed(1)
        model = copy.deepcopy(dense)
        asterism.sparsify(model, task(), max_drop=2.0, max_epochs=20, **options)
        ends.append(model.state_dict())
    assert same(*ends)


class OwnTask:
    """A class of the user's own, which knows nothing of ours."""

    higher_is_better = True

    def fit(self, model: nn.Module, optimizer: torch.optim.Optimizer, epochs: int) -> None:
        task().fit(model, optimizer, epochs)

    def evaluate(self, model: nn.Module) -> torch.Tensor:
        return torch.tensor(task().evaluate(model))


def test_any_object_with_the_right_parts_is_a_task(model):
    assert asterism.sparsify(model, OwnTask(), max_drop=2.0, max_epochs=4).best.density < 1


def test_a_model_that_is_its_own_ruin_is_not_refused(model):
    for name in TARGETS:
        weight = model.get_parameter(name)
        weight.data[weight.abs() < weight.abs().max()] = 0.0
    assert nonzeros(model) == 2
    result = asterism.sparsify(model, task(), max_drop=100.0, max_epochs=3)
    assert result.best.nonzeros == 2


def test_the_signature_is_that_of_the_options():
    arguments = inspect.signature(asterism.sparsify).parameters
    for each in fields(asterism.SparsifyOptions):
        given = arguments[each.name]
        assert given.annotation == each.type
        assert given.kind is inspect.Parameter.KEYWORD_ONLY
        required = each.default is MISSING
        assert given.default == (inspect.Parameter.empty if required else each.default)
    assert set(arguments) == {
        *("model", "task", "run", "resume", "watch", "progress"),
        *(each.name for each in fields(asterism.SparsifyOptions)),
    }


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_drop": -0.1}, "max_drop must be at least 0"),
        ({"max_drop": math.nan}, "max_drop must be at least 0"),
        ({"max_epochs": 1}, "max_epochs must be at least 2"),
        ({"max_epochs": 2.5}, "max_epochs must be a whole number, found 2.5"),
        ({"max_minutes": 0}, "max_minutes must be positive"),
        ({"epochs_per_cut": 0}, "epochs_per_cut must be at least 1"),
        ({"reweighting": 1.0}, "reweighting is a share"),
        ({"optimizer": "magic"}, "unknown optimizer 'magic': choose from sgd, adamw"),
        ({"optimizer": 3}, "optimizer must be one of sgd, adamw, or a function .* found int"),
        ({"optimizer": torch.optim.SGD, "lr": 0.1}, "lr needs an optimizer: sgd or adamw"),
        ({"optimizer": "sgd", "lr": -1.0}, "lr must be positive and finite, got -1.0"),
        ({"exclude": ["nonesuch"]}, "no layer matches the pattern 'nonesuch'"),
        ({"exclude": "4"}, "exclude must be a list of patterns, found '4'"),
        ({"densities": {"conv9": 0.5}}, "no layer matches the pattern 'conv9'"),
        ({"densities": {"0": 0.0}}, r"densities must lie in \(0, 1\], got 0.0 for '0'"),
        ({"penalty": {"conv9": asterism.ReweightedL2()}}, "no layer matches the pattern 'conv9'"),
        ({"penalty": "l1"}, "unknown penalty 'l1': choose from reweighted_l1"),
        ({"penalty": 0.3}, "expected a penalty such as ReweightedL1"),
        ({"resume": True}, "give run='folder'"),
    ],
)
def test_a_bad_option_is_one_line_and_costs_nothing(model, options, message):
    refused(model, task(), message, **options)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"evaluate": lambda model: math.nan}, "evaluate gives nan for the dense model"),
        ({"evaluate": lambda model: None}, "evaluate must return one number, found NoneType"),
        ({"evaluate": lambda model: torch.ones(2)}, "must return one number, found Tensor"),
        ({"evaluate": lambda model: len(5)}, "evaluate raised TypeError: object of type 'int'"),
        ({"evaluate": lambda model: 1 / 0}, "evaluate raised ZeroDivisionError"),
        ({"evaluate": lambda model: 97.0}, "the metric is 97 as before: evaluate must measure"),
        ({"fit": lambda model, optimizer, epochs: None}, "fit took no step"),
        ({"fit": lambda model, optimizer, epochs: 1 / 0}, "fit raised ZeroDivisionError"),
        ({"higher_is_better": False}, "set higher_is_better=True"),
        ({"higher_is_better": "yes"}, "must have higher_is_better: True, .* found 'yes'"),
        ({"evaluate": None}, r"the task has no evaluate: give asterism.supervised\("),
    ],
)
def test_a_bad_task_is_one_line_and_costs_nothing(model, changed, message):
    refused(model, task_with(**changed), message)


def refused(model: nn.Module, given: object, message: str, **options: object) -> None:
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(InputError, match=message) as error:
        asterism.sparsify(model, given, **{"max_drop": 2.0, "max_epochs": 5, **options})
    assert "\n" not in str(error.value)
    assert same(model.state_dict(), before)


def test_a_task_as_keywords_shows_the_new_spelling(model):
    with pytest.raises(InputError, match=r"sparsify\(model, task, max_drop=…\)"):
        asterism.sparsify(model, **task(), max_drop=2.0)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda model: model.to("meta"), "0.weight is on the meta device, without values: load"),
        (lambda model: model[0].weight.data.fill_(math.nan), "0.weight holds NaN or infinity"),
        (lambda model: model[4].bias.data.fill_(math.inf), "4.bias holds NaN or infinity"),
    ],
)
def test_a_model_without_good_weights_is_refused(model, spoil, message):
    spoil(model)
    with pytest.raises(InputError, match=message):
        asterism.sparsify(model, task(), max_drop=2.0)
    with pytest.raises(InputError, match=r"must be a torch.nn.Module, found list"):
        asterism.sparsify([model], task(), max_drop=2.0)


@pytest.mark.parametrize(("which", "name"), [(0, "training"), (1, "validation")])
def test_an_empty_loader_is_one_line(model, which, name):
    pair = list(loaders())
    pair[which] = []
    whole = asterism.supervised(*pair)
    with pytest.raises(InputError, match=f"the {name} loader is empty"):
        asterism.sparsify(model, whole, max_drop=2.0)


@pytest.mark.parametrize("error", [RuntimeError("disk on fire"), KeyboardInterrupt()])
def test_an_interruption_leaves_the_best_found_so_far(model, error):
    whole, found = task(), []

    def fit(model: nn.Module, optimizer: torch.optim.Optimizer, epochs: int) -> None:
        whole.fit(model, optimizer, epochs)
        if found and found[-1].trial == "cut" and found[-1].within_tolerance:
            raise error

    with pytest.raises((InputError, KeyboardInterrupt)):
        asterism.sparsify(
            model,
            Task(fit, whole.evaluate),
            max_drop=2.0,
            max_epochs=30,
            watch=found.append,
        )
    assert nonzeros(model) == found[-1].nonzeros < TOTAL
    assert whole.evaluate(model) == found[-1].metric


def test_a_loader_that_raises_half_way_names_itself(model):
    train, valid = loaders()

    class Failing:
        def __iter__(self):
            yield from list(train)[:3]
            raise OSError("the network is down")

    before = copy.deepcopy(model.state_dict())
    message = "after 3 batches the training loader raised OSError: the network is down"
    with pytest.raises(InputError, match=message):
        asterism.sparsify(model, asterism.supervised(Failing(), valid), max_drop=2.0)
    assert same(model.state_dict(), before)


@pytest.mark.parametrize("how", ["raises", "weights", "metric"])
def test_divergence_under_a_cut_is_rolled_back_and_the_cut_made_smaller(model, how):
    whole, trials = task(), [0]

    def fit(model: nn.Module, optimizer: torch.optim.Optimizer, epochs: int) -> None:
        trials[0] += 1
        whole.fit(model, optimizer, epochs)
        if trials[0] == 2 and how == "raises":
            raise DivergedError("the loss is inf")
        if trials[0] == 2 and how == "weights":
            torch.nn.init.constant_(model[4].bias, math.nan)

    def evaluate(model: nn.Module) -> float:
        bad = trials[0] == 2 and how == "metric"
        return math.nan if bad else whole.evaluate(model)

    options = {"max_drop": 2.0, "max_epochs": 30, "reweighting": 0.0}
    result = asterism.sparsify(model, Task(fit, evaluate), **options)
    failed, after = [record for record in result.history if record.trial == "cut"][:2]
    assert failed.metric is None
    assert "rolled back" in failed.note
    assert ("NaN" if how == "metric" else "diverged") in failed.note
    assert after.density > failed.density
    assert result.best.density < 1


def test_a_layer_that_dies_is_rolled_back(model):
    whole, trials = task(), [0]

    def fit(model: nn.Module, optimizer: torch.optim.Optimizer, epochs: int) -> None:
        trials[0] += 1
        whole.fit(model, optimizer, epochs)
        if trials[0] == 2:
            torch.nn.init.zeros_(model[4].weight)

    result = asterism.sparsify(model, Task(fit, whole.evaluate), max_drop=2.0, max_epochs=12)
    notes = [record.note for record in result.history]
    assert any("nothing was left of 4.weight; rolled back" in note for note in notes)
    assert result.best.density < 1


def test_pruned_weights_brought_back_by_fit_are_noticed(model):
    whole = task()

    def fit(model: nn.Module, optimizer: torch.optim.Optimizer, epochs: int) -> None:
        whole.fit(model, optimizer, epochs)
        if not model[0].weight.all():
            torch.nn.init.ones_(model[0].weight)

    with pytest.raises(InputError, match="brought pruned weights of 0.weight back"):
        asterism.sparsify(model, Task(fit, whole.evaluate), max_drop=2.0, max_epochs=12)


@pytest.mark.parametrize(
    ("scale", "max_drop", "looks_like"),
    [(0.01, 0.2, "looks like points"), (1.0, 0.002, "looks like a fraction")],
)
def test_points_against_fractions_are_pointed_out(model, scale, max_drop, looks_like):
    whole = task()
    with pytest.warns(UserWarning, match=looks_like):
        asterism.sparsify(
            model,
            Task(whole.fit, lambda model: scale * whole.evaluate(model)),
            max_drop=max_drop,
            max_epochs=2,
        )


def test_an_untrained_model_is_asked_about():
    model = untrained()
    with pytest.warns(UserWarning, match=r"is the model trained\?") as caught:
        result = asterism.sparsify(model, task(), max_drop=1.0, max_epochs=2)
    assert caught[0].filename == __file__
    assert "is the model trained?" in result.history[1].note


def test_a_cut_that_has_failed_is_not_tried_again_with_no_more_epochs(model):
    failing = task_with(evaluate=lambda model: 97.0 if nonzeros(model) > 300 else 50.0)
    result = asterism.sparsify(model, failing, max_drop=1.0, max_epochs=40, reweighting=0)
    cuts = [record for record in result.history if record.trial == "cut"]
    spent = [b.epochs - a.epochs for a, b in zip(result.history, result.history[1:], strict=False)]
    epochs = dict(zip(map(id, result.history[1:]), spent, strict=True))
    failed: dict[int, int] = {}
    for record in cuts:
        assert epochs[id(record)] > failed.get(record.nonzeros, 0)
        if not record.within_tolerance:
            failed[record.nonzeros] = epochs[id(record)]
    assert failed
    assert any("rolled back; next " in record.note for record in cuts)
