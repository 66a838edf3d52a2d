/* Layers: what each needs before the first example, where values lie, and how each computes. Sizes
   have been checked by shapes.c. Work is in proportion to the weights that are not zero. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "geometry.h"
#include "net.h"
#include "operations.h"

/* Functions of plain values, as exported C files have them. */
#define BYTE(p) (*(p))
#define FLOAT(p) (*(p))
#define INTEGER(p) (*(p))
typedef struct {
    const uint8_t *codes;
    const float *values;
    int bits;
} numbers;
static float sigmoid_of(float x) { return 1 / (1 + expf(-x)); }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include "../asterism/export/c/functions/reading.c"
#include "../asterism/export/c/functions/values.c"
#include "../asterism/export/c/functions/activations.c"
#pragma GCC diagnostic pop

static numbers plain(const float *values) { return (numbers){0, values, 0}; }

enum { ADDED, SHOWN, HIDDEN };
enum { NEAREST, LINEAR, ALIGNED, EXACT };

static int32_t small(int64_t size) { return (int32_t)size; } /* at most MAX_SIZE: see shapes.c */

static const Value *input(const asterism_net *net, const Node *node, int number)
{
    return &net->values[node->inputs[number]];
}

static int64_t product(const int64_t *shape, int from, int to)
{
    int64_t size = 1;
    for (int i = from; i < to; i++) size *= shape[i];
    return size;
}

/* A weight that running reads as it is. */
static const float *kept(asterism_net *net, const Node *node, int number)
{
    if (node->weights[number] >= 0) net->tensors.all[node->weights[number]].kept = true;
    return weight_of(net, node, number).numbers;
}

/* ------------------------------------------------------------------------------ matrices */

static bool make_sparse(Report *report, const Weight *weight, Sparse *made)
{
    int64_t rows = weight->shape[0], columns = weight->shape[1], count = 0;
    for (int64_t i = 0; i < weight->size; i++) count += weight->numbers[i] != 0;
    *made = (Sparse){rows, columns, take(report, (size_t)rows + 1, sizeof(int64_t)),
                     take(report, (size_t)count + 1, sizeof(int32_t)), take(report, (size_t)count + 1, sizeof(float))};
    if (!made->starts || !made->places || !made->numbers) return false;
    for (int64_t i = 0, k = 0; i < rows; i++, made->starts[i] = k)
        for (int64_t j = 0; j < columns; j++)
            if (weight->numbers[i * columns + j] != 0) {
                made->places[k] = small(j);
                made->numbers[k++] = weight->numbers[i * columns + j];
            }
    return true;
}

static void multiply(const Sparse *m, const float *x, const float *bias, float *y)
{
    for (int64_t i = 0; i < m->rows; i++) {
        float sum = bias ? bias[i] : 0;
        for (int64_t k = m->starts[i]; k < m->starts[i + 1]; k++) sum += m->numbers[k] * x[m->places[k]];
        y[i] = sum;
    }
}

static void run_linear(const asterism_net *net, const Node *node, const float *x, float *y)
{
    const Sparse *m = &node->matrices[0];
    const float *bias = weight_of(net, node, 1).numbers;
    int64_t rows = net->values[node->out].size / m->rows;
    for (; rows > 0; rows--, x += m->columns, y += m->rows) multiply(m, x, bias, y);
}

/* ------------------------------------------------------------------------------ convolutions */

static int64_t floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

static void find_sizes(const asterism_net *net, const Node *node, Geometry *g)
{
    const Value *in = input(net, node, 0), *out = &net->values[node->out];
    Weight weight = weight_of(net, node, 0);
    geometry_of(node, in, &weight, g);
    for (int axis = 0; axis < 3; axis++) {
        int own = axis - (4 - out->rank);
        g->after[axis] = own < 0 ? 1 : out->shape[1 + own];
    }
}

static bool make_spans(Report *report, Node *node, const Geometry *g)
{
    for (int axis = 0; axis < 3; axis++) {
        int64_t stride = g->stride[axis];
        int64_t from = g->transposed ? g->before[axis] : g->after[axis];
        int64_t to = g->transposed ? g->after[axis] : g->before[axis];
        node->spans[axis] = take(report, (size_t)g->window[axis], sizeof(Span));
        if (!node->spans[axis]) return false;
        for (int64_t k = 0; k < g->window[axis]; k++) {
            /* of the side that is counted one by one: i * stride + shift is a place of the other */
            int64_t shift = k * g->dilation[axis] - g->padding[axis];
            int64_t low = shift < 0 ? floor_div(-shift + stride - 1, stride) : 0;
            int64_t high = floor_div(to - 1 - shift, stride);
            if (high > from - 1) high = from - 1;
            Span *span = &node->spans[axis][k];
            span->count = high >= low ? high - low + 1 : 0;
            int64_t there = span->count ? low * stride + shift : 0, here = span->count ? low : 0;
            span->input = g->transposed ? here : there;
            span->output = g->transposed ? there : here;
        }
    }
    return true;
}

