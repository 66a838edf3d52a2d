/* The shape that each operation makes of its input's, and what it needs for that. */

#include <math.h>
#include <string.h>

#include "fitting.h"
#include "geometry.h"
#include "operations.h"

#define MAX_IDS ((int64_t)1 << 24)  /* whole numbers that are floats too */
#define MAX_ROWS ((int64_t)1 << 16) /* of a recurrent matrix */
enum { ADDED, SHOWN, HIDDEN };      /* what a mask holds */

static bool need(Fitting *f, bool condition, const char *what)
{
    if (!condition && !f->what) f->what = what;
    return condition;
}

static int64_t setting(const Fitting *f, int number) { return (int64_t)f->node->settings[number]; }

static void same_shape(Value *out, const Value *in)
{
    out->rank = in->rank;
    memcpy(out->shape, in->shape, sizeof out->shape);
}

static bool is_vector(const Weight *weight, int64_t size)
{
    return !weight->shape || (weight->rank == 1 && weight->shape[0] == size);
}

static int64_t product(const int64_t *shape, int from, int to)
{
    int64_t size = 1;
    for (int i = from; i < to; i++) size *= shape[i];
    return size;
}

/* Channels, height and width of an image or a signal. */
static bool is_image(Fitting *f)
{
    return need(f, f->in->rank == 2 || f->in->rank == 3, "it is no image");
}

static void like_image(Fitting *f, int64_t channels, int64_t height, int64_t width)
{
    bool signal = f->in->rank == 2;
    f->out->rank = f->in->rank;
    f->out->shape[0] = channels;
    f->out->shape[1] = signal ? width : height;
    if (!signal) f->out->shape[2] = width;
}

static bool convolution(Fitting *f)
{
    Geometry g;
    const Weight *weight = &f->weights[0], *bias = &f->weights[1];
    if (!need(f, geometry_of(f->node, f->in, weight, &g),
              "its weight is missing or of another rank"))
        return false;
    need(f, g.outputs % g.groups == 0 && g.channels * g.groups == f->in->shape[0], "its groups");
    need(f, is_vector(bias, g.outputs), "its bias has another size");
    for (int axis = 0; axis < 3 && !f->what; axis++) {
        int64_t p = g.padding[axis], s = g.stride[axis], d = g.dilation[axis], more = g.more[axis];
        need(f, s > 0 && p >= 0 && d > 0 && d <= MAX_SIZE, "its settings");
        int64_t reach = g.before[axis] + 2 * p - d * (g.window[axis] - 1) - 1, found;
        if (g.transposed) {
            need(f, s <= MAX_SIZE && p <= MAX_SIZE && more >= 0 && (more < s || more < d),
                 "its settings");
            found = (g.before[axis] - 1) * s - 2 * p + d * (g.window[axis] - 1) + more + 1;
            need(f, found > 0 && found <= MAX_SIZE, "no output is left, or too many");
        } else {
            need(f, reach >= 0 && reach <= MAX_SIZE, "the kernel is larger than the input");
            found = f->what ? 1 : reach / s + 1;
        }
        int own = axis - (4 - f->in->rank);
        if (own >= 0) f->out->shape[1 + own] = found; /* else it has one, whatever settings say */
    }
    f->out->rank = f->in->rank;
    f->out->shape[0] = g.outputs;
    return !f->what;
}

static bool linear(Fitting *f)
{
    const Weight *weight = &f->weights[0];
    if (!need(f, weight->shape && weight->rank == 2 && weight->size,
              "its weight is missing or not a matrix"))
        return false;
    int last = f->in->rank - 1;
    need(f, last >= 0 && f->in->shape[last < 0 ? 0 : last] == weight->shape[1],
         "its weight has another size");
    need(f, is_vector(&f->weights[1], weight->shape[0]), "its bias has another size");
    if (f->what) return false;
    same_shape(f->out, f->in);
    f->out->shape[last] = weight->shape[0];
    return true;
}

