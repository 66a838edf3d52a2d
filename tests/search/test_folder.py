"""A search in a folder: interrupted in the process itself, damaged, claimed by another."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from torch import nn

import asterism
from asterism.errors import FormatError, InputError
from support.small import task, trained


@pytest.fixture(scope="module")
def dense() -> nn.Module:
    return trained()


def search(model: nn.Module, folder, fit=None, **options):
    torch.manual_seed(1)
    settings = {**task(), "max_drop": 2.0, "max_epochs": 20, "run": folder, **options}
    if fit is not None:
        settings["fit"] = fit(settings["fit"])
    return asterism.sparsify(model, **settings)


def test_interrupted_at_each_trial_it_ends_in_the_same_bits(dense, tmp_path):
    undisturbed = copy.deepcopy(dense)
    search(undisturbed, tmp_path / "undisturbed")

    def interrupted(fit):
        calls = iter([False, True])

        def second_call_fails(model, optimizer, epochs):
            fit(model, optimizer, epochs)
            if next(calls):
                raise KeyboardInterrupt

        return second_call_fails

    for attempt in range(50):
        model = copy.deepcopy(dense)
        # Whatever state the model is in: the folder holds the weights that the search began with.
        model[0].weight.data.mul_(1.0 if attempt == 0 else 0.5)
        try:
            search(model, tmp_path / "run", interrupted, resume=attempt > 0)
            break
        except KeyboardInterrupt:
            continue
    assert attempt > 3
    for name, tensor in undisturbed.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name


def test_a_folder_in_use_and_another_search_are_refused(dense, tmp_path):
    search(copy.deepcopy(dense), tmp_path, max_epochs=2)
    before = (tmp_path / "state.pt").read_bytes()
    with pytest.raises(InputError, match="holds a run already: add --resume"):
        search(copy.deepcopy(dense), tmp_path, max_epochs=2)
    with pytest.raises(InputError, match="differs in max_drop, budget.max_epochs"):
        search(copy.deepcopy(dense), tmp_path, max_drop=1.0, resume=True)
    assert (tmp_path / "state.pt").read_bytes() == before


def test_a_failed_start_leaves_the_folder_to_the_corrected_call(dense, tmp_path):
    def no_step(fit):
        return lambda model, optimizer, epochs: None

    folder = tmp_path / "run"
    with pytest.raises(InputError, match="max_epochs must be at least 2"):
        search(copy.deepcopy(dense), folder, max_epochs=1)
    with pytest.raises(InputError, match="set higher_is_better=True"):
        search(copy.deepcopy(dense), folder, higher_is_better=False)
    with pytest.raises(InputError, match="fit took no step"):
        search(copy.deepcopy(dense), folder, no_step)
    assert not folder.exists()
    search(copy.deepcopy(dense), folder, max_epochs=2)
    assert (folder / "result.json").exists()


def test_another_number_of_generators_is_one_line(dense, tmp_path):
    search(copy.deepcopy(dense), tmp_path, max_epochs=2)
    with pytest.raises(InputError, match="begun with 1 generators of its own, and now there are 0"):
        search(copy.deepcopy(dense), tmp_path, max_epochs=2, resume=True, generators=[])


@pytest.mark.parametrize("name", ["state.pt", "start.pt", "config.json"])
def test_a_damaged_folder_is_one_line(name, dense, tmp_path):
    search(copy.deepcopy(dense), tmp_path, max_epochs=2)
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InputError, match=name) as error:
        search(copy.deepcopy(dense), tmp_path, max_epochs=2, resume=True)
    assert "\n" not in str(error.value)


def test_a_hostile_file_runs_nothing(dense, tmp_path):
    class Hostile:
        def __reduce__(self):
            return (open, (str(tmp_path / "owned"), "w"))

    search(copy.deepcopy(dense), tmp_path, max_epochs=2)
    torch.save({"weight": Hostile()}, tmp_path / "state.pt")
    with pytest.raises(FormatError, match="cannot read .*state.pt, it is damaged"):
        search(copy.deepcopy(dense), tmp_path, max_epochs=2, resume=True)
    assert not (tmp_path / "owned").exists()


def test_the_result_is_plain_json(dense, tmp_path):
    result = search(copy.deepcopy(dense), tmp_path)
    written = json.loads((tmp_path / "result.json").read_text())
    assert written["history"] == result.history
    assert written["best"] == result.best.summary()
