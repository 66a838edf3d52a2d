"""One contract, every method: the conformance suite."""

from __future__ import annotations

import copy
import itertools
import pickle
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from asterism import AllLayers, ChartrandYin, Exact, Focuss, Noise, ReweightedL1, ReweightedL2
from asterism.errors import InputError
from asterism.experiments.data import Dataset
from asterism.experiments.data.augmentation import Shift
from asterism.experiments.methods import (
    AffineScalingTransformation,
    Dense,
    DynamicNetworkSurgery,
    GradualMagnitude,
    GradualReweighting,
    LearningWeightsAndConnections,
    Method,
    Polish,
    Regrowth,
    RiggedLottery,
    Then,
)
from asterism.experiments.methods.regrowth import Gradients
from asterism.experiments.results import History
from asterism.experiments.training import train
from asterism.pruning.scores import count
from asterism.weights.metrics import error_percent, kurtosis
from support.networks import make_mlp

SHORT = {"reweights": 2, "cut_epochs": 1, "retrain_epochs": 1, "density": 0.05, "lr": 0.02}
TOTAL = 784 * 24 + 24 * 10

METHODS: dict[str, Method] = {
    "dense": Dense(epochs=2),
    "magnitude": GradualMagnitude(density=0.05, cut_epochs=2, retrain_epochs=1),
    "lwc": LearningWeightsAndConnections({"*": 0.1}, rounds=2, epochs_per_round=2),
    "lwc by quality": LearningWeightsAndConnections(quality={"*": 1.0}, rounds=2),
    "dns": DynamicNetworkSurgery({"*": 1.0}, surgery_epochs=2, retrain_epochs=1, lr=0.02),
    "l1 gradual": GradualReweighting(density=0.05, cut_epochs=2, retrain_epochs=1),
    "rigl": RiggedLottery(density=0.1, epochs=3, every=10, lr=0.05),
    "regrowth": Regrowth(nonzeros=900, epochs=2, lam=0.01),
    "l1 greedy": AffineScalingTransformation(ReweightedL1(0.1), **SHORT),
    "l1 noise": AffineScalingTransformation(ReweightedL1(0.1), Noise(0.05), AllLayers(), **SHORT),
    "l2 annealed": AffineScalingTransformation(
        ReweightedL2(1.0), anneal=ChartrandYin(forced=False), **SHORT
    ),
    "focuss": AffineScalingTransformation(Focuss(0.5, 0.1), **SHORT),
    "focuss, raw": AffineScalingTransformation(Focuss(0.5, 0.1), normalise=False, **SHORT),
    "l1 raw, level": AffineScalingTransformation(
        ReweightedL1(0.1), normalise=False, rates="level", **SHORT
    ),
    "l1 layerwise": AffineScalingTransformation(ReweightedL1(0.1), cut_by="layerwise", **SHORT),
    "l1 in q": AffineScalingTransformation(ReweightedL1(0.1), retrain_in="q", **SHORT),
    "l1 regularised": AffineScalingTransformation(ReweightedL1(0.3), lam=0.5, **SHORT),
}
EXACT = {"magnitude", "l1 greedy", "l1 noise", "l2 annealed", "focuss", "focuss, raw"}
EXACT |= {"l1 layerwise", "l1 raw, level", "l1 in q", "l1 gradual"}


def run(
    method: Method, data: Dataset, start: dict[str, Tensor]
) -> tuple[torch.nn.Module, dict[str, Tensor], History]:
    model = make_mlp()
    model.load_state_dict(start)
    setup = method.setup(model, seed=3)
    history = train(model, setup.optimizer, setup.stages, data, seed=3, batch_size=32)
    return model, setup.optimizer.masks(), history


@pytest.fixture(scope="module", params=METHODS)
def finished(request, digits, trained_mlp):
    method = METHODS[request.param]
    return request.param, method, *run(method, digits, trained_mlp)


