"""Result records as a Markdown table, each method above the paper's own figures.

Owns the layout. The rows and their order are those of `results`, the paper's numbers in `paper`.
"""

from collections.abc import Sequence
from itertools import groupby
from statistics import fmean

from rich.cells import cell_len

from asterism.errors import InputError
from asterism.experiments.paper import LAYERS, TABLE_1, Published
from asterism.experiments.results import MethodRow, RunResult, method_rows

TEXT_COLUMNS = 2  # method and cut; the rest are numbers, aligned right
NONE = "–"
MOST_LAYERS = 6  # with a column each; of deeper networks the total alone


def table(records: Sequence[RunResult], *, caption: str = "") -> str:
    """A row per method and cut, averaged over seeds; error as mean ± sample std.

    A *paper* row follows where the paper has the method, and layers and data are the paper's.

    >>> record = {"method": "dns", "cut": "none", "seed": 0, "layers": {"fc": 4.0}, "config": {},
    ...           "density_percent": 4.0, "nonzeros": 1200, "test_error_percent": 0.9, "epochs": 5}
    >>> print(table([record]))
    | Method | Cut  | fc % | Total % | Non-zeros | Test error % | Seeds | Epochs |
    | :----- | :--- | ---: | ------: | --------: | -----------: | ----: | -----: |
    | DNS    | none | 4.00 |    4.00 |     1,200 |         0.90 |     1 |      5 |
    """
    if not records:
        raise InputError("no result records to tabulate")
    layers, data = list(records[0]["layers"]), records[0]["config"].get("data", "mnist")
    shown = layers if len(layers) <= MOST_LAYERS else []
    percents = [f"{layer} %" for layer in (*shown, "Total")]
    rows = [["Method", "Cut", *percents, "Non-zeros", "Test error %", "Seeds", "Epochs"]]
    for method, cuts in groupby(method_rows(records), key=lambda row: row.method):
        for row in cuts:
            _check_comparable(row.method, row.seeds, layers)
            rows.append(_our_row(row, shown))
        published = TABLE_1.get("reference" if method == "dense" else method)
        if published and set(layers) == set(LAYERS) and data == "mnist":
            rows.append(_paper_row(published, layers))
    return _markdown(rows) + (f"\n\n{caption}" if caption else "")


def _our_row(row: MethodRow, layers: Sequence[str]) -> list[str]:
    spread = "" if row.spread is None else f" ± {row.spread:.2f}"
    epochs = sorted({result["epochs"] for result in row.seeds})
    return [
        row.table_name,
        row.cut or NONE,
        *(f"{fmean(result['layers'][layer] for result in row.seeds):.2f}" for layer in layers),
        f"{row.density_percent:.2f}",
        f"{row.nonzeros:,.0f}",
        f"{row.error_percent:.2f}{spread}",
        str(len(row.seeds)),
        f"{epochs[0]}" if len(epochs) == 1 else f"{epochs[0]}–{epochs[-1]}",
    ]


def _paper_row(published: Published, layers: Sequence[str]) -> list[str]:
    percents = [*(published.layers.get(layer) for layer in layers), published.density_percent]
    # As printed: no digit the paper does not give.
    cells = [NONE if percent is None else f"{percent:g}" for percent in percents]
    return ["*paper*", NONE, *cells, NONE, f"{published.test_error_percent:g}", NONE, NONE]


def _check_comparable(method: str, records: Sequence[RunResult], layers: Sequence[str]) -> None:
    """Refuse a mean over anything but distinct seeds of one configuration and network."""
    first = records[0]["config"]
    for record in records:
        if set(record["layers"]) != set(layers):
            found = ", ".join(record["layers"])
            raise InputError(f"{method}: expected layers {', '.join(layers)}; found {found}")
        config = record["config"]
        clash = {
            key
            for key in {*first, *config} - {"seed"}
            if (key in first, first.get(key)) != (key in config, config.get(key))
        }
        if clash:
            raise InputError(
                f"{method}: seeds {records[0]['seed']} and {record['seed']} differ in "
                f"{', '.join(sorted(clash))}; average only runs of one configuration"
            )
    seeds = [record["seed"] for record in records]
    if len(set(seeds)) < len(seeds):
        raise InputError(f"{method}: a seed is given twice among {sorted(seeds)}")


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    """Pad to the width on screen, so that the source reads as a table too."""
    header, *body = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(header, *body, strict=True)]
    rule = [
        ":" + "-" * (width - 1) if index < TEXT_COLUMNS else "-" * (width - 1) + ":"
        for index, width in enumerate(widths)
    ]
    return "\n".join(_line(row, widths) for row in (header, rule, *body))


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = []
    for index, (cell, width) in enumerate(zip(row, widths, strict=True)):
        padding = " " * (width - cell_len(cell))
        cells.append(cell + padding if index < TEXT_COLUMNS else padding + cell)
    return f"| {' | '.join(cells)} |"
