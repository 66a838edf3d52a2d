/* Layers with weights: only those that are not zero are in the tables. */

/* ---- linear */
/* Of each output: how many weights it has, and how many inputs are left out before each of them. */
static void linear(const float *x, float *y, int32_t rows, int32_t inputs, int32_t outputs,
                   int32_t relu, const uint8_t *places, numbers weights, numbers bias)
{
    for (; rows > 0; rows--, x += inputs) {
        const uint8_t *p = places;
        uint32_t k = 0;
        for (int32_t o = 0; o < outputs; o++) {
            const float *from = x;
            float sum = number(bias, (uint32_t)o);
            for (uint32_t left = p ? next(&p) : (uint32_t)inputs; left > 0; left--) {
                from += p ? next(&p) : 0;
                sum += number(weights, k++) * *from++;
            }
            *y++ = relu && sum < 0 ? 0 : sum;
        }
    }
}

/* ---- finish */
/* A row of a convolution, or the largest numbers of two rows, two by two; the end of the result. */
static float *finish(const float *row, float *y, int32_t width, int32_t pool, int32_t relu)
{
    for (int32_t i = 0; i + pool <= width; i += pool) {
        float most = row[i];
        for (int32_t j = 1; j < pool * pool; j++) {
            float other = row[i + j % pool + j / pool * width];
            if (other > most) most = other;
        }
        *y++ = relu && most < 0 ? 0 : most;
    }
    return y;
}

/* ---- conv */
/* A convolution without padding. Of each channel of the result: how many weights it has, and how
   many inputs are left out before each of those that make its first number. */
static void conv(const float *x, float *y, float *row, int32_t channels, int32_t down, int32_t right,
                 int32_t height, int32_t width, int32_t pool, int32_t relu, const uint8_t *places,
                 numbers weights, numbers bias)
{
    uint32_t k = 0;
    for (int32_t c = 0; c < channels; c++) {
        const uint8_t *p = places;
        uint32_t first = k;
        float start = number(bias, (uint32_t)c);
        for (int32_t top = 0; top + pool <= height; top += pool) {
            for (int32_t r = 0; r < pool; r++) {
                const float *from = x + (top + r) * down;
                float *to = row + r * width;
                p = places, k = first;
                for (int32_t i = 0; i < width; i++) to[i] = start;
                for (uint32_t left = next(&p); left > 0; left--, from++) {
                    float weight = number(weights, k++);
                    from += next(&p);
                    const float *one = from;
                    for (int32_t i = 0; i < width; i++, one += right) to[i] += weight * *one;
                }
            }
            y = finish(row, y, width, pool, relu);
        }
        places = p;
    }
}

/* ---- read_at */
/* Which input a place of the kernel reads for an output along an axis; -1 is none. */
static int32_t read_at(const int32_t *axis, int32_t transposed, int32_t output, int32_t place)
{
    int32_t size = INTEGER(axis), stride = INTEGER(axis + 9);
    int32_t shift = place * INTEGER(axis + 15) - INTEGER(axis + 12), at = output * stride + shift;
    if (transposed) {
        at = output - shift;
        if (at % stride) return -1;
        at /= stride;
    }
    return at >= 0 && at < size ? at : -1;
}

/* ---- add_tap */
/* One weight times a row of the input, with all that the row's ends need. */
static void add_tap(const float *from, float *to, const int32_t *axis, int32_t transposed,
                    int32_t place, float weight)
{
    int32_t stride = INTEGER(axis + 9), input = 0, output = 0;
    int32_t shift = place * INTEGER(axis + 15) - INTEGER(axis + 12);
    int32_t *shifted = transposed ? &output : &input, *other = transposed ? &input : &output;
    for (*shifted = shift; *shifted < 0; *shifted += stride) *other += 1;
    int32_t inputs = INTEGER(axis), outputs = INTEGER(axis + 6);
    for (; input < inputs && output < outputs; *shifted += stride, *other += 1)
        to[output] += weight * from[input];
}

/* ---- conv_any */
/* A convolution of up to three dimensions, padded, transposed or not. `g` holds for the three axes
   the sizes of the input, the kernel and the result, then strides, paddings and dilations. Of each
   channel of the result: how many weights it has, and how many are left out before each of them. */
