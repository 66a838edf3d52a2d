"""The compiled code, in C, and the one place that loads it.

    library    the shared library, by ctypes
    layers/    the runtime's kernels: convolutions over packed inputs (conv), by rows, columns,
               planes or places (conv_rows, conv_columns, conv_planes, conv_places) and weight by
               weight (taps), with what they share (shared_loads), and in whole numbers
               (sixteen_bits); fully connected layers (fc);
               pooling_and_elementwise, broadcasting, attention, recurrent with its covering (and
               matching), and plain ones
    training/  forward and backward through the non-zero weights (convolution, frame, sums), or all
               of them (dense, winograd), batch norm and pooling (layers), and what all share
               (training, memory); of the optimizer: theta = q ⊙ omega (q_space), the proximal
               step (shrink), the cut (selection)
    codec/     the file format's small mode (stream, mixing), and the fast mode's scan

run.c runs a program over a batch, program.h says what a program is, and threads.c has several
threads share it. portable.c, avx2.c, avx512vl.c and avx512.c compile kernels.h, and with it every
layer, for one kind of processor each; levels.c tells which of them this one is.
"""
