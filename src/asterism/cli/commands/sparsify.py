"""`asterism sparsify`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asterism.cli.common import command_line, resumable

if TYPE_CHECKING:
    from asterism.search.options import SearchRecipe

RECIPE, COMMAND = "recipe.json", "command.json"
"""What a search was told, kept in its folder, and by which command."""


def sparsify(
    model: Annotated[
        str | None,
        typer.Argument(help="Makes the trained model: pkg.module:function or file.py:function."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Makes (train_loader, valid_loader), or a dict with loss and metric."),
    ] = None,
    max_drop: Annotated[
        float | None, typer.Option(help="How much worse the metric may get, in its own units.")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Trained weights: .safetensors, .pt or .asterism.")
    ] = None,
    max_epochs: Annotated[int | None, typer.Option(help="Budget in epochs; default 60.")] = None,
    max_minutes: Annotated[float | None, typer.Option(help="Budget in minutes.")] = None,
    epochs_per_cut: Annotated[int | None, typer.Option(help="Epochs of one trial.")] = None,
    reweighting: Annotated[
        float | None, typer.Option(help="Share of the budget for re-weighting; 0 for none.")
    ] = None,
    optimizer: Annotated[str | None, typer.Option(help="sgd or adamw; default by trial.")] = None,
    lr: Annotated[float | None, typer.Option(help="Its learning rate.")] = None,
    include: Annotated[
        list[str] | None, typer.Option(help="Only layers that fit this pattern; may be repeated.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(help="No layer that fits this pattern; may be repeated.")
    ] = None,
    penalty: Annotated[
        list[str] | None,
        typer.Option(help="PATTERN=NAME: reweighted_l1, reweighted_l2 or focuss; may be repeated."),
    ] = None,
    density: Annotated[
        list[str] | None,
        typer.Option(help="PATTERN=SHARE that such layers keep in any case; may be repeated."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of torch, before anything is made.")] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="A TOML file of these settings; options go before it.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the search is kept.")] = Path("runs/sparsify"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with what is in the folder.")
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

    To continue an interrupted search:  asterism sparsify --resume --out runs/net
    """
    import json

    import torch

    from asterism.cli.factories import make_data, make_model
    from asterism.experiments.jobs import versions
    from asterism.export.checkpoints import load_into
    from asterism.integrations.tensorboard import TensorBoard
    from asterism.search.folder import Journal
    from asterism.search.options import by_pattern
    from asterism.search.sparsify import sparsify as search
    from asterism.search.supervised import supervised
    from asterism.storage.atomic_files import read_json
    from asterism.storage.run_folder import alone_in
    from asterism.weights.targets import choose

    torch.set_flush_denormal(True)  # weights that sink towards zero would slow the CPU down
    if threads is not None:
        torch.set_num_threads(threads)
    given = {
        "model": model,
        "data": data,
        "max_drop": max_drop,
        "weights": None if weights is None else str(weights),
        "max_epochs": max_epochs,
        "max_minutes": max_minutes,
        "epochs_per_cut": epochs_per_cut,
        "reweighting": reweighting,
        "optimizer": optimizer,
        "lr": lr,
        "include": include or None,
        "exclude": exclude or None,
        "penalty": by_pattern(penalty or [], "--penalty") or None,
        "densities": _numbers(by_pattern(density or [], "--density")) or None,
        "seed": seed,
    }
    chosen = _recipe(given, recipe, out, resume)
    torch.manual_seed(chosen.seed)
    network = make_model(chosen.model)
    if chosen.weights is not None:
        load_into(network, Path(chosen.weights))
    task = supervised(**make_data(chosen.data))
    inner, penalties = chosen.make_optimizer(), chosen.make_penalty()
    command = {"command": command_line(), "versions": versions()}
    tracked = {each.name: each.param for each in choose(network, chosen.include, chosen.exclude)}
    boards = [] if tensorboard is None else [TensorBoard(tensorboard, tracked)]
    with resumable(), alone_in(out), _watching(chosen, tracked) as show:

        def watch(record: dict[str, Any]) -> None:
            show(record)
            for board in boards:
                board(record)

        result = search(
            network,
            **task,
            max_drop=chosen.max_drop,
            max_epochs=chosen.max_epochs,
            max_minutes=chosen.max_minutes,
            epochs_per_cut=chosen.epochs_per_cut,
            reweighting=chosen.reweighting,
            optimizer=inner,
            include=chosen.include,
            exclude=chosen.exclude,
            penalty=penalties,
            densities=chosen.densities,
            run=Journal(out, {RECIPE: chosen.plain(), COMMAND: command}),
            resume=resume,
            watch=watch,
        )
    if as_json:
        print(json.dumps(read_json(out / "result.json"), indent=2))
    else:
        dense = result.history[0]["metric"]
        print("weights\tdensity\tmetric")
        for point in result.front:
            mark = "\t← the model" if point is result.best else ""
            print(f"{point.nonzeros}\t{point.density:.3%}\t{point.metric:.6g}{mark}")
        print(f"dense: {dense:.6g}. {result.stop_reason}.")
    print(f"written to {out}/", file=sys.stderr)


