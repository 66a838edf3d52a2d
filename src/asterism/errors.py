"""The errors that a user can correct; the command line prints each as a single line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname


class InputError(ValueError):
    """What was given cannot be used; the message names the culprit and what to do."""


class FormatError(InputError):
    """A file is damaged, hostile or of a newer version; the message says which and where."""


class DivergedError(InputError):
    """Loss or weights are no longer finite; the model holds the last good state."""


class LockedError(InputError):
    """Another process is at work in a folder; it can be waited for."""


class MissingError(InputError, ImportError):
    """A package that only some installations have; the message has the line that installs it."""


LONGEST = 300


def one_line(error: BaseException) -> str:
    """An error of somebody else's code by its kind and its message, whole, on a single line.

    >>> one_line(KeyError("weights"))
    "KeyError: 'weights'"
    """
    kind, message = type(error).__name__, " ".join(str(error).split())
    if len(message) > LONGEST:
        message = f"{message[:LONGEST]} …"
    return f"{kind}: {message}" if message else kind


def missing(what: str, extra: str) -> MissingError:
    """The error for packages that come with an extra.

    what   what needs them, and their names: "a report needs matplotlib"
    extra  as in pyproject.toml
    """
    return MissingError(f"{what}: {install_line(extra)}")


def install_line(extra: str) -> str:
    """The command that installs an extra: from the clone, or its packages where there is none.

    The package's own name is not used: it may not be on an index, or be somebody else's there.
    """
    clone = _clone()
    if clone is None:
        return f"pip install {' '.join(_packages(extra))}"
    return f"pip install '{'.' if clone == Path.cwd() else clone}[{extra}]'"


def _clone() -> Path | None:
    """The folder that this package was installed from, if it is still there."""
    from importlib import metadata

    places = [Path(__file__).resolve().parents[2]]  # of an editable installation
    try:
        origin = metadata.distribution("asterism").read_text("direct_url.json") or "{}"
        places.append(Path(url2pathname(urlsplit(json.loads(origin).get("url", "")).path)))
    except metadata.PackageNotFoundError:
        pass
    return next((each for each in places if (each / "src" / "asterism").is_dir()), None)


def _packages(extra: str) -> list[str]:
    """The packages of an extra, and of the extras that it is made of."""
    from importlib import metadata

    found: dict[str, None] = {}
    for line in metadata.requires("asterism") or []:
        match = re.match(r"([\w.-]+)(?:\[([\w,-]+)\])?.*extra == ['\"]([\w-]+)['\"]", line)
        if match and match[3] == extra:
            inner = match[2].split(",") if match[1] == "asterism" else []
            names = [name for each in inner for name in _packages(each)]
            found |= dict.fromkeys(names if inner else [match[1]])
    return list(found)
