"""One self-contained C99 file that computes a network.

source      the file and its header, from the calls
texts       tables and numbers as C
names       the name of the network's function
library     the functions in C that a file may need: functions/*.c
unrolling   layers as straight code, for speed
"""
