"""Running a saved network without torch: numpy in, numpy out, sparse kernels in between.

net           load() and the network that it gives
inputs        what a network takes, checked
sized         the network for inputs of certain sizes
lowering      the layers that really run: norms folded, activations drawn in
known_values  what depends on weights alone, computed once
program       from layers to steps
building      values in rows and in columns
layers        the steps of convolutions and recurrent layers, and their weights
steps         steps and their memory
sixteen_bits  convolutions in whole numbers of 16 bits
ranges        how large numbers become, on examples
choice        which kernel each layer takes, predicted or measured
explain       the plan as a table
reference     every operation in plain numpy
"""

from asterism.runtime.choice.calibration import calibrate
from asterism.runtime.net import Net, load

__all__ = ["Net", "calibrate", "load"]
