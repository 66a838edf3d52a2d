/* Layers with weights: work is in proportion to those that are not zero. */

#include <stdlib.h>

#include "geometry.h"
#include "layers.h"

bool make_sparse(Report *report, const Weight *weight, Sparse *made)
{
    int64_t rows = weight->shape[0], columns = weight->shape[1], count = 0;
    for (int64_t i = 0; i < weight->size; i++) count += weight->numbers[i] != 0;
    *made = (Sparse){rows, columns, take(report, (size_t)rows + 1, sizeof(int64_t)),
                     take(report, (size_t)count + 1, sizeof(int32_t)),
                     take(report, (size_t)count + 1, sizeof(float))};
    if (!made->starts || !made->places || !made->numbers) return false;
    for (int64_t i = 0, k = 0; i < rows; i++, made->starts[i] = k)
        for (int64_t j = 0; j < columns; j++)
            if (weight->numbers[i * columns + j] != 0) {
                made->places[k] = small(j);
                made->numbers[k++] = weight->numbers[i * columns + j];
            }
    return true;
}

void multiply(const Sparse *m, const float *x, const float *bias, float *y)
{
    for (int64_t i = 0; i < m->rows; i++) {
        float sum = bias ? bias[i] : 0;
        for (int64_t k = m->starts[i]; k < m->starts[i + 1]; k++)
            sum += m->numbers[k] * x[m->places[k]];
        y[i] = sum;
    }
}

void run_linear(const asterism_net *net, const Node *node, const float *x, float *y)
{
    const Sparse *m = &node->matrices[0];
    const float *bias = weight_of(net, node, 1).numbers;
    int64_t rows = net->values[node->out].size / m->rows;
    for (; rows > 0; rows--, x += m->columns, y += m->rows) multiply(m, x, bias, y);
}

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
bool make_taps(Report *report, const asterism_net *net, Node *node)
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
                (Tap){small(channel),
                      {small(place / g.window[2] / g.window[1]),
                       small(place / g.window[2] % g.window[1]), small(place % g.window[2])},
                      weight.numbers[i]};
        }
        for (int64_t o = 0; !pass && o < g.outputs; o++) node->starts[o + 2] += node->starts[o + 1];
    }
    return true;
}

static void add_row(float *to, const float *from, float weight, int64_t count, int64_t out_step,
                    int64_t in_step)
{
    if (out_step == 1 && in_step == 1)
        for (int64_t j = 0; j < count; j++) to[j] += weight * from[j];
    else
        for (int64_t j = 0; j < count; j++) to[j * out_step] += weight * from[j * in_step];
}

void run_conv(const asterism_net *net, const Node *node, const float *x, float *y)
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
                    add_row(y + to * g.after[2] + c.output, plane + from * g.before[2] + c.input,
                            tap->weight, c.count, out[2], in[2]);
                }
        }
    }
}
