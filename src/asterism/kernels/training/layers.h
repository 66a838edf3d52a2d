/* Batch norm with what follows it, and 2×2 max-pooling, over blocks of 16 images side by side. */

/* The values of one channel in one block: `count` floats in one stretch. `keep` is one for the lanes
   that are images, and zero for the others. What lies `ahead` floats further is read next: it is
   fetched meanwhile. */

static void copy(float *out, const float *in, int64_t count, int64_t ahead)
{
    for (int64_t i = 0; i < count; i += LANES) {
        __builtin_prefetch(in + i + ahead);
        UNROLL for (int k = 0; k < LANES; k += WIDTH)
            *(Vec *)(out + i + k) = *(const Vec *)(in + i + k);
    }
}

static double fold(const Vec *sums)
{
    double total = 0;
    for (int i = 0; i < IN_PIXEL; i++)
        for (int k = 0; k < WIDTH; k++) total += sums[i][k];
    return total;
}

/* The sums of x − shift, for the lanes that are images, and of its square. */
INLINE void sums_around(const float *in, int64_t count, const float *keep, float shift, double *sum,
                        double *square)
{
    Vec sums[IN_PIXEL] = {{0}}, squares[IN_PIXEL] = {{0}};
    for (int64_t p = 0; p < count; p += LANES)
        UNROLL for (int i = 0; i < IN_PIXEL; i++) {
            Vec x = *(const Vec *)(in + p + i * WIDTH) - splat(shift);
            x *= *(const Vec *)(keep + i * WIDTH);
            sums[i] += x, squares[i] += x * x;
        }
    *sum = fold(sums), *square = fold(squares);
}

/* Adds a stretch to the moments. Twice: around the first mean, nothing is lost of the second and of
   the variance. */
static void add_moments(const float *in, int64_t count, const float *keep, Moments *to)
{
    double images = 0, sum, square;
    for (int i = 0; i < LANES; i++) images += keep[i];
    double values = images * (double)(count / LANES);
    if (!values) return;
    sums_around(in, count, keep, 0, &sum, &square);
    float around = (float)(sum / values);
    sums_around(in, count, keep, around, &sum, &square);
    Moments these = {values, around + sum / values, square - sum * sum / values};
    asterism_join_moments(to, &these);
}

INLINE Vec positive(Vec x)
{
    return (Vec)((VecI)x & ~(x < splat(0))); /* what is not a number stays */
}

INLINE Vec normal_of(const Normal *n, Vec x)
{
    return (x - splat(n->mean)) * splat(n->scale) + splat(n->bias);
}

/* out = (in − mean)·scale + bias, plus `other` if there is one, without what is negative if asked. */
INLINE void normalise_stretch(float *out, const float *in, const float *other, int64_t count,
                              int64_t ahead, const Normal *normal, const int add, const int relu)
{
    for (int64_t i = 0; i < count; i += LANES) {
        __builtin_prefetch(in + i + ahead);
        if (add) __builtin_prefetch(other + i + ahead);
        UNROLL for (int k = 0; k < LANES; k += WIDTH) {
            Vec y = normal_of(normal, *(const Vec *)(in + i + k));
            if (add) y += *(const Vec *)(other + i + k);
            *(Vec *)(out + i + k) = relu ? (Vec)positive(y) : y;
        }
    }
}

static void normalise(float *out, const float *in, const float *other, int64_t count, int64_t ahead,
                      const Normal *normal, int64_t relu)
{
    if (other && relu)
        normalise_stretch(out, in, other, count, ahead, normal, 1, 1);
    else if (other)
        normalise_stretch(out, in, other, count, ahead, normal, 1, 0);
    else if (relu)
        normalise_stretch(out, in, other, count, ahead, normal, 0, 1);
    else
        normalise_stretch(out, in, other, count, ahead, normal, 0, 0);
}

enum { PASSES_ALL, WHERE_OUT, WHERE_NORMAL }; /* what a ReLU lets through: where the output is positive */

INLINE void sum_stretch(float *to, const float *gradient, const float *in, const float *out,
                        int64_t count, const Normal *normal, const int passes, double *plain,
                        double *weighted)
{
    Vec sums[IN_PIXEL] = {{0}}, products[IN_PIXEL] = {{0}};
    for (int64_t i = 0; i < count; i += LANES)
        UNROLL for (int k = 0; k < IN_PIXEL; k++) {
            Vec g = *(const Vec *)(gradient + i + k * WIDTH), x = *(const Vec *)(in + i + k * WIDTH);
            if (passes == WHERE_OUT)
                g = (Vec)((VecI)g & (*(const Vec *)(out + i + k * WIDTH) > splat(0)));
            if (passes == WHERE_NORMAL) g = (Vec)((VecI)g & (normal_of(normal, x) > splat(0)));
            if (passes != PASSES_ALL || to != gradient) *(Vec *)(to + i + k * WIDTH) = g;
            sums[k] += g, products[k] += g * (x - splat(normal->mean));
        }
    *plain += fold(sums), *weighted += fold(products);
}

