/* Convolutions place by place: the channels of a place lie side by side, and a vector holds some of
   them. For layers with most of their weights: nothing is padded, whatever the size of the image, and a
   depthwise convolution takes as many channels at once as others do. */

enum { T_ROWS, T_LENGTH }; /* size[] of TURN: rows become columns */

/* data: of each row whether anything reads it; the others become zeros, as nobody has written them. */
static void turn(const Step *s, const float *in, const float *other, float *out, int64_t images)
{
    int64_t rows = s->size[T_ROWS], length = s->size[T_LENGTH];
    const int32_t *read = s->data[0];
    (void)other, (void)images;
    for (int64_t r = 0; r < rows; r += 8) {
        int64_t few = rows - r < 8 ? rows - r : 8, all = few == 8;
        for (int64_t j = 0; all && read && j < 8; j++) all = read[r + j];
        int64_t i = 0;
        for (; all && i + 8 <= length; i += 8) turn8(out + i * rows + r, rows, in + r * length + i, length);
        for (; i < length; i++)
            for (int64_t j = r; j < r + few; j++)
                out[i * rows + j] = !read || read[j] ? in[j * length + i] : 0;
    }
}

enum { D_PLACES, D_TAPS, D_OUTPUTS };
enum { NEAR_WEIGHTS = 6144 }; /* that stay in the first-level cache, with inputs beside them */

/* Vectors of outputs in a tile: two at least, as each input is then loaded for more than one product.
   Vectors of sixteen are of two panels. */
enum { IN_TILE = WIDTH < 8 ? 16 / WIDTH : 2 };

/* Some outputs of several places. What a tap reads is as far from each place. If they are all as far
   `apart`, each fourth is enough to find the others: there are not registers for as many addresses. */
INLINE void places_tile(const Step *s, const float *in, float *out, const int32_t *places,
                        const float *weights, const float *bias, int64_t width, int64_t apart,
                        const int even, const int count, const int vectors)
{
    const int32_t *taps = s->data[1];
    int64_t outputs = s->size[D_OUTPUTS], beside = WIDTH < 16 ? WIDTH : 16 * s->size[D_TAPS];
    const float *from[PLACES];
    Vec acc[PLACES][IN_TILE];
    UNROLL for (int p = 0; p < count; p++) {
        from[p] = in + places[p];
        UNROLL for (int v = 0; v < vectors; v++) acc[p][v] = *(const Vec *)(bias + v * WIDTH);
    }
    for (int64_t k = 0; k < s->size[D_TAPS]; k++, weights += 16) {
        Vec w[IN_TILE];
        int64_t tap = taps[k], next[4] = {tap, tap + apart, tap + 2 * apart, tap + 3 * apart};
        if (even)
            UNROLL for (int i = 0; i < 4; i++) OPAQUE(next[i]);
        UNROLL for (int v = 0; v < vectors; v++) w[v] = *(const Vec *)(weights + v * beside);
        UNROLL for (int p = 0; p < count; p++) {
            Vec x = splat(even ? from[p / 4 * 4][next[p % 4]] : from[p][tap]);
            if (vectors > 1) IN_REGISTER(x);
            UNROLL for (int v = 0; v < vectors; v++) acc[p][v] += x * w[v];
        }
    }
    UNROLL for (int p = 0; p < count; p++)
        UNROLL for (int v = 0; v < vectors; v++) {
            float *to = out + p * outputs + v * WIDTH;
            Vec result = all_activated(s, acc[p][v]);
            if ((v + 1) * WIDTH <= width)
                *(Vec *)to = result;
            else
                __builtin_memcpy(to, &result, v * WIDTH < width ? (width - v * WIDTH) * 4 : 0);
        }
}

