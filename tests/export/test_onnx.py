"""The exported network answers as ours does, in ONNX Runtime, with its dead units gone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
import torch
from torch import nn

import asterism
from asterism.cli.commands.export import export
from asterism.errors import InputError
from asterism.export.checkpoints import write_checkpoint
from asterism.export.onnx import export_onnx
from asterism.graph.rebuild import rebuild
from asterism.runtime import Net
from support.networks import NETWORKS, arrays_of, graph_of, make
from support.operations import CASES, Case
from support.paths import SMALL
from support.small import untrained
from support.transformers import GPT, WORDS, prune


def answer(path: Path, x: torch.Tensor) -> np.ndarray:
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(["y"], {"x": x.numpy()})[0]


def rebuilt_from(name: str, model: nn.Module) -> nn.Module:
    net = Net(graph_of(name), arrays_of(model))
    return rebuild(net.graph, net.weights)


def silence(model: nn.Module) -> None:
    """Kills some units of every layer: no weight leads into them."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Conv2d | nn.Linear) and len(module.weight) > 10:
                module.weight[::3] = 0
                if module.bias is not None:
                    module.bias[::6] = 0


@pytest.mark.parametrize("name", NETWORKS)
def test_onnx_runtime_gives_the_same_answers(name: str, tmp_path: Path) -> None:
    model, shape = make(name)
    silence(model)
    rebuilt = rebuilt_from(name, model)
    export_onnx(rebuilt, torch.zeros(2, *shape), tmp_path / "net.onnx")
    for batch in (1, 5):
        x = torch.randn(batch, *shape)
        with torch.no_grad():
            expected = model(x).numpy()
        np.testing.assert_allclose(
            answer(tmp_path / "net.onnx", x), expected, atol=1e-4 * np.abs(expected).max()
        )


@pytest.mark.parametrize("case", [each for each in CASES if each.values[0].example.onnx])
def test_every_operation_is_exported(case: Case, tmp_path: Path) -> None:
    rebuilt = rebuild(case.graph, case.weights)
    export_onnx(rebuilt, torch.from_numpy(case.batch(2)), tmp_path / "net.onnx")
    x = torch.from_numpy(case.batch(3))
    np.testing.assert_allclose(
        answer(tmp_path / "net.onnx", x), rebuilt(x).numpy(), rtol=1e-4, atol=1e-5
    )


def test_dead_units_are_gone(tmp_path: Path) -> None:
    model, shape = make("lenet5")
    whole = export_onnx(rebuilt_from("lenet5", model), torch.zeros(2, *shape), tmp_path / "a.onnx")
    silence(model)
    small = export_onnx(rebuilt_from("lenet5", model), torch.zeros(2, *shape), tmp_path / "b.onnx")
    sizes = [sum(p.numel() for p in each.parameters()) for each in (whole, small)]
    assert sizes[1] < 0.6 * sizes[0]
    assert (tmp_path / "b.onnx").stat().st_size < 4 * sizes[1] + 10_000


def test_the_command_takes_files_and_checkpoints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = untrained().eval()
    x = torch.randn(4, 20)
    asterism.save(model, tmp_path / "net.asterism", example_inputs=(x[:1],))
    export(tmp_path / "net.asterism", tmp_path / "a.onnx")
    write_checkpoint(tmp_path / "net.safetensors", model.state_dict())
    export(
        tmp_path / "net.safetensors",
        tmp_path / "b.onnx",
        model=f"{SMALL}:untrained",
        data=f"{SMALL}:loaders",
    )
    for name in ("a.onnx", "b.onnx"):
        np.testing.assert_allclose(answer(tmp_path / name, x), model(x).detach().numpy(), atol=1e-5)
    assert "weights" in capsys.readouterr().out
    with pytest.raises(InputError, match="add --model net.py:model"):
        export(tmp_path / "net.safetensors", tmp_path / "c.onnx")


class Texts(nn.Module):
    """Two inputs, one of them words, and two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.gpt, self.more = GPT(), nn.Linear(3, 4)

    def forward(self, ids: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.gpt(ids), self.more(x)


def test_several_inputs_and_outputs_have_numbers(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, saved, path = prune(Texts()), tmp_path / "net.asterism", tmp_path / "net.onnx"
    asterism.save(model, saved, example_inputs=(torch.zeros(1, 6).long(), torch.zeros(1, 3)))
    export(saved, path)
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    ids, x = torch.randint(0, WORDS, (5, 6)), torch.randn(5, 3)
    found = session.run(["y1", "y2"], {"x1": ids.numpy(), "x2": x.numpy()})
    for answer, truth in zip(found, model(ids, x), strict=True):
        np.testing.assert_allclose(answer, truth.detach().numpy(), rtol=1e-3, atol=1e-4)