def test_pruned_weights_are_exactly_zero_and_the_rest_alive(finished):
    _, _, model, masks, _ = finished
    params = dict(model.named_parameters())
    assert masks.keys() == {"fc1.weight", "fc2.weight"}
    for name, mask in masks.items():
        assert mask.dtype == torch.bool
        assert mask.any()
        assert torch.all(params[name][~mask] == 0)
        assert torch.count_nonzero(params[name][mask]) >= 0.99 * mask.sum()


def test_the_density_asked_for_is_the_density_achieved(finished):
    name, method, _, masks, _ = finished
    kept = sum(int(mask.sum()) for mask in masks.values())
    if name in EXACT:
        assert kept == count(method.density, TOTAL)
    elif name == "dense":
        assert kept == TOTAL
    else:
        assert kept < TOTAL


def test_the_model_stays_an_ordinary_model(finished):
    _, _, model, _, _ = finished
    assert model.state_dict().keys() == make_mlp().state_dict().keys()
    inputs = torch.rand(3, 1, 28, 28)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(inputs), model(inputs))


def test_the_same_seed_gives_the_same_bits(finished, digits, trained_mlp):
    _, method, model, _, _ = finished
    again, _, _ = run(method, digits, trained_mlp)
    for one, other in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_history_has_one_record_per_epoch(finished):
    _, method, _, _, history = finished
    assert len(history) == method.setup(make_mlp()).epochs
    assert [record["epoch"] for record in history] == list(range(1, len(history) + 1))


def test_biases_are_never_pruned(finished):
    _, _, model, _, _ = finished
    for name, param in model.named_parameters():
        if name.endswith("bias"):
            assert torch.all(param != 0)


def test_the_network_still_works(finished, digits):
    name, _, model, _, _ = finished
    error = error_percent(model, digits.validation.images, digits.validation.labels)
    assert error < 60, f"{name} is hardly better than chance"


def masks_after_each_epoch(method: Method, data: Dataset) -> list[Tensor]:
    model = make_mlp()
    setup = method.setup(model)
    seen: list[Tensor] = []

    def watch(_: object) -> None:
        seen.append(torch.cat([mask.flatten() for mask in setup.optimizer.masks().values()]))

    train(model, setup.optimizer, setup.stages, data, batch_size=32, watch=watch)
    return seen


def regrown(masks: list[Tensor]) -> int:
    pairs = itertools.pairwise(masks)
    return sum(int((now & ~before).sum()) for before, now in pairs)


def test_masks_of_lwc_never_regrow_and_those_of_surgery_may(digits):
    assert regrown(masks_after_each_epoch(METHODS["lwc"], digits)) == 0
    surgery = DynamicNetworkSurgery({"*": 1.0}, surgery_epochs=3, retrain_epochs=1, lr=0.05)
    assert regrown(masks_after_each_epoch(surgery, digits)) > 0


def test_a_strong_pull_leaves_no_fewer_weights_than_the_cut_asks_for(digits, trained_mlp):
    """Alone it would leave hardly any."""
    method = GradualReweighting(lam=20.0, density=0.2, cut_epochs=2, retrain_epochs=1)
    model, masks, _ = run(method, digits, trained_mlp)
    left = sum(int(dict(model.named_parameters())[name].count_nonzero()) for name in masks)
    assert left > 0.19 * TOTAL


def test_rigl_moves_its_weights_and_keeps_their_number_until_the_places_stay(digits):
    method = RiggedLottery(density=0.1, epochs=4, every=10, until=0.5, lr=0.05)
    masks = masks_after_each_epoch(method, digits)
    assert regrown(masks[:2]) > 0
    assert len({int(mask.sum()) for mask in masks}) == 1
    assert torch.equal(masks[2], masks[3])


