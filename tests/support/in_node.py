"""Exported JavaScript, run by node."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="there is no node here")

PROGRAM = """
import {readFileSync} from "node:fs";
const found = {};
for (const [name, batch] of Object.entries(JSON.parse(readFileSync(0, "utf8")))) {
  const {run} = await import(`./${name}.mjs`);
  const plain = made => Array.from(made, v => Number.isFinite(v) ? v : String(v));
  found[name] = batch.map(x => plain(run(...x)));
}
process.stdout.write(JSON.stringify(found));
"""


def run(
    modules: Mapping[str, str], batches: Mapping[str, np.ndarray], folder: Path
) -> dict[str, np.ndarray]:
    """The answers of all modules, each to its own batch of one input."""
    for name, text in modules.items():
        (folder / f"{name}.mjs").write_text(text, encoding="utf-8")
    (folder / "all.mjs").write_text(PROGRAM, encoding="utf-8")
    given: dict[str, Any] = {name: [[x.tolist()] for x in batches[name]] for name in modules}
    command = [str(NODE), str(folder / "all.mjs")]
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]
    return {
        name: np.array([[float(value) for value in row] for row in rows], np.float32)
        for name, rows in json.loads(done.stdout).items()
    }
