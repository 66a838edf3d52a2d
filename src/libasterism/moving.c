/* Numbers in another order, and images at another size. */

#include "functions.h"
#include "layers.h"
#include "operations.h"

enum { NEAREST, LINEAR, ALIGNED, EXACT }; /* ways to resize */

/* From where each number comes: a step along each axis of the result, and the first place. */
bool make_steps(Report *report, const asterism_net *net, Node *node)
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

void run_steps(const asterism_net *net, const Node *node, const float *x, float *y)
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

void run_pad(const asterism_net *net, const Node *node, const float *x, float *y)
{
    const Value *in = input(net, node, 0);
    int axis = (int)node->settings[PAD_DIM] - 1, mode = (int)node->settings[PAD_MODE];
    int64_t before = (int64_t)node->settings[PAD_BEFORE],
            after = (int64_t)node->settings[PAD_AFTER];
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
float masked(const Weight *mask, int64_t head, int64_t row, int64_t column)
{
    int64_t rows = mask->shape[mask->rank - 2], columns = mask->shape[mask->rank - 1];
    if (mask->size == rows * columns) head = 0;
    return mask->numbers[(head * rows + row) * columns + column];
}

void run_hide(const asterism_net *net, const Node *node, const float *x, float *y)
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

void run_cat(const asterism_net *net, const Node *node, const float *const *sources, float *y)
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

/* For each new index two old ones, and the part that the second has. */
bool make_sources(Report *report, const asterism_net *net, Node *node)
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

void run_resize(const asterism_net *net, const Node *node, const float *x, float *y)
{
    const Value *in = input(net, node, 0);
    int axis = (int)node->settings[RESIZE_DIM] - 1;
    int32_t new = (int32_t)node->settings[RESIZE_SIZE];
    resize(x, y, small(product(in->shape, 0, axis)), small(in->shape[axis]), new,
           small(product(in->shape, axis + 1, in->rank)), node->bounds, node->bounds + new,
           plain(node->table));
}
