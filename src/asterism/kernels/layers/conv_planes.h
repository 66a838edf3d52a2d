/* Convolutions over whole channels, each as one long row: sparse ones, depthwise ones and dense ones.

   Between the rows of a channel, and between channels, lie as many zeros as the kernel reaches out of the
   image; those after a row are also those before the next. Then whatever a weight reads is a fixed
   distance from the result's place, if rows of input and result are equally long. So nothing is packed for
   the next convolution, no strip is cut, and a vector may begin anywhere. What falls between two rows
   is no result, and is stored as zero. A channel with zeros begins a cache line: results are stored in
   whole lines, and what the kernel's middle reads are whole lines.

   A convolution with a stride reads its input sorted by `spread`: every second row and column, and
   the others, are channels of their own. */

enum {
    S_PLANES, S_STRIDE, S_DOWN, /* columns; numbers from one row that is taken to the next */
    S_PITCH, S_PLANE, S_MARGIN, /* of the result */
    S_TOTAL, S_OUT_TOTAL,       /* what may be read and written */
    S_ZEROS,                    /* whether zeros are there already */
};

/* What a plane takes of its channel: `rows` of `count` numbers from `from` on, which begin at `first` in
   the plane. If `paired`, the next one takes the columns between its own. */
typedef struct {
    int32_t plane, from, first, count, rows, paired;
} Cut;

INLINE void zero(float *out, int64_t count)
{
    if (count >= 8) {
        for (int64_t i = 0; i + 8 < count; i += 8) *(Vec8 *)(out + i) = splat8(0);
        *(Vec8 *)(out + count - 8) = splat8(0);
    } else
        put(out, splat8(0), count);
}

/* What is before a plane's numbers and after them. */
INLINE void zero_around(const Step *s, const Cut *c, float *out)
{
    int64_t end = c->first + c->rows * s->size[S_PITCH];
    zero(out, c->first);
    zero(out + end, s->size[S_PLANE] - end);
}

/* Eight numbers from `in` on: each, or every second. */
INLINE Vec8 eight(const float *in, const int stride)
{
    Vec8 one = *(const Vec8 *)in;
    if (stride == 1) return one;
    return __builtin_shufflevector(one, *(const Vec8 *)(in + 8), 0, 2, 4, 6, 8, 10, 12, 14);
}

INLINE Vec8i first_lanes(int64_t count) { return (Vec8i)keep((Vec8)~(Vec8i){0}, 0, count); }

/* Rows in `vectors` each, with zeros up to where the next one begins: lanes that are no more asked for,
   and `more` in a vector of its own. The next row writes over what is too much. */
INLINE void spread_vectors(const Cut *c, const float *in, float *out, int64_t rows, int64_t pitch,
                           int64_t down, int64_t more, const int stride, const int vectors)
{
    Vec8i mask = first_lanes(c->count - 8 * (vectors - 1));
    for (; rows > 0; rows--, out += pitch, in += down) {
        UNROLL for (int v = 0; v + 1 < vectors; v++)
            *(Vec8 *)(out + 8 * v) = eight(in + 8 * stride * v, stride);
        int last = 8 * (vectors - 1);
        *(Vec8 *)(out + last) = (Vec8)((Vec8i)eight(in + stride * last, stride) & mask);
        if (more) *(Vec8 *)(out + 8 * vectors) = splat8(0);
    }
}

/* The same for two planes that take a channel's columns by turns: each number is loaded once. */
INLINE void spread_pair(const Cut *c, const float *in, float *even, float *odd, int64_t pitch,
                        int64_t down, int64_t more, const int vectors)
{
    Vec8i mask[] = {first_lanes(c[0].count - 8 * (vectors - 1)), first_lanes(c[1].count - 8 * (vectors - 1))};
    for (int64_t row = 0; row < c->rows; row++, even += pitch, odd += pitch, in += down) {
        UNROLL for (int v = 0; v < vectors; v++) {
            Vec8 a = *(const Vec8 *)(in + 16 * v), b = *(const Vec8 *)(in + 16 * v + 8);
            Vec8 x = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
            Vec8 y = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
            if (v + 1 == vectors) x = (Vec8)((Vec8i)x & mask[0]), y = (Vec8)((Vec8i)y & mask[1]);
            *(Vec8 *)(even + 8 * v) = x;
            *(Vec8 *)(odd + 8 * v) = y;
        }
        if (more) *(Vec8 *)(even + 8 * vectors) = *(Vec8 *)(odd + 8 * vectors) = splat8(0);
    }
}

/* How many rows may be read and written in whole vectors. */
INLINE int64_t fast_rows(const Step *s, const Cut *c, const float *in, const float *end, const float *out,
                         const float *out_end)
{
    const int64_t *n = s->size;
    int64_t whole = (c->count + 7) / 8 * 8, written = whole + (n[S_PITCH] > whole ? 8 : 0), fast = c->rows;
    if (n[S_STRIDE] > 2 || whole > 32 || written < n[S_PITCH]) return 0;
    while (fast > 0 && (in + (fast - 1) * n[S_DOWN] + n[S_STRIDE] * whole > end ||
                        out + (fast - 1) * n[S_PITCH] + written > out_end))
        fast--;
    return fast;
}

