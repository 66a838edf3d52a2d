/* Convolutions over whole channels, each as one long row: sparse ones, depthwise ones and dense ones.

   Between the rows of a channel, and between channels, lie as many zeros as the kernel reaches out of the
   image; those after a row are also those before the next. Then whatever a weight reads is a fixed
   distance from the result's place, if rows of input and result are equally long. So nothing is packed for
   the next convolution, no strip is cut, and a vector may begin anywhere. What falls between two rows
   is no result, and becomes zero in the end.

   A convolution with a stride reads its input sorted by `spread`: every second row and column, and
   the others, are channels of their own. */

enum {
    S_PLANES, S_HEIGHT, S_WIDTH, S_PITCH, S_STRIDE_H, S_STRIDE_W, S_TOP, S_LEFT, S_ROWS, S_OUT_PITCH,
    S_MARGIN, S_TOTAL, S_OUT_TOTAL, /* what may be read and written of both */
};

typedef struct {
    int32_t begin, y, x; /* of a channel: where it begins, and the row and column to begin with */
} Plane;

INLINE void zero(float *out, int64_t count)
{
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) *(Vec8 *)(out + i) = splat8(0);
    for (; i < count; i++) out[i] = 0;
}

/* Eight numbers from `in` on: each, or every second. */
INLINE Vec8 eight(const float *in, const int stride)
{
    Vec8 one = *(const Vec8 *)in;
    if (stride == 1) return one;
    return __builtin_shufflevector(one, *(const Vec8 *)(in + 8), 0, 2, 4, 6, 8, 10, 12, 14);
}

/* Rows of `count` numbers. The last vector of each has zeros for what is no more asked for: they fall on
   what is zero, or is written next. */
INLINE void spread_vectors(float *out, const float *in, int64_t rows, int64_t count, int64_t pitch,
                           int64_t down, const int stride, const int vectors)
{
    Vec8i mask = (Vec8i)keep((Vec8)~(Vec8i){0}, 0, count - 8 * (vectors - 1));
    for (; rows > 0; rows--, out += pitch, in += down) {
        UNROLL for (int v = 0; v + 1 < vectors; v++)
            *(Vec8 *)(out + 8 * v) = eight(in + 8 * stride * v, stride);
        int last = 8 * (vectors - 1);
        *(Vec8 *)(out + last) = (Vec8)((Vec8i)eight(in + stride * last, stride) & mask);
    }
}

/* As many rows as may be read and written in whole vectors, one by one the others. */
INLINE void spread_rows(float *out, const float *in, int64_t rows, int64_t count, int64_t pitch,
                        int64_t down, const float *end, const float *out_end, const int stride)
{
    int64_t whole = (count + 7) / 8 * 8, fast = count > 0 && count <= 32 ? rows : 0;
    while (fast > 0 && (in + (fast - 1) * down + stride * whole > end ||
                        out + (fast - 1) * pitch + whole > out_end))
        fast--;
#define SPREAD_VECTORS(V) spread_vectors(out, in, fast, count, pitch, down, stride, V)
    switch (whole / 8) { CASE(1, SPREAD_VECTORS) CASE(2, SPREAD_VECTORS) CASE(3, SPREAD_VECTORS)
                         CASE(4, SPREAD_VECTORS) }
    out += fast * pitch, in += fast * down;
    for (int64_t r = fast; r < rows; r++, out += pitch, in += down)
        for (int64_t i = 0; i < count; i++) out[i] = in[stride * i];
}

/* data: planes. Each becomes rows of `out`, with zeros where it has nothing. */
static void spread(const Step *s, const float *in, const float *other, float *out, int64_t images)
{
    const int64_t *n = s->size;
    const Plane *planes = s->data[0];
    int64_t sh = n[S_STRIDE_H], sw = n[S_STRIDE_W], pitch = n[S_OUT_PITCH];
    const float *end = in + n[S_TOTAL], *out_end = out + n[S_OUT_TOTAL];
    (void)other, (void)images;
    zero(out, n[S_MARGIN]);
    out += n[S_MARGIN];
    for (const Plane *p = planes; p < planes + n[S_PLANES]; p++, out += n[S_ROWS] * pitch) {
        int64_t x = p->x - n[S_LEFT], first = x < 0 ? (-x + sw - 1) / sw : 0;
        int64_t last = x < n[S_WIDTH] ? (n[S_WIDTH] - x + sw - 1) / sw : 0;
        last = last < pitch ? last : pitch;
        int64_t top = n[S_TOP] > p->y ? (n[S_TOP] - p->y + sh - 1) / sh : 0;
        int64_t y = top * sh + p->y - n[S_TOP], rows = (n[S_HEIGHT] - y + sh - 1) / sh;
        if (rows > n[S_ROWS] - top) rows = n[S_ROWS] - top;
        if (first || last < pitch) {
            zero(out, n[S_ROWS] * pitch);
        } else if (rows < n[S_ROWS]) {
            int64_t filled = rows > 0 ? rows : 0;
            zero(out, top * pitch);
            zero(out + (top + filled) * pitch, (n[S_ROWS] - top - filled) * pitch);
        }
        const float *from = in + p->begin + y * n[S_PITCH] + x + first * sw;
        float *to = out + top * pitch + first;
        int64_t count = last - first, down = sh * n[S_PITCH];
        if (sw == 1)
            spread_rows(to, from, rows, count, pitch, down, end, out_end, 1);
        else if (sw == 2)
            spread_rows(to, from, rows, count, pitch, down, end, out_end, 2);
        else
            for (int64_t r = 0; r < rows; r++, to += pitch, from += down)
                for (int64_t i = 0; i < count; i++) to[i] = from[sw * i];
    }
}

