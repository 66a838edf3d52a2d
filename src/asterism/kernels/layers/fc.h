/* Fully connected layers: one image by SELL-8, blocks of 32 images feature by feature, or dense. */

enum { VECTORS = BLOCK / WIDTH };
typedef float Vec __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef int32_t VecI __attribute__((vector_size(4 * WIDTH)));

enum {
    F_ROWS, F_INPUTS, F_OUTPUTS, F_SLICES, /* F_ROWS: rows of inputs in one image */
};

INLINE Vec splat(float x) { return x - (Vec){0}; }
INLINE float activated(const Step *s, float x) { return s->activation == RELU && 0 > x ? 0 : x; }
INLINE Vec all_activated(const Step *s, Vec x)
{
    return s->activation == RELU ? (Vec)(~(VecI)(splat(0) > x) & (VecI)x) : x;
}

/* The offset in the lower half. An entry is one load of 64 bits, and none more for its weight, as loads
   are what sparse layers wait for. */
INLINE int64_t entry(const Entry *e)
{
#if WIDTH > 4
    int64_t both;
    __builtin_memcpy(&both, e, sizeof both);
    OPAQUE(both);
    return both;
#else
    return e->offset;
#endif
}

INLINE Vec weight(const Entry *e, int64_t entry)
{
    (void)e, (void)entry;
#if WIDTH == 16
    return (Vec)_mm512_set1_epi32((int32_t)(entry >> 32));
#elif WIDTH == 8
    return (Vec)_mm256_set1_epi32((int32_t)(entry >> 32));
#else
    return splat(e->weight);
#endif
}

/* SELL-8: slices of eight rows of like length; weights and places interleaved eight by eight. */
static void fc_sparse_one(const Step *s, const float *in, const float *other, float *out,
                          int64_t images)
{
    const float *weights = s->data[0], *bias = s->data[3];
    const int32_t *places = s->data[1], *slices = s->data[2];
    const int32_t *rows = slices + s->size[F_SLICES] + 1;
    (void)other, (void)images;
    for (int64_t t = 0; t < s->size[F_ROWS]; t++) {
        for (int64_t i = 0; i < s->size[F_SLICES]; i++) {
            Vec8 acc = *(const Vec8 *)(bias + 8 * i);
            for (int64_t k = slices[i]; k < slices[i + 1]; k++) {
                /* Lane by lane: gather instructions are slow on many machines. */
                const int32_t *at = places + 8 * k;
                Vec8 x = {in[at[0]], in[at[1]], in[at[2]], in[at[3]],
                          in[at[4]], in[at[5]], in[at[6]], in[at[7]]};
                acc += *(const Vec8 *)(weights + 8 * k) * x;
            }
            for (int lane = 0; lane < 8; lane++)
                if (rows[8 * i + lane] >= 0) out[rows[8 * i + lane]] = activated(s, acc[lane]);
        }
        in += s->size[F_INPUTS];
        out += s->size[F_OUTPUTS];
    }
}