/* All weights that are not zero, those of an output together. */
static bool make_taps(Report *report, const asterism_net *net, Node *node)
{
    Geometry g;
    Weight weight = weight_of(net, node, 0);
    find_sizes(net, node, &g);
    int64_t count = 0, area = product(g.window, 0, 3), second = weight.shape[1];
    int64_t outputs = g.outputs / g.groups;
    for (int64_t i = 0; i < weight.size; i++) count += weight.numbers[i] != 0;
    node->taps = take(report, (size_t)count + 1, sizeof(Tap));
    node->starts = take(report, (size_t)g.outputs + 2, sizeof(int64_t));
    if (!node->taps || !node->starts || !make_spans(report, node, &g)) return false;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < weight.size; i++) {
            if (weight.numbers[i] == 0) continue;
            int64_t one = i / area / second, other = i / area % second, place = i % area;
            int64_t group = g.transposed ? one / g.channels : one / outputs;
            int64_t output = g.transposed ? group * outputs + other : one;
            int64_t channel = g.transposed ? one : group * g.channels + other;
            if (!pass) {
                node->starts[output + 2]++;
                continue;
            }
            node->taps[node->starts[output + 1]++] =
                (Tap){small(channel), {small(place / g.window[2] / g.window[1]),
                      small(place / g.window[2] % g.window[1]), small(place % g.window[2])}, weight.numbers[i]};
        }
        for (int64_t o = 0; !pass && o < g.outputs; o++) node->starts[o + 2] += node->starts[o + 1];
    }
    return true;
}

static void add_row(float *to, const float *from, float weight, int64_t count, int64_t out_step, int64_t in_step)
{
    if (out_step == 1 && in_step == 1)
        for (int64_t j = 0; j < count; j++) to[j] += weight * from[j];
    else
        for (int64_t j = 0; j < count; j++) to[j * out_step] += weight * from[j * in_step];
}

static void run_conv(const asterism_net *net, const Node *node, const float *x, float *y)
{
    Geometry g;
    find_sizes(net, node, &g);
    const float *bias = weight_of(net, node, 1).numbers;
    int64_t volume = product(g.before, 0, 3), area = product(g.after, 0, 3), in[3], out[3];
    for (int axis = 0; axis < 3; axis++) {
        in[axis] = g.transposed ? 1 : g.stride[axis];
        out[axis] = g.transposed ? g.stride[axis] : 1;
    }
    for (int64_t o = 0; o < g.outputs; o++, y += area) {
        for (int64_t i = 0; i < area; i++) y[i] = bias ? bias[o] : 0;
        for (int64_t k = node->starts[o]; k < node->starts[o + 1]; k++) {
            const Tap *tap = &node->taps[k];
            const float *plane = x + tap->channel * volume;
            Span a = node->spans[0][tap->place[0]], b = node->spans[1][tap->place[1]];
            Span c = node->spans[2][tap->place[2]];
            for (int64_t z = 0; z < a.count && c.count; z++)
                for (int64_t r = 0; r < b.count; r++) {
                    int64_t from = (a.input + z * in[0]) * g.before[1] + b.input + r * in[1];
                    int64_t to = (a.output + z * out[0]) * g.after[1] + b.output + r * out[1];
                    add_row(y + to * g.after[2] + c.output, plane + from * g.before[2] + c.input, tap->weight,
                            c.count, out[2], in[2]);
                }
        }
    }
}

/* ------------------------------------------------------------------------------ pooling, norms */

static bool make_windows(Report *report, const asterism_net *net, Node *node)
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

static void run_pool(const asterism_net *net, const Node *node, const float *x, float *y)
{
    const Value *in = input(net, node, 0), *out = &net->values[node->out];
    PoolAxis a = pool_axis(node, in, out, 0), b = pool_axis(node, in, out, 1);
    pool(x, y, node->table != NULL, small(in->shape[0]), small(a.size), small(b.size), small(a.out), small(b.out),
         small(a.dilation), small(b.dilation), node->bounds, plain(node->table));
}

/* Factors and shifts of a norm, where it has any. */
static bool make_norm(Report *report, asterism_net *net, Node *node)
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

