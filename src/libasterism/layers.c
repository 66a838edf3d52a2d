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
    switch (node->op) {
    case OP_LINEAR: kept(net, node, 1); return make_sparse(report, &weight, &node->matrices[0]);
    case OP_CONV:
    case OP_CONV3D:
    case OP_CONV_TRANSPOSE: kept(net, node, 1); return make_taps(report, net, node);
    case OP_MAX_POOL:
    case OP_AVG_POOL:
    case OP_ADAPTIVE_AVG_POOL:
    case OP_ADAPTIVE_MAX_POOL: return make_windows(report, net, node);
    case OP_BATCH_NORM:
    case OP_LAYER_NORM:
    case OP_RMS_NORM:
    case OP_GROUP_NORM: return make_norm(report, net, node);
    case OP_PRELU: kept(net, node, 0); return make_axes(report, net, node);
    case OP_ADD:
    case OP_MUL:
    case OP_SUB:
    case OP_DIV:
    case OP_MAXIMUM:
    case OP_MINIMUM:
    case OP_EQUAL:
    case OP_GREATER:
    case OP_KEEP: return make_axes(report, net, node);
    case OP_PERMUTE:
    case OP_SLICE:
    case OP_EXPAND:
    case OP_CUT: return make_steps(report, net, node);
    case OP_RESIZE: return make_sources(report, net, node);
    case OP_ATTENTION: return make_mask(report, net, node);
    case OP_EMBEDDING:
    case OP_HIDE: kept(net, node, 0); return true;
    case OP_LSTM:
    case OP_GRU: return make_recurrent(report, net, node);
    default: return true;
    }
}

/* One layer of one example. */
void run_node(const asterism_net *net, const Node *node, const float *const *x, float *y,
              float *scratch)
{
    const Value *in = input(net, node, 0), *out = &net->values[node->out];
    int rank = in->rank, op = node->op, axis;
    switch (op) {
    case OP_LINEAR: run_linear(net, node, x[0], y); break;
    case OP_CONV:
    case OP_CONV3D:
    case OP_CONV_TRANSPOSE: run_conv(net, node, x[0], y); break;
    case OP_MAX_POOL:
    case OP_AVG_POOL:
    case OP_ADAPTIVE_AVG_POOL:
    case OP_ADAPTIVE_MAX_POOL: run_pool(net, node, x[0], y); break;
    case OP_BATCH_NORM:
    case OP_LAYER_NORM:
    case OP_RMS_NORM:
    case OP_GROUP_NORM: run_norm(net, node, x[0], y); break;
    case OP_PRELU: run_two(net, node, x[0], weight_of(net, node, 0).numbers, y); break;
    case OP_ADD:
    case OP_MUL:
    case OP_SUB:
    case OP_DIV:
    case OP_MAXIMUM:
    case OP_MINIMUM:
    case OP_EQUAL:
    case OP_GREATER:
    case OP_KEEP: run_two(net, node, x[0], x[1], y); break;
    case OP_CAT: run_cat(net, node, x, y); break;
    case OP_PERMUTE:
    case OP_SLICE:
    case OP_EXPAND: run_steps(net, node, x[0], y); break;
    case OP_PAD: run_pad(net, node, x[0], y); break;
    case OP_HIDE: run_hide(net, node, x[0], y); break;
    case OP_MEAN:
        axis = (int)node->settings[MEAN_DIM] - 1;
        rank = axis + (int)node->settings[MEAN_COUNT];
        mean(x[0], y, small(product(in->shape, 0, axis)), small(product(in->shape, axis, rank)),
             small(product(in->shape, rank, in->rank)));
        break;
    case OP_SOFTMAX:
    case OP_LOG_SOFTMAX:
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
        embed(x[0], y, small(in->size), small(table.shape[1]), small(table.shape[0]),
              plain(table.numbers));
        break;
    }
    case OP_LSTM:
    case OP_GRU: run_recurrent(net, node, x, y, scratch); break;
    case OP_WEIGHT:
    case OP_WEIGHT_NORM:
    case OP_CUT: run_constant(net, node, y); break;
    default: run_each(node, x[0], y, out->size); break;
    }
}
