/* Batch norm with what follows it, and 2×2 max-pooling, over blocks of 16 images side by side. */

/* The lanes of a block that are images: one or zero. */
INLINE const float *kept(const Norm *n, int64_t block)
{
    static const float all[LANES] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    return block == n->blocks - 1 ? n->last : all;
}

static double fold(const Vec *sums)
{
    double total = 0;
    for (int i = 0; i < IN_PIXEL; i++)
        for (int k = 0; k < WIDTH; k++) total += sums[i][k];
    return total;
}

/* The means of x − shift and of its square. */
INLINE void moments(const Norm *n, const float *in, float shift, double *mean, double *square)
{
    *mean = *square = 0;
    for (int64_t b = 0; b < n->blocks; b++, in += n->pitch) {
        const float *keep = kept(n, b);
        Vec sums[IN_PIXEL] = {{0}}, squares[IN_PIXEL] = {{0}};
        for (int64_t p = 0; p < n->pixels; p++)
            UNROLL for (int i = 0; i < IN_PIXEL; i++) {
                Vec x = *(const Vec *)(in + p * LANES + i * WIDTH) - splat(shift);
                x *= *(const Vec *)(keep + i * WIDTH);
                sums[i] += x, squares[i] += x * x;
            }
        *mean += fold(sums), *square += fold(squares);
    }
    *mean /= (double)(n->images * n->pixels), *square /= (double)(n->images * n->pixels);
}

/* Twice: around the first mean, nothing is lost of the second and of the variance. */
static void norm_moments(const Norm *n, const float *in, float *mean, float *variance)
{
    double first, second, square;
    moments(n, in, 0, &first, &square);
    moments(n, in, (float)first, &second, &square);
    *mean = (float)((float)first + second);
    *variance = (float)(square - second * second);
}

INLINE Vec positive(Vec x)
{
    return (Vec)((VecI)x & ~(x < splat(0))); /* what is not a number stays */
}

/* out = (in − mean)·scale + bias, plus `other` if there is one, without what is negative if asked. */
INLINE void apply(const Norm *n, const float *in, const float *other, float mean, float scale,
                  float bias, float *out, int add, int relu)
{
    for (int64_t b = 0; b < n->blocks; b++)
        for (int64_t i = b * n->pitch, end = i + n->pixels * LANES; i < end; i += WIDTH) {
            Vec y = (*(const Vec *)(in + i) - splat(mean)) * splat(scale) + splat(bias);
            if (add) y += *(const Vec *)(other + i);
            *(Vec *)(out + i) = relu ? (Vec)positive(y) : y;
        }
}

static void norm_apply(const Norm *n, const float *in, const float *other, float mean, float scale,
                       float bias, float *out)
{
    if (other && n->relu)
        apply(n, in, other, mean, scale, bias, out, 1, 1);
    else if (other)
        apply(n, in, other, mean, scale, bias, out, 1, 0);
    else if (n->relu)
        apply(n, in, other, mean, scale, bias, out, 0, 1);
    else
        apply(n, in, other, mean, scale, bias, out, 0, 0);
}

/* The gradient of what was activated: without the activation, where the output is zero nothing. */
INLINE Vec through(const Norm *n, const float *out, const float *gradient, int64_t i)
{
    Vec g = *(const Vec *)(gradient + i);
    return n->relu ? (Vec)((VecI)g & (*(const Vec *)(out + i) > splat(0))) : g;
}

/* The sums of the gradient, and of it times (in − mean). */
static void norm_sums(const Norm *n, const float *in, const float *out, const float *gradient,
                      float mean, double *plain, double *weighted)
{
    *plain = *weighted = 0;
    for (int64_t b = 0; b < n->blocks; b++) {
        Vec sums[IN_PIXEL] = {{0}}, products[IN_PIXEL] = {{0}};
        for (int64_t p = 0, i = b * n->pitch; p < n->pixels; p++)
            UNROLL for (int k = 0; k < IN_PIXEL; k++, i += WIDTH) {
                Vec g = through(n, out, gradient, i);
                sums[k] += g;
                products[k] += g * (*(const Vec *)(in + i) - splat(mean));
            }
        *plain += fold(sums), *weighted += fold(products);
    }
}

/* to_in = scale·(gradient − a − b·(in − mean)) for the lanes that are images, else zero; and the
   gradient itself to `to_other` if there is one. */
static void norm_backward(const Norm *n, const float *in, const float *out, const float *gradient,
                          float mean, float scale, float a, float b, float *to_in, float *to_other)
{
    for (int64_t block = 0; block < n->blocks; block++) {
        const float *keep = kept(n, block);
        for (int64_t p = 0, i = block * n->pitch; p < n->pixels; p++)
            UNROLL for (int k = 0; k < IN_PIXEL; k++, i += WIDTH) {
                Vec g = through(n, out, gradient, i);
                Vec centred = *(const Vec *)(in + i) - splat(mean);
                Vec all = (g - splat(a) - splat(b) * centred) * splat(scale);
                *(Vec *)(to_in + i) = all * *(const Vec *)(keep + k * WIDTH);
                if (to_other) *(Vec *)(to_other + i) = g;
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
