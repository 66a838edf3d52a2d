/* LSTM and GRU over one sequence: the recurrent matrix by its non-zeros, and all gates of a unit in
   one pass. What the inputs add is there already, for a part of the steps: the layer before has computed
   it. */

enum {
    N_FIRST, N_STEPS,          /* the first step of this part, and how many it has */
    N_UNITS, N_SLICES, N_DENSE, /* slices of rows; of 32 if dense */
    N_ROW,                     /* the numbers of a step in the inputs' sums, which are those of this part */
    N_OUT_ROW, N_OUT,          /* in the results, and where this direction's are */
    N_MEMORY,                  /* where in the memory the state of this direction is */
    N_ORDERS,                  /* in how many orders it is there */
    N_BACKWARD, N_GIVEN,       /* from the last step on; with a state */
    N_CELLS,                   /* the row of results that the cells become; 0: none */
};

INLINE Vec8 clamp8(Vec8 x, float low, float high)
{
#ifdef __AVX2__
    return (Vec8)_mm256_min_ps(_mm256_set1_ps(high), _mm256_max_ps(_mm256_set1_ps(low), (__m256)x));
#else
    Vec8i below = x < splat8(low), above = x > splat8(high);
    x = (Vec8)((below & (Vec8i)splat8(low)) | (~below & (Vec8i)x));
    return (Vec8)((above & (Vec8i)splat8(high)) | (~above & (Vec8i)x));
#endif
}

INLINE Vec8 polynomial8(Vec8 x, const float *factors)
{
    Vec8 sum = splat8(factors[4]);
    UNROLL for (int i = 3; i >= 0; i--) sum = sum * x + splat8(factors[i]);
    return sum;
}

/* x·P(x²)/Q(x²), fitted for the least largest error: with rounding it is 4e-7 of the result at most.
   Beyond the limits tanh is 1 in single precision. */
INLINE Vec8 tanh8(Vec8 x)
{
    static const float above[] = {0.999999977f, 0.133744753f, 3.48781125e-3f, 2.04811906e-5f,
                                  1.31775282e-8f};
    static const float below[] = {1, 0.467077891f, 2.58473893e-2f, 3.27292055e-4f, 7.70404844e-7f};
    x = clamp8(x, -9.1f, 9.1f);
    return x * polynomial8(x * x, above) / polynomial8(x * x, below);
}

INLINE Vec8 sigmoid8(Vec8 x) { return splat8(0.5f) + splat8(0.5f) * tanh8(splat8(0.5f) * x); }

/* A step of a sparse matrix takes a weight of each row of a slice: of sixteen where a shuffle takes its
   numbers from two vectors of that many, or else of eight. */
#ifdef __AVX512F__
enum { SIDE = 16 };
#else
enum { SIDE = 8 };
#endif
enum { STEPS = 32 / SIDE }; /* at once: a slice has a multiple of them */
typedef float VecSide __attribute__((vector_size(4 * SIDE), aligned(4), may_alias));

/* Each weight takes the number whose place its lowest bits are: in the window, or of sixteen rows in the
   one before it and the window. */
INLINE VecSide taken(VecSide before, VecSide window, VecSide weights)
{
    (void)before;
#ifdef __AVX512F__
    return (VecSide)_mm512_permutex2var_ps((__m512)before, (__m512i)weights, (__m512)window);
#elif defined __AVX2__
    return (VecSide)_mm256_permutevar8x32_ps((__m256)window, (__m256i)weights);
#else
    Vec8i at = (Vec8i)weights & 7;
    return (VecSide){window[at[0]], window[at[1]], window[at[2]], window[at[3]],
                     window[at[4]], window[at[5]], window[at[6]], window[at[7]]};
#endif
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

INLINE VecSide pick(const float *from, const uint16_t *places)
{
#ifdef __AVX512F__
    return __builtin_shufflevector(pick8(from, places), pick8(from, places + 8), 0, 1, 2, 3, 4, 5, 6, 7,
                                   8, 9, 10, 11, 12, 13, 14, 15);
#else
    return pick8(from, places);
#endif
}

/* The state in other orders: `table` names vectors of it, and eight of them are turned at a time. With
   more orders there are more sets of eight units that lie side by side. */
INLINE void reorder(const Step *s, float *state, int64_t padded)
{
    const uint16_t *table = s->data[1];
    float *to = state + padded, *end = state + padded * s->size[N_ORDERS];
    for (; to < end; to += 64, table += 8) {
        const float *rows[8];
        UNROLL for (int i = 0; i < 8; i++) rows[i] = state + table[i];
        turn_rows8(to, 8, rows);
    }
}

/* A sparse recurrent matrix times the state, slice by slice: data[2] has the first row of each and how
   many steps it takes. A step multiplies at most one weight of each row, all of them with inputs from a
   window of places side by side; covering.c finds the steps. A few weights of each row are left, whose
   inputs are picked one by one. data[0]: the weights left of all slices, then those of the steps; data[1]:
   the table above, places of the weights left, where windows begin; data[3]: biases. */
INLINE void recur_sparse(const Step *s, const float *state, int64_t padded, float *sums)
{
    int64_t slices = s->size[N_SLICES], table = (s->size[N_ORDERS] - 1) * padded / 8;
    const float *left = s->data[0], *weights = left + slices * SIDE * LEFT, *bias = s->data[3];
    const uint16_t *places = (const uint16_t *)s->data[1] + table;
    const uint16_t *starts = places + slices * SIDE * LEFT;
    const int32_t *slice = s->data[2];
    for (int64_t i = 0; i < slices; i++, slice += 2, left += SIDE * LEFT, places += SIDE * LEFT) {
        VecSide acc[STEPS] = {*(const VecSide *)(bias + slice[0])}, before = *(const VecSide *)state;
        UNROLL for (int k = 0; k < LEFT; k++)
            acc[k % STEPS] += *(const VecSide *)(left + SIDE * k) * pick(state, places + SIDE * k);
        for (int64_t k = slice[1]; k > 0; k -= STEPS, weights += SIDE * STEPS, starts += STEPS)
            UNROLL for (int j = 0; j < STEPS; j++) {
                VecSide weight = *(const VecSide *)(weights + SIDE * j);
                VecSide window = *(const VecSide *)(state + starts[j]);
                IN_REGISTER(weight); /* or it is loaded twice */
                IN_REGISTER(window); /* a shuffle that loads takes twice as long */
                acc[j] += weight * taken(before, window, weight);
                before = window;
            }
        UNROLL for (int j = 1; j < STEPS; j++) acc[0] += acc[j];
        *(VecSide *)(sums + slice[0]) = acc[0];
    }
}

/* A dense one: 32 rows are side by side, and there are no places. */
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
    return *(const Vec8 *)(g->sums + gate * g->units + u);
}

