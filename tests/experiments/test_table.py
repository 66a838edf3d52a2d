import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from asterism.errors import InputError
from asterism.experiments import paper
from asterism.experiments.figure import _spread, build_figure1, figure1
from asterism.experiments.results import METHOD_NAMES
from asterism.experiments.table import table


def record(method: str = "reweighted_l1", seed: int = 0, **changes: Any) -> dict[str, Any]:
    return {
        "method": method,
        "seed": seed,
        "layers": {"conv1": 30.0, "conv2": 7.0, "fc1": 0.625, "fc2": 20.0},
        "density_percent": 1.25,
        "nonzeros": 5381,
        "test_error_percent": 1.0,
        "validation_error_percent": 1.1,
        "epochs": 40,
        "seconds": 12.5,
        "cut": "matched",
        "config": {"learning_rate": 0.1, "seed": seed},
        **changes,
    }


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]


# --- paper


def test_paper_totals_follow_from_its_layers() -> None:
    """A slip in a transcribed digit would break the agreement of layers and total."""
    weights = {"conv1": 500, "conv2": 25_000, "fc1": 400_000, "fc2": 5_000}
    for published in paper.TABLE_1.values():
        if published.density_percent is not None:
            kept = sum(weights[layer] * percent for layer, percent in published.layers.items())
            # The paper rounds: fc1, nine tenths of the weights, to 0.1 or to a whole percent.
            rounding = 0.5 if published.density_percent == 8 else 0.06
            assert kept / 430_500 == pytest.approx(published.density_percent, abs=rounding)


# --- table


def test_row_is_mean_and_sample_std_over_seeds() -> None:
    seeds = [
        record(
            seed=seed, test_error_percent=error, nonzeros=kept, layers={"fc": 2.0 * seed}, epochs=n
        )
        for seed, error, kept, n in [(1, 0.8, 1000, 40), (2, 1.0, 1001, 42), (3, 1.2, 1005, 40)]
    ]
    assert cells(table(seeds))[2] == [
        "Re-weighted ℓ1", "matched", "4.00", "1.25", "1,002", "1.00 ± 0.20", "3", "40–42",
    ]  # fmt: skip


def test_one_seed_has_no_std() -> None:
    assert cells(table([record()]))[2][-3:] == ["1.00", "1", "40"]


def test_paper_rows_hold_the_printed_figures() -> None:
    rows = cells(table([record(method) for method in METHOD_NAMES]))
    below = {ours[0]: theirs[2:] for ours, theirs in pairwise(rows) if theirs[0] == "*paper*"}
    assert {name: row[:5] + row[6:7] for name, row in below.items()} == {
        "Dense": ["–", "–", "–", "–", "–", "0.86"],
        "Re-weighted ℓ1": ["27.8", "6", "0.7", "18.6", "1.28", "1.16"],
        "Re-weighted ℓ2": ["50.4", "4.9", "0.9", "4.7", "1.26", "1.41"],
        "FOCUSS (p = 0.5)": ["67.6", "8.1", "1", "15", "1.7", "1.13"],
        "DNS": ["14.2", "3.1", "0.7", "4.3", "0.9", "0.91"],
        "LWC": ["66", "12", "8", "19", "8", "0.77"],
    }


def test_row_order_is_fixed_and_unknown_methods_come_last() -> None:
    methods = ["zeta", *reversed(METHOD_NAMES), "alpha"]
    names = [row[0] for row in cells(table([record(method) for method in methods]))[2:]]
    assert [name for name in names if name != "*paper*"] == [
        *METHOD_NAMES.values(),
        "alpha",
        "zeta",
    ]


def test_another_network_has_no_paper_row() -> None:
    text = table([record(layers={"fc1": 5.0, "fc2": 30.0})], caption="Digits, 10 epochs.")
    assert "paper" not in text
    assert text.endswith("|\n\nDigits, 10 epochs.")


def test_a_variant_that_is_no_density_is_named() -> None:
    rows = cells(table([record("magnitude@tuned"), record("magnitude@5")]))[2:]
    assert [row[0] for row in rows] == ["Magnitude pruning", "Magnitude pruning @tuned"]


def test_a_deep_network_has_no_column_for_each_layer() -> None:
    deep = {f"conv{number}": 5.0 for number in range(7)}
    header, _, row = cells(table([record(layers=deep)]))
    assert header == ["Method", "Cut", "Total %", "Non-zeros", "Test error %", "Seeds", "Epochs"]
    assert len(row) == len(header)


def test_other_data_have_no_paper_row() -> None:
    assert "paper" in table([record(config={"data": "mnist"})])
    assert "paper" not in table([record(config={"data": "digits"})])


