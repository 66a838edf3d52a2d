"""Operations on images and volumes beyond the plain convolution.

taps      transposed convolutions, and those of three dimensions
resizing  to another height or width, by the nearest pixel or by interpolation
"""
