/* The same in whole numbers of 8 bits; sums have 32. */

/* ---- number_8 */
static int32_t number_8(numbers_8 from, uint32_t k)
{
    if (from.bits > 0) {
        uint32_t at = k * (uint32_t)from.bits;
        k = (BYTE(from.codes + at / 8) >> at % 8) & ((1u << from.bits) - 1);
    }
    return (int8_t)BYTE((const uint8_t *)from.values + k);
}

/* ---- rescaled */
/* A sum times factor / 2^shift, rounded, as 8 bits. */
static int8_t rescaled(int32_t sum, int32_t factor, int32_t shift)
{
    int64_t wide = (int64_t)sum * factor + ((int64_t)1 << (shift - 1));
    int64_t whole = wide >= 0 ? wide >> shift : -((-wide + ((int64_t)1 << shift) - 1) >> shift);
    return (int8_t)(whole > 127 ? 127 : whole < -127 ? -127 : whole);
}

/* ---- narrowed_8 */
/* A sum over 2^shift, rounded, as 8 bits. */
static int8_t narrowed_8(int32_t sum, int32_t shift)
{
    int32_t one = (int32_t)1 << shift, wide = sum + one / 2;
    int32_t whole = wide >= 0 ? wide >> shift : -((-wide + one - 1) >> shift);
    return (int8_t)(whole > 127 ? 127 : whole < -127 ? -127 : whole);
}

/* ---- linear_8 */
static void linear_8(const int8_t *x, int8_t *y, int32_t rows, int32_t inputs, int32_t outputs,
                     int32_t relu, int32_t factor, int32_t shift, const uint8_t *places,
                     numbers_8 weights, const int32_t *bias)
{
    for (; rows > 0; rows--, x += inputs) {
        const uint8_t *p = places;
        uint32_t k = 0;
        for (int32_t o = 0; o < outputs; o++) {
            const int8_t *from = x;
            int32_t sum = INTEGER(bias + o);
            for (uint32_t left = p ? next(&p) : (uint32_t)inputs; left > 0; left--) {
                from += p ? next(&p) : 0;
                sum += number_8(weights, k++) * *from++;
            }
            *y++ = relu && sum < 0 ? 0 : rescaled(sum, factor, shift);
        }
    }
}

/* ---- finish_8 */
static int8_t *finish_8(const int32_t *row, int8_t *y, int32_t width, int32_t pool, int32_t relu,
                        int32_t factor, int32_t shift)
{
    for (int32_t i = 0; i + pool <= width; i += pool) {
        int32_t most = row[i];
        for (int32_t j = 1; j < pool * pool; j++) {
            int32_t other = row[i + j % pool + j / pool * width];
            if (other > most) most = other;
        }
        *y++ = relu && most < 0 ? 0 : rescaled(most, factor, shift);
    }
    return y;
}

/* ---- conv_8 */
static void conv_8(const int8_t *x, int8_t *y, int32_t *row, int32_t channels, int32_t down,
                   int32_t right, int32_t height, int32_t width, int32_t pool, int32_t relu,
                   int32_t factor, int32_t shift, const uint8_t *places, numbers_8 weights,
                   const int32_t *bias)
{
    uint32_t k = 0;
    for (int32_t c = 0; c < channels; c++) {
        const uint8_t *p = places;
        uint32_t first = k;
        for (int32_t top = 0; top + pool <= height; top += pool) {
            for (int32_t r = 0; r < pool; r++) {
                const int8_t *from = x + (top + r) * down;
                int32_t *to = row + r * width;
                p = places, k = first;
                for (int32_t i = 0; i < width; i++) to[i] = INTEGER(bias + c);
                for (uint32_t left = next(&p); left > 0; left--, from++) {
                    int32_t weight = number_8(weights, k++);
                    from += next(&p);
                    const int8_t *one = from;
                    for (int32_t i = 0; i < width; i++, one += right) to[i] += weight * *one;
                }
            }
            y = finish_8(row, y, width, pool, relu, factor, shift);
        }
        places = p;
    }
}

