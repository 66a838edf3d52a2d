"""The paper's experiments as settings, by budget. Data, not code: one entry a table row.

budget       what a budget is
rows         forms that several budgets train
table1       the paper's table and figure
             smoke     seconds, on a few images: only shows that everything runs
             quick     what `make reproduce` runs, minutes
             standard  our numbers
             paper     the paper's literal protocol (raw omega, lam = 0, its schedule and its cut),
                       with its 1000 epochs per re-weighting divided by PAPER_FACTOR
comparisons  re-weighting beside the control
             tradeoff  from 10 % to 0.2 % non-zeros, at the same epochs
             ablation  re-weighted ℓ1 with one thing changed at a time, on LeNet-300-100
             forms     forms of re-weighting at 0.5 % of LeNet-300-100
records      as few weights as we can
             record    re-weighted ℓ1, then further cuts and long retraining
             lenet300  the other network of the benchmark, LeNet-300-100
cifar10      residual networks on CIFAR-10
             cifar10   ResNet-8
             resnet20  ResNet-20
"""

from __future__ import annotations

from asterism.errors import InputError
from asterism.experiments.budgets.budget import GREEDY, NOISE, Budget
from asterism.experiments.budgets.cifar10 import CIFAR10, RESNET20
from asterism.experiments.budgets.comparisons import ABLATION, FORMS, TRADEOFF
from asterism.experiments.budgets.records import LENET300, RECORD
from asterism.experiments.budgets.table1 import LENET5_WEIGHTS, PAPER, QUICK, SMOKE, STANDARD

__all__ = ["BUDGETS", "GREEDY", "LENET5_WEIGHTS", "NOISE", "Budget", "find"]

BUDGETS = {
    "smoke": SMOKE,
    "quick": QUICK,
    "standard": STANDARD,
    "paper": PAPER,
    "tradeoff": TRADEOFF,
    "ablation": ABLATION,
    "record": RECORD,
    "lenet300": LENET300,
    "forms": FORMS,
    "cifar10": CIFAR10,
    "resnet20": RESNET20,
}


def find(name: str) -> Budget:
    """The budget of this name, or an error that lists all names."""
    if name not in BUDGETS:
        raise InputError(f"unknown budget {name!r}: choose from {', '.join(BUDGETS)}")
    return BUDGETS[name]
