"""The loop itself: it learns, resumes to the bit, and stops in good order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from asterism.errors import InputError
from asterism.experiments.data import Dataset, Split
from asterism.experiments.methods import (
    AffineScalingTransformation,
    Dense,
    DynamicNetworkSurgery,
    Method,
    Regrowth,
)
from asterism.experiments.training import DivergedError, Stage, train
from asterism.scaling.penalties import ReweightedL1
from asterism.scaling.schedules import constant
from support.networks import make_mlp

AST = AffineScalingTransformation(
    ReweightedL1(0.1), reweights=2, density=0.05, cut_epochs=2, retrain_epochs=1
)
LEVEL = replace(AST, normalise=False, rates="level")
REGROWTH = Regrowth(nonzeros=500, epochs=5)
SURGERY = DynamicNetworkSurgery({"*": 1.0}, surgery_epochs=2, retrain_epochs=2)


class Stop(Exception):
    """A kill, as far as the loop can tell."""


def run(method: Method, data: Dataset, *, stop_after: int | None = None, **options):
    model = make_mlp()
    setup = method.setup(model)

    def watch(record: dict) -> None:
        if record["epoch"] == stop_after:
            raise Stop

    history = train(model, setup.optimizer, setup.stages, data, watch=watch, **options)
    return model, history


def without_times(history):
    return [{**record, "seconds": 0} for record in history]


@pytest.mark.parametrize(
    "method", [AST, LEVEL, SURGERY, REGROWTH], ids=["ast", "level", "surgery", "regrowth"]
)
@pytest.mark.parametrize("stop_after", [1, 2, 3, 4])
def test_a_resumed_run_ends_in_the_same_bits(method, stop_after, digits, tmp_path):
    undisturbed, history = run(method, digits)
    path = tmp_path / "checkpoint.pt"
    with pytest.raises(Stop):
        run(method, digits, checkpoint=path, stop_after=stop_after)
    torch.manual_seed(99)
    resumed, again = run(method, digits, checkpoint=path, resume=True)
    assert without_times(again) == without_times(history)
    for one, other in zip(undisturbed.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)


def test_without_resume_a_checkpoint_is_not_read(digits, tmp_path):
    path = tmp_path / "checkpoint.pt"
    run(Dense(epochs=1), digits, checkpoint=path)
    _, history = run(Dense(epochs=1), digits, checkpoint=path)
    assert len(history) == 1


def test_divergence_is_said_and_the_last_good_state_kept(digits, tmp_path):
    model = make_mlp()
    optimizer = Dense().setup(model).optimizer
    seen = []
    stages = [
        Stage("calm", 1, constant(0.01)),
        Stage("wild", 1, constant(1e30)),
    ]
    path = tmp_path / "checkpoint.pt"

    def watch(record):
        seen.append([param.detach().clone() for param in model.parameters()])

    with pytest.raises(DivergedError, match="'wild', epoch 1.*lower the learning rate"):
        train(model, optimizer, stages, digits, watch=watch, checkpoint=path)
    for param, good in zip(model.parameters(), seen[-1], strict=True):
        assert torch.equal(param, good)
    saved = torch.load(path, weights_only=True)
    assert all(torch.isfinite(tensor).all() for tensor in saved["model"].values())


def test_a_last_step_that_ruins_the_weights_is_not_taken_for_good(digits, tmp_path):
    model = make_mlp()
    optimizer = Dense().setup(model).optimizer
    wild_at_the_end = Stage("wild", 1, lambda progress: torch.inf if progress > 0.7 else 0.01)
    path = tmp_path / "checkpoint.pt"
    with pytest.raises(DivergedError, match="a weight is not finite"):
        train(model, optimizer, [wild_at_the_end], digits, checkpoint=path)
    assert all(param.isfinite().all() for param in model.parameters())
    assert not path.exists()


@pytest.mark.parametrize("keep", [0, 10, 1000])
def test_a_truncated_checkpoint_is_one_clear_line(keep, digits, tmp_path):
    path = tmp_path / "checkpoint.pt"
    run(Dense(epochs=1), digits, checkpoint=path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(InputError, match="cannot read .*checkpoint.pt.*delete it"):
        run(Dense(epochs=1), digits, checkpoint=path, resume=True)


def test_a_checkpoint_is_read_without_running_its_code(digits, tmp_path):
    path = tmp_path / "checkpoint.pt"
    torch.save({"model": Path("/"), "stage": print}, path)
    with pytest.raises(InputError, match="cannot read"):
        run(Dense(epochs=1), digits, checkpoint=path, resume=True)


@pytest.mark.parametrize("content", [{"stage": 1}, [1, 2]])
def test_another_file_in_the_checkpoints_place_is_refused(content, digits, tmp_path):
    path = tmp_path / "checkpoint.pt"
    torch.save(content, path)
    with pytest.raises(InputError, match=r"checkpoint.pt, it is no checkpoint: delete it"):
        run(Dense(epochs=1), digits, checkpoint=path, resume=True)


def test_a_full_disk_leaves_the_last_checkpoint(digits, tmp_path, monkeypatch):
    path = tmp_path / "checkpoint.pt"
    run(Dense(epochs=1), digits, checkpoint=path)
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InputError, match="cannot write .*No space left"):
        run(Dense(epochs=2), digits, checkpoint=path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_every_image_is_seen_once_an_epoch_in_another_order(digits):
    seen = []
    model = make_mlp()
    model.register_forward_pre_hook(
        lambda module, inputs: seen.append(inputs[0].sum((1, 2, 3))) if module.training else None
    )
    setup = Dense(epochs=2).setup(model)
    train(model, setup.optimizer, setup.stages, digits, batch_size=100)
    sums = torch.cat(seen)
    one, two = sums[:512], sums[512:]
    expected = digits.train.images.sum((1, 2, 3)).sort().values
    assert torch.equal(one.sort().values, expected)
    assert torch.equal(two.sort().values, expected)
    assert not torch.equal(one, two)


def test_validation_images_are_never_trained_on(digits):
    poisoned = Split(torch.full_like(digits.validation.images, torch.nan), digits.validation.labels)
    data = Dataset("digits", digits.train, poisoned, digits.test)
    model, _ = run(Dense(epochs=1), data)
    assert all(param.isfinite().all() for param in model.parameters())


def test_validation_leaves_running_averages_alone_whichever_way_it_goes(digits):
    """A `forward` that is no module computes in the model's mode: it must be evaluation."""

    def averages(forward: bool, images: Split) -> tuple[torch.Tensor, float]:
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Flatten(), nn.Linear(784, 12), nn.BatchNorm1d(12), nn.Linear(12, 10)
        )
        setup = Dense(epochs=1).setup(model)
        data = replace(digits, validation=images)
        way = model.forward if forward else None
        history = train(model, setup.optimizer, setup.stages, data, forward=way)
        return model[2].running_mean, history[-1]["validation_error_percent"]

    bright = replace(digits.validation, images=digits.validation.images + 3)
    expected, error = averages(False, digits.validation)
    found, same_error = averages(True, digits.validation)
    assert torch.equal(found, expected)
    assert same_error == error
    assert torch.equal(averages(True, bright)[0], expected)