static void run_norm(const asterism_net *net, const Node *node, const float *x, float *y)
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
        normalise(x, y, small(rows), small(channels), op == OP_RMS_NORM, (float)node->settings[LAYER_NORM_EPS]);
        x = y;
    }
    if (node->table)
        scale(x, y, small(rows), small(channels), small(length), plain(node->table), plain(node->second));
}

/* ------------------------------------------------------------------------------ two values */

static const int8_t WHICH[] = {[OP_ADD] = 0, [OP_MUL] = 1, [OP_SUB] = 2, [OP_DIV] = 3, [OP_MAXIMUM] = 4,
                               [OP_MINIMUM] = 5, [OP_PRELU] = 6, [OP_EQUAL] = 7, [OP_GREATER] = 8, [OP_KEEP] = 9};

/* Of each axis its size, and how far the next number of both values is. */
static bool make_axes(Report *report, const asterism_net *net, Node *node)
{
    const Value *in = input(net, node, 0), *out = &net->values[node->out];
    bool is_prelu = node->op == OP_PRELU;
    const int64_t *other = is_prelu ? NULL : input(net, node, 1)->shape;
    int64_t steps[2] = {1, 1};
    node->bounds = take(report, 3 * (size_t)out->rank + 1, sizeof(int32_t));
    if (!node->bounds) return false;
    for (int i = out->rank - 1; i >= 0; i--) {
        int64_t size = out->shape[i], second = is_prelu ? (i ? 1 : weight_of(net, node, 0).size) : other[i];
        node->bounds[3 * i] = small(size);
        node->bounds[3 * i + 1] = in->shape[i] == size ? small(steps[0]) : 0;
        node->bounds[3 * i + 2] = second == size ? small(steps[1]) : 0;
        steps[0] *= in->shape[i], steps[1] *= second;
    }
    return true;
}

static void run_two(const asterism_net *net, const Node *node, const float *a, const float *b, float *y)
{
    const Value *out = &net->values[node->out];
    int op = node->op;
    int64_t size = out->size;
    bool alike = op != OP_PRELU && input(net, node, 0)->size == size && input(net, node, 1)->size == size;
    if (alike && op == OP_ADD)
        for (int64_t i = 0; i < size; i++) y[i] = a[i] + b[i];
    else if (alike && op == OP_MUL)
        for (int64_t i = 0; i < size; i++) y[i] = a[i] * b[i];
    else
        combine(a, b, y, WHICH[op], 0, out->rank, small(size), node->bounds);
}

/* ------------------------------------------------------------------------------ moving */

/* From where each number comes: a step along each axis of the result, and the first place. */
static bool make_steps(Report *report, const asterism_net *net, Node *node)
{
    const Value *out = &net->values[node->out];
    int op = node->op;
    Weight weight = op == OP_CUT ? weight_of(net, node, 0) : (Weight){0};
    const int64_t *shape = op == OP_CUT ? weight.shape : input(net, node, 0)->shape;
    node->bounds = take(report, (size_t)out->rank + 1, sizeof(int32_t));
    if (!node->bounds) return false;
    for (int i = 0; i < out->rank; i++) {
        int from = op == OP_PERMUTE ? (int)node->list[i] - 1 : i;
        int64_t step = product(shape, from + 1, out->rank);
        if (op == OP_SLICE && i == (int)node->settings[SLICE_DIM] - 1) {
            int64_t start = (int64_t)node->settings[SLICE_START];
            node->start = (start < 0 ? start + shape[i] : start) * step;
            /* of one index the step is never taken, and may be far */
            step = out->shape[i] > 1 ? step * (int64_t)node->settings[SLICE_STEP] : 0;
        }
        if (op == OP_EXPAND && shape[i] != out->shape[i]) step = 0;
        node->bounds[i] = small(step);
    }
    return true;
}

static void run_steps(const asterism_net *net, const Node *node, const float *x, float *y)
{
    const Value *out = &net->values[node->out];
    int64_t index[MAX_RANK] = {0}, at = node->start;
    int last = out->rank - 1;
    int64_t length = last < 0 ? 1 : out->shape[last], step = last < 0 ? 0 : node->bounds[last];
    for (int64_t rows = out->size / length; rows > 0; rows--) {
        for (int64_t j = 0; j < length; j++) *y++ = x[at + j * step];
        for (int i = last - 1; i >= 0; i--) {
            at += node->bounds[i];
            if (++index[i] < out->shape[i]) break;
            at -= node->bounds[i] * out->shape[i];
            index[i] = 0;
        }
    }
}

