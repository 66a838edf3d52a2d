/* Convolutions over packed inputs.

   Packed: for each live channel, phase of the stride, and strip of 8 output columns, the rows that
   the strip reads, each with its halo in a line of 8 or a multiple of 16 floats. So a unit, 8 outputs
   of one row, is always one line further than the one above, and no load crosses a cache line. A
   convolution of one row has its strips for units. */

typedef float Vec8 __attribute__((vector_size(32), aligned(4), may_alias));

enum {
    /* size[] of PACK */
    P_CHANNELS, P_HEIGHT, P_WIDTH, P_PAD_H, P_PAD_W, P_STRIDE_H, P_STRIDE_W, P_ROWS, P_STRIPS,
    P_LINE, P_PHASES_H, P_PHASES_W, P_STEP, P_TOTAL,
    /* size[] of CONV_* */
    C_CHANNELS = 0, C_UNITS, C_STRIPS, C_LINE, C_STRIP_PITCH, C_WIDTH, C_PLANE, C_STRIP_STEP,
    C_UNIT_STEP, C_POOL, C_FLAT, C_TILE,
};

INLINE Vec8 splat8(float x) { return (Vec8){x, x, x, x, x, x, x, x}; }

/* The lanes from first to before last; zero in the others. */
INLINE Vec8 keep(Vec8 v, int64_t first, int64_t last)
{
    const Vec8i lane = {0, 1, 2, 3, 4, 5, 6, 7};
    return (Vec8)((Vec8i)v & (lane >= (int32_t)first) & (lane < (int32_t)last));
}

#if WIDTH == 16
/* As a mask, which is also of what is read: nothing outside is touched. */
INLINE __mmask16 lanes(int64_t first, int64_t last)
{
    uint32_t low = first < 0 ? 0 : first > 16 ? 16 : first, high = last < 0 ? 0 : last > 16 ? 16 : last;
    return ((1u << high) - 1) & ~((1u << low) - 1);
}

/* The rows of a strip, the first of which is row y of the image. */
INLINE void pack_strip(float *out, const float *from, int64_t line, int64_t width, int64_t rows,
                       int64_t y, int64_t stride, int64_t height, int64_t first, int64_t last)
{
    for (int64_t i = 0; i < line; i += 16) {
        __mmask16 mask = lanes(first - i, last - i);
        for (int64_t row = 0; row < rows; row++) {
            int64_t at = y + row * stride;
            __mmask16 inside = at >= 0 && at < height ? mask : 0;
            __m512 v = _mm512_maskz_loadu_ps(inside, from + at * width + i);
            _mm512_storeu_ps(out + row * line + i, v);
        }
    }
}
#endif

/* One line from its place in the image, which may begin before its row and end after it. */
INLINE void pack_line(float *out, const float *from, int64_t line, int64_t stride, int64_t first,
                      int64_t last, const float *begin, const float *end)
{
    if (stride == 1 && first <= 0 && last >= line) {
        for (int64_t i = 0; i < line; i += 8) *(Vec8 *)(out + i) = *(const Vec8 *)(from + i);
        return;
    }
    for (int64_t i = 0; i < line; i += 8)
        if (stride == 1 && from + i >= begin && from + i + 8 <= end)
            *(Vec8 *)(out + i) = keep(*(const Vec8 *)(from + i), first - i, last - i);
        else
            for (int64_t j = i; j < i + 8; j++)
                out[j] = j >= first && j < last ? from[j * stride] : 0;
}

