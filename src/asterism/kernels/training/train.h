/* Training through the non-zero weights alone: a convolution over blocks of images, 32 side by side,
   (blocks, channels, height, width, 32), and its gradients. A linear layer is one of 1×1 images.

   The weights are dense in memory, and scanned at each call: whatever pruned them, the non-zeros
   are those of this moment. Zeros get no gradient. */

enum { AT_ONCE = 8 }; /* vectors of a row that are summed in registers */

/* out = bias + sum over the taps of weight · in, for `vectors` vectors side by side. */
INLINE void sum_taps(float *out, const float *in, const Tap *taps, int64_t count, float bias,
                     int vectors)
{
    Vec acc[AT_ONCE];
    UNROLL for (int i = 0; i < vectors; i++) acc[i] = splat(bias);
    for (int64_t t = 0; t < count; t++) {
        Vec weight = splat(taps[t].weight);
        const float *from = in + taps[t].offset;
        UNROLL for (int i = 0; i < vectors; i++) acc[i] += weight * ((const Vec *)from)[i];
    }
    UNROLL for (int i = 0; i < vectors; i++) ((Vec *)out)[i] = acc[i];
}

/* How a row of outputs reads a row of inputs: in one stretch, or image by image at a stride. */
typedef struct {
    int64_t pieces, length, step;
} Stretch;

static Stretch stretch(const int64_t *n)
{
    if (n[T_STRIDE_W] == 1) return (Stretch){1, n[T_OUT_W] * BLOCK, 0};
    return (Stretch){n[T_OUT_W], BLOCK, n[T_STRIDE_W] * BLOCK};
}

static void forward_row(const int64_t *n, float *out, const float *in, const Tap *taps,
                        int64_t count, float bias)
{
    Stretch s = stretch(n);
    for (int64_t p = 0; p < s.pieces; p++, out += s.length, in += s.step) {
        int64_t i = 0;
        for (; i + AT_ONCE * WIDTH <= s.length; i += AT_ONCE * WIDTH)
            sum_taps(out + i, in + i, taps, count, bias, AT_ONCE);
        for (; i < s.length; i += WIDTH) sum_taps(out + i, in + i, taps, count, bias, 1);
    }
}

/* Keeps of a and b the larger, b if it is not a number, and says where it was. */
INLINE void keep_larger(Vec *a, VecI *which, Vec b, int32_t place)
{
    VecI take = (b > *a) | (b != b);
    *a = (Vec)((take & (VecI)b) | (~take & (VecI)*a));
    *which = (take & (place - (VecI){0})) | (~take & *which);
}

static void pool_rows(const int64_t *n, const float *rows, float *out, int32_t *winner)
{
    const float *next = rows + n[T_OUT_W] * BLOCK;
    for (int64_t x = 0; x < n[T_OUT_W] / 2; x++, rows += BLOCK, next += BLOCK)
        for (int64_t i = 0; i < BLOCK; i += WIDTH, rows += WIDTH, next += WIDTH) {
            Vec best = *(const Vec *)rows;
            VecI which = {0};
            keep_larger(&best, &which, *(const Vec *)(rows + BLOCK), 1);
            keep_larger(&best, &which, *(const Vec *)next, 2);
            keep_larger(&best, &which, *(const Vec *)(next + BLOCK), 3);
            *(Vec *)out = best;
            *(Vec *)winner = (Vec)which;
            out += WIDTH, winner += WIDTH;
        }
}

static void unpool_rows(const int64_t *n, float *rows, const float *gradient, const int32_t *winner)
{
    float *next = rows + n[T_OUT_W] * BLOCK;
    for (int64_t x = 0; x < n[T_OUT_W] / 2; x++, rows += BLOCK, next += BLOCK)
        for (int64_t i = 0; i < BLOCK; i += WIDTH, rows += WIDTH, next += WIDTH) {
            VecI which = (VecI)*(const Vec *)winner;
            VecI g = (VecI)*(const Vec *)gradient;
            *(Vec *)rows = (Vec)(g & (which == 0));
            *(Vec *)(rows + BLOCK) = (Vec)(g & (which == 1));
            *(Vec *)next = (Vec)(g & (which == 2));
            *(Vec *)(next + BLOCK) = (Vec)(g & (which == 3));
            gradient += WIDTH, winner += WIDTH;
        }
}

