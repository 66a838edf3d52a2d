"""Changes of images: what they do, and that a generator decides it alone."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from asterism.experiments.data.augmentation import CROP_AND_FLIP, Both, Distort, Flip, Shift


def test_a_flip_mirrors_about_half_of_the_images_and_changes_no_other() -> None:
    images = torch.randn(400, 3, 4, 5)
    flipped = Flip()(images, torch.Generator().manual_seed(0))
    same = (flipped == images).flatten(1).all(1)
    mirrored = (flipped == images.flip(-1)).flatten(1).all(1)
    assert bool((same ^ mirrored).all())
    assert 150 < int(mirrored.sum()) < 250


def test_a_crop_is_a_window_of_the_padded_image_or_of_its_mirror_image() -> None:
    images = torch.randn(20, 3, 6, 6)
    changed = CROP_AND_FLIP(images, torch.Generator().manual_seed(1))
    for image, found in zip(images, changed, strict=True):
        padded = F.pad(image, [4] * 4)
        windows = [padded[:, i : i + 6, j : j + 6] for i in range(9) for j in range(9)]
        assert any(
            torch.equal(found, each) or torch.equal(found, each.flip(-1)) for each in windows
        )


def test_the_generator_decides() -> None:
    images, change = torch.randn(9, 1, 5, 5), Both(Flip(), Shift(1))
    first, second, other = (
        change(images, torch.Generator().manual_seed(seed)) for seed in (3, 3, 4)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_a_distortion_of_nothing_leaves_images_as_they_are() -> None:
    images = torch.randn(5, 2, 8, 6)
    same = Distort(degrees=0, stretch=0, slant=0, pixels=0)(images, torch.Generator())
    torch.testing.assert_close(same, images, rtol=0, atol=1e-5)


def test_a_turn_by_a_right_angle_is_that_of_torch() -> None:
    """The chance of a turn is between −1 and 1; the images are turned by hand by what was drawn."""
    images = torch.randn(1, 1, 7, 7)
    drawn = float(torch.rand(6, 1, generator=torch.Generator().manual_seed(3))[0] * 2 - 1)
    change = Distort(degrees=90 / drawn, stretch=0, slant=0, pixels=0)
    turned = change(images, torch.Generator().manual_seed(3))
    torch.testing.assert_close(turned, images.rot90(1, (2, 3)), rtol=0, atol=1e-4)


def test_each_image_is_distorted_in_its_own_way_within_its_bounds() -> None:
    """A picture that is brighter to the right: moved by a pixel at most, it changes by one step."""
    ramp = torch.arange(9.0).expand(64, 1, 9, 9).contiguous()
    moved = Distort(degrees=0, stretch=0, slant=0, pixels=1)(ramp, torch.Generator().manual_seed(0))
    by = (moved - ramp)[:, 0, 4, 4]
    assert float(by.abs().max()) <= 1 + 1e-5
    assert float(by.std()) > 0.4
