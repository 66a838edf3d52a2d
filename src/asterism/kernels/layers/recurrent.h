/* LSTM and GRU over one sequence: the recurrent matrix by its non-zeros, and all gates of a unit in
   one pass. What the inputs add is there already, for all steps: the layer before has computed it. */

enum {
    N_STEPS, N_UNITS, N_SLICES, N_LENGTH, /* slices of eight rows; in a dense matrix all of N_LENGTH */
    N_ROW, N_PLACE,   /* of the inputs' sums: the numbers of a step, and where this direction's are */
    N_OUT_ROW, N_OUT, /* the same of the results */
    N_MEMORY,         /* where in the memory the state of this direction is */
    N_BACKWARD, N_GIVEN, N_CELLS, /* from the last step on; with a state; the cells as a last row */
};

INLINE Vec8 choose8(Vec8i where, Vec8 yes, Vec8 no)
{
    return (Vec8)((where & (Vec8i)yes) | (~where & (Vec8i)no));
}

/* e^x to about one unit in the last place, for −87 < x < 87; beyond it stays what it is there. */
INLINE Vec8 exp8(Vec8 x)
{
    x = choose8(x < splat8(-87), splat8(-87), x);
    x = choose8(x > splat8(87), splat8(87), x);
    const Vec8 round = splat8(12582912); /* 1.5·2^23: to add it rounds to a whole number */
    Vec8 shifted = x * splat8(1.44269504f) + round, whole = shifted - round;
    Vec8 r = x - whole * splat8(0.693359375f) + whole * splat8(2.12194440e-4f);
    Vec8 sum = splat8(1.9875691500e-4f);
    sum = sum * r + splat8(1.3981999507e-3f);
    sum = sum * r + splat8(8.3334519073e-3f);
    sum = sum * r + splat8(4.1665795894e-2f);
    sum = sum * r + splat8(1.6666665459e-1f);
    sum = sum * r + splat8(5.0000001201e-1f);
    sum = sum * r * r + r + splat8(1);
    return (Vec8)((Vec8i)sum + ((Vec8i)shifted << 23));
}

INLINE Vec8 sigmoid8(Vec8 x) { return splat8(1) / (splat8(1) + exp8(-x)); }

/* Near zero by a polynomial, as 1 − 2/(e^2x + 1) would lose digits there. */
INLINE Vec8 tanh8(Vec8 x)
{
    Vec8 square = x * x, sum = splat8(-5.70498872745e-3f);
    sum = sum * square + splat8(2.06390887954e-2f);
    sum = sum * square + splat8(-5.37397155531e-2f);
    sum = sum * square + splat8(1.33314422036e-1f);
    sum = sum * square + splat8(-3.33332819422e-1f);
    Vec8 near = sum * square * x + x;
    Vec8 far = splat8(1) - splat8(2) / (exp8(x + x) + splat8(1));
    return choose8(square < splat8(0.390625f), near, far);
}

/* Eight numbers by their places, two places in one load. Lane by lane: gather instructions are slow
   on many machines. */
INLINE Vec8 pick8(const float *from, const uint16_t *places)
{
    uint32_t p[4];
    __builtin_memcpy(p, places, sizeof p);
    return (Vec8){from[(uint16_t)p[0]], from[p[0] >> 16], from[(uint16_t)p[1]], from[p[1] >> 16],
                  from[(uint16_t)p[2]], from[p[2] >> 16], from[(uint16_t)p[3]], from[p[3] >> 16]};
}

/* data: weights, places, where slices begin, biases. The recurrent matrix times the state, slice by
   slice: of a sparse matrix SELL-8, as in fc.h; a dense one has no places, and four slices side by side. */
INLINE void recur(const Step *s, const float *state, float *sums)
{
    const float *weights = s->data[0], *bias = s->data[3];
    const uint16_t *places = s->data[1];
    const int32_t *starts = s->data[2];
    for (int64_t i = 0; i < s->size[N_SLICES]; i++, bias += 8, sums += 8) {
        Vec8 one = *(const Vec8 *)bias, two = splat8(0);
        const float *end = (const float *)s->data[0] + 8 * (int64_t)starts[i + 1];
        for (; weights + 8 < end; weights += 16, places += 16) {
            one += *(const Vec8 *)weights * pick8(state, places);
            two += *(const Vec8 *)(weights + 8) * pick8(state, places + 8);
        }
        if (weights < end) {
            one += *(const Vec8 *)weights * pick8(state, places);
            weights += 8, places += 8;
        }
        *(Vec8 *)sums = one + two;
    }
}

INLINE void recur_dense(const Step *s, const float *state, float *sums)
{
    const float *weights = s->data[0], *bias = s->data[3];
    int64_t length = s->size[N_LENGTH];
    for (int64_t i = 0; i < s->size[N_SLICES]; i += 4, bias += 32, sums += 32) {
        Vec8 acc[4];
        UNROLL for (int v = 0; v < 4; v++) acc[v] = *(const Vec8 *)(bias + 8 * v);
        for (int64_t k = 0; k < length; k++, weights += 32)
            UNROLL for (int v = 0; v < 4; v++)
                acc[v] += *(const Vec8 *)(weights + 8 * v) * splat8(state[k]);
        UNROLL for (int v = 0; v < 4; v++) *(Vec8 *)(sums + 8 * v) = acc[v];
    }
}

