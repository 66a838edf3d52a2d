"""The runtime where there is no torch, and where there are no kernels; numpy and pytest do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

NETWORK = """
import sys, numpy as np
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "scipy", "rich", "typer"):
            raise ImportError(name + " is blocked")
sys.meta_path.insert(0, Block())
from asterism.graph.network import Graph, Node, decode, encode
import asterism
nodes = (Node("conv", (0,), (0, 1), {"padding_h": 1, "padding_w": 1}), Node("relu", (1,)),
         Node("max_pool", (2,), settings={"kernel_h": 2, "kernel_w": 2}), Node("flatten", (3,)),
         Node("linear", (4,), (2, 3)))
rng = np.random.default_rng(0)
shapes = [(4, 1, 3, 3), (4,), (10, 64), (10,)]
tensors = {str(i): rng.standard_normal(s).astype("f4") for i, s in enumerate(shapes)}
graph = decode(encode(Graph((1, 8, 8), nodes)))
net = asterism.runtime.Net(graph, tensors)
y = net(rng.standard_normal((5, 1, 8, 8)).astype("f4"))
net(np.ones((1, 1, 8, 8), "f4"))
print(y.shape, round(float(np.abs(y).sum()), 2))
assert "torch" not in sys.modules
"""


def run(kernels: str | None, warnings: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ASTERISM_KERNELS": kernels or "", **variables}
    command = [sys.executable, "-W", warnings, "-c", NETWORK]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, cwd=Path.cwd()
    )


def test_it_runs_without_torch_and_says_once_that_there_are_no_kernels() -> None:
    plain = run("none", "default")
    assert plain.returncode == 0, plain.stderr
    assert plain.stderr.count("ASTERISM_KERNELS=none: networks run in numpy") == 1
    compiled = run(None, "error")
    if "run in numpy" in compiled.stderr:
        pytest.skip("the kernels are not built")
    assert compiled.returncode == 0, compiled.stderr
    assert compiled.stdout == plain.stdout


def test_a_library_that_does_not_load_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.so").write_bytes(b"nonsense")
    for name in ("broken.so", "missing.so"):
        wrong = run(None, "error", ASTERISM_LIBRARY=str(tmp_path / name))
        assert wrong.returncode
        assert f"InputError: ASTERISM_LIBRARY={tmp_path / name}" in wrong.stderr


def test_a_machine_without_the_instructions_is_told() -> None:
    wrong = run("avx9000", "error")
    assert "ASTERISM_KERNELS=avx9000" in wrong.stderr or "run in numpy" in wrong.stderr


FORKED = """
import os, signal, sys, threading, numpy as np
from asterism.graph.network import Graph, Node
from asterism.runtime import Net
weight = np.random.default_rng(0).random((3, 40), np.float32)
graph = Graph((40,), (Node("linear", (0,), (0,)),))
one, two = (Net(graph, {"w": weight}, threads=n) for n in (1, 32))
x = np.random.default_rng(1).random((1024, 40), np.float32)
assert (one(x) == two(x)).all()  # now there are threads, which a fork does not copy
expected, busy = one(x), True
def keep_busy():
    while busy:
        one(x), two(x)
caller = threading.Thread(target=keep_busy, daemon=True)
caller.start()
for _ in range(300):  # whatever the caller is about at that moment
    child = os.fork()
    if not child:
        signal.alarm(20)
        same = (one(x) == expected).all() and (two(x) == expected).all()
        started = sys.platform != "linux" or len(os.listdir("/proc/self/task")) > 1
        os._exit(not (same and started))
    assert os.waitpid(child, 0)[1] == 0
busy = False
caller.join()
assert (two(x) == expected).all()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks on this system")
def test_a_forked_process_starts_threads_of_its_own() -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKED]
    assert subprocess.run(command, check=False, timeout=60).returncode == 0