INLINE Vec8 *gate8(const Gates *g, int gate, int64_t u)
{
    return (Vec8 *)(g->gates + gate * g->padded + u);
}

/* Gate by gate and then the state: what waits for a quotient leaves room for the next one. */
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
    int64_t units = n[N_UNITS], padded = (units + 63) / 64 * 64;
    float *state = memory + n[N_MEMORY], *cell = state + n[N_ORDERS] * padded;
    float *opened = cell + cells * padded, *sums = opened + (cells ? 4 : 3) * padded;
    if (!n[N_GIVEN]) {
        __builtin_memset(state, 0, units * sizeof(float));
        __builtin_memset(cell, 0, cells * units * sizeof(float));
    }
    /* A weight that is not there is zero, times whatever is side by side with the others' inputs. */
    __builtin_memset(state + units, 0, (padded - units) * sizeof(float));
    for (int64_t i = 0; i < n[N_STEPS]; i++) {
        int64_t t = n[N_BACKWARD] ? n[N_STEPS] - 1 - i : i;
        Gates g = {in + t * n[N_ROW], sums, opened, units, padded};
        float *to = out + (n[N_FIRST] + t) * n[N_OUT_ROW] + n[N_OUT];
        if (n[N_DENSE]) {
            recur_dense(s, state, sums);
        } else {
            reorder(s, state, padded);
            recur_sparse(s, state, padded, sums);
        }
        if (cells)
            lstm_step(&g, state, cell);
        else
            gru_step(&g, state);
        for (int64_t u = units; u % 8; u++) state[u] = 0;
        __builtin_memcpy(to, state, units * sizeof(float));
    }
    if (n[N_CELLS])
        __builtin_memcpy(out + n[N_CELLS] * n[N_OUT_ROW] + n[N_OUT], cell, units * sizeof(float));
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
   images. data as there, but that GROUP outputs are together; the memory holds the columns of inputs, and
   of the results of a group. */
enum { M_OUTPUTS, M_ROWS, M_INPUTS, M_WIDTH, M_FIRST }; /* F_ROWS is the first; the last: of the rows */
enum { GROUP = 256 };

/* Of as many rows as there are, with zeros up to a whole vector. */
INLINE void rows_to_columns(const float *in, int64_t inputs, int64_t rows, float *columns)
{
    static const float none[8];
    for (int64_t i = 0; i < (rows + WIDTH - 1) / WIDTH * WIDTH; i += 8)
        for (int64_t k = 0; k < inputs; k += 8) {
            const float *from[8];
            UNROLL for (int j = 0; j < 8; j++) from[j] = i + j < rows ? in + (i + j) * inputs + k : none;
            if (k + 8 <= inputs)
                turn_rows8(columns + k * BLOCK + i, BLOCK, from);
            else
                for (int64_t j = 0; j < 8 * (inputs - k); j++)
                    columns[(k + j / 8) * BLOCK + i + j % 8] = from[j % 8][j / 8];
        }
}

static void fc_sparse_rows(const Step *s, const float *in, const float *other, float *out,
                           int64_t images)
{
    const int64_t *n = s->size;
    float *columns = (float *)other, *results = columns + n[M_INPUTS] * BLOCK;
    (void)images;
    in += n[M_FIRST] * n[M_INPUTS];
    for (int64_t row = 0; row < n[M_ROWS]; row += BLOCK) {
        int64_t rows = n[M_ROWS] - row < BLOCK ? n[M_ROWS] - row : BLOCK;
        rows_to_columns(in + row * n[M_INPUTS], n[M_INPUTS], rows, columns);
        for (int64_t o = 0; o < n[M_OUTPUTS]; o += GROUP) {
            Step group = *s;
            group.size[F_ROWS] = n[M_OUTPUTS] - o < GROUP ? n[M_OUTPUTS] - o : GROUP;
            group.data[1] = (const int32_t *)s->data[1] + o;
            group.data[2] = (const int32_t *)s->data[2] + o;
            group.data[3] = (const float *)s->data[3] + o;
            if (rows > WIDTH)
                fc_sparse(&group, columns, other, results, rows);
            else
                fc_columns(&group, columns, results, 1, 4);
            turn_back(results, group.size[F_ROWS], rows, out + row * n[M_WIDTH] + o, n[M_WIDTH]);
        }
    }
}
