/* Attention, LSTM and GRU. */

#include <math.h>
#include <string.h>

#include "functions.h"
#include "layers.h"
#include "operations.h"

/* What a mask adds to scores. */
bool make_mask(Report *report, const asterism_net *net, Node *node)
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
                node->table[k] = kind == ADDED                     ? found
                                 : (found != 0) == (kind == SHOWN) ? 0
                                                                   : -INFINITY;
            }
    node->start = heads > 1 ? rows * columns : 0;
    return true;
}

void run_attention(const asterism_net *net, const Node *node, const float *const *x, float *y,
                   float *scores)
{
    const Value *q = input(net, node, 0), *k = input(net, node, 1), *v = input(net, node, 2);
    int64_t heads = (int64_t)node->settings[ATTENTION_HEADS], width = q->shape[1] / heads;
    double given = node->settings[ATTENTION_SCALE];
    float factor = (float)(given != 0 ? given : 1 / sqrt((double)width));
    attention(x[0], x[1], x[2], y, scores, small(q->shape[0]), small(k->shape[0]), small(heads),
              small(width), small(v->shape[1] / heads), node->settings[ATTENTION_CAUSAL] != 0,
              node->table != NULL, small(node->start), factor, plain(node->table));
}

bool make_recurrent(Report *report, asterism_net *net, Node *node)
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
        float enter = sigmoid_of(given[u] + own[u]),
              forget = sigmoid_of(given[units + u] + own[units + u]);
        float fresh = tanhf(given[2 * units + u] + own[2 * units + u]);
        c[u] = forget * c[u] + enter * fresh;
        h[u] = sigmoid_of(given[3 * units + u] + own[3 * units + u]) * tanhf(c[u]);
    }
}

static void gru_step(const float *given, const float *own, float *h, int64_t units)
{
    for (int64_t u = 0; u < units; u++) {
        float reset = sigmoid_of(given[u] + own[u]),
              update = sigmoid_of(given[units + u] + own[units + u]);
        float fresh = tanhf(given[2 * units + u] + reset * own[2 * units + u]);
        h[u] = fresh + update * (h[u] - fresh);
    }
}

void run_recurrent(const asterism_net *net, const Node *node, const float *const *x, float *y,
                   float *scratch)
{
    const Value *in = input(net, node, 0);
    bool lstm = node->op == OP_LSTM;
    int directions = node->matrices[2].rows ? 2 : 1;
    int64_t units = node->matrices[1].columns, rows = node->matrices[1].rows, steps = in->shape[0];
    float *h = scratch, *c = h + units, *given = c + units, *own = given + rows;
    for (int d = 0; d < directions; d++) {
        const Sparse *m = &node->matrices[2 * d];
        const float *first = weight_of(net, node, 4 * d + 2).numbers,
                    *second = weight_of(net, node, 4 * d + 3).numbers;
        for (int64_t u = 0; u < units; u++) {
            h[u] = node->count > 1 ? x[1][d * units + u] : 0;
            c[u] = node->count > 2 ? x[2][d * units + u] : 0;
        }
        for (int64_t step = 0; step < steps; step++) {
            int64_t t = d ? steps - 1 - step : step;
            multiply(&m[0], x[0] + t * in->shape[1], first, given);
            multiply(&m[1], h, second, own);
            if (lstm)
                lstm_step(given, own, h, c, units);
            else
                gru_step(given, own, h, units);
            memcpy(y + (t * directions + d) * units, h, (size_t)units * sizeof *h);
        }
        if (lstm && node->settings[LSTM_CELLS] != 0)
            memcpy(y + (steps * directions + d) * units, c, (size_t)units * sizeof *c);
    }
}
