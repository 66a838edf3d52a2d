"""`net.explain()`: the plan as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from asterism.runtime.library import LEVELS

if TYPE_CHECKING:
    from asterism.runtime.net import Net


def explain(net: Net, x: npt.NDArray[Any] | None) -> str:
    """One line per layer: kind, kernel, density, predicted and, given `x`, measured time."""
    if net._program is None:
        return "runs in numpy: no compiled kernels, or nothing to compute"
    many = x is not None and len(x) >= 4
    plan = net.plans[many]
    times: list[float] | None = None
    if x is not None and len(x):
        runs = [net.profile(np.ascontiguousarray(x, np.float32), many) for _ in range(5)]
        times = [float(time) for time in np.median(runs, axis=0) / len(x)]
    lines = [f"kernels: {LEVELS[net.level]}; {'blocks of 32 images' if many else 'single images'}"]
    lines += [f"{'layer':28} {'kernel':7} {'density':>8} {'predicted':>10} {'measured':>10}"]
    for layer in net.layers:
        choice = plan.choices.get(layer.place)
        kind = "–" if choice is None else "sparse" if choice.sparse else "dense"
        density = "" if choice is None else f"{100 * choice.density:.2f} %"
        predicted = "" if choice is None else f"{1e6 * choice.seconds:.2f} µs"
        measured = ""
        if times is not None:
            mine = sum(t for t, s in zip(times, plan.steps, strict=True) if s.layer is layer)
            measured = f"{1e6 * mine:.2f} µs"
        name = f"{layer.place} {layer.name}"
        lines.append(f"{name:28} {kind:7} {density:>8} {predicted:>10} {measured:>10}")
    return "\n".join(lines)
