"""What a run was and what came of it, read from its folder into one shape for every kind of run.

Owns the reading of three kinds of folders: a reproduction (results.json and a folder for each
method and seed), one such method's folder, and a search (`asterism sparsify`). Draws nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from asterism.errors import FormatError, InputError
from asterism.experiments.data import mnist
from asterism.experiments.lenets import NETWORK_NAMES
from asterism.experiments.results import EpochRecord, History, MethodRow, RunResult, method_rows
from asterism.export.checkpoints import read_checkpoint
from asterism.report.published import PublishedPoint, published_for
from asterism.search.pareto import TrialRecord
from asterism.storage.atomic_files import read_json
from asterism.storage.packing import unpack
from asterism.storage.snapshots import read_snapshot
from asterism.weights.names import layer

Record = dict[str, Any]
State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Outcome:
    """One point of the trade-off: a number of weights, and the score with them."""

    name: str
    nonzeros: float
    density_percent: float
    score: float
    spread: float | None = None  # sample standard deviation over the seeds
    seeds: int = 1
    network: str = ""  # the key of the network that shows it
    role: str = "front"  # or "dense", "chosen", "tried"


@dataclass(frozen=True, eq=False)
class Network:
    """One network, before (where that is known) and after."""

    key: str
    name: str
    weights: list[str]
    after: State
    before: State | None = None
    history: History = field(default_factory=list)
    config: Record = field(default_factory=dict)
    model: str | None = None  # as named in `asterism.experiments.lenets`
    bench: list[Record] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Account:
    """All that a page is made of."""

    title: str
    summary: list[tuple[str, str]]
    score_name: str
    outcomes: list[Outcome]
    networks: list[Network]
    published: tuple[PublishedPoint, ...] = ()
    tolerance: float | None = None
    command: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    trials: list[TrialRecord] = field(default_factory=list)


def read_account(folder: Path) -> Account:
    """The account of a run's folder, or an InputError that says what a run's folder has."""
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder: give that of a run")
    try:
        if (folder / "results.json").exists():
            results = read_json(folder / "results.json")
            return _of_reproduction(
                folder, {_key(each): folder / _key(each) for each in results}, results
            )
        if (folder / "result.json").exists():
            result = read_json(folder / "result.json")
            if "front" in result:
                return _of_search(folder, result)
            return _of_method(folder, result)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise FormatError(f"{folder} holds something else than a run of ours: {error!r}") from error
    if (folder / "config.json").exists():
        raise InputError(f"{folder} holds a run that is not finished: end it with --resume first")
    raise InputError(
        f"{folder} holds no run: there is neither results.json (of `asterism reproduce`)"
        " nor result.json (of one method, or of `asterism sparsify`)"
    )


# ---------------------------------------------------------------------- reproduction


def _of_reproduction(
    folder: Path, places: Mapping[str, Path], results: Sequence[RunResult]
) -> Account:
    """The account of some rows; `places` says where each network is."""
    if not results:
        raise InputError(f"{folder} has no finished row yet")
    rows = method_rows(results)
    networks = [
        _network(folder, places[_key(row.seeds[0])], row)
        for row in rows
        # The dense network is shown as the others' before.
        if row.method != "dense" and (places[_key(row.seeds[0])] / "model.safetensors").exists()
    ]
    shapes = {}
    if networks:
        shapes = {layer(each): tuple(networks[0].after[each].shape) for each in networks[0].weights}
    first = results[-1]
    model, data = (first["config"].get(each, "unknown") for each in ("model", "data"))
    network, images = NETWORK_NAMES.get(model, model), mnist.NAMES.get(data, data)
    seconds = sum(record["seconds"] for record in results)
    summary = [
        ("Networks trained", f"{len(results)}"),
        ("Epochs", f"{sum(record['epochs'] for record in results):,}"),
        ("Time", f"{duration(seconds)} on {first['config'].get('threads', '?')} threads"),
        ("Seeds", ", ".join(str(seed) for seed in sorted({r["seed"] for r in results}))),
    ]
    return Account(
        title=f"{network} on {images}",
        summary=summary,
        score_name="Test error (%)",
        outcomes=[_outcome(row) for row in rows],
        networks=networks,
        published=published_for(shapes, data),
        command=_command(folder),
        versions=first.get("versions", {}),
    )


def _of_method(folder: Path, result: RunResult) -> Account:
    """One row, beside the dense network that it came from, if that is there."""
    above = folder.resolve().parent
    dense = above / f"dense-{result['seed']}"
    results = [result]
    if result["method"] != "dense" and (dense / "result.json").exists():
        results.insert(0, read_json(dense / "result.json"))
    return _of_reproduction(above, {_key(result): folder}, results)


def _outcome(row: MethodRow) -> Outcome:
    return Outcome(
        name=row.full_name,
        nonzeros=row.nonzeros,
        density_percent=row.density_percent,
        score=row.error_percent,
        spread=row.spread,
        seeds=len(row.seeds),
        network=_key(row.seeds[0]),
        role="dense" if row.method == "dense" else "front",
    )


def _key(record: RunResult) -> str:
    return f"{record['method']}-{record['seed']}"


def _network(folder: Path, own: Path, row: MethodRow) -> Network:
    """The network of a row's first seed."""
    record = row.seeds[0]
    dense = folder / f"dense-{record['seed']}"
    after = read_checkpoint(own / "model.safetensors")
    history: History = []
    if (own / "history.json").exists():
        history = read_json(own / "history.json")
    before = None
    if (dense / "model.safetensors").exists():
        before = read_checkpoint(dense / "model.safetensors")
    if (dense / "history.json").exists():
        start: EpochRecord = read_json(dense / "history.json")[-1]
        start["epoch"] = 0
        history = [start, *history]
    return Network(
        key=_key(record),
        name=f"{row.full_name}, seed {record['seed']}",
        weights=[name for name, tensor in after.items() if tensor.ndim > 1],
        after=after,
        before=before,
        history=history,
        config=record["config"],
        model=record["config"].get("model"),
        bench=_bench(own),
    )


