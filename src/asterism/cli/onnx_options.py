"""Options for ONNX files: the sizes that they leave open, and inputs that are always one number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from asterism.errors import InputError

if TYPE_CHECKING:
    from asterism.graph.onnx.inputs import Shapes

Shape = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SIZES",
        help="Of an ONNX file that leaves sizes open: the shape of one example, as 3,224,224; of"
        " several inputs once for each, as x=3,224,224.",
    ),
]
Fix = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=NUMBER",
        help="Of an ONNX file: a number in the place of an input, as sr=16000.",
    ),
]


def read_shapes(given: list[str] | None) -> Shapes:
    """The shape of the first input, or shapes by the inputs' names.

    >>> read_shapes(["3,48,192"]), read_shapes(["ids=128", "state=2,64"])
    ((3, 48, 192), {'ids': (128,), 'state': (2, 64)})
    """
    if not given:
        return None
    named = {}
    for text in given:
        name, _, sizes = text.rpartition("=")
        try:
            named[name] = tuple(int(size) for size in sizes.split(","))
        except ValueError:
            raise InputError(
                f"--shape takes numbers, as 3,224,224 or x=3,224,224, not {text!r}"
            ) from None
    if "" in named and len(given) > 1:
        raise InputError("--shape of several inputs has a name for each: --shape x=3,224,224")
    return named.get("", named)


def read_fixed(given: list[str] | None) -> dict[str, Any]:
    """Numbers by the names of inputs.

    >>> read_fixed(["sr=16000"])
    {'sr': 16000}
    """
    found: dict[str, Any] = {}
    for text in given or []:
        name, _, number = text.rpartition("=")
        try:
            found[name] = float(number) if "." in number else int(number)
        except ValueError:
            raise InputError(
                f"--fix takes a name and a number, as sr=16000, not {text!r}"
            ) from None
    return found
