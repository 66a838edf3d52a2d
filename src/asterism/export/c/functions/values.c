/* Values: pooling, norms, joining, moving. */

/* ---- pool */
/* Of each row and column of the result: its first input, and the one after its last. */
static void pool(const float *x, float *y, int32_t average, int32_t channels, int32_t height,
                 int32_t width, int32_t rows, int32_t columns, int32_t down, int32_t right,
                 const int32_t *bounds, numbers factor)
{
    for (int32_t c = 0; c < channels; c++, x += height * width)
        for (int32_t i = 0; i < rows; i++)
            for (int32_t j = 0; j < columns; j++) {
                const int32_t *wide = bounds + 2 * (rows + j);
                float found = average ? 0 : -INFINITY;
                for (int32_t a = INTEGER(bounds + 2 * i); a < INTEGER(bounds + 2 * i + 1); a += down)
                    for (int32_t b = INTEGER(wide); b < INTEGER(wide + 1); b += right) {
                        float v = x[a * width + b];
                        if (average) found += v;
                        else if (v > found) found = v;
                    }
                *y++ = average ? found * number(factor, (uint32_t)(i * columns + j)) : found;
            }
}

/* ---- scale */
static void scale(const float *x, float *y, int32_t outer, int32_t channels, int32_t inner,
                  numbers factor, numbers shift)
{
    for (; outer > 0; outer--)
        for (int32_t c = 0; c < channels; c++) {
            float times = number(factor, (uint32_t)c), plus = number(shift, (uint32_t)c);
            for (int32_t i = 0; i < inner; i++) *y++ = *x++ * times + plus;
        }
}

/* ---- normalise */
static void normalise(const float *x, float *y, int32_t rows, int32_t length, int32_t around_zero,
                      float eps)
{
    for (; rows > 0; rows--, x += length, y += length) {
        float mean = 0, squares = 0;
        for (int32_t i = 0; i < length && !around_zero; i++) mean += x[i] / (float)length;
        for (int32_t i = 0; i < length; i++) squares += (x[i] - mean) * (x[i] - mean);
        float factor = 1 / sqrtf(squares / (float)length + eps);
        for (int32_t i = 0; i < length; i++) y[i] = (x[i] - mean) * factor;
    }
}

/* ---- mean */
static void mean(const float *x, float *y, int32_t outer, int32_t length, int32_t inner)
{
    for (; outer > 0; outer--, x += length * inner)
        for (int32_t j = 0; j < inner; j++) {
            float sum = 0;
            for (int32_t i = 0; i < length; i++) sum += x[i * inner + j];
            *y++ = sum / (float)length;
        }
}

/* ---- softmax */
static void softmax(const float *x, float *y, int32_t outer, int32_t length, int32_t inner,
                    int32_t logarithm)
{
    for (; outer > 0; outer--, x += length * inner, y += length * inner)
        for (int32_t j = 0; j < inner; j++) {
            float most = x[j], total = 0;
            for (int32_t i = 1; i < length; i++)
                if (x[i * inner + j] > most) most = x[i * inner + j];
            for (int32_t i = 0; i < length; i++) total += expf(x[i * inner + j] - most);
            float less = most + logf(total);
            for (int32_t i = 0; i < length; i++) {
                int32_t at = i * inner + j;
                y[at] = logarithm ? x[at] - less : expf(x[at] - most) / total;
            }
        }
}

/* ---- combined */
static float combined(int32_t which, float a, float b)
{
    switch (which) {
    case 0: return a + b;
    case 1: return a * b;
    case 2: return a - b;
    case 3: return a / b;
    case 4: return a > b ? a : b;
    case 5: return a < b ? a : b;
    case 6: return a < 0 ? a * b : a;
    case 7: return a == b;
    case 8: return a > b;
    default: return a != 0 ? b : 0;
    }
}

/* ---- combine */
/* Of each axis: its size, and how far the next number of both values is. */
static void combine(const float *a, const float *b, float *y, int32_t which, int32_t relu,
                    int32_t axes, int32_t size, const int32_t *table)
{
    for (int32_t k = 0; k < size; k++) {
        int32_t rest = k, i = 0, j = 0;
        for (int32_t axis = axes - 1; axis >= 0; axis--) {
            int32_t length = INTEGER(table + 3 * axis), at = rest % length;
            i += at * INTEGER(table + 3 * axis + 1);
            j += at * INTEGER(table + 3 * axis + 2);
            rest /= length;
        }
        float v = combined(which, a[i], b[j]);
        y[k] = relu && v < 0 ? 0 : v;
    }
}

