"""The experiments as settings, and, slowly, that they deliver what the README says."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from asterism import Greedy, InTurn
from asterism.cli.progress import print_lines
from asterism.errors import InputError
from asterism.experiments.budgets import GREEDY, LENET5_WEIGHTS, NOISE, Budget
from asterism.experiments.budgets import find as budget
from asterism.experiments.budgets.table1 import PAPER_SHARES
from asterism.experiments.data import Split, load
from asterism.experiments.jobs import planned_epochs
from asterism.experiments.methods import Polish
from asterism.experiments.paper import TABLE_1
from asterism.experiments.reproduce import make_job, reproduce

ROWS = {"dense", "reweighted_l1", "reweighted_l2", "focuss", "dns", "lwc", "magnitude"}


@pytest.mark.parametrize("name", ["smoke", "quick", "standard", "paper"])
def test_the_budgets_of_table_1_have_every_row_and_both_halves_of_the_figure(name: str) -> None:
    thirds = {"reweighted_l1@0.43", "reweighted_l2@0.42", "focuss@0.57"}
    beside = {"ast_l1", *thirds} if name == "standard" else set()
    assert budget(name).methods.keys() == ROWS | {NOISE, GREEDY} | beside


def test_ast_itself_has_the_cut_and_the_epochs_of_the_row_that_it_is_compared_with() -> None:
    chosen = budget("standard")
    ours, ast = chosen.methods["reweighted_l1"], chosen.methods["ast_l1"].phases[0]
    assert (ast.density, ast.cut_from) == (ours.density, ours.cut_from)
    assert ast.weight_decay == ours.weight_decay
    assert ast.lam == 0 < ours.lam
    assert epochs(chosen, "ast_l1") == epochs(chosen, "reweighted_l1")


def epochs(chosen: Budget, key: str) -> int:
    return planned_epochs(make_job(chosen, key, seed=0))


@pytest.mark.parametrize("name", ["tradeoff", "lenet300", "record", "cifar10", "resnet20"])
def test_re_weighting_and_its_control_have_the_same_epochs(name: str) -> None:
    chosen = budget(name)
    for key in chosen.methods:
        if key.startswith("magnitude"):
            others = ("reweighted_l1", "gradual_l1", "regrown")
            pairs = (key.replace("magnitude", other) for other in others)
            (ours,) = [each for each in pairs if each in chosen.methods]
            assert epochs(chosen, key) == epochs(chosen, ours), key


def test_every_row_of_the_ablation_has_the_same_epochs() -> None:
    chosen = budget("ablation")
    assert len({epochs(chosen, key) for key in chosen.methods if key != "dense"}) == 1


@pytest.mark.parametrize("name", ["quick", "standard"])
def test_the_control_has_the_epochs_of_the_methods_it_is_compared_with(name: str) -> None:
    chosen = budget(name)
    rows = ("reweighted_l1", "reweighted_l2", "focuss", "magnitude")
    assert len({epochs(chosen, key) for key in rows}) == 1


@pytest.mark.parametrize("name", ["quick", "standard"])
@pytest.mark.parametrize("key", ["reweighted_l1", "reweighted_l2", "focuss"])
def test_no_row_asks_for_more_weights_than_the_paper_keeps(name: str, key: str) -> None:
    published = TABLE_1[key].density_percent
    assert published is not None
    last = budget(name).methods[key].phases[-1]
    asked = last.nonzeros / LENET5_WEIGHTS if isinstance(last, Polish) else last.density
    assert 100 * asked <= published


def test_the_paper_budget_is_literal_but_for_the_epochs() -> None:
    for key in ("reweighted_l1", "reweighted_l2", "focuss"):
        method = budget("paper").methods[key]
        assert (method.lam, method.normalise, method.reweights) == (0.0, False, 8)
        assert (method.cut_by, method.density) == ("layerwise", PAPER_SHARES[key])
        assert method.initialiser == Greedy()
        assert method.layers == InTurn()
        assert method.epochs_per_reweight == method.cut_epochs == 1000 // 500


def test_an_unknown_budget_names_the_known_ones() -> None:
    with pytest.raises(InputError, match="unknown budget 'huge': choose from smoke, quick"):
        budget("huge")


def test_images_of_another_size_are_refused_before_anything_is_trained(tmp_path: Path) -> None:
    digits = load("digits")
    split = Split(torch.zeros(4, 3, 32, 32), torch.zeros(4, dtype=torch.long))
    data = replace(digits, name="colour", train=split)
    with pytest.raises(InputError, match="LeNet-5 takes images of 1×28×28, .* colour have 3×32×32"):
        reproduce(budget("smoke"), data, tmp_path / "out", monitor=print_lines)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_quick_budget_keeps_its_promises(tmp_path: Path) -> None:
    """Every row of ours at or under the paper's non-zeros and test error."""
    command = [sys.executable, "-m", "asterism.cli", "reproduce", "--out", str(tmp_path)]
    subprocess.run([*command, "--methods", "reweighted_l1,reweighted_l2,focuss"], check=True)
    results = {r["method"]: r for r in json.loads((tmp_path / "results.json").read_text())}
    for key in ("reweighted_l1", "reweighted_l2", "focuss"):
        published = TABLE_1[key].density_percent
        assert published is not None
        assert results[key]["density_percent"] <= published
        assert results[key]["test_error_percent"] <= TABLE_1[key].test_error_percent