static void run_pad(const asterism_net *net, const Node *node, const float *x, float *y)
{
    const Value *in = input(net, node, 0);
    int axis = (int)node->settings[PAD_DIM] - 1, mode = (int)node->settings[PAD_MODE];
    int64_t before = (int64_t)node->settings[PAD_BEFORE], after = (int64_t)node->settings[PAD_AFTER];
    int64_t outer = product(in->shape, 0, axis), size = in->shape[axis];
    int64_t inner = product(in->shape, axis + 1, in->rank);
    float filling = (float)node->settings[PAD_VALUE];
    for (; outer > 0; outer--, x += size * inner)
        for (int64_t i = -before; i < size + after; i++, y += inner) {
            int64_t at = i;
            if (i < 0) at = mode == 1 ? -i : mode == 2 ? 0 : i + size;
            if (i >= size) at = mode == 1 ? 2 * size - 2 - i : mode == 2 ? size - 1 : i - size;
            bool fills = mode == 0 && (i < 0 || i >= size);
            for (int64_t j = 0; j < inner; j++) y[j] = fills ? filling : x[at * inner + j];
        }
}

/* What a mask holds of a query and a key; its first rows and columns count. */
static float masked(const Weight *mask, int64_t head, int64_t row, int64_t column)
{
    int64_t rows = mask->shape[mask->rank - 2], columns = mask->shape[mask->rank - 1];
    if (mask->size == rows * columns) head = 0;
    return mask->numbers[(head * rows + row) * columns + column];
}

static void run_hide(const asterism_net *net, const Node *node, const float *x, float *y)
{
    const Value *in = input(net, node, 0);
    Weight mask = weight_of(net, node, 0);
    int64_t rows = in->shape[in->rank - 2], columns = in->shape[in->rank - 1];
    bool shown = node->settings[HIDE_MASK] == SHOWN;
    float filling = (float)node->settings[HIDE_FILL];
    for (int64_t h = 0; h < in->size / rows / columns; h++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++, x++) {
                bool stays = mask.shape ? (masked(&mask, h, i, j) != 0) == shown : j <= i;
                *y++ = stays ? *x : filling;
            }
}

static void run_cat(const asterism_net *net, const Node *node, const float *const *sources, float *y)
{
    const Value *out = &net->values[node->out];
    int axis = (int)node->settings[CAT_DIM] - 1;
    int64_t whole = product(out->shape, axis, out->rank), done = 0;
    for (int i = 0; i < node->count; i++) {
        const Value *in = input(net, node, i);
        int64_t part = product(in->shape, axis, in->rank);
        copy(sources[i], y, small(in->size / part), small(part), small(whole), small(done));
        done += part;
    }
}

/* ------------------------------------------------------------------------------ resizing */

/* For each new index two old ones, and the part that the second has. */
static bool make_sources(Report *report, const asterism_net *net, Node *node)
{
    int64_t old = input(net, node, 0)->shape[(int)node->settings[RESIZE_DIM] - 1];
    int64_t new = (int64_t)node->settings[RESIZE_SIZE];
    int mode = (int)node->settings[RESIZE_MODE];
    double given = node->settings[RESIZE_SCALE];
    float ratio = given != 0 ? (float)(1 / given) : (float)old / (float)new;
    if (mode == ALIGNED) ratio = new > 1 ? (float)(old - 1) / (float)(new - 1) : 0;
    node->bounds = take(report, 2 * (size_t)new, sizeof(int32_t));
    node->table = take(report, (size_t)new, sizeof(float));
    if (!node->bounds || !node->table) return false;
    for (int64_t i = 0; i < new; i++) {
        float at = ratio * (mode == LINEAR || mode == EXACT ? (float)i + 0.5f : (float)i);
        if (mode == LINEAR) at = at - 0.5f > 0 ? at - 0.5f : 0;
        int64_t low = at < (float)old ? (int64_t)at : old - 1, high;
        low = low < old - 1 ? low : old - 1, high = low + 1 < old - 1 ? low + 1 : old - 1;
        float part = at - (float)low;
        bool nearest = mode == NEAREST || mode == EXACT;
        node->table[i] = nearest || part < 0 ? 0 : part > 1 ? 1 : part;
        node->bounds[i] = small(low), node->bounds[new + i] = nearest ? small(low) : small(high);
    }
    return true;
}

static void run_resize(const asterism_net *net, const Node *node, const float *x, float *y)
{
    const Value *in = input(net, node, 0);
    int axis = (int)node->settings[RESIZE_DIM] - 1;
    int32_t new = (int32_t)node->settings[RESIZE_SIZE];
    resize(x, y, small(product(in->shape, 0, axis)), small(in->shape[axis]), new,
           small(product(in->shape, axis + 1, in->rank)), node->bounds, node->bounds + new, plain(node->table));
}

