"""`asterism sparsify`."""

from __future__ import annotations

import shlex
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asterism.cli.common import command_line, resumable, to_device
from asterism.cli.launcher import told_of_the_end
from asterism.cli.output import Csv, Json, is_text, print_data
from asterism.cli.recipe_file import (
    MEANINGS,
    Recipe,
    by_pattern,
    make_recipe,
    numbers_by_pattern,
    read_recipe,
)
from asterism.cli.source import COMMAND, RECIPE, find_source
from asterism.cli.voice import is_quiet, say
from asterism.errors import InputError
from asterism.storage.atomic_files import read_json

if TYPE_CHECKING:
    from asterism.search.pareto import TrialRecord
    from asterism.search.ranks.crew import Crew
    from asterism.search.sparsify import SparsifyResult


FUNCTION = "FILE.py:FUNCTION"


def _meaning(name: str) -> str:
    """What a setting means, wherever it is given, as a sentence."""
    meaning = MEANINGS.get(name, "").replace("`", "")
    return f"{meaning[:1].upper()}{meaning[1:]}."


def _option(name: str, form: str = "", metavar: str | None = None) -> Any:
    """An option of the command.

    name     of the setting
    form     how one of several values is given
    metavar  how the one value is given
    """
    if not form:
        return typer.Option(metavar=metavar, help=_meaning(name))
    return typer.Option(metavar=form, help=f"{_meaning(name)} May be repeated.")