static void conv_any(const float *x, float *y, float *row, int32_t channels, int32_t transposed,
                     int32_t pool, int32_t relu, const int32_t *g, const uint8_t *places,
                     numbers weights, numbers bias)
{
    int32_t depth = INTEGER(g + 6), height = INTEGER(g + 7), width = INTEGER(g + 8);
    int32_t in_h = INTEGER(g + 1), in_w = INTEGER(g + 2), kh = INTEGER(g + 4), kw = INTEGER(g + 5);
    uint32_t k = 0;
    for (int32_t c = 0; c < channels; c++) {
        const uint8_t *p = places;
        uint32_t first = k;
        for (int32_t z = 0; z < depth; z++)
            for (int32_t top = 0; top + pool <= height; top += pool) {
                for (int32_t r = 0; r < pool; r++) {
                    int32_t at = 0;
                    float *to = row + r * width;
                    p = places, k = first;
                    for (int32_t i = 0; i < width; i++) to[i] = number(bias, (uint32_t)c);
                    for (uint32_t left = next(&p); left > 0; left--, at++, k++) {
                        at += (int32_t)next(&p);
                        int32_t plane = at / kw / kh, kd = INTEGER(g + 3);
                        int32_t iz = read_at(g, transposed, z, plane % kd);
                        int32_t iy = read_at(g + 1, transposed, top + r, at / kw % kh);
                        if (iz < 0 || iy < 0) continue;
                        int32_t line = (plane / kd * INTEGER(g) + iz) * in_h + iy;
                        add_tap(x + line * in_w, to, g + 2, transposed, at % kw, number(weights, k));
                    }
                }
                y = finish(row, y, width, pool, relu);
            }
        places = p;
    }
}

/* ---- sigmoid_of */
static float sigmoid_of(float x)
{
    return 1 / (1 + expf(-x));
}

/* ---- begin */
/* The state that a recurrent layer begins with: zeros where none is given. */
static void begin(float *state, const float *given, int32_t units, int32_t direction)
{
    for (int32_t u = 0; u < units; u++) state[u] = given ? given[direction * units + u] : 0;
}

/* ---- lstm */
static void lstm(const float *x, const float *hidden, const float *cell, float *y, float *scratch,
                 int32_t steps, int32_t features, int32_t units, int32_t directions,
                 int32_t direction, int32_t cells, const uint8_t *places, numbers weights,
                 numbers bias, const uint8_t *own_places, numbers own_weights, numbers own_bias)
{
    float *h = scratch, *c = h + units, *given = c + units, *own = given + 4 * units;
    begin(h, hidden, units, direction);
    begin(c, cell, units, direction);
    for (int32_t step = 0; step < steps; step++) {
        int32_t t = direction ? steps - 1 - step : step;
        linear(x + t * features, given, 1, features, 4 * units, 0, places, weights, bias);
        linear(h, own, 1, units, 4 * units, 0, own_places, own_weights, own_bias);
        for (int32_t u = 0; u < 4 * units; u++) given[u] += own[u];
        for (int32_t u = 0; u < units; u++) {
            float enter = sigmoid_of(given[u]) * tanhf(given[2 * units + u]);
            c[u] = sigmoid_of(given[units + u]) * c[u] + enter;
            h[u] = sigmoid_of(given[3 * units + u]) * tanhf(c[u]);
            y[(t * directions + direction) * units + u] = h[u];
        }
    }
    for (int32_t u = 0; cells && u < units; u++) y[(steps * directions + direction) * units + u] = c[u];
}

/* ---- gru */
static void gru(const float *x, const float *hidden, float *y, float *scratch, int32_t steps,
                int32_t features, int32_t units, int32_t directions, int32_t direction,
                const uint8_t *places, numbers weights, numbers bias, const uint8_t *own_places,
                numbers own_weights, numbers own_bias)
{
    float *h = scratch, *given = h + units, *own = given + 3 * units;
    begin(h, hidden, units, direction);
    for (int32_t step = 0; step < steps; step++) {
        int32_t t = direction ? steps - 1 - step : step;
        linear(x + t * features, given, 1, features, 3 * units, 0, places, weights, bias);
        linear(h, own, 1, units, 3 * units, 0, own_places, own_weights, own_bias);
        for (int32_t u = 0; u < units; u++) {
            float reset = sigmoid_of(given[u] + own[u]);
            float update = sigmoid_of(given[units + u] + own[units + u]);
            float fresh = tanhf(given[2 * units + u] + reset * own[2 * units + u]);
            h[u] = fresh + update * (h[u] - fresh);
            y[(t * directions + direction) * units + u] = h[u];
        }
    }
}
