"""Names beside the points of a drawing, none over another."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE = 8.0  # of the letters, in points
GAPS = (6.0, 22.0, 44.0)  # between a point and its name; from afar a line leads to it
# Where a name may stand, the best place first: (right of the point, above it), in −1, 0, 1.
SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1))


class Label(NamedTuple):
    """A point and what to write beside it."""

    x: float
    y: float
    text: str
    colour: str
    radius: float = 0.0  # of a mark that is larger than most


class Box(NamedTuple):
    """A rectangle, in points."""

    left: float
    bottom: float
    right: float
    top: float

    def meets(self, other: Box) -> bool:
        across = self.left < other.right and other.left < self.right
        return across and self.bottom < other.top and other.bottom < self.top

    def within(self, other: Box) -> bool:
        across = other.left <= self.left and self.right <= other.right
        return across and other.bottom <= self.bottom and self.top <= other.top


def label_points(
    axes: Axes, labels: Sequence[Label], others: Sequence[tuple[float, float]] = ()
) -> None:
    """Writes each name where it meets no point and no earlier name.

    axes    on which the points are drawn
    labels  names with their points
    others  points without a name
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.set_dpi(72)  # so that a pixel is a point
    figure.draw_without_rendering()
    inside = Box(*axes.get_window_extent().extents)
    places = [axes.transData.transform((label.x, label.y)) for label in labels]
    unnamed = [axes.transData.transform(point) for point in others]
    taken = [Box(x - 4, y - 4, x + 4, y + 4) for x, y in [*places, *unnamed]]
    for label, (x, y) in zip(labels, places, strict=True):
        for gap, (right, up) in product(GAPS, SIDES):
            box = _box(x, y, label.text, right, up, gap + label.radius)
            if box.within(inside) and not any(box.meets(other) for other in taken):
                taken.append(box)
                _write(axes, label, right, up, gap)
                break


def _box(x: float, y: float, text: str, right: int, up: int, gap: float) -> Box:
    """Where a name would be, its letters taken as somewhat wider than most."""
    width, height = 0.62 * SIZE * len(text), 1.2 * SIZE
    left = x + right * gap + (right - 1) / 2 * width
    bottom = y + up * gap + (up - 1) / 2 * height
    return Box(left, bottom, left + width, bottom + height)


def _write(axes: Axes, label: Label, right: int, up: int, gap: float) -> None:
    line = {"arrowstyle": "-", "color": label.colour, "linewidth": 0.6, "shrinkA": 1, "shrinkB": 4}
    axes.annotate(
        label.text,
        (label.x, label.y),
        xytext=(right * (gap + label.radius), up * (gap + label.radius)),
        textcoords="offset points",
        horizontalalignment={1: "left", 0: "center", -1: "right"}[right],
        verticalalignment={1: "bottom", 0: "center", -1: "top"}[up],
        fontsize=SIZE,
        color=label.colour,
        arrowprops=line if gap > GAPS[0] else None,
    )