/* ------------------------------------------------------------------------------ sequences */

/* What a mask adds to scores. */
static bool make_mask(Report *report, const asterism_net *net, Node *node)
{
    Weight mask = weight_of(net, node, 0);
    int64_t rows = input(net, node, 0)->shape[0], columns = input(net, node, 1)->shape[0];
    node->scratch = columns;
    if (!mask.shape) return true;
    int64_t own = mask.shape[mask.rank - 2] * mask.shape[mask.rank - 1], heads = mask.size / own;
    node->table = take(report, (size_t)(heads * rows * columns), sizeof(float));
    if (!node->table) return false;
    int kind = (int)node->settings[ATTENTION_MASK];
    for (int64_t h = 0, k = 0; h < heads; h++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++, k++) {
                float found = masked(&mask, h, i, j);
                node->table[k] = kind == ADDED ? found : (found != 0) == (kind == SHOWN) ? 0 : -INFINITY;
            }
    node->start = heads > 1 ? rows * columns : 0;
    return true;
}

static void run_attention(const asterism_net *net, const Node *node, const float *const *x, float *y, float *scores)
{
    const Value *q = input(net, node, 0), *k = input(net, node, 1), *v = input(net, node, 2);
    int64_t heads = (int64_t)node->settings[ATTENTION_HEADS], width = q->shape[1] / heads;
    double given = node->settings[ATTENTION_SCALE];
    float factor = (float)(given != 0 ? given : 1 / sqrt((double)width));
    attention(x[0], x[1], x[2], y, scores, small(q->shape[0]), small(k->shape[0]), small(heads), small(width),
              small(v->shape[1] / heads), node->settings[ATTENTION_CAUSAL] != 0, node->table != NULL,
              small(node->start), factor, plain(node->table));
}

static bool make_recurrent(Report *report, asterism_net *net, Node *node)
{
    for (int i = 0; i < 8; i++) {
        Weight weight = weight_of(net, node, i);
        if (!weight.shape) continue;
        if (i % 4 > 1)
            kept(net, node, i);
        else if (!make_sparse(report, &weight, &node->matrices[i / 4 * 2 + i % 4]))
            return false;
    }
    node->scratch = 10 * node->matrices[1].columns;
    return true;
}

static void lstm_step(const float *given, const float *own, float *h, float *c, int64_t units)
{
    for (int64_t u = 0; u < units; u++) {
        float enter = sigmoid_of(given[u] + own[u]), forget = sigmoid_of(given[units + u] + own[units + u]);
        float fresh = tanhf(given[2 * units + u] + own[2 * units + u]);
        c[u] = forget * c[u] + enter * fresh;
        h[u] = sigmoid_of(given[3 * units + u] + own[3 * units + u]) * tanhf(c[u]);
    }
}

static void gru_step(const float *given, const float *own, float *h, int64_t units)
{
    for (int64_t u = 0; u < units; u++) {
        float reset = sigmoid_of(given[u] + own[u]), update = sigmoid_of(given[units + u] + own[units + u]);
        float fresh = tanhf(given[2 * units + u] + reset * own[2 * units + u]);
        h[u] = fresh + update * (h[u] - fresh);
    }
}

static void run_recurrent(const asterism_net *net, const Node *node, const float *const *x, float *y, float *scratch)
{
    const Value *in = input(net, node, 0);
    bool lstm = node->op == OP_LSTM;
    int directions = node->matrices[2].rows ? 2 : 1;
    int64_t units = node->matrices[1].columns, rows = node->matrices[1].rows, steps = in->shape[0];
    float *h = scratch, *c = h + units, *given = c + units, *own = given + rows;
    for (int d = 0; d < directions; d++) {
        const Sparse *m = &node->matrices[2 * d];
        const float *first = weight_of(net, node, 4 * d + 2).numbers, *second = weight_of(net, node, 4 * d + 3).numbers;
        for (int64_t u = 0; u < units; u++) {
            h[u] = node->count > 1 ? x[1][d * units + u] : 0;
            c[u] = node->count > 2 ? x[2][d * units + u] : 0;
        }
        for (int64_t step = 0; step < steps; step++) {
            int64_t t = d ? steps - 1 - step : step;
            multiply(&m[0], x[0] + t * in->shape[1], first, given);
            multiply(&m[1], h, second, own);
            if (lstm) lstm_step(given, own, h, c, units);
            else gru_step(given, own, h, units);
            memcpy(y + (t * directions + d) * units, h, (size_t)units * sizeof *h);
        }
        if (lstm && node->settings[LSTM_CELLS] != 0)
            memcpy(y + (steps * directions + d) * units, c, (size_t)units * sizeof *c);
    }
}

