/* What convolutions and poolings of up to three dimensions have in common. */

#include "geometry.h"

#include "operations.h"

bool geometry_of(const Node *node, const Value *input, const Weight *weight, Geometry *g)
{
    const double *s = node->settings;
    int op = node->op, axes = input->rank - 1;
    if (!weight->shape || weight->rank != input->rank + 1 || axes < 1 || axes > 3 || !weight->size)
        return false;
    if ((op == OP_CONV && axes > 2) || (op == OP_CONV3D && axes < 3)) return false;
    *g = (Geometry){.groups = (int64_t)s[op == OP_CONV ? CONV_GROUPS : CONV3D_GROUPS],
                    .transposed = op == OP_CONV_TRANSPOSE};
    if (g->groups < 1) return false;
    g->outputs = weight->shape[0], g->channels = weight->shape[1];
    if (g->transposed) {
        if (g->outputs % g->groups) return false;
        g->channels = weight->shape[0] / g->groups, g->outputs = weight->shape[1] * g->groups;
    }
    for (int axis = 0; axis < 3; axis++) {
        int own = axis - (3 - axes), pair = axis - 1;
        g->before[axis] = own < 0 ? 1 : input->shape[1 + own];
        g->window[axis] = own < 0 ? 1 : weight->shape[2 + own];
        g->stride[axis] = g->dilation[axis] = 1;
        if (op == OP_CONV && pair >= 0) {
            g->padding[axis] = (int64_t)s[CONV_PADDING_H + pair];
            g->stride[axis] = (int64_t)s[CONV_STRIDE_H + pair];
            g->dilation[axis] = (int64_t)s[CONV_DILATION_H + pair];
        } else if (op != OP_CONV) {
            g->padding[axis] = (int64_t)s[CONV3D_PADDING_D + axis];
            g->stride[axis] = (int64_t)s[CONV3D_STRIDE_D + axis];
            g->dilation[axis] = (int64_t)s[CONV3D_DILATION_D + axis];
            if (g->transposed) g->more[axis] = (int64_t)s[CONV_TRANSPOSE_OUTPUT_PADDING_D + axis];
        }
    }
    return true;
}

PoolAxis pool_axis(const Node *node, const Value *input, const Value *out, int axis)
{
    const double *s = node->settings;
    bool signal = input->rank == 2;
    PoolAxis found = {.size = signal && axis == 0 ? 1 : input->shape[signal ? 1 : 1 + axis],
                      .out = signal && axis == 0 ? 1 : out->shape[signal ? 1 : 1 + axis],
                      .dilation = 1};
    int op = node->op;
    if (op == OP_ADAPTIVE_AVG_POOL || op == OP_ADAPTIVE_MAX_POOL) {
        found.adaptive = true;
        return found;
    }
    found.kernel = (int64_t)s[MAX_POOL_KERNEL_H + axis];
    found.stride = (int64_t)s[MAX_POOL_STRIDE_H + axis];
    found.padding = (int64_t)s[MAX_POOL_PADDING_H + axis];
    if (!found.stride) found.stride = found.kernel;
    if (op == OP_MAX_POOL && found.kernel != 1)
        found.dilation = (int64_t)s[MAX_POOL_DILATION_H + axis];
    return found;
}

void pool_window(const PoolAxis *a, int64_t output, int64_t *first, int64_t *end, int64_t *padded)
{
    if (a->adaptive) {
        *first = output * a->size / a->out;
        *end = ((output + 1) * a->size + a->out - 1) / a->out;
        *padded = *end - *first;
        return;
    }
    int64_t begin = output * a->stride - a->padding,
            last = begin + a->dilation * (a->kernel - 1) + 1;
    *padded = (last < a->size + a->padding ? last : a->size + a->padding) - begin;
    /* The first that is inside of the image is a whole number of dilations away. */
    *first = begin < 0 ? begin + (-begin + a->dilation - 1) / a->dilation * a->dilation : begin;
    *end = last < a->size ? last : a->size;
    if (*end < *first) *end = *first;
}
