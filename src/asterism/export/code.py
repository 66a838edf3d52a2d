"""Networks as C files, web pages and JavaScript modules, which need nothing of ours to run.

Owns what is asked for by a file's ending, and that nothing is written where something is missing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from asterism import __version__
from asterism.errors import InputError
from asterism.export.c.names import identifier
from asterism.export.c.source import sources
from asterism.export.steps.dead import without_dead_units
from asterism.export.steps.portable import portable
from asterism.export.steps.quantised import Quantised, quantised
from asterism.export.steps.step import Portable
from asterism.export.web.module import module
from asterism.export.web.page import page
from asterism.graph.network import Graph
from asterism.graph.stages import Array
from asterism.storage.atomic_files import check_writable, write_atomically

ENDINGS = (".c", ".h", ".html", ".mjs")


class Written(NamedTuple):
    """What was exported.

    files      that were written
    bytes      of these
    tables     bytes of the weights and their places in them
    workspace  bytes of memory that one call needs
    work       multiply-adds of one example
    """

    files: list[str]
    bytes: int
    tables: int
    workspace: int
    work: int


def export_code(
    graph: Graph,
    weights: Sequence[Array],
    path: str | Path,
    *,
    origin: str | Path,
    speed: bool = False,
    header: bool = False,
) -> Written:
    """Writes a network as the file's ending asks, without its dead units.

    graph    the network
    weights  as the graph counts them
    path     a .c, .h, .html or .mjs file; its name becomes that of the function in C
    origin   the file that the network comes from: its name and digest are written into the file
    speed    of C: layers as straight code, which is faster and larger
    header   of C: a header beside it
    """
    target = Path(path)
    if target.suffix not in ENDINGS:
        raise InputError(f"{target} must end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}")
    if (speed or header) and target.suffix != ".c":
        raise InputError(f"--for speed and --header are for .c files, and not for {target}")
    check_writable(target)
    network = portable(*without_dead_units(graph, weights), speed)
    if target.suffix in (".c", ".h"):
        return _write_c(network, target, _from(Path(origin)), speed, header)
    return _write_web(network, target, _from(Path(origin)))


def export_int8(
    graph: Graph,
    weights: Sequence[Array],
    path: str | Path,
    examples: Array,
    *,
    origin: str | Path,
    header: bool = False,
    least_ram: bool = False,
) -> tuple[Written, Quantised]:
    """Writes a network of whole numbers of 8 bits as C; what it computes, to be measured.

    graph     the network
    weights   as the graph counts them
    path      a .c or .h file
    examples  a batch of what the network is used on, for the scales
    origin    the file that the network comes from
    header    a header beside it
    least_ram the input lies in the workspace, and convolutions hold no row
    """
    target = Path(path)
    if target.suffix not in (".c", ".h"):
        raise InputError(f"--int8 is for .c files, and not for {target}")
    check_writable(target)
    made = quantised(*without_dead_units(graph, weights), examples, least_ram)
    return _write_c(made.network, target, _from(Path(origin)), False, header), made


def _write_c(network: Portable, path: Path, origin: str, speed: bool, header: bool) -> Written:
    made = sources(network, identifier(path.stem), origin, speed)
    texts = {path: made.c if path.suffix == ".c" else made.header}
    if header:
        texts[path.with_suffix(".h")] = made.header
    return _write(texts, made.tables, made.workspace, made.work)


def _write_web(network: Portable, path: Path, origin: str) -> Written:
    if path.suffix == ".mjs":
        text, size = module(network, origin)
    else:
        text, size = page(network, path.stem, origin)
    return _write({path: text}, size, network.bytes, network.work)


def _write(texts: dict[Path, str], tables: int, workspace: int, work: int) -> Written:
    contents = {path: text.encode() for path, text in texts.items()}
    for path, content in contents.items():
        write_atomically(path, content)
    size = sum(map(len, contents.values()))
    return Written([str(path) for path in texts], size, tables, workspace, work)


def _from(path: Path) -> str:
    """Which file a network comes from, and what was in it."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    name = path.name.replace("*/", "* /")  # which would end the comment
    return f"Written by asterism {__version__} from\n   {name}, SHA-256\n   {digest}."