/* ---- sum_of_8 */
/* One number of a convolution, or the largest of two by two; reads its channel's tables. */
static int32_t sum_of_8(const int8_t *from, int32_t start, int32_t down, int32_t right, int32_t pool,
                        const uint8_t **p, uint32_t *k, numbers_8 weights)
{
    int32_t sums[4] = {start, start, start, start};
    for (uint32_t left = next(p); left > 0; left--, from++) {
        int32_t weight = number_8(weights, (*k)++);
        from += next(p);
        for (int32_t i = 0; i < pool * pool; i++)
            sums[i] += weight * from[i / pool * down + i % pool * right];
    }
    for (int32_t i = 1; i < pool * pool; i++)
        if (sums[i] > sums[0]) sums[0] = sums[i];
    return sums[0];
}

/* ---- conv_each_8 */
/* The same without a row of sums, which reads the tables more often. */
static void conv_each_8(const int8_t *x, int8_t *y, int32_t channels, int32_t down, int32_t right,
                        int32_t height, int32_t width, int32_t pool, int32_t relu, int32_t factor,
                        int32_t shift, const uint8_t *places, numbers_8 weights, const int32_t *bias)
{
    uint32_t k = 0;
    for (int32_t c = 0; c < channels; c++) {
        const uint8_t *p = places;
        uint32_t first = k;
        for (int32_t top = 0; top + pool <= height; top += pool)
            for (int32_t left = 0; left + pool <= width; left += pool) {
                p = places, k = first;
                int32_t sum = sum_of_8(x + top * down + left * right, INTEGER(bias + c), down, right,
                                       pool, &p, &k, weights);
                *y++ = relu && sum < 0 ? 0 : rescaled(sum, factor, shift);
            }
        places = p;
    }
}

/* ---- conv_rows_8 */
/* The same row by row of all channels: what it writes may lie over rows that it has read. */
static void conv_rows_8(const int8_t *x, int8_t *y, int32_t channels, int32_t down, int32_t right,
                        int32_t height, int32_t width, int32_t pool, int32_t relu, int32_t factor,
                        int32_t shift, const uint8_t *places, numbers_8 weights, const int32_t *bias)
{
    for (int32_t top = 0; top + pool <= height; top += pool) {
        const uint8_t *begin = places, *p = places;
        uint32_t first = 0, k = 0;
        for (int32_t c = 0; c < channels; c++, begin = p, first = k)
            for (int32_t left = 0; left + pool <= width; left += pool) {
                p = begin, k = first;
                int32_t sum = sum_of_8(x + top * down + left * right, INTEGER(bias + c), down, right,
                                       pool, &p, &k, weights);
                *y++ = relu && sum < 0 ? 0 : rescaled(sum, factor, shift);
            }
    }
}

/* ---- add_tap_8 */
static void add_tap_8(const int8_t *from, int32_t *to, const int32_t *axis, int32_t place,
                      int32_t weight)
{
    int32_t stride = INTEGER(axis + 9), input = place * INTEGER(axis + 15) - INTEGER(axis + 12);
    int32_t inputs = INTEGER(axis), outputs = INTEGER(axis + 6), output = 0;
    for (; input < 0; input += stride) output++;
    for (; input < inputs && output < outputs; input += stride, output++)
        to[output] += weight * from[input];
}

/* ---- conv_any_8 */
static void conv_any_8(const int8_t *x, int8_t *y, int32_t *row, int32_t channels,
                       int32_t transposed, int32_t pool, int32_t relu, int32_t factor,
                       int32_t shift, const int32_t *g, const uint8_t *places, numbers_8 weights,
                       const int32_t *bias)
{
    int32_t height = INTEGER(g + 7), width = INTEGER(g + 8), in_h = INTEGER(g + 1);
    int32_t in_w = INTEGER(g + 2), kh = INTEGER(g + 4), kw = INTEGER(g + 5);
    uint32_t k = 0;
    for (int32_t c = 0; c < channels; c++) {
        const uint8_t *p = places;
        uint32_t first = k;
        for (int32_t top = 0; top + pool <= height; top += pool) {
            for (int32_t r = 0; r < pool; r++) {
                int32_t at = 0, *to = row + r * width;
                p = places, k = first;
                for (int32_t i = 0; i < width; i++) to[i] = INTEGER(bias + c);
                for (uint32_t left = next(&p); left > 0; left--, at++, k++) {
                    at += (int32_t)next(&p);
                    int32_t iy = read_at(g + 1, transposed, top + r, at / kw % kh);
                    if (iy < 0) continue;
                    const int8_t *line = x + (at / kw / kh * in_h + iy) * in_w;
                    add_tap_8(line, to, g + 2, at % kw, number_8(weights, k));
                }
            }
            y = finish_8(row, y, width, pool, relu, factor, shift);
        }
        places = p;
    }
}

