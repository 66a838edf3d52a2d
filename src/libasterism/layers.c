/* Every layer by its operation. */

#include <math.h>
#include <string.h>

#include "functions.h"
#include "layers.h"
#include "operations.h"

/* A weight that running reads as it is. */
const float *kept(asterism_net *net, const Node *node, int number)
{
    if (node->weights[number] >= 0) net->tensors.all[node->weights[number]].kept = true;
    return weight_of(net, node, number).numbers;
}

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
            for (int64_t k = from; k < from + inner; k++)
                sum += (double)w.numbers[k] * w.numbers[k];
        double factor = lengths[i] / sqrt(sum);
        for (int64_t from = i * inner; from < w.size; from += size * inner)
            for (int64_t k = from; k < from + inner; k++) y[k] = (float)(w.numbers[k] * factor);
    }
}

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
    case OP_SCALE_SHIFT:
        scale_shift(x, y, n, (float)s[SCALE_SHIFT_FACTOR], (float)s[SCALE_SHIFT_SHIFT]);
        break;
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

/* What a layer needs before the first example. */
bool make(Report *report, asterism_net *net, Node *node)
{
    Weight weight = node->operation->weights ? weight_of(net, node, 0) : (Weight){0};
    switch (node->operation->kind) {
    case KIND_LINEAR: kept(net, node, 1); return make_sparse(report, &weight, &node->matrices[0]);
    case KIND_CONVOLUTION: kept(net, node, 1); return make_taps(report, net, node);
    case KIND_POOLING: return make_windows(report, net, node);
    case KIND_NORM: return make_norm(report, net, node);
    case KIND_PRELU: kept(net, node, 0); return make_axes(report, net, node);
    case KIND_TWO: return make_axes(report, net, node);
    case KIND_MOVING: return make_steps(report, net, node);
    case KIND_CONSTANT: return node->op != OP_CUT || make_steps(report, net, node);
    case KIND_RESIZE: return make_sources(report, net, node);
    case KIND_ATTENTION: return make_mask(report, net, node);
    case KIND_EMBEDDING:
    case KIND_HIDE: kept(net, node, 0); return true;
    case KIND_RECURRENT: return make_recurrent(report, net, node);
    default: return true;
    }
}

/* One layer of one example. */
void run_node(const asterism_net *net, const Node *node, const float *const *x, float *y,
              float *scratch)
{
    const Value *in = input(net, node, 0), *out = &net->values[node->out];
    int rank = in->rank, axis;
    switch (node->operation->kind) {
    case KIND_LINEAR: run_linear(net, node, x[0], y); break;
    case KIND_CONVOLUTION: run_conv(net, node, x[0], y); break;
    case KIND_POOLING: run_pool(net, node, x[0], y); break;
    case KIND_NORM: run_norm(net, node, x[0], y); break;
    case KIND_PRELU: run_two(net, node, x[0], weight_of(net, node, 0).numbers, y); break;
    case KIND_TWO: run_two(net, node, x[0], x[1], y); break;
    case KIND_CAT: run_cat(net, node, x, y); break;
    case KIND_MOVING: run_steps(net, node, x[0], y); break;
    case KIND_PAD: run_pad(net, node, x[0], y); break;
    case KIND_HIDE: run_hide(net, node, x[0], y); break;
    case KIND_MEAN:
        axis = (int)node->settings[MEAN_DIM] - 1;
        rank = axis + (int)node->settings[MEAN_COUNT];
        mean(x[0], y, small(product(in->shape, 0, axis)), small(product(in->shape, axis, rank)),
             small(product(in->shape, rank, in->rank)));
        break;
    case KIND_SOFTMAX:
        axis = rank + (int)node->settings[SOFTMAX_DIM];
        softmax(x[0], y, small(product(in->shape, 0, axis)), small(in->shape[axis]),
                small(product(in->shape, axis + 1, rank)), node->op == OP_LOG_SOFTMAX);
        break;
    case KIND_RESIZE: run_resize(net, node, x[0], y); break;
    case KIND_ATTENTION: run_attention(net, node, x, y, scratch); break;
    case KIND_MATMUL:
        matmul(x[0], x[1], y, small(product(in->shape, 0, rank - 2)), small(in->shape[rank - 2]),
               small(in->shape[rank - 1]), small(out->shape[rank - 1]));
        break;
    case KIND_EMBEDDING: {
        Weight table = weight_of(net, node, 0);
        embed(x[0], y, small(in->size), small(table.shape[1]), small(table.shape[0]),
              plain(table.numbers));
        break;
    }
    case KIND_RECURRENT: run_recurrent(net, node, x, y, scratch); break;
    case KIND_CONSTANT: run_constant(net, node, y); break;
    default: run_each(node, x[0], y, out->size); break;
    }
}
