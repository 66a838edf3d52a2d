"""A run as one HTML page that needs nothing else: no network, no script, no other file.

Owns what the page holds and in which order. The numbers are those of `reading` and `layers`, the
pictures those of `drawing`, the looks are in page.html, page.css and page.js.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.resources import files
from pathlib import Path

from asterism import __version__
from asterism.errors import missing
from asterism.export.dense_engines import Timing
from asterism.report.drawing.course import draw_course, draw_search
from asterism.report.drawing.diagram import draw_diagram
from asterism.report.drawing.histogram import draw_histogram
from asterism.report.drawing.pictures import Picture, filter_picture, mask_picture
from asterism.report.drawing.trade_off import describe_outcome, draw_trade_off
from asterism.report.headline import headline
from asterism.report.layers import LayerSummary, Size, measure
from asterism.report.reading.account import Account, JsonObject, Network
from asterism.report.reading.folder import read_account
from asterism.report.tables import layers_table, points_table, trials_table
from asterism.weights.names import layer

MOST_LAYERS = 24
"""The most layers, the largest, that get drawings of their own; the table has them all."""


@dataclass(frozen=True)
class LayerView:
    """The drawings of one layer.

    name       of the layer
    row        its line of the table
    histogram  of its weights, as SVG
    mask       where weights are left
    filters    of a convolution, a picture each for before and after
    """

    name: str
    row: LayerSummary
    histogram: str
    mask: Picture | None
    filters: dict[str, Picture]


@dataclass(frozen=True)
class NetworkView:
    """One network as the page shows it.

    key      with which the ids of its drawings begin
    name     of the network
    diagram  its layers and what they read, as SVG
    course   of its training, as SVG, where there is a history
    rows     of the table of its layers
    table    the address at which they are to be had as CSV
    size     in memory and in a file
    layers   the drawings of each layer
    bench    what `asterism bench --json` has measured
    config   its settings as text
    """

    key: str
    name: str
    diagram: str
    course: str | None
    rows: list[LayerSummary]
    table: str
    size: Size
    layers: list[LayerView]
    bench: list[Timing]
    config: str


def render(folder: Path) -> str:
    """The page of a run's folder."""
    try:
        import matplotlib.image  # noqa: F401  # said before anything is read, not half-way
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise missing("a report needs jinja2 and matplotlib", "report") from error
    account = read_account(folder)
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["describe"] = describe_outcome
    networks = [_view(network) for network in account.networks]
    return environment.from_string(_part("page.html")).render(
        account=account,
        headline=headline(account, _size_of_best(account, networks)),
        date=_date(account.made.date),
        networks=networks,
        layer_names=_layer_names(networks),
        trade_off=draw_trade_off(account),
        points_table=points_table(account),
        search=draw_search(account) if account.trials else None,
        trials_table=trials_table(account.trials),
        outcomes=_points_to_slide_over(account),
        version=__version__,
        css=_part("page.css"),
        js=_part("page.js"),
    )


def _part(name: str) -> str:
    return files("asterism.report").joinpath(name).read_text(encoding="utf-8")


def _size_of_best(account: Account, networks: list[NetworkView]) -> Size | None:
    """Of the network in the headline; that of a search is the only one."""
    key = account.best.network if account.best else ""
    return next((each.size for each in networks if account.trials or each.key == key), None)


def _date(written: str) -> str:
    """
    >>> _date("2026-11-17T01:20:00+00:00")
    '17 November 2026, 01:20 UTC'
    """
    try:
        moment = datetime.fromisoformat(written).astimezone(timezone.utc)
    except ValueError:
        return ""  # an older folder, or one that was changed by hand
    return f"{moment.day} {moment:%B %Y, %H:%M} UTC"


def _view(network: Network) -> NetworkView:
    rows, size = measure(network)
    drawn = {row.name for row in sorted(rows, key=lambda row: -row.entries)[:MOST_LAYERS]}
    return NetworkView(
        key=network.key,
        name=network.name,
        diagram=draw_diagram(network.key, rows, network.wiring),
        course=draw_course(network.key, network.history) if network.history else None,
        rows=rows,
        table=layers_table(rows),
        size=size,
        layers=[
            _layer_view(network, name, row)
            for name, row in zip(network.weights, rows, strict=True)
            if row.name in drawn
        ],
        bench=network.bench,
        config=json.dumps(network.config, indent=2),
    )


def _layer_view(network: Network, name: str, row: LayerSummary) -> LayerView:
    after = network.after[name]
    before = None if network.before is None else network.before.get(name)
    states = {"after": after} if before is None else {"before": before, "after": after}
    pictures = {
        label: filter_picture(weight, float(weight.abs().max()))
        for label, weight in states.items()
        if name == network.weights[0]
    }
    return LayerView(
        name=layer(name),
        row=row,
        histogram=draw_histogram(network.key, layer(name), before, after),
        mask=mask_picture(after),
        filters={label: picture for label, picture in pictures.items() if picture},
    )


def _layer_names(networks: list[NetworkView]) -> list[str]:
    return list(dict.fromkeys(view.name for network in networks for view in network.layers))


def _points_to_slide_over(account: Account) -> list[JsonObject]:
    """What the slider passes: the points but those that lost, from many weights to few."""
    shown = [
        {
            "mark": f"trade-off-outcome-{number}",
            "text": describe_outcome(each),
            "weights": each.nonzeros,
            "network": each.network,
            "chosen": each.role == "chosen",
        }
        for number, each in enumerate(account.outcomes)
        if each.role != "tried"
    ]
    return sorted(shown, key=lambda point: -point["weights"])