/* Outputs from `first` on, a group of them, at places from `at` on. */
INLINE void places_outputs(const Step *s, const float *in, float *out, int64_t first, int64_t group,
                           int64_t at, const int count)
{
    const float *weights = s->data[0], *bias = s->data[3];
    const int32_t *places = (const int32_t *)s->data[2] + at;
    int64_t outputs = s->size[D_OUTPUTS], end = first + group < outputs ? first + group : outputs;
    int64_t apart = count > 1 ? places[1] - places[0] : 0, even = count > 4;
    for (int64_t i = 1; i < count; i++) even &= places[i] - places[i - 1] == apart;
    for (int64_t o = first, next; o < end; o = next) {
        int wide = WIDTH < 16 || o + 16 < end;
        next = o + (wide && WIDTH == 16 ? 32 : 16);
#define PLACES_OF(EVEN, WIDE) places_tile(s, in, out + at * outputs + o, places, \
                                          weights + o * s->size[D_TAPS], bias + o, outputs - o, apart, \
                                          EVEN, count, WIDE)
        if (even && wide)
            PLACES_OF(1, IN_TILE);
        else if (even)
            PLACES_OF(1, 1);
        else if (wide)
            PLACES_OF(0, IN_TILE);
        else
            PLACES_OF(0, 1);
    }
}

/* data: weights in panels of sixteen outputs, the taps' offsets, the places', biases. The last places
   are computed with those before them, once more. */
static void dense_places(const Step *s, const float *in, const float *other, float *out,
                         int64_t images)
{
    enum { HALF = PLACES / 2 };
    const int64_t *n = s->size;
    int64_t panel = 16 * n[D_TAPS], group = 16 * (panel < NEAR_WEIGHTS ? NEAR_WEIGHTS / (panel + 1) : 1);
    (void)other, (void)images;
    for (int64_t first = 0; first < n[D_OUTPUTS]; first += group)
        for (int64_t p = 0, left; (left = n[D_PLACES] - p) > 0;) {
            if (left > HALF && n[D_PLACES] >= PLACES) {
                places_outputs(s, in, out, first, group, left < PLACES ? n[D_PLACES] - PLACES : p, PLACES);
                p += PLACES;
            } else if (n[D_PLACES] >= HALF) {
                places_outputs(s, in, out, first, group, left < HALF ? n[D_PLACES] - HALF : p, HALF);
                p += HALF;
            } else {
                places_outputs(s, in, out, first, group, p++, 1);
            }
        }
}

enum {
    W_CHANNELS, W_WIDTH, W_OUT_H, W_OUT_W, W_KERNEL_W, W_STRIDE_H, W_STRIDE_W, W_DILATION_H,
    W_DILATION_W, W_PAD_H, W_PAD_W,
    W_PITCH, W_USUAL, /* from one tap's weights to the next one's; whether it is `depthwise_3x3` */
};

/* Of one place, `vectors` of channels. rows and columns: the first tap inside of the image, and the one
   after the last. */
INLINE void depthwise_tile(const Step *s, const float *in, float *out, const float *weights,
                           const float *bias, const int32_t *rows, const int32_t *columns,
                           const int vectors)
{
    const int64_t *n = s->size;
    int64_t along = n[W_DILATION_W] * n[W_CHANNELS], down = n[W_DILATION_H] * n[W_WIDTH] * n[W_CHANNELS];
    Vec acc[4];
    UNROLL for (int v = 0; v < vectors; v++) acc[v] = *(const Vec *)(bias + v * WIDTH);
    for (int64_t y = rows[0]; y < rows[1]; y++) {
        const float *w = weights + (y * n[W_KERNEL_W] + columns[0]) * n[W_PITCH];
        const float *p = in + y * down + columns[0] * along;
        for (int64_t x = columns[0]; x < columns[1]; x++, w += n[W_PITCH], p += along)
            UNROLL for (int v = 0; v < vectors; v++)
                acc[v] += *(const Vec *)(p + v * WIDTH) * *(const Vec *)(w + v * WIDTH);
    }
    UNROLL for (int v = 0; v < vectors; v++) *(Vec *)(out + v * WIDTH) = all_activated(s, acc[v]);
}