enum {
    B_CHANNELS, B_LENGTH, B_TILE, B_HEIGHT, B_WIDTH, B_PITCH, B_GAP, B_PLANE, B_MARGIN,
    B_ADDED, B_ADDED_PLANE, B_ADDED_MARGIN, /* B_ADDED: whether `other` is added to the result */
};

INLINE void put_planes(const Step *s, Vec *acc, const float *added, float *out, const int vectors)
{
    if (added)
        UNROLL for (int v = 0; v < vectors; v++) acc[v] += *(const Vec *)(added + v * WIDTH);
    if (s->activation == RELU)
        UNROLL for (int v = 0; v < vectors; v++) acc[v] = larger(splat(0), acc[v]);
    UNROLL for (int v = 0; v < vectors; v++) *(Vec *)(out + v * WIDTH) = acc[v];
}

INLINE void planes_tile(const Step *s, const float *in, const float *added, float *out, const Entry *e,
                        const Entry *end, float bias, const int vectors)
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
    put_planes(s, acc, added, out, vectors);
}

/* The rows' ends, which hold what is no result, and the rows between channels. A channel that nobody
   reads is not written, and has no zeros for the one after it. */
static void clear_gaps(const Step *s, float *out, const int32_t *channels, int64_t count)
{
    const int64_t *n = s->size;
    int64_t pitch = n[B_PITCH], width = n[B_WIDTH];
    zero(out, n[B_MARGIN]);
    for (int64_t c = 0; c < count; c++) {
        if (channels[c] < 0) continue;
        float *row = out + n[B_MARGIN] + channels[c] * n[B_PLANE];
        int64_t before = n[B_GAP] * pitch + pitch - width;
        if (channels[c] && (!c || channels[c - 1] != channels[c] - 1)) zero(row - before, before);
        if (pitch == width + 1)
            for (int64_t y = 0; y < n[B_HEIGHT]; y++, row += pitch) row[width] = 0;
        else
            for (int64_t y = 0; y < n[B_HEIGHT]; y++, row += pitch)
                for (int64_t x = width; x < pitch; x++) row[x] = 0;
        zero(row, n[B_GAP] * pitch);
    }
}

/* data: entries, where each channel's begin, channels in their order, biases. A channel of a single tile
   may write over the beginning of the next, which comes after it. */
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
#define PLANES_OF(R) planes_tile(s, in + at, added, to, e, end, bias[c], R)
            CASES(PLANES_OF)
        }
    }
    clear_gaps(s, out, channels, n[B_CHANNELS]);
}

/* Four output channels at once: a load serves all of them. */
INLINE void dense_planes_tile(const Step *s, const float *in, const float *other, float *out,
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
                       out + channels[k] * n[B_PLANE], vectors);
}

static void dense_planes(const Step *s, const float *in, const float *other, float *out, int64_t images)
{
    const DenseEntry *entries = s->data[0];
    const int32_t *starts = s->data[1], *channels = s->data[2];
    const float *bias = s->data[3];
    const int64_t *n = s->size;
    int64_t all = (n[B_LENGTH] + WIDTH - 1) / WIDTH;
    (void)images;
    for (int64_t done = 0, rows; done < all; done += rows) {
        rows = all - done < DENSE_ROWS ? all - done : DENSE_ROWS;
        int64_t at = done * WIDTH;
        if (done && at > n[B_LENGTH] - rows * WIDTH) at = n[B_LENGTH] - rows * WIDTH;
        const float *added = other + n[B_ADDED_MARGIN] + at;
        for (int64_t c = 0; c < n[B_CHANNELS]; c++) {
            const DenseEntry *e = entries + starts[c], *end = entries + starts[c + 1];
#define DENSE_PLANES(R) dense_planes_tile(s, in + at, added, out + n[B_MARGIN] + at, e, end, \
                                          bias + 4 * c, channels + 4 * c, R)
            switch (rows) {
                CASE(1, DENSE_PLANES) CASE(2, DENSE_PLANES) DENSE_CASES(DENSE_PLANES)
            }
        }
    }
    clear_gaps(s, out, channels, 4 * n[B_CHANNELS]);
}