/* ------------------------------------------------------------------------------ constants */

static void run_constant(const asterism_net *net, const Node *node, float *y)
{
    Weight w = weight_of(net, node, 0);
    if (node->op == OP_CUT) {
        run_steps(net, node, w.numbers, y);
        return;
    }
    if (node->op == OP_WEIGHT) {
        memcpy(y, w.numbers, (size_t)w.size * sizeof *y);
        return;
    }
    const float *lengths = weight_of(net, node, 1).numbers;
    int dim = (int)node->settings[WEIGHT_NORM_DIM];
    int64_t inner = product(w.shape, dim + 1, w.rank), size = w.shape[dim];
    for (int64_t i = 0; i < size; i++) {
        double sum = 0;
        for (int64_t from = i * inner; from < w.size; from += size * inner)
            for (int64_t k = from; k < from + inner; k++) sum += (double)w.numbers[k] * w.numbers[k];
        double factor = lengths[i] / sqrt(sum);
        for (int64_t from = i * inner; from < w.size; from += size * inner)
            for (int64_t k = from; k < from + inner; k++) y[k] = (float)(w.numbers[k] * factor);
    }
}

/* ------------------------------------------------------------------------------ each number */

static void run_each(const Node *node, const float *x, float *y, int64_t size)
{
    const double *s = node->settings;
    int32_t n = small(size);
    switch (node->op) {
    case OP_RELU: relu(x, y, n); break;
    case OP_GELU: s[GELU_TANH] != 0 ? gelu_tanh(x, y, n) : gelu(x, y, n); break;
    case OP_SILU: silu(x, y, n); break;
    case OP_SIGMOID: sigmoid(x, y, n); break;
    case OP_TANH: tanh_each(x, y, n); break;
    case OP_LEAKY_RELU: leaky_relu(x, y, n, (float)s[LEAKY_RELU_SLOPE]); break;
    case OP_CLAMP: clamp(x, y, n, (float)s[CLAMP_LOW], (float)s[CLAMP_HIGH]); break;
    case OP_SCALE_SHIFT: scale_shift(x, y, n, (float)s[SCALE_SHIFT_FACTOR], (float)s[SCALE_SHIFT_SHIFT]); break;
    case OP_HARD_SWISH: hard_swish(x, y, n); break;
    case OP_HARD_SIGMOID: hard_sigmoid(x, y, n); break;
    case OP_ELU: elu(x, y, n, (float)s[ELU_ALPHA], (float)(1 / s[ELU_WIDTH])); break;
    case OP_POWER: power(x, y, n, (float)s[POWER_EXPONENT]); break;
    case OP_MISH: mish(x, y, n); break;
    case OP_EXP: exp_each(x, y, n); break;
    case OP_LOG: log_each(x, y, n); break;
    case OP_ABS: abs_each(x, y, n); break;
    case OP_SOFTPLUS: softplus(x, y, n); break;
    default: erf_each(x, y, n); break;
    }
}

/* ------------------------------------------------------------------------------ any of them */

/* What a layer needs before the first example. */
static bool make(Report *report, asterism_net *net, Node *node)
{
    Weight weight = node->operation->weights ? weight_of(net, node, 0) : (Weight){0};
    switch (node->op) {
    case OP_LINEAR:
        kept(net, node, 1);
        return make_sparse(report, &weight, &node->matrices[0]);
    case OP_CONV: case OP_CONV3D: case OP_CONV_TRANSPOSE:
        kept(net, node, 1);
        return make_taps(report, net, node);
    case OP_MAX_POOL: case OP_AVG_POOL: case OP_ADAPTIVE_AVG_POOL: case OP_ADAPTIVE_MAX_POOL:
        return make_windows(report, net, node);
    case OP_BATCH_NORM: case OP_LAYER_NORM: case OP_RMS_NORM: case OP_GROUP_NORM:
        return make_norm(report, net, node);
    case OP_PRELU:
        kept(net, node, 0);
        return make_axes(report, net, node);
    case OP_ADD: case OP_MUL: case OP_SUB: case OP_DIV: case OP_MAXIMUM: case OP_MINIMUM:
    case OP_EQUAL: case OP_GREATER: case OP_KEEP: return make_axes(report, net, node);
    case OP_PERMUTE: case OP_SLICE: case OP_EXPAND: case OP_CUT: return make_steps(report, net, node);
    case OP_RESIZE: return make_sources(report, net, node);
    case OP_ATTENTION: return make_mask(report, net, node);
    case OP_EMBEDDING: case OP_HIDE: kept(net, node, 0); return true;
    case OP_LSTM: case OP_GRU: return make_recurrent(report, net, node);
    default: return true;
    }
}

