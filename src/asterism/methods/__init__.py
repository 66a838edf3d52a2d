"""Methods: recipes over `AffineScaling`. Each is a frozen dataclass of its own settings.

The contract: `recipe(model)` takes a model, trained unless the method is `Dense`, and gives the
optimizer that wraps it and the stages to train it through. Re-weighting, cutting and splicing all
happen through that one wrapper.
"""

from asterism.methods.affine_scaling import AffineScalingTransformation
from asterism.methods.dense import Dense
from asterism.methods.dns import DynamicNetworkSurgery
from asterism.methods.lwc import LearningWeightsAndConnections
from asterism.methods.magnitude import GradualMagnitude
from asterism.methods.polish import Polish, Then
from asterism.methods.recipe import Method, Recipe

__all__ = [
    "AffineScalingTransformation",
    "Dense",
    "DynamicNetworkSurgery",
    "GradualMagnitude",
    "LearningWeightsAndConnections",
    "Method",
    "Polish",
    "Recipe",
    "Then",
]
