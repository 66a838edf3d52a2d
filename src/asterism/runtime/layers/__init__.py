"""How convolutions, recurrent and sparse layers are laid out for their kernels.

convolutions    the steps of convolutions
packed_rows     those of convolutions by whole rows, whose results lie packed
whole_channels  those of convolutions over whole channels
plane_values    values that lie for them, or are another's numbers at other places
cuts            which rows and columns are copied for that
places          dense convolutions place by place
planes          channels with zeros between their rows, and weights for them
recurrence      the steps of recurrent layers, and of linear ones over rows
covering        sparse recurrent matrices in few steps
windows         how a convolution reads its packed input
packing         weights in the order in which the kernels read them
"""
