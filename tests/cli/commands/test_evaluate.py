"""`asterism evaluate`: the user's own metric, in its own direction."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from asterism.export.checkpoints import save
from asterism.search.task import supervised
from support import small
from support.command_line import asterism
from support.paths import ROOT, SMALL

OURS = ROOT / "experiments" / "file" / "lenet5-record@1239-0.asterism"


@pytest.fixture
def classifier(tmp_path):
    model = small.trained().eval()
    save(model, tmp_path / "net.asterism", example_inputs=(torch.zeros(1, 20),))
    return tmp_path / "net.asterism"


def evaluate(*args: object) -> dict[str, object]:
    done = asterism("evaluate", *args, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_accuracy_stays_accuracy(classifier):
    found = evaluate(classifier, "--data", f"{SMALL}:loaders")
    assert found["metric"] == small.task().evaluate(small.trained())
    assert found["metric_name"] == "accuracy_percent"
    assert found["higher_is_better"] is True
    assert found["examples"] == 512
    assert "wrong" not in found


def test_a_regression_is_measured_by_its_own_loss(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 1)).eval()
    save(model, tmp_path / "net.asterism", example_inputs=(torch.zeros(1, 20),))
    found = evaluate(tmp_path / "net.asterism", "--data", f"{SMALL}:regression")
    expected = supervised(**small.regression()).evaluate(model)
    assert found["metric"] == pytest.approx(expected, rel=1e-5)
    assert found["higher_is_better"] is False
    said = asterism("evaluate", tmp_path / "net.asterism", "--data", f"{SMALL}:regression").stdout
    assert said.startswith("mse_loss: ")
    assert "(lower is better)" in said
    assert "image" not in said


def test_a_network_with_several_inputs_takes_them_together(tmp_path):
    torch.manual_seed(0)
    model = small.Both().eval()
    save(model, tmp_path / "net.asterism", example_inputs=(torch.zeros(1, 3), torch.zeros(1, 2)))
    found = evaluate(tmp_path / "net.asterism", "--data", f"{SMALL}:pairs")
    assert found["metric"] == pytest.approx(100 / 3)
    assert found["examples"] == 6


def test_accuracy_of_several_outputs_is_an_error_of_one_line(tmp_path):
    save(small.Twofold(), tmp_path / "net.asterism", example_inputs=(torch.zeros(1, 20),))
    done = asterism("evaluate", tmp_path / "net.asterism", "--data", f"{SMALL}:loaders")
    assert done.returncode == 2
    assert done.stderr.strip().endswith("the network gives a tuple: give a metric of your own")


def test_data_must_be_given_unless_the_file_is_one_of_ours(classifier):
    done = asterism("evaluate", classifier)
    assert done.returncode == 2
    assert "add --data net.py:loaders" in done.stderr


def test_a_network_of_the_paper_is_counted_in_errors():
    found = evaluate(OURS, "--data", "digits")
    assert found["error_percent"] == pytest.approx(100 * found["wrong"] / found["images"])
    assert found["error_percent"] == pytest.approx(100 - found["metric"])


def test_a_network_that_the_runtime_cannot_execute_is_measured_by_torch(tmp_path):
    model = small.with_bessel()
    torch.save(model.state_dict(), tmp_path / "net.pt")
    factories = ["--model", f"{SMALL}:with_bessel", "--data", f"{SMALL}:loaders"]
    found = evaluate(tmp_path / "net.pt", *factories)
    assert found["engine"] == "torch"
    assert found["metric"] == small.task().evaluate(model)


def test_wrong_data_is_told_once_and_is_no_reason_to_measure_with_torch(tmp_path):
    torch.save(small.trained().state_dict(), tmp_path / "net.pt")
    (tmp_path / "wrong.py").write_text("def loaders():\n    return {'train': [], 'valid': []}\n")
    wrong = f"{tmp_path}/wrong.py:loaders"
    done = asterism("evaluate", tmp_path / "net.pt", "--data", wrong, "--model", f"{SMALL}:trained")
    assert done.returncode == 2
    assert done.stderr.count("the key 'train'") == 1
    assert "with torch" not in done.stderr
