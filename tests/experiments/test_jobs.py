"""A run of several phases: compacted in between, resumed to the bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from asterism.errors import InputError
from asterism.experiments.data import Dataset, Split
from asterism.experiments.data.augmentation import Shift
from asterism.experiments.jobs import Job, run
from asterism.experiments.methods import GradualMagnitude, OnAllImages, Polish, Then
from asterism.storage.atomic_files import read_json
from asterism.storage.run_folder import alone_in
from support.networks import make_mlp

METHOD = Then(
    GradualMagnitude(0.02, cut_epochs=2, retrain_epochs=1),
    Polish(nonzeros=120, cut_epochs=2, retrain_epochs=2, augment=Shift(1)),
)


class Stop(Exception):
    """A kill, as far as the run can tell."""


def train(
    folder: Path, data: Dataset, start: dict[str, Tensor], stop_after: int = 0, resume: bool = False
) -> nn.Module:
    model = make_mlp()
    epochs = 0

    def watch(record: dict[str, object]) -> None:
        nonlocal epochs
        epochs += 1
        if epochs == stop_after:
            raise Stop

    job = Job("polish", METHOD, seed=0, model="mlp", batch_size=64)
    run(job, folder, model, data, start=start, resume=resume, watch=watch)
    return model


def test_the_second_phase_goes_further_down(digits, trained_mlp, tmp_path):
    model = train(tmp_path, digits, trained_mlp)
    result, history = read_json(tmp_path / "result.json"), read_json(tmp_path / "history.json")
    assert result["nonzeros"] == 120
    assert sum(int((param != 0).sum()) for param in model.parameters() if param.dim() > 1) == 120
    assert [record["epoch"] for record in history] == list(range(1, 8))
    assert [record["phase"] for record in history] == [0, 0, 0, 1, 1, 1, 1]
    assert result["validation_error_percent"] < 60
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("config.json", "history.json", "model.safetensors", "result.json")
    ]


def test_validation_images_are_trained_on_if_asked(digits, tmp_path):
    """Nines are among the validation images alone."""
    nine = digits.train.labels == 9
    train_on, validation = (
        Split(digits.train.images[some], digits.train.labels[some]) for some in (~nine, nine)
    )
    data = replace(digits, train=train_on, validation=validation)
    method = Then(Polish(retrain_epochs=3), Polish(retrain_epochs=1))
    errors, published = {}, {}
    for name, chosen in {"some": method, "all": OnAllImages(method)}.items():
        job = Job(name, chosen, seed=0, model="mlp", batch_size=64)
        result = run(job, tmp_path / name, make_mlp(), data, watch=lambda _: None)
        errors[name] = read_json(tmp_path / name / "history.json")[-1]["validation_error_percent"]
        published[name] = result["validation_error_percent"]
    assert errors["some"] == published["some"] == 100
    assert errors["all"] < 50
    assert published["all"] is None


@pytest.mark.parametrize("stop_after", [1, 3, 4, 6])
def test_a_killed_run_ends_in_the_same_bits(stop_after, digits, trained_mlp, tmp_path):
    undisturbed = train(tmp_path / "one", digits, trained_mlp)
    with pytest.raises(Stop):
        train(tmp_path / "other", digits, trained_mlp, stop_after)
    resumed = train(tmp_path / "other", digits, trained_mlp, resume=True)
    for one, other in zip(undisturbed.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_finished_run_alone_is_read_by_any_number_of_threads(digits, trained_mlp, tmp_path):
    def job(threads: int, cut_epochs: int = 1) -> Job:
        method = GradualMagnitude(0.1, cut_epochs=cut_epochs, retrain_epochs=0)
        return Job("control", method, seed=0, model="mlp", batch_size=64, threads=threads)

    def result(job: Job) -> dict[str, object]:
        given = {"start": trained_mlp, "resume": True, "watch": lambda _: None}
        return dict(run(job, tmp_path, make_mlp(), digits, **given))

    def stop(_: object) -> None:
        raise Stop

    with pytest.raises(Stop):
        run(job(1), tmp_path, make_mlp(), digits, start=trained_mlp, watch=stop)
    with pytest.raises(InputError, match="differs in threads.*add --threads 1"):
        result(job(2))
    finished = result(job(1))
    assert result(job(2)) == finished
    assert read_json(tmp_path / "config.json")["threads"] == 1
    with pytest.raises(InputError, match="differs in"):
        result(job(2, cut_epochs=2))


def test_shifts_move_whole_images_within_their_reach():
    images = torch.zeros(200, 1, 9, 9)
    images[:, 0, 4, 4] = 1
    shifted = Shift(2)(images, torch.Generator().manual_seed(0))
    places = {tuple(place) for place in shifted[:, 0].nonzero()[:, 1:].tolist()}
    assert places == {(row, column) for row in range(2, 7) for column in range(2, 7)}
    assert torch.equal(shifted.sum((1, 2, 3)), torch.ones(200))
    again = Shift(2)(images, torch.Generator().manual_seed(0))
    assert torch.equal(shifted, again)


def test_a_folder_in_use_is_refused_and_untouched(digits, trained_mlp, tmp_path):
    folder = tmp_path / "run"
    with alone_in(folder):
        with pytest.raises(InputError, match="another process is at work in"):
            train(folder, digits, trained_mlp)
        assert folder.exists()
        assert not list(folder.iterdir())
    assert not folder.exists()