/* One layer of one example. */
static void run_node(const asterism_net *net, const Node *node, const float *const *x, float *y, float *scratch)
{
    const Value *in = input(net, node, 0), *out = &net->values[node->out];
    int rank = in->rank, op = node->op, axis;
    switch (op) {
    case OP_LINEAR: run_linear(net, node, x[0], y); break;
    case OP_CONV: case OP_CONV3D: case OP_CONV_TRANSPOSE: run_conv(net, node, x[0], y); break;
    case OP_MAX_POOL: case OP_AVG_POOL: case OP_ADAPTIVE_AVG_POOL: case OP_ADAPTIVE_MAX_POOL:
        run_pool(net, node, x[0], y);
        break;
    case OP_BATCH_NORM: case OP_LAYER_NORM: case OP_RMS_NORM: case OP_GROUP_NORM: run_norm(net, node, x[0], y); break;
    case OP_PRELU: run_two(net, node, x[0], weight_of(net, node, 0).numbers, y); break;
    case OP_ADD: case OP_MUL: case OP_SUB: case OP_DIV: case OP_MAXIMUM: case OP_MINIMUM:
    case OP_EQUAL: case OP_GREATER: case OP_KEEP: run_two(net, node, x[0], x[1], y); break;
    case OP_CAT: run_cat(net, node, x, y); break;
    case OP_PERMUTE: case OP_SLICE: case OP_EXPAND: run_steps(net, node, x[0], y); break;
    case OP_PAD: run_pad(net, node, x[0], y); break;
    case OP_HIDE: run_hide(net, node, x[0], y); break;
    case OP_MEAN:
        axis = (int)node->settings[MEAN_DIM] - 1;
        rank = axis + (int)node->settings[MEAN_COUNT];
        mean(x[0], y, small(product(in->shape, 0, axis)), small(product(in->shape, axis, rank)),
             small(product(in->shape, rank, in->rank)));
        break;
    case OP_SOFTMAX: case OP_LOG_SOFTMAX:
        axis = rank + (int)node->settings[SOFTMAX_DIM];
        softmax(x[0], y, small(product(in->shape, 0, axis)), small(in->shape[axis]),
                small(product(in->shape, axis + 1, rank)), op == OP_LOG_SOFTMAX);
        break;
    case OP_RESIZE: run_resize(net, node, x[0], y); break;
    case OP_ATTENTION: run_attention(net, node, x, y, scratch); break;
    case OP_MATMUL:
        matmul(x[0], x[1], y, small(product(in->shape, 0, rank - 2)), small(in->shape[rank - 2]),
               small(in->shape[rank - 1]), small(out->shape[rank - 1]));
        break;
    case OP_EMBEDDING: {
        Weight table = weight_of(net, node, 0);
        embed(x[0], y, small(in->size), small(table.shape[1]), small(table.shape[0]), plain(table.numbers));
        break;
    }
    case OP_LSTM: case OP_GRU: run_recurrent(net, node, x, y, scratch); break;
    case OP_WEIGHT: case OP_WEIGHT_NORM: case OP_CUT: run_constant(net, node, y); break;
    default: run_each(node, x[0], y, out->size); break;
    }
}

/* ------------------------------------------------------------------------------ memory */

static bool is_each(int op)
{
    switch (op) {
    case OP_RELU: case OP_GELU: case OP_SILU: case OP_SIGMOID: case OP_TANH: case OP_LEAKY_RELU: case OP_CLAMP:
    case OP_SCALE_SHIFT: case OP_HARD_SWISH: case OP_HARD_SIGMOID: case OP_ELU: case OP_POWER: case OP_MISH:
    case OP_EXP: case OP_LOG: case OP_ABS: case OP_SOFTPLUS: case OP_ERF: case OP_BATCH_NORM: return true;
    default: return false;
    }
}

/* Which layers anything needs, and the last that reads each value. */
static void mark(asterism_net *net)
{
    for (int i = 0; i < net->value_count; i++) net->values[i].last = -1;
    for (int i = 0; i < net->output_count; i++) net->values[net->values[net->outputs[i]].root].last = net->node_count;
    for (int i = net->node_count - 1; i >= 0; i--) {
        Node *node = &net->nodes[i];
        if (node->operation->view || net->values[node->out].last < 0) continue;
        node->needed = true;
        for (int k = 0; k < node->count; k++) {
            Value *root = &net->values[net->values[node->inputs[k]].root];
            if (root->last < i) root->last = i;
        }
        for (int k = 0; k < node->operation->weights; k++) {
            if (node->weights[k] >= 0 || node->weights[k] == NONE) continue;
            Value *root = &net->values[net->values[-node->weights[k]].root];
            if (root->last < i) root->last = i;
        }
    }
}

