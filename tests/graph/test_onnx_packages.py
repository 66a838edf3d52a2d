"""Networks that nobody here made, as packages ship them; only where these are installed.

pip install --no-deps silero-vad magika basic-pitch rapidocr-onnxruntime
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import asterism
from asterism.graph.onnx.inputs import find_inputs
from asterism.graph.onnx.reading import read_model
from support.onnx_models import answers

pytestmark = pytest.mark.slow
SPEECH, RATE = {"input": (576,)}, {"sr": 16000}


class Network(NamedTuple):
    package: str
    file: str
    shape: Any = None
    fixed: Any = None
    missing: str | None = None


NETWORKS = [
    Network("magika", "models/standard_v3_3/model.onnx"),
    Network("basic_pitch", "saved_models/icassp_2022/nmp.onnx"),
    Network("rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx", (3, 96, 128)),
    Network("rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx", (3, 48, 320)),
    Network("rapidocr_onnxruntime", "models/ch_ppocr_mobile_v2.0_cls_infer.onnx", (3, 48, 192)),
    Network("silero_vad", "data/silero_vad.onnx", SPEECH, RATE),
    Network("silero_vad", "data/silero_vad_16k_op15.onnx", SPEECH, RATE),
    Network("silero_vad", "data/silero_vad_op18_ifless.onnx", SPEECH, RATE),
    Network("silero_vad", "data/silero_vad_half.onnx", SPEECH),
    Network("silero_vad", "data/silero_vad_openvino_16k.onnx"),
    Network("silero_vad", "data/silero_vad_16k_sequence.onnx", missing="onnx.LSTM along the batch"),
]


def path_of(network: Network) -> Path:
    found = find_spec(network.package)
    places = [] if found is None else found.submodule_search_locations or []
    paths = [Path(place) / network.file for place in places]
    path = next((each for each in paths if each.exists()), None)
    if path is None:
        pytest.skip(f"{network.package} is not installed")
    return path


@pytest.mark.parametrize("network", NETWORKS, ids=lambda each: Path(each.file).stem)
def test_it_answers_as_in_onnx_runtime_or_names_what_is_missing(network: Network) -> None:
    path = path_of(network)
    read = asterism.from_onnx(path, shape=network.shape, fixed=network.fixed)
    if network.missing:
        assert network.missing in str(read.missing)
        return
    net, random = read.net(), np.random.default_rng(0)
    known = find_inputs(read_model(path).graph, network.shape, network.fixed)
    feed = {name: np.asarray(number, np.int64) for name, number in (network.fixed or {}).items()}
    batches = [_batch(random, known.batch or 3, each) for each in read.graph.inputs]
    names = [name for name in known.known if name not in feed]
    for name, batch in zip(names, batches, strict=True):
        feed[name] = np.moveaxis(batch, 0, known.known[name].axis)
    found = net(*batches)
    found = found if isinstance(found, tuple) else (found,)
    for ours, truth in zip(found, answers(path, feed), strict=True):
        truth = truth if truth.shape == ours.shape else np.moveaxis(truth, 1, 0)
        np.testing.assert_allclose(ours, truth, atol=1e-4)


def _batch(random: Any, size: int, given: Any) -> np.ndarray:
    if given.integer:
        return random.integers(0, 256, (size, *given.shape)).astype(np.int32)
    return random.standard_normal((size, *given.shape)).astype(np.float32)
