"""The examples run, each as a person would run it, in its quick form; one in its own process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import asterism
from support.command_line import script

EXAMPLES = Path(__file__).parents[2] / "examples"
WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; import runpy; sys.argv = sys.argv[1:]\n"


def run(name: str, *arguments: str, folder: Path) -> str:
    return script(EXAMPLES / name, *arguments, cwd=folder)


def run_alone(name: str, *arguments: str, folder: Path) -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_are_listed_and_tested():
    listed = re.findall(r"python examples/(\w+\.py)", (EXAMPLES / "README.md").read_text())
    assert sorted(listed) == sorted(path.name for path in EXAMPLES.glob("*.py"))
    assert all(name in Path(__file__).read_text() for name in listed)


@pytest.mark.slow
def test_own_cnn(tmp_path):
    printed = run("own_cnn.py", "--quick", "--out", "search", folder=tmp_path)
    assert re.search(r"sparse: \d+ weights", printed)
    assert (tmp_path / "own-cnn.asterism").stat().st_size < 100_000
    assert (tmp_path / "search" / "result.json").exists()


def test_text_transformer(tmp_path):
    printed = run("text_transformer.py", "--quick", "--density", "0.25", folder=tmp_path)
    kept, total = re.findall(r"with ([\d,]+) of ([\d,]+) weights", printed)[0]
    assert int(kept.replace(",", "")) == round(int(total.replace(",", "")) / 4)


def test_signal_recovery(tmp_path):
    printed = run_alone("signal_recovery.py", "--quick", folder=tmp_path)
    grid = [[int(each) for each in line.split()[1:]] for line in printed.splitlines()[:4]]
    assert grid[-1][-1] == 100, "few non-zeros and many measurements"
    assert grid[0][0] == 0, "many non-zeros and few measurements"
    assert "<svg" in (tmp_path / "phase-transition.svg").read_text()


def test_own_penalty(tmp_path):
    function, own_class, _ = run("own_penalty.py", "--quick", folder=tmp_path).splitlines()
    # The same penalty written twice; autograd rounds differently.
    kurtosis = [float(re.findall(r"kurtosis ([\d.]+)", line)[0]) for line in (function, own_class)]
    assert kurtosis[0] == pytest.approx(kurtosis[1], rel=0.05)


@pytest.mark.slow
def test_own_penalty_is_worth_having(tmp_path):
    *own, reference = run("own_penalty.py", folder=tmp_path).splitlines()
    wrong = [float(re.findall(r"error ([\d.]+) %", line)[0]) for line in (*own, reference)]
    assert max(wrong) < 5, "not even with 3 % of the weights"
    assert max(wrong[:-1]) <= wrong[-1] + 1


def test_net(tmp_path):
    assert float(run("net.py", folder=tmp_path).split()[0]) > 95
    assert (tmp_path / "net.safetensors").exists()


def test_serve(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    file = tmp_path / "net.asterism"
    asterism.save(model, file, example_inputs=(torch.zeros(1, 4),))
    program = f"{WITHOUT_TORCH}runpy.run_path({str(EXAMPLES / 'serve.py')!r}, run_name='__main__')"
    command = [sys.executable, "-c", program, "serve.py", str(file), "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        try:
            assert server.stdout is not None
            address = re.findall(r"http://\S+", server.stdout.readline())[0]
            inputs = torch.randn(2, 4)
            answer = ask(address, inputs.tolist())
            np.testing.assert_allclose(answer, model(inputs).detach().numpy(), rtol=1e-4, atol=1e-5)
            with pytest.raises(urllib.error.HTTPError, match="400") as refused:
                ask(address, [[1.0]])
            assert "expected (N, 4)" in json.loads(refused.value.read())["error"]
            refused.value.close()
        finally:
            server.terminate()


def ask(address: str, inputs: object) -> object:
    request = urllib.request.Request(address, json.dumps(inputs).encode())
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.loads(response.read())