/* The others number by number. */
INLINE void spread_rows(const Step *s, const Cut *c, const float *in, float *out, int64_t fast,
                        const float *out_end)
{
    const int64_t *n = s->size;
    int64_t pitch = n[S_PITCH], down = n[S_DOWN], vectors = (c->count + 7) / 8;
    int64_t more = pitch > 8 * vectors && !n[S_ZEROS];
#define SPREAD_VECTORS(V) \
    if (n[S_STRIDE] == 1) \
        spread_vectors(c, in, out, fast, pitch, down, more, 1, V); \
    else \
        spread_vectors(c, in, out, fast, pitch, down, more, 2, V);
    if (fast)
        switch (vectors) { CASE(1, SPREAD_VECTORS) CASE(2, SPREAD_VECTORS) CASE(3, SPREAD_VECTORS)
                           CASE(4, SPREAD_VECTORS) }
    for (int64_t r = fast; r < c->rows; r++)
        for (int64_t i = 0; i < pitch && out + r * pitch + i < out_end; i++)
            out[r * pitch + i] = i < c->count ? in[r * down + i * n[S_STRIDE]] : 0;
}

/* data: what each plane takes; it becomes rows of `out`, with zeros where it has nothing. The planes are in
   their order: what one writes beyond its end, the next one writes over. Of a pair neither does. */
static void spread(const Step *s, const float *in, const float *other, float *out, int64_t images)
{
    const int64_t *n = s->size;
    const Cut *c = s->data[0], *last = c + n[S_PLANES];
    const float *end = in + n[S_TOTAL], *out_end = out + n[S_OUT_TOTAL];
    (void)other, (void)images;
    if (!n[S_ZEROS]) zero(out, n[S_MARGIN]);
    out += n[S_MARGIN];
    for (; c < last; c++) {
        const float *from = in + c->from;
        float *to = out + c->plane * n[S_PLANE], *at = to + c->first;
        int64_t fast = fast_rows(s, c, from, end, at, out_end);
        if (!n[S_ZEROS]) zero_around(s, c, to);
        if (c->paired && fast == c->rows) {
            float *odd = out + c[1].plane * n[S_PLANE];
            int64_t vectors = (c->count + 7) / 8, more = n[S_PITCH] > 8 * vectors && !n[S_ZEROS];
            if (!n[S_ZEROS]) zero_around(s, c + 1, odd);
            odd += c[1].first;
#define SPREAD_PAIR(V) spread_pair(c, from, at, odd, n[S_PITCH], n[S_DOWN], more, V)
            switch (vectors) { CASE(1, SPREAD_PAIR) CASE(2, SPREAD_PAIR) CASE(3, SPREAD_PAIR)
                               CASE(4, SPREAD_PAIR) }
            c++;
            continue;
        }
        spread_rows(s, c, from, at, fast, out_end);
    }
}

enum {
    B_CHANNELS, B_LENGTH, B_TILE, B_PLANE, B_MARGIN,
    B_ADDED, B_ADDED_PLANE, B_ADDED_MARGIN, /* B_ADDED: whether `other` is added to the result */
    B_UNREAD, B_END, /* channels that are not written; where the zeros after a channel begin */
};

INLINE void put_planes(const Step *s, Vec *acc, const float *added, float *out, int64_t at,
                       const int vectors)
{
    const float *valid = s->data[4];
    if (added)
        UNROLL for (int v = 0; v < vectors; v++) acc[v] += *(const Vec *)(added + v * WIDTH);
    if (s->activation == RELU)
        UNROLL for (int v = 0; v < vectors; v++) acc[v] = larger(splat(0), acc[v]);
    if (valid)
        UNROLL for (int v = 0; v < vectors; v++)
            acc[v] = (Vec)((VecI)acc[v] & (VecI)*(const Vec *)(valid + at + v * WIDTH));
    UNROLL for (int v = 0; v < vectors; v++) *(Vec *)(out + v * WIDTH) = acc[v];
}

INLINE void planes_tile(const Step *s, const float *in, const float *added, float *out, int64_t at,
                        const Entry *e, const Entry *end, float bias, const int vectors)
{
    Vec acc[ROWS];
    UNROLL for (int v = 0; v < vectors; v++) acc[v] = splat(bias);
    for (; e < end; e++) {
        int64_t both = entry(e);
        const float *p = in + (int32_t)both;
        OPAQUE(p); /* or gcc computes an address for each vector */
        Vec w = weight(e, both);
        UNROLL for (int v = 0; v < vectors; v++) acc[v] += w * *(const Vec *)(p + v * WIDTH);
    }
    put_planes(s, acc, added, out, at, vectors);
}

/* Before the first channel, and after each: also after one that nobody reads, which is not written, if
   the next one is. Its numbers are at the end of `channels`. */