static void pack(const Step *s, const float *in, const float *other, float *out, int64_t images)
{
    const int32_t *channels = s->data[0];
    const int64_t *n = s->size;
    int64_t line = n[P_LINE], sh = n[P_STRIDE_H], sw = n[P_STRIDE_W], width = n[P_WIDTH];
    (void)other, (void)images;
    for (int64_t c = 0; c < n[P_CHANNELS]; c++) {
        const float *plane = in + channels[c] * n[P_HEIGHT] * width;
        for (int64_t py = 0; py < n[P_PHASES_H]; py++)
            for (int64_t px = 0; px < n[P_PHASES_W]; px++)
                for (int64_t strip = 0; strip < n[P_STRIPS]; strip++) {
                    int64_t x = strip * n[P_STEP] * sw + px - n[P_PAD_W];
                    int64_t first = x < 0 ? (-x + sw - 1) / sw : 0;
                    int64_t last = x < width ? (width - x + sw - 1) / sw : 0;
                    int64_t y = py - n[P_PAD_H];
#if WIDTH == 16
                    if (sw == 1 && line % 16 == 0) {
                        pack_strip(out, plane + x, line, width, n[P_ROWS], y, sh, n[P_HEIGHT], first, last);
                        out += n[P_ROWS] * line;
                        continue;
                    }
#endif
                    for (int64_t row = 0; row < n[P_ROWS]; row++, y += sh, out += line) {
                        int64_t inside = y >= 0 && y < n[P_HEIGHT];
                        const float *from = plane + (inside ? y : 0) * width + x;
                        pack_line(out, from, line, sw, first, inside ? last : 0, in,
                                  in + n[P_TOTAL]);
                    }
                }
    }
}

/* a > b ? a : b, which keeps a b that is not a number. */
INLINE Vec8 max8(Vec8 a, Vec8 b)
{
#ifdef __AVX2__
    return _mm256_max_ps(a, b);
#else
    Vec8i larger = a > b;
    return (Vec8)((larger & (Vec8i)a) | (~larger & (Vec8i)b));
#endif
}

/* The larger of each two neighbours, in the first half of the lanes. */
INLINE Vec8 pooled8(Vec8 v)
{
    v = max8(v, __builtin_shuffle(v, (Vec8i){1, 1, 3, 3, 5, 5, 7, 7}));
    return __builtin_shuffle(v, (Vec8i){0, 2, 4, 6, 0, 2, 4, 6});
}

INLINE void put(float *out, Vec8 v, int64_t width)
{
    if (width >= 8)
        *(Vec8 *)out = v;
#ifdef __AVX2__
    else if (width > 0) {
        const Vec8i lane = {0, 1, 2, 3, 4, 5, 6, 7};
        _mm256_maskstore_ps(out, (__m256i)(lane < (int32_t)width), v);
    }
#endif
    else
        for (int64_t i = 0; i < width; i++) out[i] = v[i];
}

/* Units u … u + rows − 1 of one strip and channel: stored, or pooled two by two first. */
INLINE void finish(const Step *s, float *out, Vec8 *acc, int64_t strip, int64_t u, const int rows)
{
    const int64_t *n = s->size;
    if (s->activation == RELU)
        UNROLL for (int r = 0; r < rows; r++) acc[r] = max8(splat8(0), acc[r]);
    if (n[C_POOL]) {
        int64_t width = n[C_WIDTH] - strip * 4;
        UNROLL for (int r = 0; r + 1 < rows; r += 2) {
            Vec8 m = pooled8(max8(acc[r], acc[r + 1]));
            float *to = out + strip * 4 + (u + r) / 2 * n[C_WIDTH];
            if (width >= 4)
                *(Vec4 *)to = __builtin_shufflevector(m, m, 0, 1, 2, 3);
            else
                put(to, m, width);
        }
        return;
    }
    UNROLL for (int r = 0; r < rows; r++) {
        int64_t column = n[C_FLAT] ? (u + r) * COLUMNS : strip * COLUMNS;
        put(out + strip * n[C_STRIP_STEP] + (u + r) * n[C_UNIT_STEP], acc[r], n[C_WIDTH] - column);
    }
}

INLINE void sparse_tile(const Step *s, const float *in, float *out, const Entry *e,
                        const Entry *end, float bias, int64_t strip, int64_t u, int64_t line,
                        const int rows)
{
    Vec8 acc[ROWS];
    UNROLL for (int r = 0; r < rows; r++) acc[r] = splat8(bias);
    for (; e < end; e++) {
        const float *p = in + e->offset;
        OPAQUE(p); /* or gcc computes an address for each row */
        Vec8 w = splat8(e->weight);
        UNROLL for (int r = 0; r < rows; r++) acc[r] += w * *(const Vec8 *)(p + r * line);
    }
    finish(s, out, acc, strip, u, rows);
}

/* rows is a constant in each case, so that the tile stays in registers. */
#define CASES(CALL) \
    switch (rows) { \
        CASE(1, CALL) CASE(2, CALL) CASE(3, CALL) CASE(4, CALL) CASE(5, CALL) CASE(6, CALL) \
        MORE_CASES(CALL) \
    }