static bool pooling(Fitting *f)
{
    if (!is_image(f)) return false;
    int op = f->node->op;
    int64_t sizes[2] = {1, 1};
    if (op == OP_ADAPTIVE_AVG_POOL || op == OP_ADAPTIVE_MAX_POOL) {
        for (int axis = 0; axis < 2; axis++) {
            sizes[axis] = setting(f, ADAPTIVE_AVG_POOL_SIZE_H + axis);
            bool counts = axis == 1 || f->in->rank == 3; /* a signal has no height to divide */
            need(f, sizes[axis] > 0 && (!counts || sizes[axis] <= MAX_SIZE), "its settings");
        }
    } else {
        if (op == OP_AVG_POOL) need(f, setting(f, AVG_POOL_DIVISOR) >= 0, "its divisor");
        for (int axis = 0; axis < 2 && !f->what; axis++) {
            PoolAxis a = pool_axis(f->node, f->in, f->in, axis);
            need(f,
                 a.kernel > 0 && a.stride > 0 && a.dilation > 0 && a.padding >= 0 &&
                     a.padding <= a.kernel / 2,
                 "its settings");
            if (f->what) break;
            int64_t reach = a.size + 2 * a.padding - a.dilation * (a.kernel - 1) - 1;
            need(f, reach >= 0, "the window is larger than the input");
            if (f->what) break;
            sizes[axis] = reach / a.stride + 1;
            /* One more that is not whole, unless it would begin in the padding. */
            if (setting(f, MAX_POOL_CEIL) && reach % a.stride &&
                sizes[axis] * a.stride < a.size + a.padding)
                sizes[axis]++;
        }
    }
    like_image(f, f->in->shape[0], sizes[0], sizes[1]);
    return !f->what;
}

static bool norm(Fitting *f)
{
    int op = f->node->op, weights = f->node->operation->weights;
    bool by_channel = op == OP_BATCH_NORM || op == OP_GROUP_NORM;
    int64_t rank = by_channel ? 1 : setting(f, LAYER_NORM_RANK);
    if (!need(f, f->in->rank > 0 && rank > 0 && rank <= f->in->rank, "its rank")) return false;
    if (op == OP_BATCH_NORM)
        need(f, f->weights[2].shape && f->weights[3].shape, "mean or variance is missing");
    if (op == OP_GROUP_NORM) {
        int64_t groups = setting(f, GROUP_NORM_GROUPS);
        need(f, groups > 0 && f->in->shape[0] % (groups > 0 ? groups : 1) == 0, "its groups");
    }
    const int64_t *sizes = by_channel ? f->in->shape : f->in->shape + f->in->rank - rank;
    for (int i = 0; i < weights; i++) {
        const Weight *w = &f->weights[i];
        if (!w->shape) continue;
        need(f, w->rank == rank && !memcmp(w->shape, sizes, (size_t)rank * sizeof *sizes),
             "weights of another size");
    }
    same_shape(f->out, f->in);
    return !f->what;
}

static bool of_two(Fitting *f)
{
    if (!need(f, f->in->rank == f->second->rank, "shapes of other ranks")) return false;
    same_shape(f->out, f->in);
    for (int i = 0; i < f->in->rank; i++) {
        int64_t a = f->in->shape[i], b = f->second->shape[i];
        need(f, a == b || a == 1 || b == 1, "shapes that differ");
        f->out->shape[i] = a == 1 ? b : a;
    }
    return !f->what;
}

static bool cat(Fitting *f)
{
    int64_t axis = setting(f, CAT_DIM) - 1;
    if (!need(f, axis >= 0 && axis < f->in->rank, "its dimension")) return false;
    same_shape(f->out, f->in);
    for (int i = 1; i < f->node->count && !f->what; i++) {
        const Value *other = &f->net->values[f->node->inputs[i]];
        if (!need(f, other->rank == f->in->rank, "shapes of other ranks")) break;
        for (int k = 0; k < f->in->rank; k++)
            need(f, k == axis || other->shape[k] == f->in->shape[k], "shapes that differ");
        f->out->shape[axis] += other->shape[axis];
        need(f, f->out->shape[axis] <= MAX_SIZE, "it is too large");
    }
    return !f->what;
}

