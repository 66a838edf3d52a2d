"""`net.explain()`: the plan as a table."""

from __future__ import annotations

from collections.abc import Sequence

from asterism.graph.stages import FusedLayer
from asterism.kernels.library import LEVELS
from asterism.runtime.sixteen_bits import is_short
from asterism.runtime.steps import KernelPlan


def explain(
    plan: KernelPlan,
    layers: Sequence[FusedLayer],
    level: int,
    many: bool,
    times: Sequence[float] | None,
) -> str:
    """One line per layer: kind, kernel, density, the time predicted and, if known, measured."""
    lines = [f"kernels: {LEVELS[level]}; {'blocks of 32 images' if many else 'single images'}"]
    lines += [f"{'layer':28} {'kernel':7} {'density':>8} {'predicted':>10} {'measured':>10}"]
    short = {step.layer.place for step in plan.steps if is_short(step)}
    predictions, measurements = 0.0, 0.0  # of the layers that have both
    for layer in layers:
        choice = plan.choices.get(layer.place)
        kind = "–" if choice is None else choice.kernel
        if choice is not None and layer.place in short:
            kind = "int16"
        density = "" if choice is None else f"{100 * choice.density:.2f} %"
        predicted = "" if choice is None else f"{1e6 * choice.seconds:.2f} µs"
        measured = ""
        if times is not None:
            mine = sum(
                t for t, s in zip(times, plan.steps, strict=True) if s.layer.place == layer.place
            )
            measured = f"{1e6 * mine:.2f} µs"
            if choice is not None:
                predictions, measurements = predictions + choice.seconds, measurements + mine
        name = f"{layer.place} {layer.name}"
        lines.append(f"{name:28} {kind:7} {density:>8} {predicted:>10} {measured:>10}")
    if measurements:
        both = f"{1e6 * predictions:>7.2f} µs {1e6 * measurements:>7.2f} µs"
        lines.append(f"{'layers with weights':28} {'':7} {'':>8} {both}")
    return "\n".join(lines)
