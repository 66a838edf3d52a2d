"""Small data and models that several test files share."""

from __future__ import annotations

import os
import signal

# One thread for torch in each worker and in all that it starts: small layers gain nothing
# from a second one, and two workers would wait for each other's. Read when torch is imported.
os.environ["OMP_NUM_THREADS"] = "1"
# The same plans on every machine, whatever its owner has measured.
os.environ["ASTERISM_CALIBRATION"] = "none"
# Some virtual machines announce AMX and do not run it: products of bfloat16 end the process.
os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"

import pytest
import torch
from hypothesis import settings

import asterism.kernels.library as library
import asterism.scaling.layer
from asterism.experiments.data import Dataset, Split, load
from asterism.experiments.methods import Dense
from asterism.experiments.training import train
from support.networks import make_mlp
from support.properties import NIGHTLY

# What a shell starts in the background ignores Ctrl-C, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples each time, and no clock: a busy machine is no failure.
settings.register_profile(NIGHTLY, derandomize=True, deadline=None)  # see support.properties
settings.register_profile("asterism", settings.get_profile(NIGHTLY), max_examples=40)
settings.load_profile("asterism")

# So that layers of a few weights take the way of large ones, where few of them are alive.
asterism.scaling.layer.WORTH_LISTING = 1


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)


KINDS = ["none", *library.LEVELS]


@pytest.fixture(params=KINDS)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each kind of kernels that this machine has, and none."""
    found = library.load()
    if KINDS.index(request.param) > (0 if found is None else found.asterism_level() + 1):
        pytest.skip(f"no {request.param} here")
    monkeypatch.setenv("ASTERISM_KERNELS", request.param)
    monkeypatch.setattr("asterism.runtime.net._said", True)
    return str(request.param)


@pytest.fixture(scope="session")
def digits() -> Dataset:
    """A few hundred real images: enough to learn something in a second."""
    data = load("digits")
    few = slice(0, 512)
    return Dataset(
        "digits",
        Split(data.train.images[few], data.train.labels[few]),
        data.validation,
        data.test,
    )


@pytest.fixture(scope="session")
def trained_mlp(digits: Dataset) -> dict[str, torch.Tensor]:
    """The weights of that network after a few epochs: where a method starts."""
    model = make_mlp()
    setup = Dense(epochs=6).setup(model)
    train(model, setup.optimizer, setup.stages, digits, batch_size=32)
    return model.state_dict()