static bool view(Fitting *f)
{
    const Node *node = f->node;
    if (node->op == OP_FLATTEN) {
        int64_t start = setting(f, FLATTEN_START) - 1, end = setting(f, FLATTEN_END);
        if (end == -1) end = f->in->rank;
        if (!need(f, start >= 0 && start < end && end <= f->in->rank, "its dimensions"))
            return false;
        f->out->rank = f->in->rank - (int)(end - start) + 1;
        memcpy(f->out->shape, f->in->shape, sizeof f->out->shape);
        f->out->shape[start] = product(f->in->shape, (int)start, (int)end);
        for (int64_t i = end; i < f->in->rank; i++)
            f->out->shape[start + 1 + i - end] = f->in->shape[i];
        return true;
    }
    int64_t known = 1, open = -1;
    f->out->rank = node->listed;
    for (int i = 0; i < node->listed; i++) {
        int64_t size = node->list[i];
        if (size == -1) {
            if (!need(f, open < 0, "its sizes")) return false;
            open = i;
        } else {
            if (!need(f, size > 0 && size <= f->in->size / known, "its sizes")) return false;
            known *= size;
        }
        f->out->shape[i] = size;
    }
    if (open >= 0) f->out->shape[open] = f->in->size / known;
    return need(f, product(f->out->shape, 0, f->out->rank) == f->in->size, "its sizes");
}

static bool moving(Fitting *f)
{
    const Node *node = f->node;
    int rank = f->in->rank;
    same_shape(f->out, f->in);
    if (node->op == OP_PERMUTE) {
        uint32_t seen = 0;
        need(f, node->listed == rank, "its dimensions");
        for (int i = 0; i < node->listed && !f->what; i++) {
            int64_t dim = node->list[i];
            if (!need(f, dim > 0 && dim <= rank && !(seen >> dim & 1), "its dimensions"))
                return false;
            seen |= 1u << dim;
            f->out->shape[i] = f->in->shape[dim - 1];
        }
        return !f->what;
    }
    if (node->op == OP_EXPAND) {
        if (!need(f, node->listed == rank, "its sizes")) return false;
        for (int i = 0; i < rank; i++) {
            int64_t size = node->list[i], old = f->in->shape[i];
            need(f, size > 0 && (old == 1 || old == size), "its sizes");
            f->out->shape[i] = size;
        }
        return !f->what;
    }
    bool pads = node->op == OP_PAD;
    int64_t axis = setting(f, pads ? PAD_DIM : SLICE_DIM) - 1;
    if (!need(f, axis >= 0 && axis < rank, "its dimension")) return false;
    int64_t size = f->in->shape[axis];
    if (pads) {
        int64_t before = setting(f, PAD_BEFORE), after = setting(f, PAD_AFTER),
                mode = setting(f, PAD_MODE);
        if (!need(f, mode >= 0 && mode < 4, "its mode")) return false;
        int64_t most = mode == 1 ? size - 1 : mode == 3 ? size : MAX_SIZE;
        need(f, before >= 0 && after >= 0 && before <= most && after <= most, "its settings");
        f->out->shape[axis] = size + before + after;
        return !f->what;
    }
    int64_t start = setting(f, SLICE_START), count = setting(f, SLICE_SIZE),
            step = setting(f, SLICE_STEP);
    if (start < 0) start += size;
    need(f, start >= 0 && step > 0 && count > 0 && start + (count - 1) * step < size,
         "its settings");
    f->out->shape[axis] = count;
    return !f->what;
}

static bool reduction(Fitting *f)
{
    same_shape(f->out, f->in);
    if (f->node->op != OP_MEAN) {
        int64_t dim = setting(f, SOFTMAX_DIM);
        return need(f, dim < 0 && dim >= -f->in->rank, "its dimension");
    }
    int64_t first = setting(f, MEAN_DIM) - 1, count = setting(f, MEAN_COUNT);
    if (!need(f, first >= 0 && count > 0 && count <= f->in->rank - first, "its dimensions"))
        return false;
    for (int64_t i = first; i < first + count; i++) f->out->shape[i] = 1;
    return true;
}

static bool resizing(Fitting *f)
{
    int64_t axis = setting(f, RESIZE_DIM) - 1, size = setting(f, RESIZE_SIZE),
            mode = setting(f, RESIZE_MODE);
    double scale = f->node->settings[RESIZE_SCALE];
    if (!need(f, f->in->rank >= 2 && f->in->rank <= 4 && axis > 0 && axis < f->in->rank,
              "its dimension"))
        return false;
    need(f, mode >= 0 && mode < 4, "its mode");
    need(f, size > 0 && size <= MAX_SIZE, "its size");
    need(f,
         scale == 0 || (isfinite(scale) && mode != 2 &&
                        floor((double)f->in->shape[axis] * scale) == (double)size),
         "its scale");
    same_shape(f->out, f->in);
    f->out->shape[axis] = size;
    return !f->what;
}

