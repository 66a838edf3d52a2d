"""Weights as small pictures: a layer's mask, the filters of a first convolution.

A picture is a PNG inside the page, a pixel per weight, see-through where there is nothing to show,
so that it suits a light and a dark page.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

LARGEST_MASK = 1 << 20
"""Weights; a picture of more is neither small nor readable."""
SMALLEST = 220
"""Pixels along the longer side; a smaller picture is shown enlarged."""
MOST_CHANNELS, MOST_FILTERS = 3, 64
RGB = 3

BLUE, ORANGE = (0, 114, 178), (213, 94, 0)  # Okabe and Ito's: positive and negative


class Picture(NamedTuple):
    """The address of an <img>, and the width to show it at in CSS pixels."""

    source: str
    width: int


def mask_picture(weight: Tensor) -> Picture | None:
    """Where the weights are: outputs down, inputs across; None for a large layer."""
    if weight.numel() > LARGEST_MASK or not weight.numel():
        return None
    alive = (weight != 0).flatten(1).numpy()
    pixels = np.zeros((*alive.shape, 4), np.uint8)
    pixels[alive] = (*BLUE, 255)
    return _png(pixels)


def filter_picture(weight: Tensor, reach: float) -> Picture | None:
    """Each filter as a tile. Over colour images in their colours, grey for zero; over others blue
    above zero and orange below, input channels below one another.

    None for what is no convolution over a picture. Strength is relative to `reach`.
    """
    if weight.ndim != 4 or weight.shape[1] > MOST_CHANNELS or min(weight.shape[2:]) < 2:
        return None
    filters = weight.detach().float().numpy()[:MOST_FILTERS]
    if filters.shape[1] == RGB:
        return _png(_tiles([[_in_their_colours(each, reach)] for each in filters]))
    return _png(_tiles([[_by_sign(values, reach) for values in each] for each in filters]))


def _tiles(filters: Sequence[Sequence[NDArray[np.uint8]]]) -> NDArray[np.uint8]:
    """The tiles of each filter below one another, ten filters side by side, a pixel apart."""
    across, channels = min(len(filters), 10), len(filters[0])
    height, width = filters[0][0].shape[:2]
    down = -(-len(filters) // across) * channels
    pixels = np.zeros((down * (height + 1) - 1, across * (width + 1) - 1, 4), np.uint8)
    for number, tiles in enumerate(filters):
        for channel, tile in enumerate(tiles):
            top = (number // across * channels + channel) * (height + 1)
            left = number % across * (width + 1)
            pixels[top : top + height, left : left + width] = tile
    return pixels


def _in_their_colours(values: NDArray[np.float32], reach: float) -> NDArray[np.uint8]:
    """(3, height, width) as red, green and blue; nearly see-through where all three are zero."""
    colours = 128 + 127 * np.clip(values / (reach or 1.0), -1, 1).transpose(1, 2, 0)
    pixels = np.full((*values.shape[1:], 4), 255, np.uint8)
    pixels[..., :3] = colours.round()
    pixels[..., 3] = np.where((values == 0).all(0), 20, 255)
    return pixels


def _by_sign(values: NDArray[np.float32], reach: float) -> NDArray[np.uint8]:
    pixels = np.zeros((*values.shape, 4), np.uint8)
    pixels[..., :3] = np.where((values > 0)[..., None], BLUE, ORANGE)
    strength = np.clip(np.abs(values) / (reach or 1.0), 0, 1)
    pixels[..., 3] = np.where(values == 0, 20, 45 + 210 * strength)
    pixels[values == 0, :3] = 128
    return pixels


def _png(pixels: NDArray[np.uint8]) -> Picture:
    from matplotlib.image import imsave

    content = io.BytesIO()
    unsigned: Any = {"Software": None}  # the same bytes from every version of matplotlib
    imsave(content, pixels, format="png", metadata=unsigned)
    source = "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()
    rows, columns = pixels.shape[:2]
    return Picture(source, columns * max(1, SMALLEST // max(rows, columns)))
