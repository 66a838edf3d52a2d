/* Attention, and products of two values. Four rows of the result at a time: as many sums as registers
   hold, each load of the second factor used four times. */

enum { A_QUERIES, A_KEYS, A_HEADS, A_WIDTH, A_VALUES, A_PADDED, A_CAUSAL, A_MASK }; /* A_MASK: its pitch */
enum { D_COUNT, D_ROWS, D_INNER, D_COLUMNS, D_FIRST, D_SECOND }; /* the last two: from one to the next */
enum { QUERIES = 4 };

typedef uint32_t VecU __attribute__((vector_size(4 * WIDTH)));

/* Rows times a block of columns: rows and vectors are known to the compiler. */
INLINE void product_tile(const int rows, const int vectors, const float *a, int64_t a_pitch,
                         const float *b, int64_t b_pitch, float *out, int64_t out_pitch,
                         int64_t inner, const float *scale)
{
    Vec sum[QUERIES][2];
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int v = 0; v < vectors; v++) sum[r][v] = splat(0);
    for (int64_t k = 0; k < inner; k++) {
        Vec second[2];
        UNROLL for (int v = 0; v < vectors; v++)
            second[v] = *(const Vec *)(b + k * b_pitch + v * WIDTH);
        UNROLL for (int r = 0; r < rows; r++) {
            Vec first = splat(a[r * a_pitch + k]);
            UNROLL for (int v = 0; v < vectors; v++) sum[r][v] += first * second[v];
        }
    }
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int v = 0; v < vectors; v++)
            *(Vec *)(out + r * out_pitch + v * WIDTH) = sum[r][v] * splat(scale[r]);
}

/* out = a·b, each row times its scale. */
INLINE void product(const int rows, const float *a, int64_t a_pitch, const float *b, int64_t b_pitch,
                    float *out, int64_t out_pitch, int64_t inner, int64_t columns, const float *scale)
{
    int64_t n = 0;
    for (; n + 2 * WIDTH <= columns; n += 2 * WIDTH)
        product_tile(rows, 2, a, a_pitch, b + n, b_pitch, out + n, out_pitch, inner, scale);
    for (; n + WIDTH <= columns; n += WIDTH)
        product_tile(rows, 1, a, a_pitch, b + n, b_pitch, out + n, out_pitch, inner, scale);
    for (; n < columns; n++)
        for (int r = 0; r < rows; r++) {
            float sum = 0;
            for (int64_t k = 0; k < inner; k++) sum += a[r * a_pitch + k] * b[k * b_pitch + n];
            out[r * out_pitch + n] = sum * scale[r];
        }
}

static void matmul(const Step *s, const float *in, const float *other, float *out, int64_t images)
{
    static const float ones[QUERIES] = {1, 1, 1, 1};
    int64_t rows = s->size[D_ROWS], inner = s->size[D_INNER], columns = s->size[D_COLUMNS];
    (void)images;
    for (int64_t i = 0; i < s->size[D_COUNT]; i++) {
        const float *a = in + i * s->size[D_FIRST], *b = other + i * s->size[D_SECOND];
        int64_t r = 0;
        for (; r + QUERIES <= rows; r += QUERIES)
            product(QUERIES, a + r * inner, inner, b, columns, out + r * columns, columns, inner,
                    columns, ones);
        for (; r < rows; r++)
            product(1, a + r * inner, inner, b, columns, out + r * columns, columns, inner, columns,
                    ones);
        out += rows * columns;
    }
}

/* e to the power of numbers that are not above 0: two to a whole power, and the rest as a series. */
INLINE Vec exp_of(Vec x)
{
    const Vec least = splat(-87);
    VecI below = x < least;
    x = (Vec)((below & (VecI)least) | (~below & (VecI)x));
    VecI power = __builtin_convertvector(x * splat(1.44269504f) - splat(0.5f), VecI);
    Vec whole = __builtin_convertvector(power, Vec);
    /* In two parts, or the difference of large numbers would lose digits. */
    Vec rest = x - whole * splat(0.693359375f) + whole * splat(2.12194440e-4f);
    Vec sum = splat(1.0f / 5040);
    sum = sum * rest + splat(1.0f / 720);
    sum = sum * rest + splat(1.0f / 120);
    sum = sum * rest + splat(1.0f / 24);
    sum = sum * rest + splat(1.0f / 6);
    sum = sum * rest + splat(0.5f);
    sum = sum * rest + splat(1);
    sum = sum * rest + splat(1);
    return (Vec)((VecU)sum + ((VecU)power << 23));
}

/* The exponentials of a row, in place, and one over their sum: 0 where everything is hidden. `padded`
   is a multiple of the width; what is after `count` becomes nothing. */