/* ---- relu_8 */
static void relu_8(const int8_t *x, int8_t *y, int32_t n)
{
    for (; n > 0; n--, x++) *y++ = *x < 0 ? 0 : *x;
}

/* ---- pool_8 */
static void pool_8(const int8_t *x, int8_t *y, int32_t channels, int32_t height, int32_t width,
                   int32_t rows, int32_t columns, int32_t down, int32_t right,
                   const int32_t *bounds)
{
    for (int32_t c = 0; c < channels; c++, x += height * width)
        for (int32_t i = 0; i < rows; i++)
            for (int32_t j = 0; j < columns; j++) {
                const int32_t *wide = bounds + 2 * (rows + j);
                int8_t found = -127;
                for (int32_t a = INTEGER(bounds + 2 * i); a < INTEGER(bounds + 2 * i + 1); a += down)
                    for (int32_t b = INTEGER(wide); b < INTEGER(wide + 1); b += right)
                        if (x[a * width + b] > found) found = x[a * width + b];
                *y++ = found;
            }
}

/* ---- copy_8 */
static void copy_8(const int8_t *x, int8_t *y, int32_t count, int32_t part, int32_t whole,
                   int32_t first)
{
    for (y += first; count > 0; count--, y += whole - part)
        for (int32_t i = 0; i < part; i++) *y++ = *x++;
}

/* ---- add_8 */
static void add_8(const int8_t *a, const int8_t *b, int8_t *y, int32_t n, int32_t relu, int32_t one,
                  int32_t other, int32_t shift)
{
    for (; n > 0; n--) {
        int32_t sum = *a++ * one + *b++ * other;
        *y++ = relu && sum < 0 ? 0 : narrowed_8(sum, shift);
    }
}

/* ---- mean_8 */
static void mean_8(const int8_t *x, int8_t *y, int32_t outer, int32_t length, int32_t inner,
                   int32_t factor, int32_t shift)
{
    for (; outer > 0; outer--, x += length * inner)
        for (int32_t j = 0; j < inner; j++) {
            int32_t sum = 0;
            for (int32_t i = 0; i < length; i++) sum += x[i * inner + j];
            *y++ = rescaled(sum, factor, shift);
        }
}

/* ---- average_8 */
static void average_8(const int8_t *x, int8_t *y, int32_t channels, int32_t height, int32_t width,
                      int32_t rows, int32_t columns, int32_t down, int32_t right, int32_t shift,
                      const int32_t *bounds, const int32_t *factors)
{
    for (int32_t c = 0; c < channels; c++, x += height * width)
        for (int32_t i = 0; i < rows; i++)
            for (int32_t j = 0; j < columns; j++) {
                const int32_t *wide = bounds + 2 * (rows + j);
                int32_t sum = 0;
                for (int32_t a = INTEGER(bounds + 2 * i); a < INTEGER(bounds + 2 * i + 1); a += down)
                    for (int32_t b = INTEGER(wide); b < INTEGER(wide + 1); b += right)
                        sum += x[a * width + b];
                *y++ = rescaled(sum, INTEGER(factors + i * columns + j), shift);
            }
}

/* ---- look_up_8 */
static void look_up_8(const int8_t *x, int8_t *y, int32_t n, numbers_8 table)
{
    for (; n > 0; n--, x++) *y++ = (int8_t)number_8(table, (uint32_t)(*x < -127 ? 0 : *x + 127));
}

/* ---- gather_8 */
static void gather_8(const int8_t *x, int8_t *y, int32_t runs, int32_t filling, const uint8_t *places)
{
    for (; runs > 0; runs--) {
        uint32_t left = next(&places), first = next(&places), code = next(&places);
        int32_t step = code & 1 ? -(int32_t)(code / 2) - 1 : (int32_t)(code / 2);
        int32_t at = (int32_t)first - 1;
        for (; left > 0; left--, at += step) *y++ = first ? x[at] : (int8_t)filling;
    }
}