def _recipe(given: dict[str, Any], recipe: Path | None, out: Path, resume: bool) -> SearchRecipe:
    """Options before the recipe; in a folder in use, none but the ones it was begun with."""
    from asterism.errors import InputError
    from asterism.search.options import make_recipe, read_recipe
    from asterism.storage.run_folder import refuse_others

    named = {name: value for name, value in given.items() if value is not None}
    read = {} if recipe is None else read_recipe(recipe)
    kept = out / RECIPE
    begun = read_recipe(kept) if kept.exists() else {}
    if resume and not (begun or read or named):
        raise InputError(f"{out} holds no search to continue")
    source = "the command" if recipe is None else str(recipe)
    chosen = make_recipe({**begun, **read, **named}, source)
    refuse_others(kept, chosen.plain(), resume)
    return chosen


def _numbers(texts: dict[str, str]) -> dict[str, float]:
    from asterism.errors import InputError

    try:
        return {pattern: float(text) for pattern, text in texts.items()}
    except ValueError as error:
        raise InputError(f"--density is a share of the weights: {error}") from error


@contextmanager
def _watching(
    chosen: SearchRecipe, weights: dict[str, Any]
) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A bar and a table of layers for a person, a line per trial for a pipe, on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from asterism.cli.layer_table import board, layer_statuses
    from asterism.search.limits import DEFAULT_EPOCHS

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda record: print(_describe(record), file=sys.stderr, flush=True)
        return
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    in_minutes = chosen.max_epochs is None and chosen.max_minutes is not None
    bar = Progress(*columns, TextColumn("minutes" if in_minutes else "epochs"), console=console)
    with board(bar, console) as shown:
        total = chosen.max_minutes if in_minutes else chosen.max_epochs or DEFAULT_EPOCHS
        task = bar.add_task("dense", total=total)

        def watch(record: dict[str, Any]) -> None:
            """While a record is made the model holds what the record is about."""
            done = record["seconds"] / 60 if in_minutes else record["epochs"]
            bar.update(task, completed=done, description=record["trial"])
            bar.console.print(_describe(record), highlight=False)
            shown.show(layer_statuses(weights), record["trial"])

        yield watch


def _describe(record: dict[str, Any]) -> str:
    metric = "no metric" if record["metric"] is None else f"metric {record['metric']:.6g}"
    verdict = "within tolerance" if record["within_tolerance"] else "beyond tolerance"
    note = f": {record['note']}" if record["note"] else ""
    return (
        f"epoch {record['epochs']}, {record['trial']}: {record['density']:.3%} of the weights,"
        f" {metric}, {verdict}{note}"
    )
