/* Layers with most of their weights: products of matrices, a tile of them in registers. A tile is as
   many rows as fit, of sixteen floats each: the lanes of a pixel, or channels side by side. */

enum { TALL = 12 / IN_PIXEL }; /* rows of a tile */

/* sums[r] += Σ_k a[r][k·a_step] · (sixteen floats of b), those at taps[k].offset, or k·b_step. */
INLINE void add_products(Vec *sums, const int rows, const float *const *a, int64_t a_step, const float *b,
                    int64_t b_step, const Entry *taps, int64_t depth)
{
    for (int64_t k = 0; k < depth; k++) {
        const float *from = taps ? b + taps[k].offset : b + k * b_step;
        Vec x[IN_PIXEL];
        UNROLL for (int i = 0; i < IN_PIXEL; i++) x[i] = *(const Vec *)(from + i * WIDTH);
        UNROLL for (int r = 0; r < rows; r++) {
            Vec factor = splat(a[r][k * a_step]);
            UNROLL for (int i = 0; i < IN_PIXEL; i++) sums[r * IN_PIXEL + i] += factor * x[i];
        }
    }
}

/* Calls CALL with ROWS_NOW as a constant, for its registers. */
#if WIDTH == 16
#define TALLER(CALL) ROWS_CASE(7, CALL) ROWS_CASE(8, CALL) ROWS_CASE(9, CALL) \
    ROWS_CASE(10, CALL) ROWS_CASE(11, CALL) ROWS_CASE(12, CALL)
#else
#define TALLER(CALL)
#endif
#if WIDTH >= 8
#define TALL_ONES(CALL) ROWS_CASE(4, CALL) ROWS_CASE(5, CALL) ROWS_CASE(6, CALL) TALLER(CALL)
#else
#define TALL_ONES(CALL)
#endif
#define ROWS_CASE(N, CALL) case N: { enum { ROWS_NOW = N }; CALL; break; }
#define BY_ROWS(rows, CALL) \
    switch (rows) { ROWS_CASE(1, CALL) ROWS_CASE(2, CALL) ROWS_CASE(3, CALL) TALL_ONES(CALL) }

/* Of `count` rows, those of tiles of about one height: where the i-th tile begins. */
INLINE int64_t tiles_of(int64_t count) { return (count + TALL - 1) / TALL; }
INLINE int64_t tile_start(int64_t count, int64_t i) { return count * i / tiles_of(count); }

INLINE void store_sums(float *out, int64_t pitch, const Vec *sums, const int rows)
{
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int i = 0; i < IN_PIXEL; i++)
            *(Vec *)(out + r * pitch + i * WIDTH) = sums[r * IN_PIXEL + i];
}

INLINE void add_sums(float *out, int64_t pitch, Vec *sums, const int rows)
{
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int i = 0; i < IN_PIXEL; i++)
            sums[r * IN_PIXEL + i] += *(const Vec *)(out + r * pitch + i * WIDTH);
    store_sums(out, pitch, sums, rows);
}

/* ------------------------------------------------------------------ any convolution */

INLINE void sum_pixels(const Sums *s, int64_t unit, const float *bias, const float *in, float *out,
                       const int rows)
{
    const Entry *taps = s->taps + s->begin[unit];
    int64_t count = s->begin[unit + 1] - s->begin[unit];
    const float *weights[TALL];
    UNROLL for (int r = 0; r < rows; r++) weights[r] = &taps[r * count].weight;
    for (int64_t x = 0; x < s->columns; x++, in += LANES, out += s->out_step) {
        Vec sums[TALL * IN_PIXEL];
        UNROLL for (int i = 0; i < rows * IN_PIXEL; i++)
            sums[i] = splat(bias ? bias[unit + i / IN_PIXEL] : 0);
        add_products(sums, rows, weights, sizeof(Entry) / sizeof(float), in, 0, taps, count);
        store_sums(out, s->out_unit, sums, rows);
    }
}

/* `sum_rows` where each unit has a tap everywhere: several units share what they read. */
static void sum_rows_dense(const Sums *s, const float *bias, const float *in, float *out)
{
    for (int64_t y = 0; y < s->rows; y++, in += s->in_row, out += s->out_row)
        for (int64_t i = 0; i < tiles_of(s->units); i++) {
            int64_t unit = tile_start(s->units, i), rows = tile_start(s->units, i + 1) - unit;
            float *to = out + unit * s->out_unit;
            BY_ROWS(rows, sum_pixels(s, unit, bias, in, to, ROWS_NOW))
        }
}

INLINE void dot_tile(float *sums, int64_t pitch, const float *in, const Entry *taps,
                     const float *gradient, int64_t depth, const int rows)
{
    const float *from[TALL];
    UNROLL for (int r = 0; r < rows; r++) from[r] = in + taps[r].offset;
    Vec made[TALL * IN_PIXEL] = {{0}};
    add_products(made, rows, from, 1, gradient, pitch, NULL, depth);
    add_sums(sums, pitch, made, rows);
}

/* A row of `gradient` with the units side by side: (columns, 16, units up to a multiple of 16). */
static void turn_row(const Sums *s, const float *gradient, float *turned, int64_t pitch)
{
    int64_t floats = s->columns * LANES;
    for (int64_t u = 0; u < s->units; u += 8)
        for (int64_t i = 0; i < floats; i += 8)
            if (u + 8 <= s->units)
                turn8(turned + i * pitch + u, pitch, gradient + u * s->out_unit + i, s->out_unit);
            else
                for (int64_t k = u; k < s->units; k++)
                    for (int64_t j = i; j < i + 8; j++)
                        turned[j * pitch + k] = gradient[k * s->out_unit + j];
}

/* Adds to the gradients of all taps, (taps, units up to a multiple of 16); `turned` is for a row. */
static void dot_rows_dense(const Sums *s, const float *in, const float *gradient, float *turned,
                           float *sums)
{
    int64_t pitch = (s->units + LANES - 1) / LANES * LANES, count = s->begin[1];
    for (int64_t y = 0; y < s->rows; y++, in += s->in_row, gradient += s->out_row) {
        turn_row(s, gradient, turned, pitch);
        for (int64_t i = 0; i < tiles_of(count); i++) {
            int64_t tap = tile_start(count, i), rows = tile_start(count, i + 1) - tap;
            for (int64_t u = 0; u < pitch; u += LANES) {
                float *to = sums + tap * pitch + u;
                BY_ROWS(rows, dot_tile(to, pitch, in, s->taps + tap, turned + u,
                                       s->columns * LANES, ROWS_NOW))
            }
        }
    }
}