#define CASE(R, CALL) case R: CALL(R); break;

static void conv_sparse(const Step *s, const float *in, const float *other, float *out,
                        int64_t images)
{
    const Entry *entries = s->data[0];
    const int32_t *starts = s->data[1], *channels = s->data[2];
    const float *bias = s->data[3];
    const int64_t *n = s->size;
    (void)other, (void)images;
    int64_t most = n[C_TILE] < ROWS ? n[C_TILE] : ROWS; /* what of the input stays in cache */
    int64_t tiles = (n[C_UNITS] + most - 1) / most, even = n[C_POOL] ? 2 : 1;
    int64_t height = ((n[C_UNITS] + tiles - 1) / tiles + even - 1) / even * even;
    for (int64_t strip = 0; strip < n[C_STRIPS]; strip++)
        for (int64_t u = 0; u < n[C_UNITS]; u += height) {
            const float *at = in + strip * n[C_STRIP_PITCH] + u * n[C_LINE];
            int64_t rows = n[C_UNITS] - u < height ? n[C_UNITS] - u : height;
            for (int64_t c = 0; c < n[C_CHANNELS]; c++) {
                const Entry *e = entries + starts[c], *end = entries + starts[c + 1];
                float *to = out + channels[c] * n[C_PLANE];
#define RUN16(R) sparse_tile(s, at, to, e, end, bias[c], strip, u, 16, R)
#define RUN(R) sparse_tile(s, at, to, e, end, bias[c], strip, u, n[C_LINE], R)
                if (n[C_LINE] == 16)
                    CASES(RUN16)
                else
                    CASES(RUN)
            }
        }
}

/* Four output channels over three units: a load serves four of them. Every entry of their kernel. */
INLINE void dense_tile(const Step *s, const float *in, float *out, const DenseEntry *e,
                       const DenseEntry *end, const float *bias, const int32_t *channels,
                       int64_t strip, int64_t u, const int rows)
{
    int64_t line = s->size[C_LINE];
    Vec8 acc[4][DENSE_ROWS];
    UNROLL for (int k = 0; k < 4; k++)
        UNROLL for (int r = 0; r < rows; r++) acc[k][r] = splat8(bias[k]);
    for (; e < end; e++) {
        int32_t offset;
        __builtin_memcpy(&offset, &e->offset_bits, sizeof offset);
        const float *p = in + offset;
        Vec8 x[DENSE_ROWS];
        UNROLL for (int r = 0; r < rows; r++) x[r] = *(const Vec8 *)(p + r * line);
        UNROLL for (int k = 0; k < 4; k++) {
            Vec8 w = splat8(e->weight[k]);
            IN_REGISTER(w);
            UNROLL for (int r = 0; r < rows; r++) acc[k][r] += w * x[r];
        }
    }
    UNROLL for (int k = 0; k < 4; k++)
        if (channels[k] >= 0) finish(s, out + channels[k] * s->size[C_PLANE], acc[k], strip, u, rows);
}

static void conv_dense(const Step *s, const float *in, const float *other, float *out,
                       int64_t images)
{
    const DenseEntry *entries = s->data[0];
    const int32_t *starts = s->data[1], *channels = s->data[2];
    const float *bias = s->data[3];
    const int64_t *n = s->size;
    int64_t height = n[C_POOL] ? DENSE_ROWS / 2 * 2 : DENSE_ROWS; /* pools are not divided */
    (void)other, (void)images;
    for (int64_t strip = 0; strip < n[C_STRIPS]; strip++)
        for (int64_t u = 0; u < n[C_UNITS]; u += height) {
            const float *at = in + strip * n[C_STRIP_PITCH] + u * n[C_LINE];
            int64_t rows = n[C_UNITS] - u < height ? n[C_UNITS] - u : height;
            for (int64_t c = 0; c < n[C_CHANNELS]; c++) {
                const DenseEntry *e = entries + starts[c], *end = entries + starts[c + 1];
#define DENSE(R) dense_tile(s, at, out, e, end, bias + 4 * c, channels + 4 * c, strip, u, R)
                switch (rows) {
                    CASE(1, DENSE) CASE(2, DENSE) DENSE_CASES(DENSE)
                }
            }
        }
}
