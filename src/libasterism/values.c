/* Pooling, norms, and two values that become one. */

#include <math.h>
#include <stdlib.h>

#include "functions.h"
#include "geometry.h"
#include "layers.h"
#include "operations.h"

bool make_windows(Report *report, const asterism_net *net, Node *node)
{
    const Value *in = input(net, node, 0), *out = &net->values[node->out];
    int op = node->op;
    bool average = op == OP_AVG_POOL || op == OP_ADAPTIVE_AVG_POOL;
    PoolAxis axes[2] = {pool_axis(node, in, out, 0), pool_axis(node, in, out, 1)};
    int64_t rows = axes[0].out, columns = axes[1].out;
    node->bounds = take(report, 2 * (size_t)(rows + columns), sizeof(int32_t));
    int64_t *long_ = take(report, (size_t)(rows + columns), sizeof *long_);
    node->table = average ? take(report, (size_t)(rows * columns), sizeof(float)) : NULL;
    bool fine = node->bounds && long_ && (node->table || !average);
    for (int64_t i = 0; fine && i < rows + columns; i++) {
        int64_t first, end, padded;
        pool_window(&axes[i >= rows], i < rows ? i : i - rows, &first, &end, &padded);
        node->bounds[2 * i] = small(first), node->bounds[2 * i + 1] = small(end);
        bool counted = op == OP_AVG_POOL && node->settings[AVG_POOL_COUNT_PADDING] != 0;
        long_[i] = counted ? padded : end - first;
    }
    double divisor = op == OP_AVG_POOL ? node->settings[AVG_POOL_DIVISOR] : 0;
    for (int64_t i = 0; fine && average && i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            double count = divisor != 0 ? divisor : (double)long_[i] * (double)long_[rows + j];
            node->table[i * columns + j] = count > 0 ? (float)(1 / count) : NAN;
        }
    free(long_);
    return fine;
}

void run_pool(const asterism_net *net, const Node *node, const float *x, float *y)
{
    const Value *in = input(net, node, 0), *out = &net->values[node->out];
    PoolAxis a = pool_axis(node, in, out, 0), b = pool_axis(node, in, out, 1);
    pool(x, y, node->table != NULL, small(in->shape[0]), small(a.size), small(b.size), small(a.out),
         small(b.out), small(a.dilation), small(b.dilation), node->bounds, plain(node->table));
}

/* Factors and shifts of a norm, where it has any. */
bool make_norm(Report *report, asterism_net *net, Node *node)
{
    int op = node->op, weights = node->operation->weights;
    Weight w[4] = {{0}};
    int64_t size = 0;
    for (int i = 0; i < weights; i++) {
        w[i] = weight_of(net, node, i);
        if (w[i].shape) size = w[i].size;
    }
    if (!size) return true;
    node->table = take(report, (size_t)size, sizeof(float));
    node->second = take(report, (size_t)size, sizeof(float));
    if (!node->table || !node->second) return false;
    for (int64_t i = 0; i < size; i++) {
        double factor = w[0].shape ? w[0].numbers[i] : 1, shift = w[1].shape ? w[1].numbers[i] : 0;
        if (op == OP_BATCH_NORM) {
            factor /= sqrt((double)w[3].numbers[i] + node->settings[BATCH_NORM_EPS]);
            shift -= w[2].numbers[i] * factor;
        }
        node->table[i] = (float)factor, node->second[i] = (float)shift;
    }
    return true;
}

void run_norm(const asterism_net *net, const Node *node, const float *x, float *y)
{
    const Value *out = &net->values[node->out];
    int op = node->op;
    int64_t channels = out->shape[0], length = out->size / channels, rows = 1, size = out->size;
    if (op == OP_GROUP_NORM) {
        rows = (int64_t)node->settings[GROUP_NORM_GROUPS];
        normalise(x, y, small(rows), small(size / rows), 0, (float)node->settings[GROUP_NORM_EPS]);
        x = y, rows = 1;
    } else if (op != OP_BATCH_NORM) {
        channels = product(out->shape, out->rank - (int)node->settings[LAYER_NORM_RANK], out->rank);
        length = 1, rows = size / channels;
        normalise(x, y, small(rows), small(channels), op == OP_RMS_NORM,
                  (float)node->settings[LAYER_NORM_EPS]);
        x = y;
    }
    if (node->table)
        scale(x, y, small(rows), small(channels), small(length), plain(node->table),
              plain(node->second));
}

static const int8_t WHICH[] = {[OP_ADD] = 0,     [OP_MUL] = 1,     [OP_SUB] = 2,   [OP_DIV] = 3,
                               [OP_MAXIMUM] = 4, [OP_MINIMUM] = 5, [OP_PRELU] = 6, [OP_EQUAL] = 7,
                               [OP_GREATER] = 8, [OP_KEEP] = 9};

/* Of each axis its size, and how far the next number of both values is. */
bool make_axes(Report *report, const asterism_net *net, Node *node)
{
    const Value *in = input(net, node, 0), *out = &net->values[node->out];
    bool is_prelu = node->op == OP_PRELU;
    const int64_t *other = is_prelu ? NULL : input(net, node, 1)->shape;
    int64_t steps[2] = {1, 1};
    node->bounds = take(report, 3 * (size_t)out->rank + 1, sizeof(int32_t));
    if (!node->bounds) return false;
    for (int i = out->rank - 1; i >= 0; i--) {
        int64_t size = out->shape[i],
                second = is_prelu ? (i ? 1 : weight_of(net, node, 0).size) : other[i];
        node->bounds[3 * i] = small(size);
        node->bounds[3 * i + 1] = in->shape[i] == size ? small(steps[0]) : 0;
        node->bounds[3 * i + 2] = second == size ? small(steps[1]) : 0;
        steps[0] *= in->shape[i], steps[1] *= second;
    }
    return true;
}

void run_two(const asterism_net *net, const Node *node, const float *a, const float *b, float *y)
{
    const Value *out = &net->values[node->out];
    int op = node->op;
    int64_t size = out->size;
    bool alike =
        op != OP_PRELU && input(net, node, 0)->size == size && input(net, node, 1)->size == size;
    if (alike && op == OP_ADD)
        for (int64_t i = 0; i < size; i++) y[i] = a[i] + b[i];
    else if (alike && op == OP_MUL)
        for (int64_t i = 0; i < size; i++) y[i] = a[i] * b[i];
    else
        combine(a, b, y, WHICH[op], 0, out->rank, small(size), node->bounds);
}
