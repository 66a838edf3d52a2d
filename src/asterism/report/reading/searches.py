"""The account of a search: the folder of `sparsify`, from Python or from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from asterism.export.checkpoints import read_checkpoint
from asterism.report.reading.account import Account, JsonObject, Network, Outcome, State, duration
from asterism.search.pareto import TrialRecord
from asterism.storage.atomic_files import read_json
from asterism.storage.packing import unpack
from asterism.storage.provenance import Provenance
from asterism.storage.snapshots import read_snapshot
from asterism.weights.wiring import chain

Place = tuple[int, float]
"""Where a network stands in the trade-off: its weights and its metric."""
METRIC_NAMES = {"accuracy_percent": "Accuracy on validation data (%)"}


def read_search(folder: Path, result: JsonObject) -> Account:
    """The account of a finished search."""
    config, about = read_json(folder / "config.json"), _about(folder)
    recipe = _beside(folder, "recipe.json")
    higher = config["higher_is_better"]
    trials = [TrialRecord.from_json(each) for each in result["history"]]
    weights = list(config["weights"])
    network = Network(
        key="best",
        name="The network found",
        weights=weights,
        after=read_checkpoint(folder / "model.safetensors"),
        wiring=about.get("wiring") or chain(weights),  # older folders do not know it
        before=_start(folder),
        config={**recipe, "search": config},
        bench=_beside(folder, "bench.json") or [],
    )
    tolerance = result["dense"]["metric"] + (-1 if higher else 1) * config["max_drop"]
    in_points = about.get("metric") in METRIC_NAMES
    direction = f"Metric on validation data ({'higher' if higher else 'lower'} is better)"
    return Account(
        title=str(recipe.get("model", folder.resolve().name)),
        summary=_summary(result, config, trials),
        score_name=METRIC_NAMES.get(about.get("metric", ""), direction),
        outcomes=_outcomes(result, trials),
        networks=[network],
        tolerance=tolerance,
        higher_is_better=higher,
        in_points=in_points,
        command=about.get("command"),
        made=Provenance(about.get("date", ""), about.get("versions", {}), about.get("commit")),
        trials=trials,
    )


def _beside(folder: Path, name: str) -> Any:
    """A JSON file of the folder; empty where it is missing."""
    return read_json(folder / name) if (folder / name).exists() else {}


def _about(folder: Path) -> JsonObject:
    """When, with what and by which command; older folders know less."""
    return {**_beside(folder, "command.json"), **_beside(folder, "about.json")}


def _summary(
    result: JsonObject, config: JsonObject, trials: Sequence[TrialRecord]
) -> list[tuple[str, str]]:
    dense, best = result["dense"], result["best"]
    return [
        ("Weights left", f"{best['nonzeros']:,} of {dense['nonzeros']:,}"),
        ("Metric", f"{best['metric']:.4g} (dense {dense['metric']:.4g})"),
        ("Tolerance", f"{config['max_drop']:g} in the metric's own units"),
        ("Trials", f"{len(trials)}"),
        ("Cost", f"{trials[-1].epochs} epochs, {duration(trials[-1].seconds)} of training"),
        ("Why it stopped", result["stop_reason"]),
    ]


def _outcomes(result: JsonObject, trials: Sequence[TrialRecord]) -> list[Outcome]:
    """All that was measured, the densest first."""
    front = {_place(point): point for point in result["front"]}
    measured: list[tuple[JsonObject, str, bool | None]] = [
        (trial.to_json(), trial.trial, trial.within_tolerance)
        for trial in trials
        if trial.metric is not None
    ]
    measured += [(point, "front", None) for point in front.values()]
    found: dict[Place, Outcome] = {}
    for point, trial, within in measured:
        role = "front" if _place(point) in front else "tried"
        role = "chosen" if _place(point) == _place(result["best"]) else role
        role = "dense" if trial == "dense" else role
        found.setdefault(_place(point), _outcome(point, trial, role, within))
    return sorted(found.values(), key=lambda each: (-each.nonzeros, each.role != "dense"))


def _place(point: JsonObject) -> Place:
    return point["nonzeros"], point["metric"]


def _outcome(point: JsonObject, trial: str, role: str, within: bool | None) -> Outcome:
    return Outcome(
        name={"tried": trial}.get(role, role),
        nonzeros=point["nonzeros"],
        density_percent=100 * point["density"],
        score=point["metric"],
        role=role,
        within=within,
    )


def _start(folder: Path) -> State | None:
    if not (folder / "start.pt").exists():
        return None
    state: State = unpack(read_snapshot(folder / "start.pt")["packed"])
    return state
