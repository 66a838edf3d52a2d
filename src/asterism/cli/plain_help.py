"""The help of commands in words: what an option takes, and nothing where it takes nothing."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup

WORDS = {"str": "TEXT", "path": "PATH", "file": "PATH", "int": "NUMBER", "float": "NUMBER"}
"""For the names of Python's types."""


def taken_by(param: Any, context: Any) -> str | None:
    """What an option takes: its metavar, its choices, or its kind in a word."""
    if getattr(param, "is_flag", False) or param.param_type_name == "argument":
        return None
    if param.metavar:
        return str(param.metavar)
    kind = str(param.display_type(context)).strip("<>").removesuffix(" range")
    return WORDS.get(kind, kind)


def _in_words(params: list[Any]) -> list[Any]:
    """The same parameters, each of which tells the help what it takes."""
    for param in params:
        param.display_type_rich = lambda ctx, param=param: taken_by(param, ctx)
    return params


class PlainCommand(TyperCommand):
    """A command whose help tells in words what each option takes."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _in_words(super().get_params(ctx))


class PlainGroup(TyperGroup):
    """The group of all commands, with the same help."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _in_words(super().get_params(ctx))
