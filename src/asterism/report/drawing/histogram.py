"""How the weights of a layer are spread, before and after."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from asterism.report.drawing.svg import FAINT, SERIES, WIDTH, drawing

BINS = 81


def draw_histogram(key: str, name: str, before: Tensor | None, after: Tensor) -> str:
    """How the weights of a layer are spread, on a logarithmic count.

    key     with which the ids of the picture begin
    name    of the layer
    before  its weights before, where they are known
    after   its weights
    """
    tensors = {"after": after} if before is None else {"before": before, "after": after}
    reach = max(float(tensor.abs().max()) for tensor in tensors.values()) or 1.0
    edges = np.linspace(-reach, reach, BINS + 1)
    with drawing(WIDTH / 1.2, 2.2) as canvas:
        axes = canvas.figure.subplots()
        for (label, tensor), colour in zip(tensors.items(), (FAINT, SERIES[0]), strict=False):
            counts, _ = np.histogram(tensor.detach().float().flatten().numpy(), edges)
            axes.stairs(
                np.maximum(counts, 0.5),
                edges,
                baseline=0.5,
                fill=label == "after",
                color=colour,
                alpha=1.0 if label == "before" else 0.75,
                linewidth=1.3,
                label=label,
            )
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.5)
        axes.locator_params(axis="x", nbins=5)
        axes.set(xlabel="Weight", ylabel="Count")
        if before is not None:
            axes.legend(frameon=False, fontsize=8, loc="upper right")
        zeros = 100 * (1 - int(after.count_nonzero()) / max(after.numel(), 1))
        description = f"Histogram of the weights of {name}: {zeros:.2f} % are exactly zero after."
        return canvas.svg(f"histogram-{key}-{name}", description)
