"""The dense engines that a sparse network is timed against, each as a function of its inputs.

Owns how each is set up: one network, its weights with all their zeros, a given number of threads.
"""

from __future__ import annotations

import importlib.util
import io
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from operator import itemgetter
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from asterism.export.onnx import onnx_bytes
from asterism.runtime import Net

Batch = npt.NDArray[Any]
Inputs = tuple[Batch, ...]
Engine = Callable[..., object]
"""Of a batch for each input of the network."""


def find(model: nn.Module, example: Inputs, threads: int) -> dict[str, Engine]:
    """Every engine that is installed and takes the model, by name.

    model    the dense network, zeros and all
    example  for each input a batch of two or more
    threads  that each engine may use
    """
    makers: dict[str, tuple[str, Callable[..., Engine]]] = {
        "torch": ("torch", eager),
        "torch.compile": ("torch", compiled),
        "onnxruntime": ("onnxruntime", onnxruntime),
        "openvino": ("openvino", openvino),
        "openvino sparse": ("openvino", openvino_sparse),
        "litert": ("litert_torch", litert),
        "mnn": ("MNN", mnn),
    }
    found: dict[str, Engine] = {}
    for name, (module, maker) in makers.items():
        if importlib.util.find_spec(module) is None:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                engine = maker(model.eval(), example, threads)
                engine(*example)
        except Exception as error:  # an engine that cannot run it is left out, and said
            warnings.warn(f"{name} does not run this network: {error}", stacklevel=2)
            continue
        found[name] = engine
    return found


def eager(model: nn.Module, example: Inputs, threads: int) -> Engine:
    """torch as it is."""

    @torch.inference_mode()
    def run(*xs: Batch) -> object:
        answers = model(*map(torch.from_numpy, xs))
        several = isinstance(answers, tuple | list)
        return [each.numpy() for each in answers] if several else answers.numpy()

    torch.set_num_threads(threads)
    return run


def compiled(model: nn.Module, example: Inputs, threads: int) -> Engine:
    """torch.compile."""
    return eager(torch.compile(model, dynamic=True), example, threads)  # type: ignore[arg-type]


