"""A search as it is seen: a bar in a terminal or a notebook, lines elsewhere, and always the log.

Owns which of these it is. `logging.getLogger("asterism")` gets each line, whatever is shown.
"""

from __future__ import annotations

import html
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from asterism.search.limits import Goal, SearchBudget
from asterism.search.pareto import TrialRecord
from asterism.search.progress.status import Status

logger = logging.getLogger("asterism")

NARROW = 100
"""Columns below which a bar has two lines."""
REDRAW_SECONDS = 0.25

Table = Callable[[], Any]
"""What is drawn above the bar, made anew each time there is something new."""


class Progress:
    """Follows a search and shows nothing; the log has its lines."""

    def __init__(self, goal: Goal, budget: SearchBudget) -> None:
        self.status = Status(goal, budget)

    def resume(self, history: Sequence[TrialRecord]) -> None:
        """Follows a search that is resumed: its trials so far are known, and not shown again."""
        for record in history:
            self.status.end(record)

    def begin(self, what: str, epochs: int, steps: int, spent: tuple[int, float]) -> None:
        """A trial begins; the arguments are those of `Status.begin`."""
        self.status.begin(what, epochs, steps, spent)
        logger.debug("%s: %d epochs", what, epochs)
        self.draw()

    def step(self) -> None:
        """A batch is done."""
        self.status.step += 1

    def end(self, record: TrialRecord) -> None:
        """A trial has ended."""
        line = self.status.end(record)
        logger.info(line)
        if not (logger.isEnabledFor(logging.INFO) and logger.hasHandlers()):  # or it is shown
            self.say(line)
        self.draw()

    def draw(self) -> None:
        """Shows the status."""

    def say(self, line: str) -> None:
        """Shows a line that stays."""


class Nothing(Progress):
    """Follows a search of which another process tells."""

    def begin(self, what: str, epochs: int, steps: int, spent: tuple[int, float]) -> None:
        pass

    def end(self, record: TrialRecord) -> None:
        pass


class Lines(Progress):
    """A line for each trial on standard error."""

    def say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


class Terminal(Progress):
    """A bar that is redrawn in place, below the lines of the trials that have ended."""

    def __init__(self, goal: Goal, budget: SearchBudget, console: Any, table: Table | None) -> None:
        super().__init__(goal, budget)
        from rich.live import Live

        self.console, self.table = console, table
        self.live = Live(
            console=console, get_renderable=self._render, refresh_per_second=4, transient=True
        )

    def say(self, line: str) -> None:
        self.live.console.print(line, highlight=False, markup=False)

    def _render(self) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table as Grid

        status, grid = self.status, Grid.grid(padding=(0, 1))
        bar = ProgressBar(total=status.total, completed=status.done, width=20)
        if self.console.width < NARROW:
            grid.add_row(f"{status.trial_text()}, {status.done_text()}")
            rest = Grid.grid(padding=(0, 1))
            rest.add_row(bar, status.best_text(), status.time_text())
            grid.add_row(rest)
        else:
            texts = (status.done_text(), status.best_text(), status.time_text())
            grid.add_row(status.trial_text(), bar, *texts)
        # The layers are those of the model at the end of a trial: while it trains they would cost.
        return grid if self.table is None else Group(self.table(), grid)


class Notebook(Progress):
    """The bar in the output of a notebook cell."""

    def __init__(self, goal: Goal, budget: SearchBudget, display: Callable[..., Any]) -> None:
        super().__init__(goal, budget)
        self.lines: list[str] = []
        self.handle = display(self, display_id=True)
        self.drawn = 0.0

    def step(self) -> None:
        super().step()
        if time.monotonic() - self.drawn > REDRAW_SECONDS:
            self.draw()

    def say(self, line: str) -> None:
        self.lines.append(line)

    def draw(self) -> None:
        self.drawn = time.monotonic()
        self.handle.update(self)

    def _repr_html_(self) -> str:
        status = self.status
        words = [status.trial_text(), status.done_text(), status.best_text(), status.time_text()]
        text = html.escape(" · ".join(word for word in words if word))
        bar = f'<progress value="{status.done:.3f}" max="{status.total:g}"></progress>'
        return f"<pre>{html.escape(chr(10).join(self.lines))}</pre>{bar} {text}"

    def __repr__(self) -> str:
        return "\n".join([*self.lines, self.status.trial_text()])


@contextmanager
def showing(
    goal: Goal,
    budget: SearchBudget,
    show: bool | None = None,
    table: Table | None = None,
    leads: bool = True,
) -> Iterator[Progress]:
    """Progress in the form for where the program runs.

    goal    the tolerance
    budget  what the search may spend
    show    False for nothing
    table   drawn above the bar of a terminal
    leads   whether this process is the one that tells of the search, of several
    """
    if not leads:
        yield Nothing(goal, budget)
        return
    if show is False:
        yield Progress(goal, budget)
        return
    notebook, console = _notebook(), _terminal()
    if notebook is not None:
        yield Notebook(goal, budget, notebook)
    elif console is not None:
        terminal = Terminal(goal, budget, console, table)
        with terminal.live:
            yield terminal
    else:
        yield Lines(goal, budget)


def _notebook() -> Callable[..., Any] | None:
    """IPython's `display`, in a notebook."""
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    if type(shell).__name__ != "ZMQInteractiveShell":
        return None
    from IPython.display import display

    return display


def _terminal() -> Any:
    """The console, if standard error is one and rich is installed."""
    try:
        from rich.console import Console
    except ImportError:
        return None
    console = Console(stderr=True)
    return console if console.is_terminal else None
