"""What a budget is."""

from __future__ import annotations

from dataclasses import dataclass

from asterism.experiments.methods import Method

NOISE, GREEDY = "figure1_noise", "figure1_greedy"
"""The runs behind the halves of Figure 1: no cut, so no rows of the table."""


@dataclass(frozen=True)
class Budget:
    """The methods of one budget by their key, and how much data they see."""

    methods: dict[str, Method]
    train_images: int | None = None
    batch_size: int = 128
    model: str = "lenet5"