def onnxruntime(model: nn.Module, example: Inputs, threads: int) -> Engine:
    """ONNX Runtime on the CPU."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    with tempfile.TemporaryDirectory() as folder:
        path = to_onnx(model, example, Path(folder))
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    return lambda *xs: session.run(None, dict(zip(names, xs, strict=True)))[0]


def openvino(model: nn.Module, example: Inputs, threads: int) -> Engine:
    """OpenVINO on the CPU."""
    return _openvino(model, example, threads, {})


def openvino_sparse(model: nn.Module, example: Inputs, threads: int) -> Engine:
    """The same with its sparse decompression of weights on, from a fifth of zeros in a layer."""
    return _openvino(model, example, threads, {"CPU_SPARSE_WEIGHTS_DECOMPRESSION_RATE": 0.2})


def _openvino(
    model: nn.Module, example: Inputs, threads: int, settings: dict[str, float]
) -> Engine:
    import openvino as ov

    with tempfile.TemporaryDirectory() as folder:
        path = to_onnx(model, example, Path(folder))
        usual = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
        program = ov.Core().compile_model(str(path), "CPU", {**usual, **settings})
    return lambda *xs: program(xs)[0]


def litert(model: nn.Module, example: Inputs, threads: int) -> Engine:
    """LiteRT on the CPU, by XNNPACK; a program for each batch size, made at its first batch."""
    import litert_torch
    from ai_edge_litert.interpreter import Interpreter

    def program(size: int) -> Any:
        sample = tuple(torch.from_numpy(np.repeat(x[:1], size, 0)) for x in example)
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()):
            path = Path(folder, "model.tflite")
            litert_torch.convert(model, sample).export(str(path))
            made = Interpreter(model_content=path.read_bytes(), num_threads=threads)
        made.allocate_tensors()
        return made

    programs: dict[int, Any] = {}

    def run(*xs: Batch) -> object:
        size = len(xs[0])
        made = programs[size] = programs.get(size) or program(size)
        given = sorted(made.get_input_details(), key=itemgetter("name"))  # by their places
        for each, x in zip(given, xs, strict=True):
            made.set_tensor(each["index"], x)
        made.invoke()
        return made.get_tensor(made.get_output_details()[0]["index"])

    return run


def mnn(model: nn.Module, example: Inputs, threads: int) -> Engine:
    """MNN on the CPU, in float32."""
    import MNN

    with tempfile.TemporaryDirectory() as folder:
        source, path = to_onnx(model, example, Path(folder)), Path(folder, "model.mnn")
        # Its converter, and not the command around it, which tells its makers of each use.
        script = "import sys, MNN, _tools; _tools.mnnconvert(sys.argv)"
        convert = [sys.executable, "-c", script, "-f", "ONNX"]
        convert += ["--modelFile", str(source), "--MNNModel", str(path), "--bizCode", "bench"]
        subprocess.run(convert, check=True, capture_output=True)
        settings = {"backend": "CPU", "numThread": threads, "precision": "high"}
        runtime = MNN.nn.create_runtime_manager((settings,))
        program = MNN.nn.load_module_from_file(str(path), [], [], runtime_manager=runtime)

    def variable(x: Batch) -> Any:
        given = MNN.expr.placeholder(list(x.shape), MNN.expr.NCHW)
        given.write(x)
        return given

    def run(*xs: Batch) -> object:
        made = program.forward([variable(x) for x in xs])[0]
        return MNN.expr.convert(made, MNN.expr.NCHW).read()

    return run


def to_onnx(model: nn.Module, example: Inputs, folder: Path) -> Path:
    """The model as an ONNX file in the folder."""
    path = folder / "model.onnx"
    path.write_bytes(onnx_bytes(model, tuple(map(torch.from_numpy, example))))
    return path


class Timing(TypedDict):
    """How fast an engine is at one batch size, as `asterism bench --json` prints it.

    batch                   images at once
    engine                  its name; the sparse network's is "asterism"
    microseconds_per_image  the median
    speed_up                how many times longer it takes than the sparse network
    """

    batch: int
    engine: str
    microseconds_per_image: float
    speed_up: float


def compare(
    net: Net, engines: Mapping[str, Engine], batches: Sequence[int], budget: float = 1.0
) -> list[Timing]:
    """Seconds per image of the net and each engine, in turn, and the median of their ratios.

    net      the sparse network
    engines  those of `find`
    batches  the batch sizes to time
    budget   about the seconds to spend on each; a turn is a millisecond or a call
    """
    rows: list[Timing] = []
    runs: dict[str, Engine] = {"asterism": net, **engines}
    for batch in batches:
        xs = net.example(batch)
        for run in runs.values():
            run(*xs)
        calls = {name: max(1, int(1e-3 / _seconds(run, xs, 3))) for name, run in runs.items()}
        pace = sum(_seconds(run, xs, 1) * calls[name] for name, run in runs.items())
        times: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(max(5, min(500, int(budget / pace)))):
            for name, run in runs.items():
                times[name].append(_seconds(run, xs, calls[name]))
        for name, seconds in times.items():
            ratios = [other / own for other, own in zip(seconds, times["asterism"], strict=True)]
            rows.append(
                {
                    "batch": batch,
                    "engine": name,
                    "microseconds_per_image": 1e6 * statistics.median(seconds) / batch,
                    "speed_up": statistics.median(ratios),
                }
            )
    return rows


def ahead(rows: Sequence[Timing]) -> list[str]:
    """Where another engine is faster than the net, of the rows of `compare`; the most first.

    >>> ahead([{"engine": "mnn", "batch": 16, "speed_up": 0.8, "microseconds_per_image": 3}])
    ['mnn is 1.25× faster at batch 16']
    """
    lost = sorted((row["speed_up"], row["engine"], row["batch"]) for row in rows)
    return [
        f"{engine} is {1 / ratio:.2f}× faster at batch {batch}"
        for ratio, engine, batch in lost
        if ratio < 1 and engine != "asterism"
    ]


def _seconds(run: Engine, xs: Inputs, calls: int) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        run(*xs)
    return (time.perf_counter() - started) / calls
