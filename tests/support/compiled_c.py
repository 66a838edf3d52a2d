"""Exported C, compiled by the machine's compiler with its sanitizers, and run."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from asterism.export.c.source import together
from asterism.export.steps.step import Portable

COMPILER = shutil.which(os.environ.get("CC", "cc"))
STRICT = ("-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror")
SANITIZED = ("-g0", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler here")

# Buffers of exactly the promised sizes: the sanitizer sees what is read or written beyond them.
PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef INSIDE /* the input is in the workspace */
#define NET(name) void (*name)(KIND *, void *)
#else
#define NET(name) void (*name)(const KIND *, KIND *, void *)
#endif
static void run(NET(net), size_t in, size_t out, size_t work, size_t at, int times)
{
    KIND *x = malloc(in * sizeof(KIND)), *y = malloc(out * sizeof(KIND));
    void *workspace = malloc(work);
    for (; times > 0; times--) {
        if (fread(x, sizeof(KIND), in, stdin) != in) exit(3);
#ifdef INSIDE
        memcpy((char *)workspace + at, x, in * sizeof(KIND));
        net(y, workspace);
#else
        net(x + at, y, workspace);
#endif
        if (fwrite(y, sizeof(KIND), out, stdout) != out) exit(4);
    }
    free(x), free(y), free(workspace);
}
int main(void)
{
%s
    return 0;
}
"""


def build(text: str, folder: Path, *flags: str) -> Path:
    """A program of one C file."""
    (folder / "net.c").write_text(text, encoding="utf-8")
    program = folder / "net"
    command = [str(COMPILER), *STRICT, *flags, str(folder / "net.c"), "-o", str(program), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]
    return program


def run(
    networks: Mapping[str, Portable],
    batches: Mapping[str, np.ndarray],
    folder: Path,
    speed: bool = False,
) -> dict[str, np.ndarray]:
    """The answers of all networks, each to its own batch; all are of floats, or all of 8 bits."""
    whole = [network.scales is not None for network in networks.values()]
    kind, dtype = ("int8_t", "i1") if all(whole) else ("float", "<f4")
    calls = [
        f"    run({name}, {name.upper()}_INPUT, {name.upper()}_OUTPUT, {name.upper()}_WORKSPACE,"
        f" {network.input_at or 0}, {len(batches[name])});"
        for name, network in networks.items()
    ]
    main = PROGRAM.replace("KIND", kind) % "\n".join(calls)
    text = together(networks, speed)[0] + main
    inside = any(network.input_at is not None for network in networks.values())
    program = build(text, folder, *SANITIZED, *["-DINSIDE"] * inside)
    given = b"".join(batches[name].astype(dtype).tobytes() for name in networks)
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=1"}
    done = subprocess.run([program], input=given, capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr.decode()[:4000]
    made, found, at = np.frombuffer(done.stdout, dtype), {}, 0
    for name, network in networks.items():
        sizes = [sum(map(math.prod, network.outputs)), len(batches[name])]
        found[name] = made[at : at + math.prod(sizes)].reshape(sizes[1], sizes[0])
        at += math.prod(sizes)
    assert at == len(made)
    return found