def sparse_and_looked_at(coming_back: float) -> tuple[nn.Linear, Gradients]:
    """One weight of six is alive; the loss falls fastest where [0, 4] moves towards its target."""
    torch.manual_seed(0)
    model, target = nn.Linear(6, 1, bias=False), torch.zeros(1, 6)
    model.weight.data = torch.tensor([[2.0, 0, 0, 0, 0, 0]])
    target[0, 0], target[0, 4] = 2.0, coming_back
    seen = Gradients()
    for _ in range(50):
        inputs = torch.randn(16, 6)
        model.zero_grad()
        (model(inputs) - inputs @ target.T).square().mean().backward()
        seen.take({"weight": model.weight})
    return model, seen


@pytest.mark.parametrize("coming_back", [1.0, -1.0])
def test_the_weight_that_promises_most_comes_back_downhill(coming_back):
    model, seen = sparse_and_looked_at(coming_back)
    seen.grow({"weight": model.weight}, most=2)
    expected = torch.tensor([[2.0, 0, 0, 0, 0.2 * coming_back, 0]])
    torch.testing.assert_close(model.weight.detach(), expected)


def test_nothing_grows_beyond_what_is_asked_for():
    model, seen = sparse_and_looked_at(1.0)
    seen.grow({"weight": model.weight}, most=1)
    assert int(model.weight.count_nonzero()) == 1


