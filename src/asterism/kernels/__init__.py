"""The compiled code, in C, and the one place that loads it.

    library    the shared library, by ctypes
    layers/    the runtime's kernels: convolutions (conv, conv_rows, conv_columns), fully connected
               layers (fc), pooling and elementwise operations
    training/  forward and backward through the non-zero weights, or all of them by Winograd
    codec/     the file format's small mode

run.c runs a program over a batch, program.h says what a program is. portable.c, avx2.c and avx512.c
compile kernels.h, and with it every layer, for one kind of processor each.
"""
