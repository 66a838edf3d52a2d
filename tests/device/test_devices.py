"""Devices that are not the CPU: one that the tests make, and a GPU where there is one.

A device is registered for the whole of a process, so that `checks.py` runs in one of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

CHECKS = Path(__file__).parent / "checks.py"


def run_checks(device: str, which: str = "not slow") -> None:
    command = [sys.executable, "-m", "pytest", "-x", "-m", which, "-p", "no:cacheprovider", CHECKS]
    environment = {**os.environ, "ASTERISM_DEVICE": device}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert " skipped" not in done.stdout


def test_a_device_that_is_not_the_cpu() -> None:
    run_checks("far")


@pytest.mark.slow
def test_a_device_that_is_not_the_cpu_with_other_optimizers() -> None:
    run_checks("far", "slow")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="hardware: needs a CUDA GPU")
def test_a_gpu() -> None:
    run_checks("cuda", "slow or not slow")
