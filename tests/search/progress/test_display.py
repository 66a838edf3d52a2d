"""What a person sees while a search runs, wherever that is."""

from __future__ import annotations

import io
import logging
import sys
import types
from pathlib import Path

import pytest
from rich.console import Console

import asterism
from asterism.search.limits import Goal, SearchBudget
from asterism.search.pareto import TrialRecord
from asterism.search.progress.display import Lines, Notebook, Progress, Terminal, showing
from support.small import task, trained

GOAL, BUDGET = Goal(0.5), SearchBudget(max_epochs=20)
DENSE = TrialRecord("dense", 1.0, 1000, 97.74, True, 0, 0.0)
CUT = TrialRecord("cut", 0.093, 93, 97.5, True, 7, 60.0)


def search(**options: object) -> asterism.SparsifyResult:
    return asterism.sparsify(trained(), task(), max_drop=2.0, max_epochs=6, **options)


def test_elsewhere_each_trial_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    result = search()
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = shown.err.splitlines()
    assert len(lines) == len(result.history)
    assert lines[0].startswith("• dense: 9")
    assert lines[1].startswith("✓ trained for an epoch without a cut: 9")
    assert any("cut to" in line for line in lines)


def test_a_search_that_is_resumed_knows_what_was_found_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = search(run=tmp_path / "run")
    capsys.readouterr()
    asterism.sparsify(
        trained(), task(), max_drop=2.0, max_epochs=12, run=tmp_path / "run", resume=True
    )
    lines = capsys.readouterr().err.splitlines()
    assert lines
    assert not any("dense" in line or "no metric" in line for line in lines)
    progress = Progress(Goal(2.0), SearchBudget(max_epochs=12))
    progress.resume(first.history)
    assert progress.status.dense == first.history[0].metric
    assert progress.status.best_text().startswith("best ")


def test_progress_can_be_turned_off_and_the_log_has_the_lines(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="asterism"):
        result = search(progress=False)
    assert capsys.readouterr().err == ""
    assert len(caplog.records) == len(result.history)


def test_a_log_that_is_shown_is_not_shown_twice(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="asterism"):
        search()
    assert capsys.readouterr().err == ""


def test_every_batch_is_counted() -> None:
    steps, seen = [], []

    class Watched(Progress):
        def begin(self, what, epochs, steps_of_trial, spent):
            steps.append((epochs, steps_of_trial))
            seen.append(0)
            super().begin(what, epochs, steps_of_trial, spent)

        def step(self):
            seen[-1] += 1

    from asterism.search import sparsify as module

    with pytest.MonkeyPatch.context() as patch:
        shown = Watched(GOAL, BUDGET)
        patch.setattr(module, "showing", lambda *_: _given(shown))
        search()
    assert seen == [expected for _, expected in steps]
    assert steps[0] == (1, 8)


def _given(shown: Progress):
    from contextlib import nullcontext

    return nullcontext(shown)


@pytest.mark.parametrize("width", [60, 140])
def test_a_bar_shows_the_trial_the_epoch_the_best_and_the_time(width: int) -> None:
    console = Console(file=io.StringIO(), width=width, force_terminal=True)
    terminal = Terminal(GOAL, BUDGET, console, table=lambda: "the layers")
    with terminal.live:
        terminal.end(DENSE)
        terminal.end(CUT)
        terminal.begin("cut to 5.1 %", 4, 40, (7, 60.0))
        for _ in range(25):
            terminal.step()
        drawn = Console(file=io.StringIO(), width=width)
        drawn.print(terminal._render())
    text = drawn.file.getvalue()  # type: ignore[attr-defined]
    assert "the layers" in text
    assert "cut to 5.1 %, epoch 3 of 4" in text
    assert "best 9.3 % at 97.50" in text
    assert "0:00" in text
    assert all(len(line) <= width for line in text.splitlines())
    assert "✓ cut to 9.3 %: 97.50" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_notebook_gets_one_output_that_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    class ZMQInteractiveShell:
        pass

    shown: list[object] = []

    def display(thing: object, display_id: bool) -> object:
        shown.append(thing)
        return types.SimpleNamespace(update=shown.append)

    package = types.ModuleType("IPython")
    package.get_ipython = ZMQInteractiveShell  # type: ignore[attr-defined]
    inner = types.ModuleType("IPython.display")
    inner.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", inner)
    with showing(GOAL, BUDGET) as progress:
        assert isinstance(progress, Notebook)
        progress.end(DENSE)
        progress.begin("cut <&> more", 4, 40, (0, 0.0))
        html = progress._repr_html_()
    assert set(map(id, shown)) == {id(progress)}
    assert "• dense: 97.74" in html
    assert "cut &lt;&amp;&gt; more, epoch 1 of 4" in html
    assert '<progress value="0.000" max="20">' in html


def test_what_is_shown_depends_on_the_place() -> None:
    with showing(GOAL, BUDGET) as progress:
        assert type(progress) is Lines
    with showing(GOAL, BUDGET, show=False) as progress:
        assert type(progress) is Progress


def test_a_budget_of_time_is_counted_in_minutes() -> None:
    progress = Progress(Goal(0.5), SearchBudget(max_minutes=3.0))
    progress.begin("cut to 5.1 %", 4, 40, (7, 60.0))
    assert progress.status.done == pytest.approx(1.0, abs=0.1)
    assert progress.status.done_text().endswith("/3 min")
