"""A network as a JavaScript module: the calls, the functions they need, and the weights as text."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from functools import cache
from importlib.resources import files

import numpy as np

from asterism.export.functions import needed, parts
from asterism.export.steps.step import INPUT, OUTPUT, Buffer, Numbers, Places, Portable, Step, Table
from asterism.export.steps.tables import coded, varints

RUN = """\
/** The answer to one example: a list of numbers for each input, in the order of `inputs`; the
    answer is a Float32Array, or a list of them where there are several outputs. */
export function run(...given) {{
  if (given.length !== inputs.length) throw new Error(`${{inputs.length}} inputs are needed`);
  const x = new Float32Array({given}), y = new Float32Array({made});
  let at = 0;
  inputs.forEach((shape, i) => {{
    const flat = ArrayBuffer.isView(given[i]) ? given[i] : [given[i]].flat(Infinity);
    const size = shape.reduce((a, b) => a * b, 1);
    if (flat.length !== size) throw new Error(`input ${{i + 1}} must have ${{size}} numbers`);
    x.set(flat, at);
    at += size;
  }});
{calls}
  at = 0;
  const found = outputs.map(shape => y.subarray(at, at += shape.reduce((a, b) => a * b, 1)));
  return found.length > 1 ? found : found[0];
}}
"""


@cache
def functions() -> dict[str, str]:
    """The functions of functions.js by name."""
    text = files("asterism.export.web").joinpath("functions.js").read_text(encoding="utf-8")
    return parts(text)


def module(network: Portable, origin: str) -> tuple[str, int]:
    """The text of a module, and the bytes of its tables.

    origin  the line that names the file it was made from
    """
    tables = _Tables()
    calls = "\n".join(f"  {_call(step, tables)}" for step in network.steps)
    called = {step.function for step in network.steps} | {"places", "numbers"}
    used = [functions()[name] for name in needed(called, functions())]
    given, made = (sum(map(math.prod, each)) for each in (network.inputs, network.outputs))
    text = "\n\n".join(
        [
            f"// A neural network. {origin.replace(chr(10), ' ')}",
            f'const bytes = Uint8Array.from(atob("{b64encode(tables.bytes).decode()}"),'
            " c => c.charCodeAt(0));",
            *used,
            f"const t = [\n{tables}\n];",
            f"const work = new Float32Array({network.workspace});",
            f"/** Shapes. */\nexport const inputs = {_json(network.inputs)},"
            f" outputs = {_json(network.outputs)};",
            RUN.format(given=given, made=made, calls=calls),
        ]
    )
    return text, len(tables.bytes)


def _json(shapes: list[tuple[int, ...]]) -> str:
    return json.dumps(shapes, separators=(",", ":"))


def _call(step: Step, tables: _Tables) -> str:
    memory = [*step.sources, step.out, *([step.scratch] if step.scratch else [])]
    arguments = [*map(_place, memory), *map(str, step.sizes), *map(_number, step.numbers)]
    arguments += map(tables.argument, step.tables)
    return f"{step.function}({', '.join(arguments)});"


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "-Infinity" if value < 0 else "Infinity"
    return str(np.float32(value))


def _place(buffer: Buffer | None) -> str:
    if buffer is None:
        return "null"
    name = {INPUT: "x", OUTPUT: "y"}.get(buffer.space, "work")
    return f"{name}.subarray({buffer.offset})" if buffer.offset else name


class _Tables:
    """All tables as one string of bytes, and how each is read from it."""

    def __init__(self) -> None:
        self.bytes = b""
        self.readers: dict[str, int] = {}

    def argument(self, table: Table) -> str:
        """A table as a function is given it."""
        if isinstance(table, Numbers):
            return "null" if table.array is None else self._numbers(table.array)
        if isinstance(table, Places):
            if table.numbers is None:
                return "null"
            return self._named("places({}, " + f"{len(table.numbers)})", varints(table.numbers))
        return json.dumps(table.numbers, separators=(",", ":"))

    def _numbers(self, array: np.typing.NDArray[np.float32]) -> str:
        found = coded(array)
        reader = "numbers({}, " + f"{array.size}, {found.bits}, {len(found.values)})"
        return self._named(reader, found.values.astype("<f4").tobytes() + found.codes)

    def _named(self, reader: str, content: bytes) -> str:
        at = self.bytes.find(content)
        if at < 0:
            at = len(self.bytes)
            self.bytes += content
        text = reader.format(at)
        return f"t[{self.readers.setdefault(text, len(self.readers))}]"

    def __str__(self) -> str:
        return "\n".join(f"  {text}," for text in self.readers)
