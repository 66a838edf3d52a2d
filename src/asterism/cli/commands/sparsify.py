"""`asterism sparsify`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asterism.cli.common import command_line, resumable
from asterism.cli.recipe_file import (
    MEANINGS,
    Recipe,
    by_pattern,
    make_recipe,
    numbers_by_pattern,
    read_recipe,
)
from asterism.cli.source import COMMAND, RECIPE

if TYPE_CHECKING:
    from asterism.search.pareto import TrialRecord
    from asterism.search.sparsify import SparsifyResult


def _meaning(name: str) -> str:
    """What a setting means, wherever it is given, as a sentence."""
    meaning = MEANINGS.get(name, "").replace("`", "")
    return f"{meaning[:1].upper()}{meaning[1:]}."


def _option(name: str, form: str = "") -> Any:
    """An option of the command; `form` is how one of several values is given."""
    return typer.Option(help=_meaning(name) + (f" {form}; may be repeated." if form else ""))


def sparsify(
    context: typer.Context,
    model: Annotated[str | None, typer.Argument(help=_meaning("model"))] = None,
    data: Annotated[str | None, _option("data")] = None,
    max_drop: Annotated[float | None, _option("max_drop")] = None,
    weights: Annotated[Path | None, _option("weights")] = None,
    max_epochs: Annotated[int | None, _option("max_epochs")] = None,
    max_minutes: Annotated[float | None, _option("max_minutes")] = None,
    epochs_per_cut: Annotated[int | None, _option("epochs_per_cut")] = None,
    reweighting: Annotated[float | None, _option("reweighting")] = None,
    optimizer: Annotated[str | None, _option("optimizer")] = None,
    lr: Annotated[float | None, _option("lr")] = None,
    include: Annotated[list[str] | None, _option("include", "PATTERN")] = None,
    exclude: Annotated[list[str] | None, _option("exclude", "PATTERN")] = None,
    penalty: Annotated[list[str] | None, _option("penalty", "PATTERN=NAME")] = None,
    density: Annotated[list[str] | None, _option("densities", "PATTERN=SHARE")] = None,
    seed: Annotated[int | None, _option("seed")] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="A TOML file of these settings; options go before it.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the search is kept.")] = Path("runs/sparsify"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue with what is in the folder.")
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="CPU threads; a search resumes exactly at the same number."),
    ] = None,
    tensorboard: Annotated[
        Path | None, typer.Option(help="A folder for TensorBoard: scalars and histograms.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print result.json at the end.")] = False,
) -> None:
    """The sparsest network within a tolerance: your own model, your own data.

    Example:  asterism sparsify net.py:model --data net.py:loaders --max-drop 0.2 --out runs/net

    An interrupted search continues with:  asterism sparsify --resume --out runs/net
    """
    import torch

    from asterism.cli.factories import make_data, make_model
    from asterism.experiments.jobs import versions
    from asterism.export.checkpoints import load_into
    from asterism.search.sparsify import search
    from asterism.search.task import supervised
    from asterism.weights.targets import choose

    named = {each.name: context.params.get(each.name) for each in fields(Recipe)}
    named["weights"] = None if weights is None else str(weights)
    named["penalty"] = by_pattern(penalty or [], "--penalty")
    named["densities"] = numbers_by_pattern(density or [], "--density")
    given = {name: each for name, each in named.items() if each not in (None, [], (), {})}
    chosen = _recipe(given, recipe, out, resume)
    torch.set_flush_denormal(True)  # weights that sink towards zero would slow the CPU down
    if threads is not None:
        torch.set_num_threads(threads)
    torch.manual_seed(chosen.seed)
    network = make_model(chosen.model)
    if chosen.weights is not None:
        load_into(network, Path(chosen.weights))
    task = supervised(**make_data(chosen.data))
    command = {"command": command_line(), "versions": versions(), "folder": str(Path.cwd())}
    tracked = {each.name: each.param for each in choose(network, chosen.include, chosen.exclude)}
    with resumable(), _watching(chosen, tracked, tensorboard) as watch:
        result = search(
            network,
            task,
            chosen,
            run=out,
            resume=resume,
            watch=watch,
            beside={RECIPE: chosen.plain(), COMMAND: command},
        )
    _show(result, out, as_json)


def _recipe(given: dict[str, Any], recipe: Path | None, out: Path, resume: bool) -> Recipe:
    """Options before the recipe; in a folder in use, none but the ones it was begun with."""
    from asterism.errors import InputError
    from asterism.storage.run_folder import refuse_others

    read = {} if recipe is None else read_recipe(recipe)
    kept = out / RECIPE
    begun = read_recipe(kept) if kept.exists() else {}
    if resume and not (begun or read or given):
        raise InputError(f"{out} holds no search to continue")
    chosen = make_recipe({**begun, **read, **given}, recipe)
    refuse_others(kept, chosen.plain(), resume)
    return chosen


@contextmanager
def _watching(
    chosen: Recipe, weights: dict[str, Any], tensorboard: Path | None
) -> Iterator[Callable[[TrialRecord], None]]:
    """What is called with each record: for standard error, and for TensorBoard if asked for."""
    from asterism.integrations.tensorboard import TensorBoard

    boards = [] if tensorboard is None else [TensorBoard(tensorboard, weights)]
    with _showing(chosen, weights) as show:

        def watch(record: TrialRecord) -> None:
            show(record)
            for each in boards:
                each(record)

        yield watch


@contextmanager
def _showing(chosen: Recipe, weights: dict[str, Any]) -> Iterator[Callable[[TrialRecord], None]]:
    """A bar and a table of layers for a person, a line per trial for a pipe, on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from asterism.cli.layer_table import board, layer_statuses
    from asterism.search.limits import DEFAULT_EPOCHS

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda record: print(record, file=sys.stderr, flush=True)
        return
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    in_minutes = chosen.max_epochs is None and chosen.max_minutes is not None
    bar = Progress(*columns, TextColumn("minutes" if in_minutes else "epochs"), console=console)
    with board(bar, console) as shown:
        total = chosen.max_minutes if in_minutes else chosen.max_epochs or DEFAULT_EPOCHS
        task = bar.add_task("dense", total=total)

        def watch(record: TrialRecord) -> None:
            """While a record is made the model holds what the record is about."""
            done = record.seconds / 60 if in_minutes else record.epochs
            bar.update(task, completed=done, description=record.trial)
            bar.console.print(str(record), highlight=False)
            shown.show(layer_statuses(weights), record.trial)

        yield watch


def _show(result: SparsifyResult, out: Path, as_json: bool) -> None:
    """The result as JSON, or the front as a table."""
    import json

    from asterism.storage.atomic_files import read_json

    if as_json:
        print(json.dumps(read_json(out / "result.json"), indent=2))
    else:
        print("weights\tdensity\tmetric")
        for point in result.front:
            mark = "\t← the model" if point is result.best else ""
            print(f"{point.nonzeros}\t{point.density:.3%}\t{point.metric:.6g}{mark}")
        print(f"dense: {result.history[0].metric:.6g}. {result.stop_reason}.")
    print(f"written to {out}/", file=sys.stderr)
