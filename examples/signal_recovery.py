"""The method's origin: a sparse signal from fewer measurements than it has entries, by FOCUSS.

    python examples/signal_recovery.py --out phase-transition.svg

A signal of N entries, K of them not zero, is measured M times, M < N. Of all signals that fit,
re-weighting walks from the one of least norm to a sparse one: theta ← omega ⊙ q with q the least
q that fits through omega. The picture shows how often the true signal comes out, over M/N and
K/M: certain in one corner, hopeless in the other, and a sharp border between.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from asterism import Focuss


def recover(matrix: Tensor, target: Tensor, penalty: Focuss, iterations: int = 20) -> Tensor:
    """Affine scaling: omega from theta, theta from the least q that fits."""
    theta = torch.linalg.pinv(matrix) @ target
    scale = theta.square().mean().sqrt()
    for _ in range(iterations):
        omega = penalty.omega(theta.abs(), scale)
        theta = omega * (torch.linalg.pinv(matrix * omega) @ target)
        penalty = replace(penalty, tau=max(penalty.tau / 10, 1e-9))
    return theta


def success(entries: int, measured: int, planted: int, tries: int, p: float) -> float:
    """The share of random signals that are found to one part in a thousand."""
    found = 0
    for seed in range(tries):
        generator = torch.Generator().manual_seed(seed)
        matrix = torch.randn(measured, entries, generator=generator, dtype=torch.float64)
        signal = torch.zeros(entries, dtype=torch.float64)
        places = torch.randperm(entries, generator=generator)[:planted]
        signal[places] = torch.randn(planted, generator=generator, dtype=torch.float64)
        guess = recover(matrix, matrix @ signal, Focuss(p, tau=1.0, classical=True))
        found += bool((guess - signal).norm() < 1e-3 * signal.norm())
    return found / tries


def draw(shares: list[list[float]], ratios: list[float], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 4), layout="constrained")
    axes = figure.subplots()
    edges = [ratio - (ratios[1] - ratios[0]) / 2 for ratio in ratios] + [
        ratios[-1] + (ratios[1] - ratios[0]) / 2
    ]
    image = axes.pcolormesh(edges, edges, shares, vmin=0, vmax=1, cmap="viridis")
    axes.set(xlabel="measurements / entries", ylabel="non-zeros / measurements")
    figure.colorbar(image, label="recovered")
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="seconds, to see that it works")
    parser.add_argument("--p", type=float, default=0.5, help="the norm; lower is less convex")
    parser.add_argument("--out", type=Path, default=Path("phase-transition.svg"))
    options = parser.parse_args()
    entries, tries, steps = (24, 4, 4) if options.quick else (60, 20, 12)

    ratios = [(step + 0.5) / steps for step in range(steps)]
    shares = []
    for sparse in ratios:
        row = []
        for fraction in ratios:
            measured = max(1, round(fraction * entries))
            planted = max(1, round(sparse * measured))
            row.append(success(entries, measured, planted, tries, options.p))
        shares.append(row)
    for sparse, row in zip(ratios[::-1], shares[::-1], strict=True):
        print(f"{sparse:.2f} " + " ".join(f"{100 * share:3.0f}" for share in row))
    print("     " + " ".join(f"{ratio:.1f}" for ratio in ratios) + "  (% recovered)")
    draw(shares, ratios, options.out)
    print(f"drawn in {options.out}")


if __name__ == "__main__":
    main()