static bool fits_mask(Fitting *f, int64_t kind, int64_t heads, int64_t rows, int64_t columns)
{
    const Weight *mask = &f->weights[0];
    need(f, kind >= ADDED && kind <= HIDDEN, "its kind of mask");
    if (!mask->shape) return !f->what;
    if (!need(f, mask->rank > 1 && mask->size > 0, "its mask")) return false;
    int64_t leading = product(mask->shape, 0, mask->rank - 2);
    need(f, leading == 1 || leading == heads, "its mask");
    need(f, mask->shape[mask->rank - 2] >= rows && mask->shape[mask->rank - 1] >= columns,
         "its mask is too small");
    return !f->what;
}

static bool attention(Fitting *f)
{
    const Value *q = f->in, *k = f->second, *v = f->third;
    if (!need(f, q->rank == 2 && k->rank == 2 && v->rank == 2, "shapes of other ranks"))
        return false;
    int64_t heads = setting(f, ATTENTION_HEADS);
    if (!need(f, heads > 0 && q->shape[1] % heads == 0 && v->shape[1] % heads == 0, "its heads"))
        return false;
    need(f, q->shape[1] == k->shape[1] && k->shape[0] == v->shape[0], "shapes that differ");
    need(f, heads * q->shape[0] <= MAX_SIZE / k->shape[0], "more tokens than one example may have");
    f->out->rank = 2, f->out->shape[0] = q->shape[0], f->out->shape[1] = v->shape[1];
    return !f->what && fits_mask(f, setting(f, ATTENTION_MASK), heads, q->shape[0], k->shape[0]);
}

static bool hide(Fitting *f)
{
    int rank = f->in->rank;
    if (!need(f, rank > 1, "two dimensions are needed")) return false;
    int64_t kind = setting(f, HIDE_MASK), heads = product(f->in->shape, 0, rank - 2);
    need(f, kind == SHOWN || kind == HIDDEN, "its kind of mask");
    need(f, f->weights[0].shape || setting(f, HIDE_CAUSAL), "its mask is missing");
    same_shape(f->out, f->in);
    return !f->what && fits_mask(f, kind, heads, f->in->shape[rank - 2], f->in->shape[rank - 1]);
}

static bool matmul(Fitting *f)
{
    const Value *a = f->in, *b = f->second;
    int rank = a->rank;
    if (!need(f, rank == b->rank && rank >= 2, "shapes of other ranks")) return false;
    need(f, a->shape[rank - 1] == b->shape[rank - 2], "shapes that differ");
    for (int i = 0; i < rank - 2; i++) need(f, a->shape[i] == b->shape[i], "shapes that differ");
    same_shape(f->out, a);
    f->out->shape[rank - 1] = b->shape[rank - 1];
    return !f->what;
}

static bool embedding(Fitting *f)
{
    const Weight *table = &f->weights[0];
    if (!need(f, table->shape && table->rank == 2 && table->size,
              "its weight is missing or not a matrix"))
        return false;
    need(f, table->shape[0] <= MAX_IDS, "its table has too many rows");
    need(f, f->in->rank < MAX_RANK, "too many dimensions");
    if (f->what) return false;
    same_shape(f->out, f->in);
    f->out->shape[f->out->rank++] = table->shape[1];
    return true;
}

