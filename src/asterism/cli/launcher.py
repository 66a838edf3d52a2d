"""What torchrun tells the ranks when one of them is gone: SIGTERM. One rank passes that on.

Rank 0 does. Where rank 0 itself is gone, the first of those that are left does.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from asterism.search.ranks.launch import EndedError, gone

if TYPE_CHECKING:
    from asterism.search.ranks.crew import Crew

Place = tuple[str, int]
"""A machine, and a process there."""


@contextmanager
def told_of_the_end(crew: Crew) -> Iterator[None]:
    """One line where the launcher ends this process because another one is gone.

    crew  the ranks, this one among them
    """
    if crew.size == 1:
        yield
        return
    places = crew.gather((socket.gethostname(), os.getpid()))
    if not crew.leads:
        _listen(crew, places)
        yield
        return

    def end(*_: object) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise EndedError(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, end)
    yield
    signal.signal(signal.SIGTERM, before)  # not after an error: the ranks are still to end together


def _listen(crew: Crew, places: Sequence[Place]) -> None:
    """In a thread: Python's handlers wait while the process waits for the others' numbers."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: None)  # or there is nothing to hear of

    def listen() -> None:
        while os.read(reader, 1)[0] != signal.SIGTERM:
            pass
        before = range(crew.rank)
        if not any(_is_alive(places[rank]) or crew.has_left(rank) for rank in before):
            print(f"asterism: {gone(before)}", file=sys.stderr, flush=True)
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=listen, daemon=True).start()


def _is_alive(place: Place) -> bool:
    """Whether a process is there; on another machine it is taken to be."""
    machine, process = place
    if machine != socket.gethostname():
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
