/* What convolutions and poolings of up to three dimensions have in common: shapes.c, run.c */

#ifndef ASTERISM_GEOMETRY_H
#define ASTERISM_GEOMETRY_H

#include "net.h"

/* A convolution over depth, height and width; what has fewer dimensions has sizes of 1. */
typedef struct {
    int64_t groups, outputs, channels; /* channels of a group */
    int64_t before[3], window[3], after[3], stride[3], padding[3], dilation[3], more[3];
    bool transposed;
} Geometry;

/* All but `after`; false where the weight does not fit the input's rank. */
bool geometry_of(const Node *node, const Value *input, const Weight *weight, Geometry *g);

/* The windows of a pooling along an axis: (first, one after the last) of each output, and how long
   each is with its padding. */
typedef struct {
    int64_t size, out, kernel, stride, padding, dilation;
    bool adaptive;
} PoolAxis;

PoolAxis pool_axis(const Node *node, const Value *input, const Value *out, int axis);
void pool_window(const PoolAxis *axis, int64_t output, int64_t *first, int64_t *end,
                 int64_t *padded);

#endif
