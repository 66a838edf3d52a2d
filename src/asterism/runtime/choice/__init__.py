"""Which kernel each layer takes: predicted, and measured where that was asked for.

cost         sparse or dense? What each layer would cost
machine      what is known of this machine
calibration  how fast the kernels are on it, measured once
tuning       the fastest kernel for each layer of a network, measured
"""
