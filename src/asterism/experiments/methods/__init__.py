"""Methods: ways to train, over `asterism.scaling`. Each is a frozen dataclass of its own settings.

The contract: `setup(model)` takes a model, trained unless the method is `from_scratch`, and gives
the optimizer that wraps it and the stages to train it through. Re-weighting, cutting and splicing
all happen through that one wrapper.

    ast        the paper's own method: re-weight, cut, retrain
    gradual_reweighting
               ours: the penalty pulls while the cut falls
    lwc        Han et al. 2015
    dns        Guo et al. 2016
    magnitude  Zhu & Gupta 2017, the control
    rigl       Evci et al. 2020, sparse from the first step
    dense      the reference network
    polish     further down from a sparse network
    regrowth   pruned weights that come back, and others that go
    method     the contract, and what a method hands to the training loop
"""

from asterism.experiments.methods.ast import AffineScalingTransformation
from asterism.experiments.methods.dense import Dense
from asterism.experiments.methods.dns import DynamicNetworkSurgery
from asterism.experiments.methods.gradual_reweighting import GradualReweighting
from asterism.experiments.methods.lwc import LearningWeightsAndConnections
from asterism.experiments.methods.magnitude import GradualMagnitude
from asterism.experiments.methods.method import Method, Setup
from asterism.experiments.methods.polish import OnAllImages, Polish, Then
from asterism.experiments.methods.regrowth import Regrowth
from asterism.experiments.methods.rigl import RiggedLottery

__all__ = [
    "AffineScalingTransformation",
    "Dense",
    "DynamicNetworkSurgery",
    "GradualMagnitude",
    "GradualReweighting",
    "LearningWeightsAndConnections",
    "Method",
    "OnAllImages",
    "Polish",
    "Regrowth",
    "RiggedLottery",
    "Setup",
    "Then",
]