typedef struct {
    int64_t offset, size;
} Gap;

enum { GAPS = 256 }; /* that are remembered: more are lost, which costs memory and no more */

static int64_t place(Gap *gaps, int *count, int64_t size, int64_t *end)
{
    int best = -1;
    for (int i = 0; i < *count; i++)
        if (gaps[i].size >= size && (best < 0 || gaps[i].size < gaps[best].size)) best = i;
    if (best < 0) {
        *end += size;
        return *end - size;
    }
    int64_t offset = gaps[best].offset;
    gaps[best].offset += size, gaps[best].size -= size;
    if (!gaps[best].size) gaps[best] = gaps[--*count];
    return offset;
}

/* Offsets of all values that are not constants or inputs: one that nothing reads any more makes
   place for others. */
static void place_values(asterism_net *net)
{
    Gap gaps[GAPS];
    int count = 0;
    for (int i = 0; i < net->node_count; i++) {
        Node *node = &net->nodes[i];
        Value *out = &net->values[node->out], *first = &net->values[net->values[node->inputs[0]].root];
        if (!node->needed || out->constant) continue;
        bool alone = first->last == i && !first->constant && first >= net->values + net->input_count;
        node->in_place = alone && is_each(node->op);
        out->offset = node->in_place ? first->offset : place(gaps, &count, out->size, &net->workspace);
        for (int k = 0; k < node->count; k++) {
            Value *root = &net->values[net->values[node->inputs[k]].root];
            bool ends = root->last == i && !root->constant && root >= net->values + net->input_count;
            if (!ends || (node->in_place && root == first)) continue;
            root->last = -1; /* given back once */
            if (count < GAPS) gaps[count++] = (Gap){root->offset, root->size};
        }
        if (node->scratch > net->scratch) net->scratch = node->scratch;
    }
}

/* ------------------------------------------------------------------------------ all of it */

static const float *value_at(const asterism_net *net, int number, const float *const *inputs, size_t example,
                             const float *workspace)
{
    const Value *root = &net->values[net->values[number].root];
    if (root->constant) return root->numbers;
    if (root < net->values + net->input_count)
        return inputs[root - net->values] + example * (size_t)root->size;
    return workspace + root->offset;
}

/* The numbers of a layer whose result is the same for every example. */
static bool compute(Report *report, asterism_net *net, Node *node)
{
    Value *out = &net->values[node->out];
    const float **sources = take(report, (size_t)node->count, sizeof *sources);
    float *scratch = take(report, (size_t)node->scratch + 1, sizeof *scratch);
    out->numbers = take(report, (size_t)out->size, sizeof *out->numbers);
    bool fine = sources && scratch && out->numbers;
    for (int k = 0; fine && k < node->count; k++) {
        const Value *root = &net->values[net->values[node->inputs[k]].root];
        sources[k] = root->constant ? root->numbers : NULL; /* which weights alone never read */
    }
    if (fine) run_node(net, node, sources, out->numbers, scratch);
    free(sources), free(scratch);
    return fine;
}

bool prepare(Report *report, asterism_net *net)
{
    mark(net);
    for (int i = 0; i < net->node_count; i++) {
        Node *node = &net->nodes[i];
        if (!node->needed) continue;
        if (!make(report, net, node)) return false;
        if (net->values[node->out].constant && !compute(report, net, node)) return false;
    }
    for (size_t i = 0; i < net->tensors.count; i++) {
        Tensor *tensor = &net->tensors.all[i];
        if (!tensor->kept) free(tensor->numbers), tensor->numbers = NULL;
    }
    place_values(net);
    return true;
}

void run(const asterism_net *net, const float *const *inputs, float *const *outputs, size_t example,
         float *workspace, const float **sources)
{
    for (int i = 0; i < net->node_count; i++) {
        const Node *node = &net->nodes[i];
        if (!node->needed || net->values[node->out].constant) continue;
        for (int k = 0; k < node->count; k++)
            sources[k] = value_at(net, node->inputs[k], inputs, example, workspace);
        run_node(net, node, sources, workspace + net->values[node->out].offset, workspace + net->workspace);
    }
    for (int i = 0; i < net->output_count; i++) {
        const Value *value = &net->values[net->outputs[i]];
        const float *found = value_at(net, net->outputs[i], inputs, example, workspace);
        memcpy(outputs[i] + example * (size_t)value->size, found, (size_t)value->size * sizeof *found);
    }
}
