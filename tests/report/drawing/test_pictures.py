"""Pictures of weights, read back as pixels."""

from __future__ import annotations

import base64
import io

import numpy as np
import torch
from matplotlib.image import imread
from numpy.typing import NDArray

from asterism.report.drawing.pictures import BLUE, ORANGE, Picture, filter_picture


def pixels_of(picture: Picture | None) -> NDArray[np.uint8]:
    assert picture is not None
    content = base64.b64decode(picture.source.partition(",")[2])
    pixels: NDArray[np.uint8] = (imread(io.BytesIO(content), "png") * 255).round().astype(np.uint8)
    return pixels


def test_a_filter_over_colour_images_is_drawn_in_its_colours() -> None:
    """Red is positive in the first corner, blue negative in the second; the others are zero."""
    weight = torch.zeros(1, 3, 2, 2)
    weight[0, 0, 0, 0], weight[0, 2, 0, 1] = 1.0, -0.5
    pixels = pixels_of(filter_picture(weight, reach=1.0))
    assert pixels.shape == (2, 2, 4)
    assert pixels[0, 0].tolist() == [255, 128, 128, 255]
    assert pixels[0, 1].tolist() == [128, 128, 64, 255]
    assert (pixels[1, :, 3] < 40).all()


def test_filters_over_grey_images_are_drawn_by_their_sign_ten_in_a_row() -> None:
    weight = torch.ones(11, 1, 2, 2)
    weight[10] = -1
    pixels = pixels_of(filter_picture(weight, reach=1.0))
    assert pixels.shape == (5, 29, 4)
    assert tuple(pixels[0, 0, :3]) == BLUE
    assert tuple(pixels[3, 0, :3]) == ORANGE
    assert not pixels[2].any()  # between the rows
    assert not pixels[3:, 3:].any()  # where there is no filter


def test_what_is_no_picture_is_not_drawn() -> None:
    assert filter_picture(torch.ones(4, 16, 3, 3), 1.0) is None
    assert filter_picture(torch.ones(4, 3, 1, 1), 1.0) is None
