"""Running a saved network without torch: numpy in, numpy out, sparse kernels in between."""

from asterism.runtime.net import Net, load

__all__ = ["Net", "load"]
