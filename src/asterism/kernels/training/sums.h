/* Training through the non-zero weights alone: the sums over a convolution's taps, and their
   gradients. Values are blocks of images, 16 side by side, as (blocks, channels, height, width, 16):
   one weight is one long multiplication, and a stretch of pixels is summed in registers. */

enum {
    AT_ONCE = 8,              /* vectors that are summed in registers */
    IN_PIXEL = LANES / WIDTH, /* vectors of a pixel */
    STRETCH = AT_ONCE / IN_PIXEL,
};

INLINE void sum_taps(float *out, int64_t step, const float *in, const Entry *taps, int64_t count,
                     float bias, int vectors)
{
    Vec sums[AT_ONCE];
    UNROLL for (int i = 0; i < vectors; i++) sums[i] = splat(bias);
    for (int64_t t = 0; t < count; t++) {
        Vec weight = splat(taps[t].weight);
        const float *from = in + taps[t].offset;
        UNROLL for (int i = 0; i < vectors; i++) sums[i] += weight * *(const Vec *)(from + i * WIDTH);
    }
    UNROLL for (int i = 0; i < vectors; i++)
        *(Vec *)(out + i / IN_PIXEL * step + i % IN_PIXEL * WIDTH) = sums[i];
}

/* All units over one stretch before the next stretch: what they read stays in the nearest cache. */
static void sum_rows(const Sums *s, const float *bias, const float *in, float *out)
{
    for (int64_t y = 0; y < s->rows; y++)
        for (int64_t x = 0; x < s->columns;) {
            int64_t pixels = s->columns - x < STRETCH ? 1 : STRETCH;
            const float *from = in + y * s->in_row + x * LANES;
            float *to = out + y * s->out_row + x * s->out_step;
            for (int64_t u = 0; u < s->units; u++, to += s->out_unit) {
                const Entry *taps = s->taps + s->begin[u];
                int64_t count = s->begin[u + 1] - s->begin[u];
                float first = bias ? bias[u] : 0;
                if (pixels == STRETCH)
                    sum_taps(to, s->out_step, from, taps, count, first, AT_ONCE);
                else
                    sum_taps(to, s->out_step, from, taps, count, first, IN_PIXEL);
            }
            x += pixels;
        }
}

INLINE void dot_taps(float *sums, const float *gradient, const float *in, const Entry *taps,
                     int64_t count, int vectors)
{
    Vec by[AT_ONCE];
    UNROLL for (int i = 0; i < vectors; i++) by[i] = *(const Vec *)(gradient + i * WIDTH);
    for (int64_t t = 0; t < count; t++, sums += WIDTH) {
        const float *from = in + taps[t].offset;
        Vec even = *(const Vec *)sums, odd = {0};
        UNROLL for (int i = 0; i < vectors; i++) {
            Vec product = by[i] * *(const Vec *)(from + i * WIDTH);
            if (i % 2) odd += product; else even += product;
        }
        *(Vec *)sums = even + odd;
    }
}

/* Adds to the gradient of each tap, a sum in WIDTH lanes. */
static void dot_rows(const Sums *s, const float *in, const float *gradient, float *sums)
{
    for (int64_t y = 0; y < s->rows; y++)
        for (int64_t x = 0; x < s->columns;) {
            int64_t pixels = s->columns - x < STRETCH ? 1 : STRETCH;
            const float *from = in + y * s->in_row + x * LANES;
            const float *by = gradient + y * s->out_row + x * LANES;
            for (int64_t u = 0; u < s->units; u++, by += s->out_unit) {
                const Entry *taps = s->taps + s->begin[u];
                int64_t count = s->begin[u + 1] - s->begin[u];
                if (pixels == STRETCH)
                    dot_taps(sums + s->begin[u] * WIDTH, by, from, taps, count, AT_ONCE);
                else
                    dot_taps(sums + s->begin[u] * WIDTH, by, from, taps, count, IN_PIXEL);
            }
            x += pixels;
        }
}

/* The total of each tap so far, in double, and zeros again. */
static void fold_sums(float *sums, double *totals, int64_t count)
{
    for (int64_t t = 0; t < count; t++)
        for (int i = 0; i < WIDTH; i++, sums++) totals[t] += *sums, *sums = 0;
}