def _command(folder: Path) -> str | None:
    """The table's caption ends with it."""
    try:
        text = (folder / "table.md").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.findall(r"`(asterism [^`]+)`", text)
    return found[-1] if found else None


# ---------------------------------------------------------------------- search


def _of_search(folder: Path, result: Record) -> Account:
    config, dense, best = read_json(folder / "config.json"), result["dense"], result["best"]
    sign = -1 if config["higher_is_better"] else 1
    trials = [TrialRecord.from_json(each) for each in result["history"]]
    summary = [
        ("Weights left", f"{best['nonzeros']:,} of {dense['nonzeros']:,}"),
        ("Metric", f"{best['metric']:.6g} (dense {dense['metric']:.6g})"),
        ("Tolerance", f"{config['max_drop']:g} in the metric's own units"),
        ("Trials", f"{len(trials)}"),
        ("Cost", f"{trials[-1].epochs} epochs, {duration(trials[-1].seconds)} of training"),
        ("Why it stopped", result["stop_reason"]),
    ]
    about = read_json(folder / "command.json") if (folder / "command.json").exists() else {}
    recipe = read_json(folder / "recipe.json") if (folder / "recipe.json").exists() else {}
    network = Network(
        key="best",
        name="The network found",
        weights=list(config["weights"]),
        after=read_checkpoint(folder / "model.safetensors"),
        before=_start(folder),
        config={**recipe, "search": config},
        bench=_bench(folder),
    )
    direction = "higher" if config["higher_is_better"] else "lower"
    return Account(
        title=str(recipe.get("model", folder.resolve().name)),
        summary=summary,
        score_name=f"Metric on validation data ({direction} is better)",
        outcomes=_outcomes_of_search(result, trials),
        networks=[network],
        tolerance=dense["metric"] + sign * config["max_drop"],
        command=about.get("command"),
        versions=about.get("versions", {}),
        trials=trials,
    )


def _outcomes_of_search(result: Record, trials: Sequence[TrialRecord]) -> list[Outcome]:
    """The front, the densest first, and what else was measured."""

    def outcome(point: Record, role: str) -> Outcome:
        share = 100 * point["density"]
        return Outcome(role, point["nonzeros"], share, point["metric"], role=role)

    best = (result["best"]["nonzeros"], result["best"]["metric"])
    front = {(point["nonzeros"], point["metric"]): point for point in result["front"]}
    shown = [outcome(point, "chosen" if at == best else "front") for at, point in front.items()]
    if best not in front:
        shown.append(outcome(result["best"], "chosen"))
    tried = [
        Outcome(
            name=trial.trial,
            nonzeros=trial.nonzeros,
            density_percent=100 * trial.density,
            score=trial.metric,
            role="dense" if trial.trial == "dense" else "tried",
        )
        for trial in trials
        if trial.metric is not None and (trial.nonzeros, trial.metric) not in front
    ]
    return shown + tried


def _start(folder: Path) -> State | None:
    if not (folder / "start.pt").exists():
        return None
    state: State = unpack(read_snapshot(folder / "start.pt")["packed"])
    return state


def _bench(folder: Path) -> list[Record]:
    """What `asterism bench FILE --json` printed, if it was kept as bench.json."""
    return read_json(folder / "bench.json") if (folder / "bench.json").exists() else []


def duration(seconds: float) -> str:
    """
    >>> duration(42), duration(258.9), duration(7300)
    ('42 s', '4.3 min', '2.0 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