def test_regrowth_first_looks_and_moves_nothing_then_replaces_weights(digits, trained_mlp):
    """Of a network cut at random some weights come back, and others go."""
    model = make_mlp()
    model.load_state_dict(trained_mlp)
    torch.manual_seed(1)
    for weight in (model.fc1.weight, model.fc2.weight):
        weight.data *= torch.rand_like(weight) < 0.05
    before = {name: param.detach().clone() for name, param in model.named_parameters()}
    alive = sum(int(before[f"{layer}.weight"].count_nonzero()) for layer in ("fc1", "fc2"))
    setup = Regrowth(nonzeros=alive, epochs=2, lam=1e-4).setup(model)
    unmoved = []

    def look(_: object, __: object, ___: object) -> None:
        same = [torch.equal(param, before[name]) for name, param in model.named_parameters()]
        unmoved.append(all(same))

    setup.optimizer.register_step_post_hook(look)
    history = train(model, setup.optimizer, setup.stages, digits, batch_size=32)
    epoch = len(unmoved) // 2
    assert all(unmoved[: epoch // 2]), "while it looks, nothing moves"
    assert not any(unmoved[epoch // 2 + 1 :])
    after = torch.cat([model.fc1.weight.flatten(), model.fc2.weight.flatten()]) != 0
    first = torch.cat([before["fc1.weight"].flatten(), before["fc2.weight"].flatten()]) != 0
    assert int(after.sum()) == alive
    assert int((after & ~first).sum()) > alive / 10
    assert history[-1]["validation_error_percent"] < error_percent(
        network(before), digits.validation.images, digits.validation.labels
    )


def network(state: dict[str, Tensor]) -> nn.Module:
    model = make_mlp()
    model.load_state_dict(state)
    return model


def test_rigl_starts_from_random_weights_and_the_others_from_the_dense_network():
    assert {name for name, method in METHODS.items() if method.from_scratch} == {"dense", "rigl"}


def test_surgery_ends_when_retraining_begins(digits):
    masks = masks_after_each_epoch(
        DynamicNetworkSurgery({"*": 1.0}, surgery_epochs=1, retrain_epochs=3, lr=0.02), digits
    )
    assert all(torch.equal(masks[0], later) for later in masks[1:])


def test_thresholds_of_surgery_come_from_weights_and_biases_together():
    model = make_mlp()
    method = DynamicNetworkSurgery({"fc1": 2.0, "fc2": 0.5})
    penalty = method._penalties(model)["fc1.weight"]
    entries = torch.cat([model.fc1.weight.flatten(), model.fc1.bias]).detach().abs()
    level = float(entries.mean() + 2.0 * entries.std())
    assert penalty.a == pytest.approx(0.9 * level)
    assert penalty.b == pytest.approx(1.1 * level)


def test_the_layerwise_cut_takes_one_layer_at_a_time(digits):
    method = AffineScalingTransformation(
        cut_by="layerwise", density={"fc1": 0.02, "fc2": 0.5}, reweights=1, cut_epochs=1
    )
    model = make_mlp()
    setup = method.setup(model)
    shares: list[tuple[float, ...]] = []

    def watch(record: dict) -> None:
        if record["stage"].startswith("cut"):
            masks = setup.optimizer.masks().values()
            shares.append(tuple(float(mask.float().mean()) for mask in masks))

    train(model, setup.optimizer, setup.stages, digits, watch=watch)
    assert shares[0] == pytest.approx((0.02, 1.0), abs=1e-4)
    assert shares[1] == pytest.approx((0.02, 0.5), abs=1e-4)


@pytest.mark.parametrize("space", ["theta", "q"])
def test_after_the_cut_omega_is_one_in_theta_space_and_stays_in_q_space(space, digits, trained_mlp):
    method = AffineScalingTransformation(layers=AllLayers(), retrain_in=space, **SHORT)
    model = make_mlp()
    model.load_state_dict(trained_mlp)
    setup = method.setup(model)
    train(model, setup.optimizer, setup.stages, digits, batch_size=32)
    omega = setup.optimizer.state_dict()["state"][0]["asterism_omega"]
    live = omega[omega != 0]
    assert live.numel() < 0.1 * omega.numel()
    assert bool((live == 1).all()) == (space == "theta")


def test_with_level_rates_the_scale_of_omega_has_no_say(digits, trained_mlp):
    """Raw and normalised, omega differs by a factor; from the same theta both take the same way."""
    common = AffineScalingTransformation(
        ReweightedL1(0.1), Exact(), AllLayers(), rates="level", reweights=1, cut_by="none"
    )
    raw, _, _ = run(replace(common, normalise=False), digits, trained_mlp)
    normalised, _, _ = run(common, digits, trained_mlp)
    plain, _, _ = run(replace(common, rates="same"), digits, trained_mlp)
    for name, theta in raw.named_parameters():
        torch.testing.assert_close(theta, dict(normalised.named_parameters())[name])
    assert not torch.allclose(raw.fc1.weight, plain.fc1.weight)


@pytest.mark.parametrize("settings", [{"rates": "steep"}, {"rates": "level", "lam": 0.1}])
def test_rates_that_cannot_be_are_refused(settings):
    with pytest.raises(InputError, match="rates"):
        AffineScalingTransformation(**settings)


def test_an_unknown_space_to_retrain_in_is_refused():
    with pytest.raises(InputError, match="retrain_in"):
        AffineScalingTransformation(retrain_in="log")


def test_a_converged_run_skips_the_remaining_reweightings(digits):
    method = AffineScalingTransformation(
        reweights=6, tolerance=100.0, cut_by="none", layers=AllLayers()
    )
    model = make_mlp()
    setup = method.setup(model)
    history = train(model, setup.optimizer, setup.stages, digits)
    assert [record["t"] for record in history] == [1, 2]


def test_reweighting_raises_the_kurtosis_of_every_layer(digits, trained_mlp):
    method = AffineScalingTransformation(reweights=4, cut_by="none", lr=0.02)
    _, _, history = run(method, digits, trained_mlp)
    for name, value in history[-1]["kurtosis"].items():
        assert value > 1.5 * kurtosis(trained_mlp[f"{name}.weight"])


def test_a_cut_is_named_by_the_last_phase_that_cuts():
    first = GradualMagnitude(0.05, augment=Shift(1))
    assert Then(first, Polish(augment=Shift(1))).cut == first.cut
    assert Then(first, Polish(nonzeros=10)).cut == Polish(nonzeros=10).cut
    plain = GradualMagnitude(0.05)
    assert Then(plain, Polish()).cut == plain.cut
    assert Then(plain, Polish(augment=Shift(1))).cut == plain.cut + ", shifted images"
