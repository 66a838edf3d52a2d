"""Models to files and back, and the two commands around them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import asterism
from asterism.errors import FormatError, InputError
from asterism.export.checkpoints import load_into, read_checkpoint, to_arrays, write_checkpoint
from asterism.weights.metrics import kurtosis
from support.command_line import asterism as command


def sparse_model() -> nn.Sequential:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(32, 10))
    with torch.no_grad():
        for weight in (model[0].weight, model[3].weight):
            weight *= torch.rand(weight.shape) < 0.2
    return model


def assert_same(found, expected) -> None:
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


@pytest.mark.parametrize("mode", ["auto", "small", "fast"])
def test_a_model_comes_back(mode, tmp_path: Path):
    model = sparse_model()
    size = asterism.save(model, tmp_path / "net.asterism", mode=mode)
    assert size == (tmp_path / "net.asterism").stat().st_size
    state = asterism.load_state_dict(tmp_path / "net.asterism")
    assert_same(state, model.state_dict())
    sparse_model().load_state_dict(state)


def test_every_type_of_torch(tmp_path: Path):
    state = {
        str(dtype): torch.randn(3, 4).to(dtype)
        for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.bool)
    }
    state["scalar"] = torch.tensor(3)
    state["transposed"] = torch.randn(3, 4).t()
    state["float8"] = torch.randn(8).to(torch.float8_e4m3fn)
    asterism.save(state, tmp_path / "x.asterism")
    found = asterism.load_state_dict(tmp_path / "x.asterism")
    assert torch.equal(found.pop("float8").view(torch.uint8), state.pop("float8").view(torch.uint8))
    assert_same(found, state)


def test_the_minus_zeros_of_masks_cost_nothing(tmp_path: Path):
    plain = torch.zeros(100, 100)
    assert torch.signbit(-plain).all()
    sizes = [asterism.save({"w": w}, tmp_path / "x.asterism") for w in (plain, -plain)]
    assert sizes[0] == sizes[1]


def test_bits(tmp_path: Path):
    model = sparse_model()
    small = asterism.save(model, tmp_path / "x.asterism", bits=3)
    assert small < asterism.save(model, tmp_path / "y.asterism")
    state = asterism.load_state_dict(tmp_path / "x.asterism")
    assert len(state["3.weight"].unique()) <= 9
    assert torch.equal(state["3.weight"] == 0, model[3].weight == 0)


def test_what_is_no_tensor_is_named(tmp_path: Path):
    with pytest.raises(InputError, match="epoch is a int"):
        asterism.save({"epoch": 3}, tmp_path / "x.asterism")
    with pytest.raises(InputError, match=r"w is stored as torch\.sparse_coo"):
        asterism.save({"w": torch.eye(3).to_sparse()}, tmp_path / "x.asterism")
    with pytest.raises(InputError, match="need the model"):
        asterism.save({}, tmp_path / "x.asterism", example_inputs=torch.zeros(1))
    assert not list(tmp_path.iterdir())


def test_plain_checkpoints_of_every_kind(tmp_path: Path):
    state = sparse_model().state_dict()
    write_checkpoint(tmp_path / "a.safetensors", state)
    torch.save(state, tmp_path / "b.pt")
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "c.pt")
    asterism.save(state, tmp_path / "d.asterism")
    for name in ("a.safetensors", "b.pt", "c.pt", "d.asterism"):
        found = read_checkpoint(tmp_path / name)
        assert_same({key: found[key] for key in state}, state)


@pytest.mark.parametrize("name", ["net.pt", "net.safetensors", "net.asterism"])
def test_every_kind_of_file_is_loaded_into_a_model(name: str, tmp_path: Path):
    model, other = sparse_model(), sparse_model()
    if name == "net.asterism":
        asterism.save(model, tmp_path / name)
    elif name == "net.safetensors":
        write_checkpoint(tmp_path / name, model.state_dict())
    else:
        torch.save(model.state_dict(), tmp_path / name)
    load_into(other, tmp_path / name)
    assert_same(other.state_dict(), model.state_dict())


def test_a_file_that_does_not_fit_is_one_line(tmp_path: Path):
    write_checkpoint(tmp_path / "a.safetensors", {"0.weight": torch.zeros(3, 3)})
    with pytest.raises(InputError, match="a.safetensors does not fit the model: .*3.bias") as error:
        load_into(sparse_model(), tmp_path / "a.safetensors")
    assert "\n" not in str(error.value)


def test_names_come_in_their_natural_order(tmp_path: Path):
    state = {f"layers.{i}.weight": torch.full((2,), float(i)) for i in range(12)}
    write_checkpoint(tmp_path / "a.safetensors", state)
    assert list(read_checkpoint(tmp_path / "a.safetensors")) == list(state)


def test_nothing_is_unpickled(tmp_path: Path):
    torch.save(sparse_model(), tmp_path / "model.pt")
    with pytest.raises(InputError, match=r"model\.pt is no checkpoint that can be read safely"):
        read_checkpoint(tmp_path / "model.pt")
    torch.save({"epoch": 3, "model": sparse_model().state_dict()}, tmp_path / "nested.pt")
    with pytest.raises(InputError, match="holds a dict with epoch, model, not a state dict"):
        read_checkpoint(tmp_path / "nested.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(InputError, match="holds a list"):
        read_checkpoint(tmp_path / "list.pt")
    (tmp_path / "x.safetensors").write_bytes(b"nonsense")
    with pytest.raises(InputError, match=r"x\.safetensors is not a safetensors file"):
        read_checkpoint(tmp_path / "x.safetensors")
    (tmp_path / "x.asterism").write_bytes(b"\x8bAST\x01nonsense")
    with pytest.raises(FormatError, match="checksum"):
        read_checkpoint(tmp_path / "x.asterism")
    (tmp_path / "x.asterism").write_bytes(b"")
    with pytest.raises(FormatError, match=r"not an \.asterism file"):
        read_checkpoint(tmp_path / "x.asterism")


def test_tensors_without_numbers_are_named():
    with pytest.raises(InputError, match="w has a shape but no numbers"):
        to_arrays({"w": torch.empty(3, device="meta")})


def test_compress_and_inspect(tmp_path: Path):
    model = sparse_model()
    write_checkpoint(tmp_path / "model.safetensors", model.state_dict())
    done = command("compress", tmp_path / "model.safetensors")
    assert done.returncode == 0, done.stderr
    packed = tmp_path / "model.asterism"
    assert f"{packed.stat().st_size:,} bytes" in done.stdout

    summary = json.loads(command("inspect", packed, "--json").stdout)
    assert [layer["name"] for layer in summary["layers"]] == ["0.weight", "3.weight"]
    for layer in summary["layers"]:
        assert list(layer) == ["name", "shape", "nonzeros", "density_percent", "kurtosis", "bytes"]
        weight = model.get_parameter(layer["name"])
        assert layer["nonzeros"] == int(weight.count_nonzero())
        assert layer["shape"] == list(weight.shape)
        assert layer["kurtosis"] == pytest.approx(kurtosis(weight))
    total = summary["total"]
    keys = ["weights", "nonzeros", "density_percent", "bytes", "dense_bytes", "ratio"]
    assert list(total) == keys
    assert total["weights"] == 8 * 27 + 320
    assert total["bytes"] == packed.stat().st_size
    assert total["ratio"] == pytest.approx(total["dense_bytes"] / total["bytes"])

    plain = json.loads(command("inspect", tmp_path / "model.safetensors", "--json").stdout)
    assert plain == summary
    table = command("inspect", packed).stdout
    assert "3.weight" in table
    assert "bitmask" in table

    back = command("compress", packed, "--out", tmp_path / "back.safetensors")
    assert back.returncode == 0, back.stderr
    state = read_checkpoint(tmp_path / "back.safetensors")
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())


def test_bad_input_is_one_line(tmp_path: Path):
    (tmp_path / "x.asterism").write_bytes(b"\x8bAST\x63" + bytes(40))
    lines = {
        ("inspect", tmp_path / "x.asterism"): "version 99: this asterism reads up to 2",
        ("inspect", tmp_path / "none.pt"): "cannot read",
        ("compress", tmp_path / "x", "--bits", "3", "--lossless"): "exclude each other",
        ("compress", tmp_path / "x", "--max-drop", "1"): "--max-drop measures the network",
        ("compress", tmp_path): "holds no model.safetensors of a finished run",
    }
    for arguments, message in lines.items():
        done = command(*arguments)
        assert done.returncode == 2
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_help_shows_an_example():
    for name in ("compress", "inspect"):
        assert "Example" in command(name, "--help").stdout


class Odd(nn.Module):
    """Three operations that are not known, one after the other."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.bernoulli(torch.sinc(torch.digamma(x.relu()))).cumsum(1)


def test_what_cannot_be_run_is_said_when_it_is_saved_by_its_first_operation(tmp_path: Path):
    path = tmp_path / "odd.asterism"
    with pytest.warns(UserWarning, match="cannot be run") as said:
        asterism.save(Odd(), path, example_inputs=torch.zeros(1, 4))
    (message,) = [str(each.message) for each in said]
    assert "aten.digamma.default" in message
    assert not [name for name in ("sinc", "bernoulli", "cumsum") if name in message]
    with pytest.raises(FormatError, match="no operation aten.digamma.default$"):
        asterism.runtime.load(path)


def test_a_network_that_would_take_too_long_is_said_too(tmp_path: Path):
    model = nn.Sequential(nn.Conv2d(1, 1, 1, padding=(0, 2**22)))
    with pytest.warns(UserWarning, match="max_work"):
        asterism.save(model, tmp_path / "wide.asterism", example_inputs=torch.zeros(1, 1, 1, 1))
