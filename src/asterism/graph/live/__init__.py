"""Training through the non-zero weights alone, layer by layer.

plan         from a graph to calls
chain        convolutions that follow each other, as one layer for autograd
convolution  how one moves over its input, and which kernels compute it
batch_norm   on the way from one convolution to the next
pooling      the largest of 2×2
blocks       images side by side, and the calls of the kernels
memory       what tensors are made in, again and again
plain        the layers without weights that torch computes
"""
