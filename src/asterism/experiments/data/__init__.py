"""The images that the experiments train on, decoded once and held in memory.

mnist         MNIST, or scikit-learn's digits, in three splits
augmentation  changes of the images of a batch
"""