/* Eight by eight: rows become columns. */
INLINE void turn_rows8(float *out, int64_t out_stride, const float *const *rows)
{
#define ROW(I) (*(const Vec8 *)rows[I])
#define PAIRS(A, B, ...) __builtin_shufflevector(A, B, __VA_ARGS__)
    Vec8 a[8], b[8];
    UNROLL for (int i = 0; i < 8; i += 2) {
        a[i] = PAIRS(ROW(i), ROW(i + 1), 0, 8, 1, 9, 4, 12, 5, 13);
        a[i + 1] = PAIRS(ROW(i), ROW(i + 1), 2, 10, 3, 11, 6, 14, 7, 15);
    }
    UNROLL for (int i = 0; i < 8; i += 4)
        UNROLL for (int j = 0; j < 2; j++) {
            b[i + 2 * j] = PAIRS(a[i + j], a[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            b[i + 2 * j + 1] = PAIRS(a[i + j], a[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    UNROLL for (int i = 0; i < 4; i++) {
        *(Vec8 *)(out + i * out_stride) = PAIRS(b[i], b[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        *(Vec8 *)(out + (i + 4) * out_stride) = PAIRS(b[i], b[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
#undef ROW
#undef PAIRS
}

INLINE void turn8(float *out, int64_t out_stride, const float *in, int64_t stride)
{
    const float *rows[8];
    UNROLL for (int i = 0; i < 8; i++) rows[i] = in + i * stride;
    turn_rows8(out, out_stride, rows);
}

/* The live features of a block of images, each as 32 numbers side by side: of as many as there are, with
   zeros up to a whole vector. */
static void to_columns(const Step *s, const float *in, const float *other, float *out,
                       int64_t images)
{
    const int32_t *live = s->data[0];
    int64_t count = s->size[0], stride = s->in.stride, all = (images + WIDTH - 1) / WIDTH * WIDTH;
    (void)other;
    for (int64_t k = 0; k < count;) {
        /* Eight features side by side, and all of them live, are turned in registers. */
        int64_t together = k + 8 <= count && live[k + 7] == live[k] + 7 ? 8 : 1;
        for (int64_t i = 0; i < all; i += 8) {
            const float *from = in + i * stride + live[k];
            if (together == 8 && i + 8 <= images)
                turn8(out + k * BLOCK + i, BLOCK, from, stride);
            else
                for (int64_t j = 0; j < 8 * together; j++)
                    out[(k + j / 8) * BLOCK + i + j % 8] =
                        i + j % 8 < images ? from[j % 8 * stride + j / 8] : 0;
        }
        k += together;
    }
}

/* Columns become rows again, as many as there are images. */
INLINE void turn_back(const float *in, int64_t count, int64_t images, float *out, int64_t stride)
{
    for (int64_t i = 0; i < images; i += 8)
        for (int64_t k = 0; k < count; k += 8) {
            const float *from = in + k * BLOCK + i;
            float turned[64], *to = out + i * stride + k;
            if (k + 8 > count) {
                for (int64_t j = i; j < i + 8 && j < images; j++)
                    for (int64_t l = k; l < count; l++) out[j * stride + l] = in[l * BLOCK + j];
            } else if (i + 8 <= images) {
                turn8(to, stride, from, BLOCK);
            } else {
                turn8(turned, 8, from, BLOCK);
                for (int64_t j = 0; j < images - i; j++)
                    *(Vec8 *)(to + j * stride) = *(const Vec8 *)(turned + 8 * j);
            }
        }
}

static void from_columns(const Step *s, const float *in, const float *other, float *out,
                         int64_t images)
{
    (void)other;
    turn_back(in, s->size[0], images, out, s->out.stride);
}

/* As many of the 32 as `vectors` hold; in several chains of sums, or the latency of one would be seen. The
   last digits depend on how many. */
INLINE void fc_columns(const Step *s, const float *in, float *out, const int vectors, const int chains)
{
    const Entry *entries = s->data[0];
    const int32_t *starts = s->data[1], *rows = s->data[2];
    const float *bias = s->data[3];
    for (int64_t i = 0; i < s->size[F_ROWS]; i++) {
        const Entry *e = entries + starts[i], *end = entries + starts[i + 1];
        Vec sums[4][VECTORS];
        UNROLL for (int c = 0; c < chains; c++)
            UNROLL for (int v = 0; v < vectors; v++) sums[c][v] = splat(c ? 0 : bias[i]);
        for (; e + chains <= end; e += chains)
            UNROLL for (int c = 0; c < chains; c++) {
                int64_t both = entry(e + c);
                const float *p = in + (int32_t)both;
                Vec w = weight(e + c, both);
                UNROLL for (int v = 0; v < vectors; v++) sums[c][v] += w * *(const Vec *)(p + v * WIDTH);
            }
        for (; e < end; e++)
            UNROLL for (int v = 0; v < vectors; v++)
                sums[0][v] += splat(e->weight) * *(const Vec *)(in + e->offset + v * WIDTH);
        float *to = out + rows[i] * BLOCK;
        UNROLL for (int v = 0; v < vectors; v++) {
            UNROLL for (int c = 1; c < chains; c++) sums[0][v] += sums[c][v];
            *(Vec *)(to + v * WIDTH) = all_activated(s, sums[0][v]);
        }
    }
}

/* Two chains for any number of images: an image has the same answer in every batch. */
static void fc_sparse(const Step *s, const float *in, const float *other, float *out,
                      int64_t images)
{
    (void)other;
    if (images <= WIDTH)
        fc_columns(s, in, out, 1, 2);
    else if (images <= 2 * WIDTH)
        fc_columns(s, in, out, 2, 2);
    else
        fc_columns(s, in, out, VECTORS, 2);
}

/* Panels of 16 outputs, all inputs of a panel side by side; several images and panels at once, or
   there would be more to load than to multiply. A panel that is needed `soon` comes nearer meanwhile. */
INLINE void panels(const Step *s, const float *in, float *out, const float *weights,
                   const float *bias, const float *soon, int64_t in_stride, int64_t out_stride,
                   int64_t width, const int images, const int count)
{
    enum { HALVES = 16 / WIDTH };
    int64_t inputs = s->size[F_INPUTS];
    Vec acc[PANEL_IMAGES][PANELS * HALVES];
    UNROLL for (int i = 0; i < images; i++)
        UNROLL for (int v = 0; v < count * HALVES; v++) acc[i][v] = *(const Vec *)(bias + v * WIDTH);
    for (int64_t k = 0; k < inputs; k++) {
        __builtin_prefetch(soon + k * 16, 0, 2);
        Vec w[PANELS * HALVES];
        UNROLL for (int v = 0; v < count * HALVES; v++)
            w[v] = *(const Vec *)(weights + (v / HALVES * inputs + k) * 16 + v % HALVES * WIDTH);
        UNROLL for (int i = 0; i < images; i++) {
            Vec x = splat(in[i * in_stride + k]);
            UNROLL for (int v = 0; v < count * HALVES; v++) acc[i][v] += x * w[v];
        }
    }
    UNROLL for (int i = 0; i < images; i++)
        UNROLL for (int v = 0; v < count * HALVES; v++) {
            float *to = out + i * out_stride + v * WIDTH;
            Vec result = all_activated(s, acc[i][v]);
            if ((v + 1) * WIDTH <= width)
                *(Vec *)to = result;
            else
                __builtin_memcpy(to, &result, v * WIDTH < width ? (width - v * WIDTH) * 4 : 0);
        }
}

static void fc_dense(const Step *s, const float *in, const float *other, float *out,
                     int64_t images)
{
    const float *weights = s->data[0], *bias = s->data[3];
    const int64_t *n = s->size;
    int64_t count = n[F_ROWS] > 1 ? n[F_ROWS] : images;
    int64_t in_stride = n[F_ROWS] > 1 ? n[F_INPUTS] : s->in.stride;
    int64_t out_stride = n[F_ROWS] > 1 ? n[F_OUTPUTS] : s->out.stride;
    (void)other;
    for (int64_t o = 0, step; o < n[F_OUTPUTS]; o += step) {
        int64_t i = 0, width = n[F_OUTPUTS] - o;
        step = width > 16 * (PANELS - 1) ? 16 * PANELS : 16;
        const float *from = weights + o * n[F_INPUTS];
#define RUN_PANELS(IMAGES, COUNT) \
        for (; i + IMAGES <= count; i += IMAGES) \
            panels(s, in + i * in_stride, out + i * out_stride + o, from, bias + o, \
                   from + (COUNT + i / IMAGES) * 16 * n[F_INPUTS], in_stride, out_stride, width, \
                   IMAGES, COUNT);
        if (step > 16) {
            RUN_PANELS(PANEL_IMAGES, PANELS)
            RUN_PANELS(1, PANELS)
        } else {
            RUN_PANELS(PANEL_IMAGES, 1)
            RUN_PANELS(1, 1)
        }
    }
}
