"""The network as a list of plain function calls, which the C file and the web page both make.

step        a call, its memory, and its tables
translate   what each operation asks the runtime's kernels for, as calls
weighted    layers with weights: convolutions, fully connected and recurrent layers
attend      attention
memory      where values lie, so that those which are never needed together overlap
portable    all of it: from a graph and its weights to the calls
quantised   the same in whole numbers of 8 bits
scales      the scale of each of its values, found on examples
eight_bits  its layers: the calls, and what they compute
dead        the network without its dead units
tables      numbers as few bytes
"""