static void taps_forward(const int64_t *n, const Taps *live, const float *bias, const float *in,
                         float *out, int32_t *winner, float *rows)
{
    int64_t row = n[T_OUT_W] * BLOCK, pooled = n[T_OUT_W] / 2 * BLOCK;
    int64_t in_row = n[T_STRIDE_H] * n[T_WIDTH] * BLOCK;
    for (int64_t o = 0; o < n[T_OUT]; o++) {
        const Tap *taps = live->taps + live->begin[o];
        int64_t count = live->begin[o + 1] - live->begin[o];
        const float *from = in;
        if (n[T_POOL]) {
            for (int64_t y = 0; y < n[T_OUT_H] / 2; y++, from += 2 * in_row) {
                forward_row(n, rows, from, taps, count, bias[o]);
                forward_row(n, rows + row, from + in_row, taps, count, bias[o]);
                pool_rows(n, rows, out, winner);
                out += pooled, winner += pooled;
            }
        } else {
            for (int64_t y = 0; y < n[T_OUT_H]; y++, from += in_row, out += row)
                forward_row(n, out, from, taps, count, bias[o]);
        }
    }
}

/* Adds gradient · in to the sums; and, if asked for, weight · gradient to the input's gradient. */
INLINE void dot(float *sums, const float *gradient, const float *in, float *in_gradient,
                float weight, int64_t length, int backward)
{
    Vec acc[4] = {*(const Vec *)sums};
    int64_t i = 0;
    for (; i + 4 * WIDTH <= length; i += 4 * WIDTH)
        UNROLL for (int k = 0; k < 4; k++) {
            Vec g = *(const Vec *)(gradient + i + k * WIDTH);
            acc[k] += g * *(const Vec *)(in + i + k * WIDTH);
            if (backward) *(Vec *)(in_gradient + i + k * WIDTH) += splat(weight) * g;
        }
    for (; i < length; i += WIDTH) {
        Vec g = *(const Vec *)(gradient + i);
        acc[0] += g * *(const Vec *)(in + i);
        if (backward) *(Vec *)(in_gradient + i) += splat(weight) * g;
    }
    *(Vec *)sums = (acc[0] + acc[1]) + (acc[2] + acc[3]);
}

static void backward_row(const int64_t *n, const float *gradient, const float *in,
                         float *in_gradient, const Tap *taps, float *sums, int64_t count)
{
    Stretch s = stretch(n);
    for (int64_t t = 0; t < count; t++) {
        const float *g = gradient;
        int64_t at = taps[t].offset;
        for (int64_t p = 0; p < s.pieces; p++, g += s.length, at += s.step)
            if (in_gradient)
                dot(sums + LANES * t, g, in + at, in_gradient + at, taps[t].weight, s.length, 1);
            else
                dot(sums + LANES * t, g, in + at, NULL, 0, s.length, 0);
    }
}

static void sum_row(float *sums, const float *row, int64_t length)
{
    Vec even = *(const Vec *)sums, odd = {0}; /* 32 images are at least two vectors */
    for (int64_t i = 0; i < length; i += 2 * WIDTH) {
        even += *(const Vec *)(row + i);
        odd += *(const Vec *)(row + i + WIDTH);
    }
    *(Vec *)sums = even + odd;
}

/* Adds to the gradients of taps and biases, each a sum in 16 lanes, and, unless that is NULL, to the
   input's. */
static void taps_backward(const int64_t *n, const Taps *live, const float *in,
                          const float *gradient, const int32_t *winner, float *tap_sums,
                          float *bias_sums, float *in_gradient, float *rows)
{
    int64_t row = n[T_OUT_W] * BLOCK, pooled = n[T_OUT_W] / 2 * BLOCK;
    int64_t in_row = n[T_STRIDE_H] * n[T_WIDTH] * BLOCK;
    for (int64_t o = 0; o < n[T_OUT]; o++)
        for (int64_t y = 0; y < n[T_OUT_H]; y++) {
            const float *g = gradient;
            if (!n[T_POOL]) {
                gradient += row;
            } else if (y % 2) {
                g = rows + row;
            } else {
                unpool_rows(n, rows, gradient, winner);
                gradient += pooled, winner += pooled;
                g = rows;
            }
            sum_row(bias_sums + LANES * o, g, row);
            backward_row(n, g, in + y * in_row, in_gradient ? in_gradient + y * in_row : NULL,
                         live->taps + live->begin[o], tap_sums + LANES * live->begin[o],
                         live->begin[o + 1] - live->begin[o]);
        }
}
