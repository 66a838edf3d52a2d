"""Running a saved network without torch: numpy in, numpy out, sparse kernels in between.

net           load() and the network that it gives
inputs        what a network takes, checked
sized         the network for inputs of certain sizes
lowering      the layers that really run: norms folded, activations drawn in
program       from layers to steps
building      values in rows and in columns
layers        the steps of convolutions and recurrent layers, and their weights
steps         steps and their memory
cost          sparse or dense?
machine       what is known of this machine
calibration   how fast the kernels are on it, measured
tuning        the fastest kernel for each layer of a network, measured
explain       the plan as a table
reference     every operation in plain numpy
"""

from asterism.runtime.calibration import calibrate
from asterism.runtime.net import Net, load

__all__ = ["Net", "calibrate", "load"]
