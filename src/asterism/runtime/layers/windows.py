"""How a convolution reads its input, which is packed for it: kernels/layers/conv.h.

Owns the geometry of packed inputs; what is done with it is in `convolutions`.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from asterism.errors import FormatError
from asterism.graph.operations.convolution import by_place, live_inputs, live_outputs
from asterism.graph.operations.operation import image
from asterism.graph.stages import FusedLayer, Shape


def _first_level_cache() -> int:
    """Its bytes, where the system tells."""
    try:
        return os.sysconf("SC_LEVEL1_DCACHE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0


COLUMNS, LINE = 8, 16
MAX_PACKED = 2**30
CACHE = max(40_000, _first_level_cache())  # bytes that a tile's inputs may take
FEW_WEIGHTS = 24
SUMS = 16  # vectors that layers/conv_rows.h sums at once, at most

Indices = npt.NDArray[np.int32]


class Window(NamedTuple):
    """How a convolution reads its packed input, as kernels/layers/conv.h describes it.

    channels     that any weight reads; the others are not packed
    size, out    height and width of the image, and of the convolution's result
    phases       into how many images of every second, third, … row and column the input is sorted:
                 with a stride, neighbours in the result read numbers that are that far apart
    rows         lines in a strip of one phase
    strips       parts side by side into which the width is cut
    line         floats from one row of a strip to the next
    flat         whether all is one row, because places do not matter
    halo         columns that a strip holds beyond its own, for the kernel to reach
    step         columns from one strip to the next
    whole_rows   whether it is read by conv_rows.h, which shifts sums and not inputs
    left, right  columns of the kernel before and after the one that needs no shift
    """

    channels: Indices
    size: tuple[int, int]
    out: tuple[int, int]
    padding: tuple[int, int]
    stride: tuple[int, int]
    phases: tuple[int, int]
    rows: int
    strips: int
    line: int
    flat: bool
    halo: int
    step: int = COLUMNS
    whole_rows: bool = False
    left: int = 0
    right: int = 0

    @property
    def strip_pitch(self) -> int:
        return self.rows * self.line

    @property
    def phase_pitch(self) -> int:
        return self.strips * self.strip_pitch

    @property
    def plane(self) -> int:
        return self.phases[0] * self.phases[1] * self.phase_pitch

    @property
    def packed(self) -> int:
        return len(self.channels) * self.plane

    @property
    def tile(self) -> int:
        """Rows of outputs whose inputs stay in the first-level cache; even, and eight at least."""
        # A line of the result reads one of each channel and phase: this is how many fit the cache …
        lines = CACHE // (
            4 * self.line * max(1, len(self.channels) * self.phases[0] * self.phases[1])
        )
        # … of which the kernel's reach beyond the tile takes some.
        return max(8, (lines - (self.rows - self.out[0])) // 2 * 2)

    @property
    def units(self) -> int:
        """Groups of eight outputs in a channel."""
        return self.strips if self.flat else self.strips * self.out[0]


def window(layer: FusedLayer, in_shape: Shape, out_shape: Shape, by_rows: bool = False) -> Window:
    """How a convolution reads its input.

    in_shape, out_shape  of its input, and of its own result, before any pooling
    by_rows              for conv_rows.h, which wants the rows as they are
    """
    (_, *size), (_, *out) = image(in_shape), image(out_shape)
    extent = by_place(layer.weight).shape[2:]
    padding, stride, dilation = (layer.node.pair(n) for n in ("padding", "stride", "dilation"))
    if extent == (1, 1) and padding == (0, 0) and stride == (1, 1) and not by_rows:
        size, out = [1, size[0] * size[1]], [1, out[0] * out[1]]  # places do not matter
    # How far the kernel reaches: in rows and columns of the image, then of one phase.
    reach = [(k - 1) * d for k, d in zip(extent, dilation, strict=True)]
    rows, halo = out[0] + reach[0] // stride[0], reach[1] // stride[1]
    # Phases that no weight reads are left out.
    phases = [
        max((k * d) % s for k in range(n)) + 1
        for n, d, s in zip(extent, dilation, stride, strict=True)
    ]
    # Vectors are loaded anywhere in a line: with a halo, it is rounded up to whole ones.
    line = COLUMNS if halo == 0 else -(-(COLUMNS + halo) // LINE) * LINE
    found = Window(
        live_inputs(layer).astype(np.int32),
        (size[0], size[1]),
        (out[0], out[1]),
        padding,
        stride,
        (phases[0], phases[1]),
        rows,
        -(-out[1] // COLUMNS),
        line,
        flat=rows == 1,
        halo=halo,
    )
    if found.packed > MAX_PACKED:
        raise FormatError(f"layer {layer.place} (conv) is too large for the runtime")
    return found


def parts(layer: FusedLayer, at: Window, lanes: int) -> int:
    """Into how many parts layers/conv_rows.h should take the input channels.

    The fewest whose lines fit the cache, unless sums were then loaded for a handful of weights.
    """
    lines = SUMS * lanes // at.line + at.rows - at.out[0]
    size = 4 * at.line * lines * at.phases[0] * at.phases[1] * len(at.channels)
    weights = np.count_nonzero(layer.weight) / max(1, len(live_outputs(layer)))
    return int(max(1, min(-(-size // CACHE), weights // FEW_WEIGHTS)))


def by_rows(at: Window, lanes: int) -> Window | None:
    """The same in strips as wide as conv_rows.h takes, the least that hold the image; if it can."""
    # The column of the kernel that needs no shift is the one that reads its input where the result
    # is: `left` columns are before it, and their padding is not packed but shifted in.
    left = at.padding[1] // at.stride[1]
    if at.flat or left > at.halo:
        return None
    # A strip has to hold the result, and the input as far as the kernel reaches.
    data = (at.size[1] - 1 + at.padding[1]) // at.stride[1] + 1 - left
    width = max(at.out[1], min(at.out[1] + at.halo - left, data))
    # One, two or four vectors wide: whichever has the fewest numbers in all.
    found = []
    for line in (lanes, 2 * lanes, 4 * lanes):
        step = (line - at.halo - left % 2) // 2 * 2  # even, for pooling
        if width <= line or step > 0:
            strips = 1 if width <= line else 1 - (line - width) // step
            found.append((strips * line, line, strips, max(step, 1)))
    if not found:
        return None
    _, line, strips, step = min(found)
    wide = at._replace(
        padding=(at.padding[0], at.padding[1] - left * at.stride[1]),
        strips=strips,
        line=line,
        step=step,
        whole_rows=True,
        left=left,
        right=at.halo - left,
    )
    return None if wide.packed > MAX_PACKED else wide