def sparsify(
    context: typer.Context,
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help=_meaning("model"))] = None,
    data: Annotated[str | None, _option("data", metavar=FUNCTION)] = None,
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
    device: Annotated[str | None, _option("device", metavar="NAME")] = None,
    amp: Annotated[bool | None, typer.Option("--amp", help=_meaning("amp"))] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="A TOML file of these settings; options override it.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of the search.")] = Path("runs/sparsify"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the search that is in the folder.")
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="CPU threads; a search resumes exactly at the same number."),
    ] = None,
    fsdp: Annotated[
        bool,
        typer.Option("--fsdp", help="With torchrun: shard the model (FSDP2) instead of DDP."),
    ] = False,
    tensorboard: Annotated[
        Path | None, typer.Option(help="A folder for TensorBoard: scalars and histograms.")
    ] = None,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Find the sparsest network within a tolerance, for your own model and data.

    Example:  asterism sparsify net.py:model --data net.py:loaders --max-drop 0.2 --out runs/net

    An interrupted search continues with:  asterism sparsify --resume --out runs/net

    In several processes:  torchrun --nproc-per-node 2 -m asterism sparsify net.py:model …
    """
    import torch

    from asterism.search.ranks.crew import join

    text = is_text(as_json, as_csv)
    named = {each.name: context.params.get(each.name) for each in fields(Recipe)}
    named["weights"] = None if weights is None else str(weights)
    named["penalty"] = by_pattern(penalty or [], "--penalty")
    named["densities"] = numbers_by_pattern(density or [], "--density")
    given = {name: each for name, each in named.items() if each not in (None, [], (), {})}
    torch.set_flush_denormal(True)  # weights that sink towards zero would slow the CPU down
    if threads is not None:
        torch.set_num_threads(threads)
    with resumable(), join() as crew, told_of_the_end(crew):
        if fsdp and crew.size == 1:
            raise InputError(
                "--fsdp divides the model over several processes: start them with torchrun"
                " --nproc-per-node 2 -m asterism sparsify …"
            )
        chosen = crew.decide(lambda: _recipe(given, recipe, out, resume))
        result = _search(chosen, crew, out, resume=resume, fsdp=fsdp, tensorboard=tensorboard)
    if not crew.leads:
        return
    if text:
        _show(result, chosen.max_drop)
    else:
        print_data(
            read_json(out / "result.json"), [each.summary() for each in result.front], as_json
        )
    say(_next_commands(out))


def _search(
    chosen: Recipe, crew: Crew, out: Path, *, resume: bool, fsdp: bool, tensorboard: Path | None
) -> SparsifyResult:
    import torch

    from asterism.cli.factories import make_data, make_model
    from asterism.experiments.jobs import versions
    from asterism.export.checkpoints import load_into
    from asterism.search.ranks.replicas import shard_
    from asterism.search.sparsify import search
    from asterism.search.task import supervised
    from asterism.weights.targets import choose

    torch.manual_seed(chosen.seed)
    say(f"asterism: making the model and the data, {chosen.model} and {chosen.data} …")
    network = make_model(chosen.model)
    if chosen.weights is not None:
        load_into(network, find_source(Path(chosen.weights)).path)
    network = to_device(network, chosen.device)
    if fsdp:
        shard_(network)
    task = supervised(**make_data(chosen.data) | ({"amp": True} if chosen.amp else {}))
    command = {"command": command_line(), "versions": versions(), "folder": str(Path.cwd())}
    tracked = {each.name: each.param for each in choose(network, chosen.include, chosen.exclude)}
    # Shards are put together by all ranks, and one alone looks at them here.
    layers = LayersShown({} if fsdp else tracked, tensorboard if crew.leads else None)
    return search(
        network,
        task,
        chosen,
        run=out,
        resume=resume,
        watch=layers.watch,
        table=None if fsdp else lambda: layers.table,
        progress=False if is_quiet() else None,
        beside={RECIPE: chosen.plain(), COMMAND: command},
        crew=crew,
    )


def _recipe(given: dict[str, Any], recipe: Path | None, out: Path, resume: bool) -> Recipe:
    """Options before the recipe; in a folder in use, none but the ones it was begun with."""
    from asterism.search.folder import changes_beyond_budget
    from asterism.storage.run_folder import refuse_others

    read = {} if recipe is None else read_recipe(recipe)
    kept = out / RECIPE
    begun = read_recipe(kept) if kept.exists() else {}
    if resume and not (begun or read or given):
        raise InputError(f"{out} holds no search to continue")
    chosen = make_recipe({**begun, **read, **given}, recipe)
    refuse_others(kept, chosen.plain(), resume, changes_beyond_budget)
    return chosen


class LayersShown:
    """The layers as they were when the last trial ended, as a table; TensorBoard, if asked for."""

    def __init__(self, weights: dict[str, Any], tensorboard: Path | None) -> None:
        from asterism.integrations.tensorboard import TensorBoard

        self.weights = weights
        self.boards = [] if tensorboard is None else [TensorBoard(tensorboard, weights)]
        self.table: Any = ""

    def watch(self, record: TrialRecord) -> None:
        """While a record is made the model holds what the record is about."""
        from asterism.cli.layer_table import layer_statuses, layer_table

        self.table = layer_table(layer_statuses(self.weights))
        for board in self.boards:
            board(record)


def _show(result: SparsifyResult, max_drop: float) -> None:
    """The front as a table, and why the search ended."""
    from asterism.search.limits import Goal
    from asterism.search.progress.words import number

    goal = Goal(max_drop)
    print("weights\tdensity\tmetric")
    for point in result.front:
        mark = "\t← the model" if point is result.best else ""
        print(f"{point.nonzeros}\t{point.density:.3%}\t{number(point.metric, goal)}{mark}")
    print(f"dense: {number(result.history[0].metric, goal)}; {result.stop_reason}")


def _next_commands(out: Path) -> str:
    """What to do with the network that was found, ready to be pasted."""
    run, file = shlex.quote(str(out)), shlex.quote(str(out / "model.asterism"))
    commands = {
        f"asterism report {run} --open": "one page: trade-off, layers, weights, size",
        f"asterism compress {run} --bits 4": "a small file that runs without torch",
        f"asterism evaluate {file}": "measure it with your metric",
        f"asterism bench {file}": "time it against dense engines",
    }
    width = max(map(len, commands))
    lines = [f"    {command:{width}}  # {about}" for command, about in commands.items()]
    return "\n".join([f"written to {out}/. Next:", "", *lines, ""])
