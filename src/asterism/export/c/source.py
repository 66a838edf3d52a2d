"""The C file of a network, and its header."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from asterism.export.c.library import functions
from asterism.export.c.texts import Tables, number, place
from asterism.export.c.unrolling import unrolled
from asterism.export.functions import needed
from asterism.export.steps.step import Portable, Step

BEGIN = """\
#ifdef __AVR__ /* where tables would else be copied into the RAM */
#include <avr/pgmspace.h>
#define TABLE PROGMEM
#define BYTE(p) pgm_read_byte(p)
#define FLOAT(p) pgm_read_float(p)
#define INTEGER(p) ((int32_t)pgm_read_dword(p))
#else
#define TABLE
#define BYTE(p) (*(p))
#define FLOAT(p) (*(p))
#define INTEGER(p) (*(p))
#endif

/* Floats, or codes of some bits for few values. */
typedef struct {
    const uint8_t *codes;
    const float *values;
    int bits;
} numbers;
"""
WHOLE = """
typedef struct {
    const uint8_t *codes;
    const int8_t *values;
    int bits;
} numbers_8;
"""


class Sources(NamedTuple):
    """What was written.

    c, header  the texts of the two files
    tables     bytes of all tables
    workspace  bytes
    work       multiply-adds
    """

    c: str
    header: str
    tables: int
    workspace: int
    work: int


def sources(network: Portable, name: str, origin: str, speed: bool = False) -> Sources:
    """The C file and the header of a network.

    name    of its function, and of the macros
    origin  the line that names the file it was made from
    speed   whether layers become straight code; else tables, which are smaller
    """
    text, (tables,) = together({name: network}, speed)
    about, macros = _about(network, tables, name, origin), _macros(network, name)
    c = "\n".join([about, text])
    header = "\n".join([about, *_guarded(network, name, macros)])
    return Sources(c, header, tables.size, network.bytes, network.work)


def together(networks: Mapping[str, Portable], speed: bool = False) -> tuple[str, list[Tables]]:
    """Several networks in one text, each by its name, with the functions that any of them needs."""
    all_tables, bodies, ends, called = [], [], [], set[str]()
    for name, network in networks.items():
        tables = Tables(name, network.scales is not None)
        straight, body = _body(network, name, tables, speed)
        called |= set(re.findall(r"^    (\w+)\(", body, re.MULTILINE)) & functions().keys()
        bodies.append("\n\n".join([*straight, str(tables).strip(), body]))
        ends.append(f"{_macros(network, name)}\n{_prototype(network, name)};\n")
        all_tables.append(tables)
    used = [functions()[each] for each in needed(called, functions())]
    whole = any(network.scales is not None for network in networks.values())
    begin = [BEGIN + WHOLE * whole] if used else []
    text = "\n\n".join([*ends, *begin, *used, *bodies, ""])
    mathematics = re.search(r"\b(\w+f\(|INFINITY|NAN)", text) is not None
    includes = "#include <math.h>\n" * mathematics + "#include <stdint.h>\n"
    return re.sub(r"\n{3,}", "\n\n", f"{includes}\n{text}"), all_tables


def _body(network: Portable, name: str, tables: Tables, speed: bool) -> tuple[list[str], str]:
    """The functions made for single layers, and the network's own."""
    straight, calls = [], []
    for count, step in enumerate(network.steps):
        made = unrolled(step, f"{name}_l{count}") if speed else None
        if made is None:
            calls.append(_call(step, tables))
        else:
            straight.append(made)
            calls.append(f"    {name}_l{count}({_memory(step)});")
    text = "\n".join(calls)
    begin = [f"    {_kind(network)} *work = workspace;"] if re.search(r"\bwork\b", text) else []
    unused = [] if begin else ["    (void)workspace;"]
    given = network.input_at is None and not re.search(r"\bin\b", text)
    unused += ["    (void)in;"] if given else []
    return straight, "\n".join([_prototype(network, name), "{", *begin, *unused, *calls, "}"])


def _kind(network: Portable) -> str:
    return "float" if network.scales is None else "int8_t"


def _prototype(network: Portable, name: str) -> str:
    kind = _kind(network)
    if network.input_at is not None:
        return f"void {name}({kind} *out, void *workspace)"
    return f"void {name}(const {kind} *in, {kind} *out, void *workspace)"


def _memory(step: Step) -> str:
    found = [place(each) for each in (*step.sources, step.out)]
    return ", ".join(found + ([place(step.scratch)] if step.scratch else []))


def _call(step: Step, tables: Tables) -> str:
    rest = [*map(str, step.sizes), *map(number, step.numbers), *map(tables.argument, step.tables)]
    return f"    {step.function}({', '.join([_memory(step), *rest])});"


def _macros(network: Portable, name: str) -> str:
    big, kind = name.upper(), "floats" if network.scales is None else "of int8_t"
    given, made = (sum(map(math.prod, each)) for each in (network.inputs, network.outputs))
    aligned = "a float" if network.scales is None else "an int32_t"
    text = (
        f"#define {big}_INPUT {given} /* {kind} */\n"
        f"#define {big}_OUTPUT {made} /* {kind} */\n"
        f"#define {big}_WORKSPACE {network.bytes} /* bytes, aligned as {aligned} is */\n"
    )
    if network.input_at is not None:
        text += (
            f"#define {big}_INPUT_AT {network.input_at} /* bytes of the workspace before it */\n"
        )
    for end, scale in zip(("INPUT", "OUTPUT"), network.scales or (), strict=False):
        text += f"#define {big}_{end}_SCALE {number(scale)} /* times a number is what it means */\n"
    return text


def _about(network: Portable, tables: Tables, name: str, origin: str) -> str:
    kind = "floats" if network.scales is None else "numbers of 8 bits"
    given, made = (_shapes(each, kind) for each in (network.inputs, network.outputs))
    shared = network.input_at is not None
    inside = ", in the workspace, where they are overwritten" if shared else ""
    beside = "out" if shared else "in, out"
    return (
        f"/* {name}: a neural network for one example at a time. {origin}\n\n"
        f"   in         {given}{inside}\n"
        f"   out        {made}\n"
        f"   flash      {tables.size:,} bytes of tables, and the code\n"
        f"   RAM        {network.bytes:,} bytes of workspace,"
        f" beside {beside} and the stack\n"
        f"   work       {network.work:,} multiply-adds\n\n"
        "   No memory is taken, nothing is kept between calls: two callers with a workspace each\n"
        f"   may call it at once. {beside} and workspace must not overlap. A number in\n"
        "   `in` that is not finite gives an answer without meaning; nothing else is read or\n"
        "   written. */\n"
    )


def _shapes(shapes: Sequence[tuple[int, ...]], kind: str) -> str:
    each = " × ".join
    return ", then ".join(f"{each(map(str, shape)) or '1'} {kind}" for shape in shapes)


def _guarded(network: Portable, name: str, macros: str) -> list[str]:
    guard = f"{name.upper()}_H"
    return [
        f"#ifndef {guard}\n#define {guard}\n\n#include <stdint.h>\n\n{macros}",
        '#ifdef __cplusplus\nextern "C" {\n#endif\n',
        f"{_prototype(network, name)};\n",
        "#ifdef __cplusplus\n}\n#endif\n\n#endif\n",
    ]