typedef struct {
    const float *inputs, *sums; /* of a step: what the inputs add, and the state */
    const uint16_t *places;     /* of each gate's sums, in the order of the slices */
    int64_t units, padded;
} Gates;

/* What the inputs add to eight units of a gate, and what the state does. */
INLINE Vec8 given8(const Gates *g, int gate, int64_t u)
{
    return *(const Vec8 *)(g->inputs + gate * g->units + u);
}

INLINE Vec8 own8(const Gates *g, int gate, int64_t u)
{
    return pick8(g->sums, g->places + gate * g->padded + u);
}

/* Gates in torch's order: input, forget, cell, output. */
INLINE Vec8 lstm8(const Gates *g, int64_t u, float *cells)
{
    Vec8 in = sigmoid8(given8(g, 0, u) + own8(g, 0, u));
    Vec8 forget = sigmoid8(given8(g, 1, u) + own8(g, 1, u));
    Vec8 cell = forget * *(Vec8 *)(cells + u) + in * tanh8(given8(g, 2, u) + own8(g, 2, u));
    *(Vec8 *)(cells + u) = cell;
    return sigmoid8(given8(g, 3, u) + own8(g, 3, u)) * tanh8(cell);
}

/* Reset, update, new. */
INLINE Vec8 gru8(const Gates *g, int64_t u, Vec8 state)
{
    Vec8 reset = sigmoid8(given8(g, 0, u) + own8(g, 0, u));
    Vec8 update = sigmoid8(given8(g, 1, u) + own8(g, 1, u));
    Vec8 new = tanh8(given8(g, 2, u) + reset * own8(g, 2, u));
    return new + update * (state - new);
}

INLINE void recurrent(const Step *s, const float *in, float *memory, float *out, const int cells)
{
    const int64_t *n = s->size;
    int64_t units = n[N_UNITS], padded = (units + 7) / 8 * 8;
    float *state = memory + n[N_MEMORY], *cell = state + padded, *sums = cell + cells * padded;
    const int32_t *starts = s->data[2];
    const uint16_t *places = (const uint16_t *)s->data[1] + 8 * (int64_t)starts[n[N_SLICES]];
    if (!n[N_GIVEN]) __builtin_memset(state, 0, (1 + cells) * padded * sizeof(float));
    for (int64_t i = 0; i < n[N_STEPS]; i++) {
        int64_t t = n[N_BACKWARD] ? n[N_STEPS] - 1 - i : i;
        Gates g = {in + t * n[N_ROW] + n[N_PLACE], sums, places, units, padded};
        float *to = out + t * n[N_OUT_ROW] + n[N_OUT];
        if (n[N_LENGTH])
            recur_dense(s, state, sums);
        else
            recur(s, state, sums);
        for (int64_t u = 0; u < units; u += 8) {
            Vec8 *at = (Vec8 *)(state + u);
            *at = cells ? lstm8(&g, u, cell) : gru8(&g, u, *at);
        }
        __builtin_memcpy(to, state, units * sizeof(float));
    }
    if (n[N_CELLS])
        __builtin_memcpy(out + n[N_STEPS] * n[N_OUT_ROW] + n[N_OUT], cell, units * sizeof(float));
}

static void lstm(const Step *s, const float *in, const float *other, float *out, int64_t images)
{
    (void)images;
    recurrent(s, in, (float *)other, out, 1);
}

static void gru(const Step *s, const float *in, const float *other, float *out, int64_t images)
{
    (void)images;
    recurrent(s, in, (float *)other, out, 0);
}

/* A sparse layer over many rows of one image, 32 at a time and feature by feature: as fc_sparse over
   images. data as there; the memory holds the columns of inputs and results. */
enum { M_OUTPUTS, M_ROWS, M_INPUTS, M_WIDTH }; /* the first as F_ROWS: outputs that have entries */

static void fc_sparse_rows(const Step *s, const float *in, const float *other, float *out,
                           int64_t images)
{
    const int64_t *n = s->size;
    float *columns = (float *)other, *results = columns + n[M_INPUTS] * BLOCK;
    (void)images;
    for (int64_t row = 0; row < n[M_ROWS]; row += BLOCK) {
        int64_t rows = n[M_ROWS] - row < BLOCK ? n[M_ROWS] - row : BLOCK;
        for (int64_t i = 0; i < BLOCK; i += 8)
            for (int64_t k = 0; k < n[M_INPUTS]; k += 8) {
                const float *from = in + (row + i) * n[M_INPUTS] + k;
                if (i + 8 <= rows && k + 8 <= n[M_INPUTS])
                    turn8(columns + k * BLOCK + i, BLOCK, from, n[M_INPUTS]);
                else
                    for (int64_t j = 0; j < 64; j++)
                        if (k + j / 8 < n[M_INPUTS])
                            columns[(k + j / 8) * BLOCK + i + j % 8] =
                                i + j % 8 < rows ? from[j % 8 * n[M_INPUTS] + j / 8] : 0;
            }
        fc_sparse(s, columns, other, results, rows);
        Step turned = {.size = {n[M_WIDTH]}, .out = {.stride = n[M_WIDTH]}};
        from_columns(&turned, results, other, out + row * n[M_WIDTH], rows);
    }
}