INLINE void put_some(float *out, Vec v, int64_t width)
{
    if (width >= WIDTH)
        *(Vec *)out = v;
    else
        __builtin_memcpy(out, &v, width * sizeof(float));
}

/* A row of a 3×3 convolution with a padding of one, of a vector of channels: each input is loaded once,
   for the place before it, its own and the next one. From the row of taps `first` to before `last`. */
INLINE void depthwise_row(const Step *s, const float *in, float *out, const Vec *w, Vec bias,
                          int64_t width, const int first, const int last)
{
    int64_t channels = s->size[W_CHANNELS], pitch = channels * s->size[W_WIDTH];
    Vec before = bias, here = bias;
    for (int64_t x = 0; x < s->size[W_OUT_W]; x++, in += channels, out += channels) {
        Vec sum[3]; /* apart from what was there before: else each place would wait for the last */
        UNROLL for (int i = 0; i < 3; i++) sum[i] = w[3 * first + i] * *(const Vec *)(in + first * pitch);
        UNROLL for (int y = first + 1; y < last; y++) {
            Vec v = *(const Vec *)(in + y * pitch);
            UNROLL for (int i = 0; i < 3; i++) sum[i] += w[3 * y + i] * v;
        }
        if (x) put_some(out - channels, all_activated(s, before + sum[2]), width);
        before = here + sum[1], here = bias + sum[0];
    }
    put_some(out - channels, all_activated(s, before), width);
}

static void depthwise_3x3(const Step *s, const float *in, float *out)
{
    const float *weights = s->data[0], *bias = s->data[3];
    const int64_t *n = s->size;
    int64_t pitch = n[W_CHANNELS] * n[W_WIDTH], last = n[W_OUT_H] - 1;
    for (int64_t c = 0; c < n[W_CHANNELS]; c += WIDTH) {
        Vec w[9], b = *(const Vec *)(bias + c);
        UNROLL for (int i = 0; i < 9; i++) w[i] = *(const Vec *)(weights + i * n[W_PITCH] + c);
        for (int64_t y = 0; y <= last; y++) {
            const float *from = in + (y - 1) * pitch + c;
            float *to = out + y * pitch + c;
#define DEPTHWISE_ROW(FIRST, LAST) depthwise_row(s, from, to, w, b, n[W_CHANNELS] - c, FIRST, LAST)
            if (y && y < last)
                DEPTHWISE_ROW(0, 3);
            else if (y)
                DEPTHWISE_ROW(0, 2);
            else if (last)
                DEPTHWISE_ROW(1, 3);
            else
                DEPTHWISE_ROW(1, 2);
        }
    }
}

/* data: weights tap by tap, of each output row and then column the taps that are inside, none, biases.
   The last vector of a place may write over the beginning of the next, which comes after it. */
static void depthwise_places(const Step *s, const float *in, const float *other, float *out,
                             int64_t images)
{
    const float *weights = s->data[0], *bias = s->data[3];
    const int64_t *n = s->size;
    const int32_t *rows = s->data[1], *columns = rows + 2 * n[W_OUT_H];
    int64_t channels = n[W_CHANNELS];
    (void)other, (void)images;
    if (n[W_USUAL]) {
        depthwise_3x3(s, in, out);
        return;
    }
    for (int64_t y = 0; y < n[W_OUT_H]; y++)
        for (int64_t x = 0; x < n[W_OUT_W]; x++, out += channels) {
            int64_t top = y * n[W_STRIDE_H] - n[W_PAD_H], left = x * n[W_STRIDE_W] - n[W_PAD_W];
            const float *from = in + (top * n[W_WIDTH] + left) * channels;
            int64_t c = 0;
#define DEPTHWISE(VECTORS) depthwise_tile(s, from + c, out + c, weights + c, bias + c, rows + 2 * y, \
                                          columns + 2 * x, VECTORS)
            for (; c + 4 * WIDTH <= channels; c += 4 * WIDTH) DEPTHWISE(4);
            for (; c < channels; c += WIDTH) DEPTHWISE(1);
        }
}
