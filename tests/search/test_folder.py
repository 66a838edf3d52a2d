"""A search in a folder: interrupted in the process itself, damaged, claimed by another."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import asterism
from asterism.errors import FormatError, InputError
from asterism.search.pareto import TrialRecord
from asterism.storage.run_folder import alone_in
from asterism.storage.snapshots import read_snapshot, write_snapshot
from support.paths import environment
from support.small import task, trained


@pytest.fixture(scope="module")
def dense() -> nn.Module:
    return trained()


def search(model: nn.Module, folder, fit=None, higher_is_better=True, generators=None, **options):
    torch.manual_seed(1)
    whole = task()
    whole = asterism.Task(
        whole.fit if fit is None else fit(whole.fit),
        whole.evaluate,
        higher_is_better,
        whole.generators if generators is None else generators,
    )
    settings = {"max_drop": 2.0, "max_epochs": 20, "run": folder, **options}
    return asterism.sparsify(model, whole, **settings)


def interrupted(fit):
    calls = iter([False, True])

    def second_call_fails(model, optimizer, epochs):
        fit(model, optimizer, epochs)
        if next(calls):
            raise KeyboardInterrupt

    return second_call_fails


def test_interrupted_at_each_trial_it_ends_in_the_same_bits(dense, tmp_path):
    undisturbed = copy.deepcopy(dense)
    search(undisturbed, tmp_path / "undisturbed")
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
    with pytest.raises(InputError, match="differs in max_drop"):
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
    assert [TrialRecord.from_json(record) for record in written["history"]] == result.history
    assert written["best"] == result.best.summary()


def test_a_folder_in_which_another_is_at_work_is_refused_before_any_training(dense, tmp_path):
    with alone_in(tmp_path), pytest.raises(InputError, match="another process is at work in"):
        search(copy.deepcopy(dense), tmp_path, never)
    assert not tmp_path.exists(), "nothing was written"


def test_of_two_processes_in_one_folder_one_is_refused(dense, tmp_path):
    """The second starts while the first is in its first call of `fit`."""
    program = (
        "import asterism, support.small as small\n"
        f"asterism.sparsify(small.trained(), small.task(), max_drop=2.0, run={str(tmp_path)!r})"
    )
    errors = []

    def fit_beside_another(fit):
        def fit_once(model, optimizer, epochs):
            if not errors:
                command = [sys.executable, "-c", program]
                errors.append(subprocess.run(command, stderr=subprocess.PIPE, env=environment()))
            fit(model, optimizer, epochs)

        return fit_once

    search(copy.deepcopy(dense), tmp_path, fit_beside_another, max_epochs=4)
    assert errors[0].returncode == 1
    last = errors[0].stderr.decode().splitlines()[-1]
    assert f"LockedError: another process is at work in {tmp_path}" in last
    assert (tmp_path / "result.json").exists()


def never(fit):
    def fail(model, optimizer, epochs):
        raise AssertionError("it was trained first")

    return fail


@pytest.mark.parametrize("place", ["a file", "below a file", "/proc/self"])
def test_a_folder_that_cannot_be_written_is_one_line_before_any_training(place, dense, tmp_path):
    (tmp_path / "file").touch()
    folder = {"a file": tmp_path / "file", "below a file": tmp_path / "file" / "run"}.get(place)
    with pytest.raises(InputError, match="cannot write") as error:
        search(copy.deepcopy(dense), folder or Path(place), never)
    assert "\n" not in str(error.value)


def test_a_search_begun_by_an_earlier_version_is_continued(dense, tmp_path):
    """Its config has another order, and its state calls the strength of the re-weighting a pull."""
    ends = []
    for name in ("now", "then"):
        folder, model = tmp_path / name, copy.deepcopy(dense)
        with pytest.raises(KeyboardInterrupt):
            search(model, folder, interrupted)
        if name == "then":
            state = read_snapshot(folder / "state.pt")
            state["pull"] = state.pop("strength")
            write_snapshot(folder / "state.pt", state)
            (folder / "config.json").write_text(json.dumps(CONFIG_OF_BEFORE))
        search(model, folder, resume=True)
        ends.append(model.state_dict())
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


CONFIG_OF_BEFORE = {
    "max_drop": 2.0,
    "higher_is_better": True,
    "budget": {"max_epochs": 20, "max_minutes": None, "epochs_per_cut": None},
    "reweighting": 0.2,
    "include": None,
    "exclude": None,
    "penalty": {"kind": "ReweightedL1", "tau": 0.3, "relative": True},
    "densities": {},
    "weights": {"0.weight": [32, 20], "4.weight": [3, 32]},
    "threads": torch.get_num_threads(),
}


def test_a_search_whose_budget_is_spent_continues_with_a_larger_one(dense, tmp_path):
    model = copy.deepcopy(dense)
    first = search(model, tmp_path, max_epochs=6)
    assert "the budget is spent" in first.stop_reason
    again = search(copy.deepcopy(dense), tmp_path, max_epochs=12, resume=True)
    assert again.history[: len(first.history)] == first.history
    assert first.history[-1].epochs <= 6 < again.history[-1].epochs <= 12
    assert again.best.nonzeros <= first.best.nonzeros
    assert json.loads((tmp_path / "config.json").read_text())["budget"]["max_epochs"] == 12
    finished = (tmp_path / "result.json").read_bytes()
    search(copy.deepcopy(dense), tmp_path, max_epochs=12, resume=True)
    assert (tmp_path / "result.json").read_bytes() == finished


@pytest.mark.parametrize("changed", [{"max_epochs": 4}, {"max_epochs": 12, "max_drop": 3.0}])
def test_a_smaller_budget_or_any_other_change_is_refused_untouched(changed, dense, tmp_path):
    search(copy.deepcopy(dense), tmp_path, max_epochs=6)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    message = "may grow, not shrink" if len(changed) == 1 else "differs in max_drop"
    with pytest.raises(InputError, match=message):
        search(copy.deepcopy(dense), tmp_path, **{"max_epochs": 6, "resume": True, **changed})
    assert {path: path.read_bytes() for path in before} == before


def test_killed_while_it_is_extended_it_continues(dense, tmp_path):
    search(copy.deepcopy(dense), tmp_path / "one", max_epochs=6)
    search(copy.deepcopy(dense), tmp_path / "two", max_epochs=6)
    search(copy.deepcopy(dense), tmp_path / "one", max_epochs=12, resume=True)

    def at_once(fit):
        def raises(model, optimizer, epochs):
            raise KeyboardInterrupt

        return raises

    with pytest.raises(KeyboardInterrupt):
        search(copy.deepcopy(dense), tmp_path / "two", at_once, max_epochs=12, resume=True)
    assert not (tmp_path / "two" / "result.json").exists()
    search(copy.deepcopy(dense), tmp_path / "two", max_epochs=12, resume=True)
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two")]
    assert models[0] == models[1]


def test_the_folder_tells_when_and_with_what_the_search_was_begun(dense, tmp_path):
    asterism.sparsify(copy.deepcopy(dense), task(), max_drop=2.0, max_epochs=6, run=tmp_path)
    about = json.loads((tmp_path / "about.json").read_text())
    assert about["metric"] == "accuracy_percent"
    assert about["wiring"] == {"0.weight": [], "4.weight": ["0.weight"]}
    assert about["versions"]["asterism"] == asterism.__version__
    assert about["date"][:2] == "20"
    assert "commit" in about


def test_training_losses_are_kept_epoch_by_epoch(dense, tmp_path):
    used = task()
    used.fit(copy.deepcopy(dense), torch.optim.SGD(dense.parameters(), lr=0.0), epochs=3)
    result = asterism.sparsify(copy.deepcopy(dense), used, max_drop=2.0, max_epochs=8, run=tmp_path)
    spent = 0
    for record in result.history:
        assert len(record.losses) == record.epochs - spent, record.trial
        spent = record.epochs
    assert all(loss > 0 for record in result.history for loss in record.losses)
    kept = json.loads((tmp_path / "result.json").read_text())["history"]
    assert [TrialRecord.from_json(each) for each in kept] == result.history
    without = [{name: each for name, each in old.items() if name != "losses"} for old in kept]
    assert TrialRecord.from_json(without[-1]).losses == (), "an older folder has none"
