/* The memory of values, and a network from its first layer to its last. */

#include <stdlib.h>
#include <string.h>

#include "layers.h"
#include "operations.h"

/* Whether each number of the result is made of the one in its place alone. */
static bool may_overwrite(const Node *node)
{
    return node->operation->kind == KIND_EACH || node->op == OP_BATCH_NORM;
}

/* Which layers anything needs, and the last that reads each value. */
static void mark(asterism_net *net)
{
    for (int i = 0; i < net->value_count; i++) net->values[i].last = -1;
    for (int i = 0; i < net->output_count; i++)
        net->values[net->values[net->outputs[i]].root].last = net->node_count;
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
        Value *out = &net->values[node->out],
              *first = &net->values[net->values[node->inputs[0]].root];
        if (!node->needed || out->constant) continue;
        bool alone =
            first->last == i && !first->constant && first >= net->values + net->input_count;
        node->in_place = alone && may_overwrite(node);
        out->offset =
            node->in_place ? first->offset : place(gaps, &count, out->size, &net->workspace);
        for (int k = 0; k < node->count; k++) {
            Value *root = &net->values[net->values[node->inputs[k]].root];
            bool ends =
                root->last == i && !root->constant && root >= net->values + net->input_count;
            if (!ends || (node->in_place && root == first)) continue;
            root->last = -1; /* given back once */
            if (count < GAPS) gaps[count++] = (Gap){root->offset, root->size};
        }
        if (node->scratch > net->scratch) net->scratch = node->scratch;
    }
}

static const float *value_at(const asterism_net *net, int number, const float *const *inputs,
                             size_t example, const float *workspace)
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
        run_node(net, node, sources, workspace + net->values[node->out].offset,
                 workspace + net->workspace);
    }
    for (int i = 0; i < net->output_count; i++) {
        const Value *value = &net->values[net->outputs[i]];
        const float *found = value_at(net, net->outputs[i], inputs, example, workspace);
        memcpy(outputs[i] + example * (size_t)value->size, found,
               (size_t)value->size * sizeof *found);
    }
}
