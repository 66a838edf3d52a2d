"""ResNet-8 on CIFAR-10."""

from __future__ import annotations

from asterism.experiments.budgets.budget import Budget
from asterism.experiments.data.augmentation import CROP_AND_FLIP
from asterism.experiments.methods import Dense

CIFAR10 = Budget(
    {"dense": Dense(epochs=40, lr=0.1, weight_decay=2e-4, augment=CROP_AND_FLIP)},
    model="resnet8",
)