def test_each_cut_has_its_own_row_above_one_paper_row() -> None:
    rows = cells(table([record(cut="threshold"), record(cut="matched")]))[2:]
    assert [row[:2] for row in rows] == [
        ["Re-weighted ℓ1", "matched"],
        ["Re-weighted ℓ1", "threshold"],
        ["*paper*", "–"],
    ]


@given(st.lists(st.sampled_from(["", "matched", "|θ| < 3σ", "閾値 0.01"]), min_size=1, unique=True))
def test_source_columns_are_aligned(cuts: list[str]) -> None:
    lines = table([record(cut=cut) for cut in cuts]).splitlines()
    borders = [
        [cell_len(line[:i]) for i, c in enumerate(line) if c == "|" and line[i - 1 : i] != "\\"]
        for line in lines
    ]
    assert all(border == borders[0] for border in borders)
    assert len(borders[0]) == 12


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"config": {"learning_rate": 0.2, "seed": 1}}, "focuss: .* differ in learning_rate"),
        ({"config": {"learning_rate": 0.1, "p": None}}, "focuss: .* differ in p;"),
        ({"layers": {"fc": 1.0}}, "focuss: expected layers conv1.*found fc"),
        ({"seed": 0}, "focuss: a seed is given twice"),
    ],
)
def test_unlike_runs_are_not_averaged(other: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        table([record("focuss", 0), record("focuss", **{"seed": 1, **other})])


def test_no_records() -> None:
    with pytest.raises(InputError, match="no result records"):
        table([])


# --- figure


def run(steps: int, growth: float) -> list[dict[str, Any]]:
    return [
        {
            "t": t,
            "validation_error_percent": 0.8 + 0.01 * (t % 3),
            "kurtosis": {"conv1": 2.6 * growth**t, "fc1": 3.1 * growth ** (2 * t)},
        }
        for t in range(steps + 1)
    ]


NOISE, GREEDY = run(30, 1.01), run(8, 1.3)


def test_panels_hold_the_data_given() -> None:
    a, c, b, d = build_figure1(NOISE, GREEDY).axes
    for points, above, below in ((NOISE, a, b), (GREEDY, c, d)):
        lines = {line.get_label(): line for line in (*above.get_lines(), *below.get_lines())}
        error = above.get_lines()[-1]
        assert list(error.get_xdata()) == [point["t"] for point in points]
        assert list(error.get_ydata()) == [point["validation_error_percent"] for point in points]
        for layer in ("conv1", "fc1"):
            expected = [point["kurtosis"][layer] for point in points]
            assert list(lines[layer].get_ydata()) == expected
        assert list(lines["Gaussian"].get_ydata()) == [3, 3]
        assert below.get_yscale() == "log"
        assert {text.get_text() for text in below.texts} == {"conv1", "fc1", "Gaussian"}
    assert [axes.get_title("left")[:7] for axes in (a, b, c, d)] == [
        "(a)  No", "(b)  No", "(c)  Gr", "(d)  Gr",
    ]  # fmt: skip
    assert a.get_ylim() == c.get_ylim()
    assert b.get_ylim() == d.get_ylim()


def test_same_input_same_bytes(tmp_path: Path) -> None:
    first, second = (figure1(NOISE, GREEDY, tmp_path / name) for name in ("first", "second"))
    assert [path.name for path in first] == ["figure1.svg", "figure1.png"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
    assert b"<dc:date>" not in first[0].read_bytes()


def test_a_full_disk_leaves_the_old_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    svg, _ = figure1(NOISE, GREEDY, tmp_path)
    before = svg.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InputError, match=r"cannot write .*figure1\.svg: No space left"):
        figure1(GREEDY, NOISE, tmp_path)
    assert svg.read_bytes() == before


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8).map(sorted))
def test_labels_are_spread_in_order(positions: list[float]) -> None:
    spread = _spread(positions, gap=0.07)
    assert all(above - below >= 0.07 - 1e-9 for below, above in pairwise(spread))
    if all(above - below >= 0.07 for below, above in pairwise(positions)):
        assert spread == pytest.approx(positions)


@pytest.mark.parametrize(
    ("noise", "greedy", "message"),
    [
        ([], GREEDY, "noise run has no points"),
        (NOISE, [], "greedy run has no points"),
        (NOISE, [{**GREEDY[0], "kurtosis": {"fc": 3.0}}], "expected layers conv1, fc1; found fc"),
    ],
)
def test_unusable_runs(noise: Any, greedy: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        figure1(noise, greedy, tmp_path)


def test_missing_matplotlib_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install '\S+\[reproduce\]'"):
        figure1(NOISE, GREEDY, tmp_path)
