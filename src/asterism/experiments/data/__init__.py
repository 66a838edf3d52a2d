"""The images that the experiments train on, decoded once and held in memory.

loading       a dataset by its name
datasets      what a dataset is, and how it is split
mnist         MNIST
digits        scikit-learn's digits
cifar10       CIFAR-10
files         downloads, checked by their hashes
augmentation  changes of the images of a batch
"""

from asterism.experiments.data.datasets import Dataset, Split, with_validation
from asterism.experiments.data.loading import NAMES, load

__all__ = ["NAMES", "Dataset", "Split", "load", "with_validation"]
