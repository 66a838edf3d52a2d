"""The processes that search together: rank 0 decides, and tells the others.

Owns what is sent between them beside gradients, and the end of all of them when one fails. In a
single process there is nobody to tell, and each call gives back what it was given.
"""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from typing import Any, TypeVar
from zlib import crc32

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch.distributed.rendezvous import rendezvous

from asterism.errors import InputError, one_line
from asterism.search.ranks.launch import EndedError, FirstRankGoneError, gone, is_launched

T = TypeVar("T")

SAME_WITHIN = 1e-6
"""Two kinds of processors round differently."""

POLITE, PATIENT, POLL, LAST_WORD = 1.0, 4.0, 0.02, 0.3
"""Seconds: for others to fail of themselves, for them to notice, between two looks, and that a
process lives on once all have noticed: its launcher ends the rest as soon as it is gone."""

MEETING, ANSWER = 300.0, 15.0
"""Seconds: that rank 0 may come later than others, and that it may take to answer."""

_numbers = count()


class Crew:
    """The processes of a search; with no arguments the one process that there is.

    group  over which they talk; tensors on the CPU
    store  what a process may still leave a message in when the connections are broken
    """

    def __init__(self, group: dist.ProcessGroup | None = None, store: Any = None) -> None:
        self.group, self.store = group, store
        self.rank = 0 if group is None else dist.get_rank(group)
        self.size = 1 if group is None else dist.get_world_size(group)

    @property
    def leads(self) -> bool:
        """Whether this is the process that decides, writes and shows."""
        return self.rank == 0

    # ------------------------------------------------------------------ what is told

    def tell(self, value: T) -> T:
        """The value that rank 0 has."""
        if self.group is None:
            return value
        told = [value]
        dist.broadcast_object_list(told, group=self.group, group_src=0)
        return told[0]

    def decide(self, make: Callable[[], T]) -> T:
        """What rank 0 makes, on all; its InputError is everybody's."""
        if self.group is None:
            return make()
        made: tuple[Any, InputError | None] = (None, None)
        if self.leads:
            try:
                made = (make(), None)
            except InputError as error:
                made = (None, error)
        value, refused = self.tell(made)
        if refused is not None:
            raise refused
        chosen: T = value
        return chosen

    def gather(self, value: T) -> list[T]:
        """What each rank has, in their order."""
        if self.group is None:
            return [value]
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, value, group=self.group)
        return found

    def add(self, *numbers: float) -> list[float]:
        """The sums over all ranks."""
        if self.group is None:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(total, group=self.group)
        return [float(each) for each in total]

    def same(self, what: str, number: float, remedy: str) -> float:
        """Rank 0's number; an error with both values where another rank has another one.

        what    the number is, as the subject of a sentence
        number  on this rank
        remedy  what to do about it
        """
        first, *others = self.gather(number)
        for rank, other in enumerate(others, start=1):
            near = abs(other - first) <= SAME_WITHIN * max(abs(first), abs(other))
            if not (near or first == other or (first != first and other != other)):
                raise InputError(
                    f"{what} is {first:.10g} on rank 0 and {other:.10g} on rank {rank}: {remedy}"
                )
        return first

    def part_ways(self) -> None:
        """Random numbers that differ between ranks; those of rank 0 are what they were.

        The same numbers on all would drop the same units of different examples. They follow from
        rank 0's state alone, which a run saves.
        """
        if self.group is None:
            return
        seed = self.tell(crc32(torch.get_rng_state().numpy().tobytes())) + self.rank
        if not self.leads:
            torch.manual_seed(seed)
            np.random.seed(seed % 2**32)
            random.seed(seed)

    # ------------------------------------------------------------------ the end

    @contextmanager
    def together(self) -> Iterator[None]:
        """All leave the block, or none does: what one rank raises ends the others in seconds."""
        if self.group is None:
            yield
            return
        try:
            yield
            dist.barrier(group=self.group)  # nobody is gone while another may still fail
        except BaseException as error:
            told = self._told(error)
            if told is None:
                raise
            raise told from error

    def _told(self, error: BaseException) -> InputError | None:
        """What to say where another rank is the reason for the end; None where this one is."""
        ended = InputError(
            "ended by the launcher, as when another rank is gone; the same command with --resume"
            " continues"
        )
        if isinstance(error, EndedError):
            return ended
        try:
            return self._end_with(error)
        except EndedError:  # while this one looked for who is left
            return ended if _is_lost_connection(error) else None

    def _end_with(self, error: BaseException) -> InputError | None:
        """The same, once all that are left have noticed."""
        lost = _is_lost_connection(error)
        self._leave(self.rank, "" if lost else _in_words(error))
        if lost or not self._all_have_left(POLITE):
            with suppress(Exception):  # wakes those that wait for this process
                c10d._abort_process_group()
        everybody = self._all_have_left(PATIENT)
        found = self._messages()
        # Without messages they are lost with rank 0, and the next one speaks.
        first = min(found, default=1)
        if self.rank != first:
            time.sleep(LAST_WORD)
        if not lost:
            return None
        told = FirstRankGoneError if self.rank == first != 0 else InputError
        for rank, message in found.items():
            if message:
                return told(f"rank {rank} {message}")
        silent = [rank for rank in range(self.size) if rank not in found] if found else [0]
        if everybody or not silent:
            return told(f"the connection between the ranks broke ({one_line(_root(error))})")
        return told(gone(silent))

    def has_left(self, rank: int) -> bool:
        """Whether a rank has ended with a message."""
        return rank in self._messages()

    def _leave(self, rank: int, message: str) -> None:
        with suppress(Exception):  # the store may be gone with its process
            self.store.set(str(rank), message)

    def _messages(self) -> dict[int, str]:
        found = {}
        with suppress(Exception):
            for rank in range(self.size):
                if self.store.check([str(rank)]):
                    found[rank] = self.store.get(str(rank)).decode()
        return found

    def _all_have_left(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = self._messages()
            if len(found) == self.size:
                return True
            time.sleep(POLL)
        return False


ALONE = Crew()


def _in_words(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "was interrupted"
    return f"failed: {error}" if isinstance(error, InputError) else f"raised {one_line(error)}"


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _is_lost_connection(error: BaseException) -> bool:
    """Whether an error, or what it came from, is that another process did not answer."""
    root = _root(error)
    if isinstance(root, dist.DistError):
        return True
    words = ("gloo", "nccl", "connection closed", "connection reset", "process group")
    return isinstance(root, RuntimeError) and any(each in str(root).lower() for each in words)


@contextmanager
def join() -> Iterator[Crew]:
    """The processes that this one was launched with, for the block; an error of one ends all.

    The group of a script that has initialised one, or that of torchrun, or this process alone.
    """
    if not dist.is_available():
        yield ALONE
        return
    ours = not dist.is_initialized() and is_launched()
    if ours:
        _initialise()
    if not dist.is_initialized() or dist.get_world_size() == 1:
        yield ALONE
        return
    group = dist.new_group(backend="gloo")
    store = c10d.PrefixStore(f"asterism/{next(_numbers)}", c10d._get_default_store())
    crew = Crew(group, store)
    try:
        with crew.together():
            yield crew
    finally:
        if dist.is_initialized():
            dist.destroy_process_group(None if ours else group)


def _initialise() -> None:
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    remedy = "choose another with torchrun --master-port, or MASTER_PORT"
    if os.environ["RANK"] != "0" and not _is_rank_0_at(host, port):
        raise InputError(
            f"what answers at {host}:{port} is not rank 0, the port is in use: {remedy}"
        )
    try:
        store, rank, size = next(iter(rendezvous("env://")))
        # The launcher's store outlives the group: a second one must not find the first one's names.
        store = c10d.PrefixStore(f"asterism/{next(_numbers)}", store)
        dist.init_process_group(store=store, rank=rank, world_size=size)
    except dist.DistError as error:
        if "EADDRINUSE" in str(error) or "address already in use" in str(error):
            raise InputError(f"the port of {host}:{port} is in use: {remedy}") from error
        raise InputError(
            f"cannot meet the other ranks at {host}:{port}: {one_line(error)}"
        ) from error


def _is_rank_0_at(host: str, port: int) -> bool:
    """False where another program listens at the port, which torch would wait for without end."""
    end = time.monotonic() + MEETING
    while time.monotonic() < end:  # rank 0 may come later
        with suppress(OSError), socket.create_connection((host, port), timeout=POLITE):
            break
        time.sleep(POLITE)
    client = partial(dist.TCPStore, is_master=False, wait_for_workers=False)  # type: ignore[attr-defined]
    asking = threading.Thread(target=client, args=(host, port), daemon=True)
    asking.start()
    asking.join(ANSWER)
    return not asking.is_alive()
