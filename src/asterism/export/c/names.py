"""The name of the function that computes a network: that of its file, as C allows it."""

from __future__ import annotations

import re

from asterism.export.c.library import functions

_TAKEN = re.compile(
    "auto|break|case|char|const|continue|default|do|double|else|enum|extern|float|for|goto|if|inline"
    "|int|long|register|restrict|return|short|signed|sizeof|static|struct|switch|typedef|union"
    "|unsigned|void|volatile|while|main|numbers|in|out|work|workspace|u?int\\d+_t"
    "|(erf|exp|log|pow|sqrt|tanh|fabs|log1p|expm1)f?"
)


def identifier(stem: str) -> str:
    """A name for C.

    >>> identifier("lenet-5"), identifier("5"), identifier("int")
    ('lenet_5', 'net_5', 'net_int')
    """
    name = re.sub(r"\W", "_", stem, flags=re.ASCII).strip("_") or "net"
    taken = name in functions() or _TAKEN.fullmatch(name)
    return f"net_{name}" if taken or name[0].isdigit() else name
