"""Training through the non-zero weights alone, layer by layer.

plan     from a graph to calls
layers   convolution, batch norm and pooling by the compiled kernels, for autograd
memory   what tensors are made in, again and again
plain    the layers without weights that torch computes
"""
