"""One weight tensor and its change of variables."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from asterism import ChartrandYin, ConstantTau, Exact, Greedy, InputError, Noise, ReweightedL1
from asterism.scaling.affine_scaling import reweight
from asterism.scaling.layer import Layer, measure_scale
from asterism.scaling.stepping.state_dict import check_layer, layer_state, load_layer
from asterism.weights.noise import standard_normal

seeds = st.integers(0, 2**32 - 1)


def make_layer(seed: int = 0) -> Layer:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(6, 5, generator=generator, dtype=torch.float64)
    return Layer(
        name="fc.weight",
        param=nn.Parameter(weight, requires_grad=False),
        penalty=ReweightedL1(0.3),
        scale=measure_scale(weight, "fc.weight"),
        omega=torch.ones_like(weight),
    )


@given(seeds)
def test_theta_is_q_times_omega(seed: int) -> None:
    layer = make_layer(seed)
    for t, initialiser in enumerate((Exact(), Greedy(), Noise(0.2))):
        reweight(layer, initialiser, ConstantTau(), True, f"{seed}/{t}")
        torch.testing.assert_close(layer.q * layer.omega, layer.param.detach())
        assert (layer.omega > 0).all()
        assert layer.scaled
        assert layer.dead is None


@given(seeds)
def test_greedy_keeps_q_and_the_norm(seed: int) -> None:
    layer = make_layer(seed)
    reweight(layer, Exact(), ConstantTau(), True, "")
    q, norm = layer.q, layer.param.norm()
    reweight(layer, Greedy(), ConstantTau(), True, "")
    torch.testing.assert_close(layer.q, q)
    torch.testing.assert_close(layer.param.norm(), norm)


def test_a_mask_of_the_wrong_kind_is_refused() -> None:
    layer = make_layer()
    for mask in (torch.ones(6, 5), torch.ones(5, 6, dtype=torch.bool)):
        with pytest.raises(InputError, match=r"mask of fc.weight must be bool of shape \(6, 5\)"):
            layer.prune(mask)
    assert layer.nonzeros == 30


def test_pruning_leaves_a_positive_zero() -> None:
    layer = make_layer()
    kept = layer.param > 0
    layer.prune(kept)
    assert torch.equal(layer.kept, kept)
    assert layer.nonzeros == int(kept.sum())
    assert not torch.signbit(layer.param[~kept]).any()
    assert layer.q[~kept].eq(0).all()
    assert not layer.scaled


@pytest.mark.parametrize("threshold", [1, 11], ids=["masked", "listed"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_whatever_stands_where_a_weight_is_pruned_becomes_a_positive_zero(
    dtype: torch.dtype, threshold: int
) -> None:
    weight = torch.arange(1.0, 13.0, dtype=dtype).view(3, 4)
    layer = Layer("w", nn.Parameter(weight.clone()), ReweightedL1(), 1.0, torch.ones_like(weight))
    with torch.no_grad():
        reweight(layer, Exact(), ConstantTau(), True, "")
        layer.prune(weight > threshold)
        assert (layer.live is not None) == (threshold == 11)
        for change, expected in ((layer.multiply_, torch.mul), (layer.divide_, torch.div)):
            found = torch.where(layer.kept, weight, torch.tensor([torch.nan, torch.inf, -1, -0.0]))
            change(found)
            live = layer.kept
            assert torch.equal(found[live], expected(weight, layer.omega)[live])
            assert (found[~live].view(torch.int32) == 0).all()


def test_state_and_load_are_inverse() -> None:
    layer, other = make_layer(0), make_layer(1)
    reweight(layer, Noise(0.1), ConstantTau(), True, "key")
    layer.prune(layer.param > 0)
    check_layer(other, layer_state(layer))
    load_layer(other, {name: value.clone() for name, value in layer_state(layer).items()})
    assert torch.equal(other.omega, layer.omega)
    assert other.dead is not None
    assert torch.equal(other.dead, ~layer.kept)
    assert (other.scale, other.scaled, other.stale) == (layer.scale, True, False)


def test_tau_falls_once_theta_has_settled_since_the_last_reweighting() -> None:
    layer = make_layer()
    layer.previous = layer.param.clone()
    anneal = ChartrandYin(forced=False)

    def reweighted() -> float:
        reweight(layer, Exact(), anneal, True, "key")
        assert isinstance(layer.penalty, ReweightedL1)
        return layer.penalty.tau

    layer.param.mul_(2)
    assert reweighted() == 0.3
    assert reweighted() == pytest.approx(0.03)
    layer.param.mul_(2)
    assert reweighted() == pytest.approx(0.03)


def test_noise_depends_on_the_key_alone() -> None:
    like = torch.empty(300, 200)
    noise = standard_normal(like, "0/fc1.weight/1")
    torch.manual_seed(99)
    assert torch.equal(noise, standard_normal(like, "0/fc1.weight/1"))
    for other in ("1/fc1.weight/1", "0/fc2.weight/1", "0/fc1.weight/2"):
        assert not torch.equal(noise, standard_normal(like, other))
    assert float(noise.mean()) == pytest.approx(0, abs=0.02)
    assert float(noise.std()) == pytest.approx(1, abs=0.02)


def test_noise_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    standard_normal(torch.empty(3), "key")
    assert torch.equal(torch.get_rng_state(), before)


def test_the_scale_is_measured_over_the_weights_that_are_not_zero() -> None:
    assert measure_scale(torch.tensor([3.0, 0.0, -3.0, 0.0]), "w") == 3.0
    for bad in (torch.zeros(3), torch.tensor([torch.inf, 1.0]), torch.tensor([torch.nan])):
        with pytest.raises(InputError, match=r"w has an RMS weight of .*exclude=\['w'\]"):
            measure_scale(bad, "w")
