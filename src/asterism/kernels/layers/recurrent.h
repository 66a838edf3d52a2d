/* LSTM and GRU over one sequence: the recurrent matrix by its non-zeros, and all gates of a unit in
   one pass. What the inputs add is there already, for all steps: the layer before has computed it. */

enum {
    N_STEPS, N_UNITS, N_SLICES, N_DENSE, /* slices of sixteen rows; of 32 if dense */
    N_ROW, N_PLACE,   /* of the inputs' sums: the numbers of a step, and where this direction's are */
    N_OUT_ROW, N_OUT, /* the same of the results */
    N_MEMORY,         /* where in the memory the state of this direction is */
    N_PLACES,         /* how many places there are; the last ones are the gates' */
    N_BACKWARD, N_GIVEN, N_CELLS, /* from the last step on; with a state; the cells as a last row */
};

INLINE Vec8 choose8(Vec8i where, Vec8 yes, Vec8 no)
{
    return (Vec8)((where & (Vec8i)yes) | (~where & (Vec8i)no));
}

INLINE Vec8 clamp8(Vec8 x, float low, float high)
{
#ifdef __AVX2__
    return (Vec8)_mm256_min_ps(_mm256_set1_ps(high), _mm256_max_ps(_mm256_set1_ps(low), (__m256)x));
#else
    x = choose8(x < splat8(low), splat8(low), x);
    return choose8(x > splat8(high), splat8(high), x);
#endif
}

/* e^x to about one unit in the last place, for −87 < x < 87; beyond it stays what it is there. */
INLINE Vec8 exp8(Vec8 x)
{
    x = clamp8(x, -87, 87);
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

/* The recurrent matrix times the state. data: weights, places, where slices begin, biases. A sparse matrix
   is as SELL-8 in fc.h, but of slices of sixteen rows, as each end of a slice costs as much as many
   weights; of a dense one 32 rows are side by side, and it has no places. */
INLINE void recur_sparse(const Step *s, const float *state, float *sums)
{
    const float *weights = s->data[0], *bias = s->data[3];
    const uint16_t *places = s->data[1];
    const int32_t *starts = s->data[2];
    for (int64_t i = 0; i < s->size[N_SLICES]; i++, bias += 16, sums += 16) {
        Vec8 one = *(const Vec8 *)bias, two = *(const Vec8 *)(bias + 8);
        for (int64_t k = starts[i]; k < starts[i + 1]; k++, weights += 16, places += 16) {
            one += *(const Vec8 *)weights * pick8(state, places);
            two += *(const Vec8 *)(weights + 8) * pick8(state, places + 8);
        }
        *(Vec8 *)sums = one;
        *(Vec8 *)(sums + 8) = two;
    }
}

INLINE void recur_dense(const Step *s, const float *state, float *sums)
{
    const float *weights = s->data[0], *bias = s->data[3];
    int64_t length = s->size[N_UNITS];
    for (int64_t i = 0; i < s->size[N_SLICES]; i++, bias += 32, sums += 32) {
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
    float *gates;               /* what becomes of them */
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

INLINE Vec8 *gate8(const Gates *g, int gate, int64_t u)
{
    return (Vec8 *)(g->gates + gate * g->padded + u);
}

/* Gate by gate and then the state: what waits for an exponential leaves room for the next one's. */
INLINE void open_gate(const Gates *g, int gate, const int tanh)
{
    for (int64_t u = 0; u < g->units; u += 8) {
        Vec8 x = given8(g, gate, u) + own8(g, gate, u);
        *gate8(g, gate, u) = tanh ? tanh8(x) : sigmoid8(x);
    }
}

/* Gates in torch's order: input, forget, cell, output. */
INLINE void lstm_step(const Gates *g, float *state, float *cells)
{
    UNROLL for (int gate = 0; gate < 4; gate++) open_gate(g, gate, gate == 2);
    for (int64_t u = 0; u < g->units; u += 8) {
        Vec8 *cell = (Vec8 *)(cells + u);
        *cell = *gate8(g, 1, u) * *cell + *gate8(g, 0, u) * *gate8(g, 2, u);
        *(Vec8 *)(state + u) = *gate8(g, 3, u) * tanh8(*cell);
    }
}

/* Reset, update, new. */
INLINE void gru_step(const Gates *g, float *state)
{
    UNROLL for (int gate = 0; gate < 2; gate++) open_gate(g, gate, 0);
    for (int64_t u = 0; u < g->units; u += 8) {
        Vec8 *at = (Vec8 *)(state + u), new = tanh8(given8(g, 2, u) + *gate8(g, 0, u) * own8(g, 2, u));
        *at = new + *gate8(g, 1, u) * (*at - new);
    }
}

INLINE void recurrent(const Step *s, const float *in, float *memory, float *out, const int cells)
{
    const int64_t *n = s->size;
    int64_t units = n[N_UNITS], padded = (units + 7) / 8 * 8;
    int64_t gates = cells ? 4 : 3;
    float *state = memory + n[N_MEMORY], *cell = state + padded, *opened = cell + cells * padded;
    float *sums = opened + gates * padded;
    const uint16_t *places = (const uint16_t *)s->data[1] + n[N_PLACES] - gates * padded;
    if (!n[N_GIVEN]) __builtin_memset(state, 0, (1 + cells) * padded * sizeof(float));
    for (int64_t i = 0; i < n[N_STEPS]; i++) {
        int64_t t = n[N_BACKWARD] ? n[N_STEPS] - 1 - i : i;
        Gates g = {in + t * n[N_ROW] + n[N_PLACE], sums, places, opened, units, padded};
        float *to = out + t * n[N_OUT_ROW] + n[N_OUT];
        if (n[N_DENSE])
            recur_dense(s, state, sums);
        else
            recur_sparse(s, state, sums);
        if (cells)
            lstm_step(&g, state, cell);
        else
            gru_step(&g, state);
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
        if (rows <= WIDTH)
            fc_columns(s, columns, results, 1);
        else if (rows <= 2 * WIDTH)
            fc_columns(s, columns, results, 2);
        else
            fc_columns(s, columns, results, VECTORS);
        Step turned = {.size = {n[M_WIDTH]}, .out = {.stride = n[M_WIDTH]}};
        from_columns(&turned, results, other, out + row * n[M_WIDTH], rows);
    }
}
