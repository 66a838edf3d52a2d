"""The account of a reproduction: results.json, and a folder for each method and seed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from asterism.errors import InputError
from asterism.experiments.data import NAMES
from asterism.experiments.networks import MODELS, NETWORK_NAMES
from asterism.experiments.results import EpochRecord, History, MethodRow, RunResult, method_rows
from asterism.export.checkpoints import read_checkpoint
from asterism.report.published import published_for
from asterism.report.reading.account import Account, Network, Outcome, duration
from asterism.storage.atomic_files import read_json
from asterism.storage.provenance import Provenance
from asterism.weights.names import layer
from asterism.weights.wiring import Wiring, chain, wiring


def read_reproduction(folder: Path, results: Sequence[RunResult]) -> Account:
    """All rows of a folder."""
    return _account(folder, {_key(each): folder / _key(each) for each in results}, results)


def read_method(folder: Path, result: RunResult) -> Account:
    """One row, beside the dense network that it came from, if that is there."""
    above = folder.resolve().parent
    dense = above / f"dense-{result['seed']}"
    results = [result]
    if result["method"] != "dense" and (dense / "result.json").exists():
        results.insert(0, read_json(dense / "result.json"))
    return _account(above, {_key(result): folder}, results)


def _account(folder: Path, places: Mapping[str, Path], results: Sequence[RunResult]) -> Account:
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
    last = results[-1]
    model, data = (last["config"].get(each, "unknown") for each in ("model", "data"))
    network, images = NETWORK_NAMES.get(model, model), NAMES.get(data, data)
    return Account(
        title=f"{network} on {images}",
        summary=_summary(results),
        score_name="Test error (%)",
        outcomes=[_outcome(row) for row in rows],
        networks=networks,
        published=published_for(shapes, data),
        command=_command(folder),
        made=Provenance(last.get("date", ""), last.get("versions", {}), last.get("commit")),
    )


def _summary(results: Sequence[RunResult]) -> list[tuple[str, str]]:
    seconds = sum(record["seconds"] for record in results)
    threads = results[-1]["config"].get("threads", "?")
    return [
        ("Networks trained", f"{len(results)}"),
        ("Epochs", f"{sum(record['epochs'] for record in results):,}"),
        ("Time", f"{duration(seconds)} on {threads} thread{'s' * (threads != 1)}"),
        ("Seeds", ", ".join(str(seed) for seed in sorted({r["seed"] for r in results}))),
    ]


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
    before = None
    if (dense / "model.safetensors").exists():
        before = read_checkpoint(dense / "model.safetensors")
    weights = [name for name, tensor in after.items() if tensor.ndim > 1]
    model = record["config"].get("model")
    return Network(
        key=_key(record),
        name=f"{row.full_name}, seed {record['seed']}",
        weights=weights,
        after=after,
        wiring=_wiring(model, weights),
        before=before,
        history=_history(own, dense),
        config=record["config"],
        model=model,
        bench=read_json(own / "bench.json") if (own / "bench.json").exists() else [],
    )


def _wiring(model: str | None, weights: list[str]) -> Wiring:
    return wiring(MODELS[model](), weights) if model in MODELS else chain(weights)


def _history(own: Path, dense: Path) -> History:
    """One record per epoch; the dense network's last one is epoch 0."""
    history: History = []
    if (own / "history.json").exists():
        history = read_json(own / "history.json")
    if (dense / "history.json").exists():
        start: EpochRecord = read_json(dense / "history.json")[-1]
        start["epoch"] = 0
        history = [start, *history]
    return history


def _command(folder: Path) -> str | None:
    """The table's caption ends with it."""
    try:
        text = (folder / "table.md").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.findall(r"`(asterism [^`]+)`", text)
    return found[-1] if found else None
