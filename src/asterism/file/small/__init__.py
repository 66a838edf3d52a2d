"""The `small` codec: every bit counts, for networks of up to a few million weights.

codec      tensors ↔ bytes
streams    the items that a network is described by
reference  the stream in Python, which defines what is right
compiled   the same in C
positions  which elements are not zero
values     what the non-zero elements are: leading parts, and raw rests
indices    which entry of a table each element is
symbols    flags, numbers and text
units      rows and columns of a weight, and what earlier tensors tell of them
mixing     the probability of the next bit
ranges     the range coder
"""
