"""What a model's weights are, and which of them may be pruned.

targets      the parameters that are made sparse, and why the others are not
names        names of weights, and the glob patterns that choose among them
connections  the units that a weight connects: outputs, inputs, attention heads
wiring       which layer reads which
copies       copies of models, whatever they hold
partition    a weight divided into groups
metrics      non-zeros, densities, live units, kurtosis, error
macs         multiplications per example
sharding     a rank's part of a tensor, and sums over all parts
initial      whether weights are as PyTorch initialises them
noise        random numbers that do not depend on the sharding
"""