/* ---- copy */
static void copy(const float *x, float *y, int32_t count, int32_t part, int32_t whole, int32_t first)
{
    for (y += first; count > 0; count--, y += whole - part)
        for (int32_t i = 0; i < part; i++) *y++ = *x++;
}

/* ---- unpack */
static void unpack(float *y, int32_t size, numbers from)
{
    for (int32_t i = 0; i < size; i++) y[i] = number(from, (uint32_t)i);
}

/* ---- gather */
/* Runs of places: how many, the first plus 1 or 0 for the filling, and twice how far the next is. */
static void gather(const float *x, float *y, int32_t runs, float filling, const uint8_t *places)
{
    for (; runs > 0; runs--) {
        uint32_t left = next(&places), first = next(&places), code = next(&places);
        int32_t step = code & 1 ? -(int32_t)(code / 2) - 1 : (int32_t)(code / 2);
        int32_t at = (int32_t)first - 1;
        for (; left > 0; left--, at += step) *y++ = first ? x[at] : filling;
    }
}

/* ---- resize */
static void resize(const float *x, float *y, int32_t outer, int32_t before, int32_t after,
                   int32_t inner, const int32_t *low, const int32_t *high, numbers part)
{
    for (; outer > 0; outer--, x += before * inner)
        for (int32_t i = 0; i < after; i++) {
            const float *one = x + INTEGER(low + i) * inner, *other = x + INTEGER(high + i) * inner;
            float share = number(part, (uint32_t)i);
            for (int32_t j = 0; j < inner; j++) *y++ = one[j] * (1 - share) + other[j] * share;
        }
}

/* ---- embed */
static void embed(const float *x, float *y, int32_t count, int32_t width, int32_t rows, numbers table)
{
    for (; count > 0; count--, x++) {
        int32_t row = *x > 0 ? (*x < (float)rows ? (int32_t)*x : rows - 1) : 0;
        for (int32_t i = 0; i < width; i++) *y++ = number(table, (uint32_t)(row * width + i));
    }
}

/* ---- matmul */
static void matmul(const float *a, const float *b, float *y, int32_t batch, int32_t rows,
                   int32_t inner, int32_t columns)
{
    for (; batch > 0; batch--, a += rows * inner, b += inner * columns)
        for (int32_t i = 0; i < rows; i++)
            for (int32_t j = 0; j < columns; j++) {
                float sum = 0;
                for (int32_t k = 0; k < inner; k++) sum += a[i * inner + k] * b[k * columns + j];
                *y++ = sum;
            }
}

/* ---- attention */
static void attention(const float *q, const float *k, const float *v, float *y, float *scores,
                      int32_t queries, int32_t keys, int32_t heads, int32_t width, int32_t values,
                      int32_t causal, int32_t masked, int32_t pitch, float factor, numbers mask)
{
    for (int32_t i = 0; i < queries; i++)
        for (int32_t h = 0; h < heads; h++) {
            int32_t seen = causal && i + 1 < keys ? i + 1 : keys;
            float most = -INFINITY, total = 0;
            for (int32_t j = 0; j < seen; j++) {
                const float *one = q + (i * heads + h) * width, *other = k + (j * heads + h) * width;
                float sum = 0;
                for (int32_t d = 0; d < width; d++) sum += one[d] * other[d];
                scores[j] = sum * factor;
                if (masked) scores[j] += number(mask, (uint32_t)(h * pitch + i * keys + j));
                if (scores[j] > most) most = scores[j];
            }
            for (int32_t j = 0; j < seen; j++) {
                scores[j] = scores[j] > -INFINITY ? expf(scores[j] - most) : 0;
                total += scores[j];
            }
            for (int32_t d = 0; d < values; d++) {
                float sum = 0;
                for (int32_t j = 0; j < seen; j++) sum += scores[j] * v[(j * heads + h) * values + d];
                *y++ = total > 0 ? sum / total : 0;
            }
        }
}
