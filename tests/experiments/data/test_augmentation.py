"""Changes of images: what they do, and that a generator decides it alone."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from asterism.experiments.data.augmentation import CROP_AND_FLIP, Both, Flip, Shift


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
