"""Ctrl-C waits while things that belong together change together."""

from __future__ import annotations

# `signal` without its enums, which cost as much as half of the arithmetic of q-space.
import _signal  # type: ignore[import-not-found]
import threading
from contextlib import ContextDecorator
from signal import SIGINT
from typing import Any


class uninterrupted(ContextDecorator):  # noqa: N801
    """Ctrl-C waits for the end of the block, or of the function.

    Blocks within blocks are one: signal calls are slow, one pair serves.
    """

    _outermost: uninterrupted | None = None

    def __enter__(self) -> None:
        # Python runs signal handlers in the main thread alone.
        if uninterrupted._outermost or threading.current_thread() is not threading.main_thread():
            return
        self._handler: Any = _signal.getsignal(SIGINT)
        if not callable(self._handler):
            return
        self._waiting: list[tuple[Any, ...]] = []
        _signal.signal(SIGINT, lambda *interrupt: self._waiting.append(interrupt))
        uninterrupted._outermost = self

    def __exit__(self, *error: object) -> None:
        if uninterrupted._outermost is not self:
            return
        uninterrupted._outermost = None
        _signal.signal(SIGINT, self._handler)
        if self._waiting:
            self._handler(*self._waiting[-1])

    def _recreate_cm(self) -> uninterrupted:
        return uninterrupted()  # each call of a decorated function has a block of its own
