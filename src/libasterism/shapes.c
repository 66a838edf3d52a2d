/* The shape of every value, and the check that graph and weights fit together and take no more work
   than the weights make plausible. Whoever runs a graph that passed here need not look at sizes
   again. */

#include "fitting.h"
#include "geometry.h"
#include "operations.h"

#define WRITTEN 16.0         /* multiply-adds that a number of a value counts as */
#define FREE_WORK 67108864.0 /* 2^26: multiply-adds that every network may take */
#define PLACES 4194304.0     /* 2^22: of an example, at each of which every weight may be used */

Weight weight_of(const asterism_net *net, const Node *node, int number)
{
    int64_t place = node->weights[number];
    if (place == NONE) return (Weight){0};
    if (place < 0) {
        const Value *v = &net->values[-place];
        return (Weight){v->shape, v->rank, v->size, v->size, net->values[v->root].numbers};
    }
    const Tensor *t = &net->tensors.all[place];
    return (Weight){t->shape, t->rank, t->size, t->nonzeros, t->numbers};
}

/* Multiply-adds for one example, or a bound of them. */
static double work_of(const Fitting *f)
{
    const Value *in = f->in, *out = f->out;
    double nonzeros = 0, rows = 1, places = 1;
    for (int i = 0; i < f->node->operation->weights; i++)
        nonzeros += (double)f->weights[i].nonzeros;
    for (int i = 0; i < out->rank - 1; i++) rows *= (double)out->shape[i];
    for (int i = 1; i < out->rank; i++) places *= (double)out->shape[i];
    switch (f->node->op) {
    case OP_CONV:
    case OP_CONV3D:
    case OP_CONV_TRANSPOSE: return (nonzeros + (double)in->shape[0]) * places;
    case OP_MAX_POOL:
    case OP_AVG_POOL:
        return f->node->settings[MAX_POOL_KERNEL_H] * f->node->settings[MAX_POOL_KERNEL_W] *
               (double)out->size;
    case OP_ADAPTIVE_AVG_POOL:
    case OP_ADAPTIVE_MAX_POOL: {
        double each = 1;
        for (int axis = 0; axis < 2; axis++) {
            PoolAxis a = pool_axis(f->node, in, out, axis);
            each *= (double)(a.size / a.out + 2);
        }
        return each * (double)out->size;
    }
    case OP_ATTENTION:
        return (double)in->shape[0] * (double)f->second->shape[0] *
               (double)(in->shape[1] + out->shape[1]);
    case OP_MATMUL: return (double)in->size * (double)out->shape[out->rank - 1];
    case OP_EMBEDDING:
    case OP_HIDE:
    case OP_CUT: return 0; /* they only copy */
    default: return nonzeros * rows;
    }
}

/* How many numbers a value has; told where that is none, or too many. */
static bool measure(Report *report, Value *value, const char *name, int place)
{
    value->size = 1;
    for (int i = 0; i < value->rank; i++) {
        if (value->shape[i] == 0)
            return fail(report, ASTERISM_UNSUPPORTED, "%s %d has no numbers", name, place);
        if (value->shape[i] < 0 || value->shape[i] > MAX_SIZE / value->size)
            return fail(report, ASTERISM_DAMAGED, "%s %d is too large", name, place);
        value->size *= value->shape[i];
    }
    return true;
}

static bool weights_exist(Report *report, const asterism_net *net, const Node *node, int place)
{
    for (int i = 0; i < node->operation->weights; i++) {
        int64_t weight = node->weights[i];
        bool there = weight == NONE || (weight >= 0 && weight < (int64_t)net->tensors.count);
        /* A value that is a weight has to be the same for every example. */
        if (weight < 0 && weight != NONE)
            there = -weight >= net->input_count && net->values[-weight].constant;
        if (!there)
            return fail(report, ASTERISM_DAMAGED, "layer %d (%s) has a weight that does not exist",
                        place, node->operation->name);
    }
    return true;
}

/* What `fit` does not tell of a node's result. */
static bool settle(Report *report, asterism_net *net, const Node *node, int place)
{
    Value *out = &net->values[node->out];
    bool ids = true, all = true;
    for (int i = 0; i < node->count; i++) {
        ids = ids && net->values[node->inputs[i]].whole;
        all = all && net->values[node->inputs[i]].constant;
    }
    if (node->op == OP_EMBEDDING && !ids)
        return fail(report, ASTERISM_DAMAGED,
                    "layer %d (%s) takes whole numbers, which only an input can hold", place,
                    node->operation->name);
    out->whole = node->operation->view && ids;
    out->constant = node->operation->kind == KIND_CONSTANT || all;
    out->root = node->operation->view ? net->values[node->inputs[0]].root : node->out;
    return true;
}

bool find_shapes(Report *report, asterism_net *net)
{
    double limit = FREE_WORK, done = 0;
    int64_t total = 0;
    for (size_t i = 0; i < net->tensors.count; i++)
        limit += PLACES * (double)net->tensors.all[i].nonzeros;
    for (int i = 0; i < net->input_count; i++) {
        if (!measure(report, &net->values[i], "input", i)) return false;
        net->values[i].root = i;
        total += net->values[i].size;
        done += WRITTEN * (double)net->values[i].size;
        if (total > MAX_TOTAL)
            return fail(report, ASTERISM_UNSUPPORTED, "the inputs hold too many numbers");
    }
    for (int i = 0; i < net->node_count; i++) {
        Node *node = &net->nodes[i];
        const char *name = node->operation->name;
        if (!weights_exist(report, net, node, i)) return false;
        Fitting f = {.net = net,
                     .node = node,
                     .in = &net->values[node->inputs[0]],
                     .out = &net->values[node->out]};
        f.second = node->count > 1 ? &net->values[node->inputs[1]] : NULL;
        f.third = node->count > 2 ? &net->values[node->inputs[2]] : NULL;
        for (int k = 0; k < node->operation->weights; k++) f.weights[k] = weight_of(net, node, k);
        if (!fit(&f) && !f.what)
            return fail(report, ASTERISM_UNSUPPORTED, "layer %d: this library has no %s", i, name);
        if (f.what)
            return fail(report, ASTERISM_DAMAGED, "layer %d (%s) does not fit its input: %s", i,
                        name, f.what);
        if (!measure(report, f.out, "the result of layer", i) || !settle(report, net, node, i))
            return false;
        if (!node->operation->view) {
            total += f.out->size;
            done += WRITTEN * (double)f.out->size + work_of(&f);
        }
        if (total > MAX_TOTAL)
            return fail(report, ASTERISM_UNSUPPORTED,
                        "the values up to layer %d (%s) hold too many numbers", i, name);
        if (!(done <= limit))
            return fail(report, ASTERISM_UNSUPPORTED,
                        "up to layer %d (%s) one example takes %.0f multiply-adds,"
                        " and %.0f are allowed for this file",
                        i, name, done, limit);
    }
    return true;
}