INLINE float soften(float *row, int64_t count, int64_t padded)
{
    for (int64_t i = count; i < padded; i++) row[i] = -__builtin_inff();
    Vec most = splat(-__builtin_inff()), sum = splat(0);
    for (int64_t i = 0; i < padded; i += WIDTH) {
        Vec v = *(const Vec *)(row + i);
        VecI less = v < most;
        most = (Vec)((less & (VecI)most) | (~less & (VecI)v));
    }
    float top = most[0], total = 0;
    for (int lane = 1; lane < WIDTH; lane++) top = most[lane] > top ? most[lane] : top;
    if (top == -__builtin_inff()) {
        for (int64_t i = 0; i < padded; i++) row[i] = 0;
        return 0;
    }
    for (int64_t i = 0; i < padded; i += WIDTH) {
        Vec v = exp_of(*(const Vec *)(row + i) - splat(top));
        *(Vec *)(row + i) = v;
        sum += v;
    }
    for (int lane = 0; lane < WIDTH; lane++) total += sum[lane];
    return 1 / total;
}

/* Keys and values, head by head: the keys turned, so that one number of all keys lies side by side. */
static void keys(const Step *s, const float *in, const float *other, float *out, int64_t images)
{
    int64_t count = s->size[A_KEYS], heads = s->size[A_HEADS], padded = s->size[A_PADDED];
    int64_t width = s->size[A_WIDTH], values = s->size[A_VALUES];
    int64_t in_pitch = heads * width, other_pitch = heads * values;
    (void)images;
    for (int64_t h = 0; h < heads; h++) {
        const float *from = in + h * width;
        for (int64_t k = 0; k < width; k += 8)
            for (int64_t i = 0; i < padded; i += 8)
                if (k + 8 <= width && i + 8 <= count)
                    turn8(out + k * padded + i, padded, from + i * in_pitch + k, in_pitch);
                else
                    for (int64_t j = k; j < k + 8 && j < width; j++)
                        for (int64_t l = i; l < i + 8; l++)
                            out[j * padded + l] = l < count ? from[l * in_pitch + j] : 0;
        out += width * padded;
        for (int64_t i = 0; i < count; i++)
            __builtin_memcpy(out + i * values, other + i * other_pitch + h * values,
                             values * sizeof(float));
        out += count * values;
    }
}

/* Some queries of one head: their scores, what they make of them, and the mean of the values by that. */
INLINE void attend_rows(const Step *s, const int rows, const float *query, const float *packed,
                        const float *mask, float *scores, float *out, int64_t first)
{
    const int64_t *n = s->size;
    int64_t padded = n[A_PADDED], seen = n[A_KEYS], width = n[A_WIDTH], values = n[A_VALUES];
    if (n[A_CAUSAL] && first + rows < seen) seen = first + rows;
    int64_t all = (seen + LANES - 1) / LANES * LANES;
    float scale[QUERIES];
    for (int r = 0; r < rows; r++) scale[r] = s->a;
    product(rows, query, n[A_HEADS] * width, packed, padded, scores, padded, width, all, scale);
    for (int r = 0; r < rows; r++) {
        float *row = scores + r * padded;
        int64_t own = n[A_CAUSAL] && first + r + 1 < seen ? first + r + 1 : seen;
        if (mask)
            for (int64_t i = 0; i < own; i++) row[i] += mask[(first + r) * n[A_KEYS] + i];
        scale[r] = soften(row, own, all);
    }
    product(rows, scores, padded, packed + width * padded, values, out, n[A_HEADS] * values, seen,
            values, scale);
}

/* data: what is added to the scores, or none. other: what `keys` made, and room for scores. */
static void attend(const Step *s, const float *in, const float *other, float *out, int64_t images)
{
    const int64_t *n = s->size;
    int64_t width = n[A_WIDTH], values = n[A_VALUES], heads = n[A_HEADS];
    int64_t each = width * n[A_PADDED] + n[A_KEYS] * values;
    float *scores = (float *)other + heads * each;
    (void)images;
    for (int64_t h = 0; h < heads; h++) {
        const float *packed = other + h * each, *query = in + h * width, *mask = s->data[0];
        float *to = out + h * values;
        int64_t i = 0;
        if (mask) mask += h * n[A_MASK];
        for (; i + QUERIES <= n[A_QUERIES]; i += QUERIES)
            attend_rows(s, QUERIES, query + i * heads * width, packed, mask, scores,
                        to + i * heads * values, i);
        for (; i < n[A_QUERIES]; i++)
            attend_rows(s, 1, query + i * heads * width, packed, mask, scores,
                        to + i * heads * values, i);
    }
}
