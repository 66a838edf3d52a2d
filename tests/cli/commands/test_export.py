"""`asterism export`: files by their endings, and errors before anything is written."""

from __future__ import annotations

import json

import pytest
import torch

from asterism.export.checkpoints import save, write_checkpoint
from support import small
from support.command_line import asterism


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "a.asterism"
    save(small.trained().eval(), path, example_inputs=(torch.zeros(1, 20),))
    return path


@pytest.mark.parametrize("name", ["net.cpp", "net", "net.asterism"])
def test_an_unknown_ending_is_refused_and_nothing_is_written(name, saved, tmp_path):
    done = asterism("export", saved, tmp_path / name)
    assert done.returncode == 2
    assert f"{name} must end in .onnx, .c, .h, .html or .mjs" in done.stderr
    assert not (tmp_path / name).exists()


def test_c_and_its_header_are_written_and_counted(saved, tmp_path):
    done = asterism("export", saved, tmp_path / "net.c", "--header", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    files = [tmp_path / "net.c", tmp_path / "net.h"]
    assert told["files"] == " ".join(map(str, files))
    assert told["bytes"] == sum(file.stat().st_size for file in files)
    assert f"{told['workspace']:,} bytes of workspace" in files[1].read_text()


def test_options_of_c_are_refused_elsewhere(saved, tmp_path):
    for name, *options in (("net.html", "--for", "speed"), ("net.onnx", "--header")):
        done = asterism("export", saved, tmp_path / name, *options)
        assert done.returncode == 2
        assert "are for .c files" in done.stderr
        assert not (tmp_path / name).exists()


def test_a_target_that_cannot_be_written_is_one_line(saved, tmp_path):
    (tmp_path / "net.c").mkdir()
    done = asterism("export", saved, tmp_path / "net.c")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("it is a folder")


def test_a_file_without_a_graph_is_one_line(tmp_path):
    path = tmp_path / "weights.asterism"
    save(small.trained(), path)
    done = asterism("export", path, tmp_path / "net.c")
    assert done.returncode == 2
    assert "holds weights without a graph" in done.stderr
    assert not (tmp_path / "net.c").exists()


def test_a_checkpoint_with_its_model_is_exported_too(saved, tmp_path):
    write_checkpoint(tmp_path / "net.safetensors", small.trained().eval().state_dict())
    factories = ("--model", f"{small.__file__}:trained", "--data", f"{small.__file__}:loaders")
    done = asterism("export", tmp_path / "net.safetensors", tmp_path / "net.c", *factories)
    assert done.returncode == 0, done.stderr
    assert "void net(const float *in" in (tmp_path / "net.c").read_text()


def test_a_plain_checkpoint_is_told_from_a_damaged_file(tmp_path):
    torch.save(small.trained().state_dict(), tmp_path / "net.asterism")
    done = asterism("evaluate", tmp_path / "net.asterism", "--data", "digits")
    assert done.returncode == 2
    assert "this is not an .asterism file: make one with asterism.save" in done.stderr


def test_8_bits_are_measured_before_and_after(saved, tmp_path):
    data = ("--data", f"{small.__file__}:loaders")
    done = asterism("export", saved, tmp_path / "net.c", "--int8", *data, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert abs(told["metric_int8"] - told["metric_float"]) < 3
    assert "void net(const int8_t *in, int8_t *out" in (tmp_path / "net.c").read_text()
    done = asterism("export", saved, tmp_path / "net.c", "--int8", *data, "--for", "ram", "--json")
    assert json.loads(done.stdout)["metric_int8"] == told["metric_int8"]
    assert "void net(int8_t *out, void *workspace)" in (tmp_path / "net.c").read_text()
    for options, reason in (
        (("net.c", "--int8"), "add --data net.py:loaders"),
        (("net.html", "--int8", *data), "--int8 is for .c files"),
        (("net.c", "--int8", *data, "--for", "speed"), "choose one"),
        (("net.c", "--for", "ram"), "--for ram is for --int8"),
    ):
        done = asterism("export", saved, tmp_path / options[0], *options[1:])
        assert done.returncode == 2
        assert reason in done.stderr