/* The gradient of what was normalised and then activated, to `to`; adds to the sums of it, and of it
   times (in − mean). Without `out`, the activation's output is computed again. */
static void sum_gradients(float *to, const float *gradient, const float *in, const float *out,
                          int64_t count, const Normal *normal, int64_t relu, double *plain,
                          double *weighted)
{
    if (relu && out)
        sum_stretch(to, gradient, in, out, count, normal, WHERE_OUT, plain, weighted);
    else if (relu)
        sum_stretch(to, gradient, in, out, count, normal, WHERE_NORMAL, plain, weighted);
    else
        sum_stretch(to, gradient, in, out, count, normal, PASSES_ALL, plain, weighted);
}

/* From the gradient of what was normalised to that of what it was made of:
   (gradient − by_mean − by_spread·(in − mean))·scale for the lanes that are images, else zero. */
static void denormalise(float *out, const float *gradient, const float *in, int64_t count,
                        int64_t ahead, const Inverted *by, const float *keep)
{
    for (int64_t i = 0; i < count; i += LANES) {
        __builtin_prefetch(in + i + ahead), __builtin_prefetch(gradient + i + ahead);
        UNROLL for (int k = 0; k < IN_PIXEL; k++) {
            Vec centred = *(const Vec *)(in + i + k * WIDTH) - splat(by->mean);
            Vec g = *(const Vec *)(gradient + i + k * WIDTH);
            Vec all = (g - splat(by->by_mean) - splat(by->by_spread) * centred) * splat(by->scale);
            *(Vec *)(out + i + k * WIDTH) = all * *(const Vec *)(keep + k * WIDTH);
        }
    }
}

/* The larger of both, and b if it is not a number. */
INLINE Vec larger_or_nan(Vec a, Vec b)
{
    VecI take = (b > a) | (b != b);
    return (Vec)((take & (VecI)b) | (~take & (VecI)a));
}

/* One plane: of each 2×2 the largest. `width` counts outputs. */
static void halve(const float *in, float *out, int64_t rows, int64_t width)
{
    int64_t row = 2 * width * LANES;
    for (int64_t y = 0; y < rows; y++, in += row)
        for (int64_t x = 0; x < width; x++, in += LANES)
            for (int i = 0; i < IN_PIXEL; i++, in += WIDTH, out += WIDTH) {
                Vec above = larger_or_nan(*(const Vec *)in, *(const Vec *)(in + LANES));
                const float *below = in + row;
                Vec under = larger_or_nan(*(const Vec *)below, *(const Vec *)(below + LANES));
                *(Vec *)out = larger_or_nan(above, under);
            }
}

/* Gives the gradient to the first of the four that is the largest. */
static void halve_backward(const float *in, const float *out, const float *gradient, float *to_in,
                           int64_t rows, int64_t width)
{
    int64_t row = 2 * width * LANES;
    const int64_t places[4] = {0, LANES, row, row + LANES};
    for (int64_t y = 0; y < rows; y++, in += row, to_in += row)
        for (int64_t x = 0; x < width; x++, in += LANES, to_in += LANES)
            for (int i = 0; i < IN_PIXEL; i++) {
                Vec best = *(const Vec *)out;
                VecI left = (VecI)*(const Vec *)gradient;
                UNROLL for (int k = 0; k < 4; k++) {
                    Vec here = *(const Vec *)(in + places[k]);
                    VecI hit = (here == best) | ((here != here) & (best != best));
                    *(Vec *)(to_in + places[k]) = (Vec)(left & hit);
                    left &= ~hit;
                }
                in += WIDTH, to_in += WIDTH, out += WIDTH, gradient += WIDTH;
            }
}

/* Up to sixteen images of `features` numbers, side by side: (features, 16). */
static void to_lanes(const float *in, int64_t features, int64_t images, float *out)
{
    for (int64_t i = 0; i < LANES; i += 8)
        for (int64_t k = 0; k < features; k += 8)
            if (i + 8 <= images && k + 8 <= features)
                turn8(out + k * LANES + i, LANES, in + i * features + k, features);
            else
                for (int64_t f = k; f < k + 8 && f < features; f++)
                    for (int64_t j = i; j < i + 8; j++)
                        out[f * LANES + j] = j < images ? in[j * features + f] : 0;
}