static void zero_between(const Step *s, float *out, const int32_t *channels, int64_t count)
{
    const int64_t *n = s->size;
    if (!s->data[4]) return;
    zero(out, n[B_MARGIN]);
    out += n[B_MARGIN];
    for (int64_t c = 0; c < count; c++)
        if (channels[c] >= 0) zero(out + channels[c] * n[B_PLANE] + n[B_LENGTH], n[B_PLANE] - n[B_LENGTH]);
    for (int64_t c = count; c < count + n[B_UNREAD]; c++)
        zero(out + channels[c] * n[B_PLANE] + n[B_END], n[B_PLANE] - n[B_END]);
}

/* data: entries, where each channel's begin, channels, biases, of each number whether it is a result.
   Without the last all are, and a channel of a single tile may write over the beginning of the next,
   which comes after it. */
static void conv_planes(const Step *s, const float *in, const float *other, float *out, int64_t images)
{
    const Entry *entries = s->data[0];
    const int32_t *starts = s->data[1], *channels = s->data[2];
    const float *bias = s->data[3];
    const int64_t *n = s->size;
    int64_t all = (n[B_LENGTH] + WIDTH - 1) / WIDTH, most = n[B_TILE] < ROWS ? n[B_TILE] : ROWS;
    int64_t tiles = (all + most - 1) / most, rows = (all + tiles - 1) / tiles;
    (void)images;
    for (int64_t tile = 0; tile < tiles; tile++) {
        int64_t at = tile * rows * WIDTH;
        if (tile && at > n[B_LENGTH] - rows * WIDTH) at = n[B_LENGTH] - rows * WIDTH;
        for (int64_t c = 0; c < n[B_CHANNELS]; c++) {
            const Entry *e = entries + starts[c], *end = entries + starts[c + 1];
            float *to = out + n[B_MARGIN] + channels[c] * n[B_PLANE] + at;
            const float *added = other + n[B_ADDED_MARGIN] + channels[c] * n[B_ADDED_PLANE] + at;
            if (!n[B_ADDED]) added = NULL;
#define PLANES_OF(R) planes_tile(s, in + at, added, to, at, e, end, bias[c], R)
            CASES(PLANES_OF)
        }
    }
    zero_between(s, out, channels, n[B_CHANNELS]);
}

/* Four output channels at once: a load serves all of them. */
INLINE void dense_planes_tile(const Step *s, const float *in, const float *other, float *out, int64_t at,
                              const DenseEntry *e, const DenseEntry *end, const float *bias,
                              const int32_t *channels, const int vectors)
{
    const int64_t *n = s->size;
    Vec acc[4][DENSE_ROWS];
    UNROLL for (int k = 0; k < 4; k++)
        UNROLL for (int v = 0; v < vectors; v++) acc[k][v] = splat(bias[k]);
    for (; e < end; e++) {
        int32_t offset;
        __builtin_memcpy(&offset, &e->offset_bits, sizeof offset);
        const float *p = in + offset;
        Vec x[DENSE_ROWS];
        UNROLL for (int v = 0; v < vectors; v++) x[v] = *(const Vec *)(p + v * WIDTH);
        UNROLL for (int k = 0; k < 4; k++) {
            Vec w = splat(e->weight[k]);
            IN_REGISTER(w);
            UNROLL for (int v = 0; v < vectors; v++) acc[k][v] += w * x[v];
        }
    }
    UNROLL for (int k = 0; k < 4; k++)
        if (channels[k] >= 0)
            put_planes(s, acc[k], n[B_ADDED] ? other + channels[k] * n[B_ADDED_PLANE] : NULL,
                       out + channels[k] * n[B_PLANE], at, vectors);
}

static void dense_planes(const Step *s, const float *in, const float *other, float *out, int64_t images)
{
    const DenseEntry *entries = s->data[0];
    const int32_t *starts = s->data[1], *channels = s->data[2];
    const float *bias = s->data[3];
    const int64_t *n = s->size;
    int64_t all = (n[B_LENGTH] + WIDTH - 1) / WIDTH, tiles = (all + DENSE_ROWS - 1) / DENSE_ROWS;
    int64_t most = (all + tiles - 1) / tiles;
    (void)images;
    for (int64_t done = 0, rows; done < all; done += rows) {
        rows = all - done < most ? all - done : most;
        int64_t at = done * WIDTH;
        if (done && at > n[B_LENGTH] - rows * WIDTH) at = n[B_LENGTH] - rows * WIDTH;
        const float *added = other + n[B_ADDED_MARGIN] + at;
        for (int64_t c = 0; c < n[B_CHANNELS]; c++) {
            const DenseEntry *e = entries + starts[c], *end = entries + starts[c + 1];
#define DENSE_PLANES(R) dense_planes_tile(s, in + at, added, out + n[B_MARGIN] + at, at, e, end, \
                                          bias + 4 * c, channels + 4 * c, R)
            switch (rows) {
                CASE(1, DENSE_PLANES) CASE(2, DENSE_PLANES) DENSE_CASES(DENSE_PLANES)
            }
        }
    }
    zero_between(s, out, channels, 4 * n[B_CHANNELS]);
}