static bool constant(Fitting *f)
{
    const Weight *w = &f->weights[0];
    int op = f->node->op;
    if (!need(f, w->shape && w->size, "its weight is missing")) return false;
    if (!need(f, w->rank <= (op == OP_CUT ? MAX_LIST : 7), "its weight has too many dimensions"))
        return false;
    f->out->rank = w->rank;
    memcpy(f->out->shape, w->shape, (size_t)w->rank * sizeof *w->shape);
    if (op == OP_WEIGHT_NORM) {
        const Weight *length = &f->weights[1];
        int64_t dim = setting(f, WEIGHT_NORM_DIM);
        if (!need(f, length->shape && length->rank == w->rank && dim >= 0 && dim < w->rank,
                  "its dimension"))
            return false;
        for (int i = 0; i < w->rank; i++)
            need(f, length->shape[i] == (i == dim ? w->shape[i] : 1), "weights of another size");
    }
    if (op == OP_CUT) {
        if (!need(f, w->rank == f->node->listed, "its weight")) return false;
        for (int i = 0; i < w->rank; i++) {
            int64_t dim = f->node->list[i];
            if (!need(f, dim >= 0 && dim <= f->in->rank, "its dimensions")) return false;
            if (dim) f->out->shape[i] = f->in->shape[dim - 1];
            need(f, f->out->shape[i] <= w->shape[i], "its table is too short");
        }
    }
    return !f->what;
}

/* The units of one direction of a recurrent layer; 0 where its weights do not fit together. */
static int64_t units_of(const Weight *w, int64_t gates, int64_t features)
{
    if (!w[0].shape || !w[1].shape || w[0].rank != 2 || w[1].rank != 2) return 0;
    int64_t rows = w[1].shape[0], units = w[1].shape[1];
    bool fits = units > 0 && rows <= MAX_ROWS && rows == gates * units && w[0].shape[0] == rows;
    fits = fits && w[0].shape[1] == features && is_vector(&w[2], rows) && is_vector(&w[3], rows);
    return fits ? units : 0;
}

static bool recurrent(Fitting *f)
{
    bool lstm = f->node->op == OP_LSTM, both = false;
    int64_t gates = lstm ? 4 : 3, cells = lstm ? setting(f, LSTM_CELLS) : 0;
    int states = lstm ? 2 : 1, count = f->node->count;
    for (int i = 4; i < 8; i++) both = both || f->weights[i].shape;
    need(f, count == 1 || count == 1 + states, "the number of its inputs");
    if (!need(f, f->in->rank == 2 && (cells == 0 || cells == 1), "its settings")) return false;
    int64_t units = units_of(f->weights, gates, f->in->shape[1]), directions = both ? 2 : 1;
    if (!need(f, units > 0, "its weights")) return false;
    if (both) need(f, units_of(f->weights + 4, gates, f->in->shape[1]) == units, "its directions");
    need(f, f->in->shape[0] <= MAX_SIZE / (directions * gates * units), "its size");
    for (int i = 1; i < count; i++) {
        const Value *state = &f->net->values[f->node->inputs[i]];
        need(f, state->rank == 2 && state->shape[0] == directions && state->shape[1] == units,
             "its states");
    }
    f->out->rank = 2, f->out->shape[0] = f->in->shape[0] + cells,
    f->out->shape[1] = directions * units;
    return !f->what;
}

static bool prelu(Fitting *f)
{
    const Weight *w = &f->weights[0];
    need(f,
         w->shape && w->rank == 1 && f->in->rank > 0 &&
             (w->size == 1 || w->size == f->in->shape[0]),
         "weights of another size");
    same_shape(f->out, f->in);
    return !f->what;
}

static bool each(Fitting *f)
{
    same_shape(f->out, f->in);
    return true;
}

bool fit(Fitting *f)
{
    switch (f->node->operation->kind) {
    case KIND_CONVOLUTION: return convolution(f);
    case KIND_LINEAR: return linear(f);
    case KIND_POOLING: return pooling(f);
    case KIND_NORM: return norm(f);
    case KIND_TWO: return of_two(f);
    case KIND_PRELU: return prelu(f);
    case KIND_CAT: return cat(f);
    case KIND_VIEW: return view(f);
    case KIND_MOVING:
    case KIND_PAD: return moving(f);
    case KIND_MEAN:
    case KIND_SOFTMAX: return reduction(f);
    case KIND_RESIZE: return resizing(f);
    case KIND_ATTENTION: return attention(f);
    case KIND_HIDE: return hide(f);
    case KIND_MATMUL: return matmul(f);
    case KIND_EMBEDDING: return embedding(f);
    case KIND_CONSTANT: return constant(f);
    case KIND_RECURRENT: return recurrent(f);
    case KIND_EACH: return each(f);
    default: return false; /* one of KIND_UNKNOWN: nothing is told of its sizes */
    }
}
