"""The fewest bits within a tolerance, judged by what the file will hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import asterism
from asterism.cli.commands.compress import compress
from asterism.errors import InputError
from asterism.export.checkpoints import load_state_dict, save, write_checkpoint
from asterism.search.bit_widths import choose_bits, quantised
from asterism.search.limits import Goal
from support.paths import SMALL
from support.small import loaders, task, trained, untrained


@pytest.fixture(scope="module")
def model() -> nn.Sequential:
    model = trained()
    with torch.no_grad():
        model[0].weight *= torch.rand(32, 20, generator=torch.Generator().manual_seed(1)) < 0.5
    return model


def test_the_file_holds_what_was_judged(model: nn.Sequential, tmp_path: Path) -> None:
    goal = Goal(1.0)
    choice = choose_bits(model, task().evaluate, goal)
    assert choice.before == task().evaluate(model)
    assert goal.holds(choice.before, choice.after)
    assert 1 <= min(choice.bits.values()) <= max(choice.bits.values()) < 8
    few = save(choice.model, tmp_path / "few.asterism", bits=choice.bits)
    assert few < save(model, tmp_path / "all.asterism") / 2
    state = load_state_dict(tmp_path / "few.asterism")
    for name, tensor in choice.model.state_dict().items():
        assert torch.equal(state[name], tensor), name
    assert torch.equal(state["0.weight"] == 0, model[0].weight == 0)


def test_a_layer_that_matters_gets_the_bits(model: nn.Sequential) -> None:
    exact = model[0].weight.detach().clone()

    def evaluate(model: nn.Module) -> float:
        return -float((model.get_parameter("0.weight").detach() - exact).abs().max())

    goal = Goal(0.01 * float(exact.abs().max()))
    choice = choose_bits(model, evaluate, goal)
    width = choice.bits.pop("0.weight")
    assert set(choice.bits.values()) == {1}
    assert width > 3
    fewer = quantised(model, {"0.weight": width - 1})
    assert not goal.holds(0, evaluate(fewer)), "one bit less would not do"


def test_where_nothing_may_change_nothing_does(model: nn.Sequential) -> None:
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    def evaluate(model: nn.Module) -> float:
        return float(all(torch.equal(state[n], t) for n, t in model.state_dict().items()))

    choice = choose_bits(model, evaluate, Goal(0.0))
    assert (choice.bits, choice.before, choice.after) == ({}, 1.0, 1.0)
    with pytest.raises(InputError, match="not a number"):
        choose_bits(model, lambda _: float("nan"), Goal(0.0))


def test_codebooks_are_retrained_with_the_mask_fixed(model: nn.Sequential) -> None:
    supervised, goal = task(), Goal(0.5)  # for which rounding alone needs more bits on any machine
    plain = choose_bits(model, supervised.evaluate, goal)
    choice = choose_bits(model, supervised.evaluate, goal, fit=supervised.fit, epochs=2, lr=0.01)
    assert goal.holds(choice.before, choice.after)
    assert sum(choice.bits.values()) < sum(plain.bits.values())
    weight = choice.model.get_parameter("0.weight")
    assert torch.equal(weight == 0, model[0].weight == 0)
    assert len(weight[weight != 0].unique()) <= 2 ** choice.bits["0.weight"]


def test_diverged_weights_are_named() -> None:
    model = untrained()
    with torch.no_grad():
        model[0].weight[0, 0] = torch.nan
    with pytest.raises(InputError, match=r"0\.weight: cannot quantise"):
        choose_bits(model, lambda _: 1.0, Goal(0.0))


def test_the_command_says_the_metric_before_and_after(
    model: nn.Sequential, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_checkpoint(tmp_path / "net.safetensors", model.state_dict())
    compress(
        tmp_path / "net.safetensors",
        max_drop=1.0,
        model=f"{SMALL}:untrained",
        data=f"{SMALL}:loaders",
    )
    twin = untrained()
    twin.load_state_dict(load_state_dict(tmp_path / "net.asterism"))
    evaluate = asterism.supervised(*loaders()).evaluate
    before, after = evaluate(model), evaluate(twin)
    said = capsys.readouterr().out
    assert f"metric: {before:.6g} before, {after:.6g} after" in said
    assert after >= before - 1
    assert "1.num_batches_tracked: as it is" in said
    for wrong, message in (
        ({"max_drop": 1.0}, "add --model net.py:model"),
        ({"model": "a:b"}, "go together"),
    ):
        with pytest.raises(InputError, match=message):
            compress(tmp_path / "net.safetensors", **wrong)


@pytest.mark.parametrize("options", [{}, {"bits": 8}, {"max_drop": 50.0}], ids=str)
def test_with_the_model_the_file_can_be_run(
    model: nn.Sequential, tmp_path: Path, options: dict[str, Any]
) -> None:
    write_checkpoint(tmp_path / "net.safetensors", model.state_dict())
    factories = {"model": f"{SMALL}:untrained", "data": f"{SMALL}:loaders"}
    compress(tmp_path / "net.safetensors", **factories, **options)
    twin = untrained().eval()
    twin.load_state_dict(load_state_dict(tmp_path / "net.asterism"))
    inputs = torch.randn(5, 20)
    found = asterism.runtime.load(tmp_path / "net.asterism")(inputs.numpy())
    np.testing.assert_allclose(found, twin(inputs).detach().numpy(), atol=1e-5)


def test_compressing_a_network_again_keeps_its_graph(tmp_path: Path) -> None:
    model = untrained().eval()
    inputs = torch.randn(5, 20)
    asterism.save(model, tmp_path / "net.asterism", example_inputs=(inputs[:1],))
    compress(tmp_path / "net.asterism", bits=8, out=tmp_path / "few.asterism")
    found = asterism.runtime.load(tmp_path / "few.asterism")(inputs.numpy())
    np.testing.assert_allclose(found, model(inputs).detach().numpy(), atol=0.05)
