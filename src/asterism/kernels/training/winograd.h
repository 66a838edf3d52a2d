/* Winograd's convolution of 3×3: four by four outputs from six by six inputs, by 36 multiplications
   instead of 144.

       Y = Aᵀ[(G g Gᵀ) ⊙ (Bᵀ d B)]A,  and the gradient of g: Gᵀ[(A dY Aᵀ) ⊙ (Bᵀ d B)]G

   The polynomials are known by their values at 0, ±11/16, ±11/8 and infinity: powers of these points
   are exact in float, and lie close together, which keeps the rounding errors small. */

static const float NEAR = WINOGRAD_NEAR, FAR = WINOGRAD_FAR;
#define NEAR2 (NEAR * NEAR)
#define FAR2 (FAR * FAR)

/* Bᵀ, from six values to six. */
INLINE void to_points(Vec *out, int64_t step, const Vec *d)
{
    Vec even = d[4] - splat(FAR2) * d[2], odd = d[3] - splat(FAR2) * d[1];
    Vec even2 = d[4] - splat(NEAR2) * d[2], odd2 = d[3] - splat(NEAR2) * d[1];
    out[0] = splat(NEAR2 * FAR2) * d[0] + (d[4] - splat(NEAR2 + FAR2) * d[2]);
    out[step] = even + splat(NEAR) * odd;
    out[2 * step] = even - splat(NEAR) * odd;
    out[3 * step] = even2 + splat(FAR) * odd2;
    out[4 * step] = even2 - splat(FAR) * odd2;
    out[5 * step] = splat(NEAR2 * FAR2) * d[1] + (d[5] - splat(NEAR2 + FAR2) * d[3]);
}

/* Aᵀ, from six values to four. */
INLINE void from_points(Vec *out, int64_t step, const Vec *m)
{
    Vec even = m[1] + m[2], odd = m[1] - m[2], even2 = m[3] + m[4], odd2 = m[3] - m[4];
    out[0] = m[0] + even + even2;
    out[step] = splat(NEAR) * odd + splat(FAR) * odd2;
    out[2 * step] = splat(NEAR2) * even + splat(FAR2) * even2;
    out[3 * step] = splat(NEAR2 * NEAR) * odd + (splat(FAR2 * FAR) * odd2 + m[5]);
}

/* A, from four values to six. */
INLINE void spread_to_points(Vec *out, int64_t step, const Vec *d)
{
    Vec even = d[0] + splat(NEAR2) * d[2], odd = d[1] + splat(NEAR2) * d[3];
    Vec even2 = d[0] + splat(FAR2) * d[2], odd2 = d[1] + splat(FAR2) * d[3];
    out[0] = d[0];
    out[step] = even + splat(NEAR) * odd;
    out[2 * step] = even - splat(NEAR) * odd;
    out[3 * step] = even2 + splat(FAR) * odd2;
    out[4 * step] = even2 - splat(FAR) * odd2;
    out[5 * step] = d[3];
}

/* A tile of a channel to its 36 points, which lie `pitch` floats apart: Bᵀ d B, or A d Aᵀ. */
INLINE void tile_to_points(float *out, int64_t pitch, const float *in, int64_t in_row, const int side)
{
    UNROLL for (int i = 0; i < IN_PIXEL; i++) {
        Vec half[6 * 6], line[6];
        for (int x = 0; x < side; x++) {
            UNROLL for (int y = 0; y < side; y++)
                line[y] = *(const Vec *)(in + y * in_row + x * LANES + i * WIDTH);
            if (side == 6) to_points(half + x, 6, line); else spread_to_points(half + x, 6, line);
        }
        for (int y = 0; y < 6; y++) {
            if (side == 6) to_points(line, 1, half + 6 * y); else spread_to_points(line, 1, half + 6 * y);
            UNROLL for (int x = 0; x < 6; x++)
                *(Vec *)(out + (6 * y + x) * pitch + i * WIDTH) = line[x];
        }
    }
}

/* The 36 points of a unit, `pitch` floats apart, to its tile: AᵀmA. */
INLINE void tile_from_points(float *out, int64_t out_row, int64_t rows, int64_t columns,
                             const float *in, int64_t pitch, float bias)
{
    UNROLL for (int i = 0; i < IN_PIXEL; i++) {
        Vec half[4 * 6], line[6], made[4];
        for (int x = 0; x < 6; x++) {
            UNROLL for (int y = 0; y < 6; y++)
                line[y] = *(const Vec *)(in + (6 * y + x) * pitch + i * WIDTH);
            from_points(half + x, 6, line);
        }
        for (int y = 0; y < rows; y++) {
            from_points(made, 1, half + 6 * y);
            float *to = out + y * out_row + i * WIDTH;
            for (int x = 0; x < columns; x++) *(Vec *)(to + x * LANES) = made[x] + splat(bias);
        }
    }
}

/* Of one tile, the units of a tile of the product: (36, units, 16). */
INLINE void products(float *made, const float *weights, const float *points, int64_t pitch,
                     int64_t channels, const int rows)
{
    for (int p = 0; p < 36; p++, points += pitch, weights += channels) {
        const float *from[TALL];
        UNROLL for (int r = 0; r < rows; r++) from[r] = weights + r * 36 * channels;
        Vec sums[TALL * IN_PIXEL] = {{0}};
        add_products(sums, rows, from, 1, points, LANES, NULL, channels);
        store_sums(made + p * TALL * LANES, LANES, sums, rows);
    }
}

static void units_of_tile(const Winograd *w, const float *points, int64_t unit, int64_t rows,
                          float *out, int64_t height, int64_t width)
{
    float made[36 * TALL * LANES] __attribute__((aligned(64)));
    int64_t pitch = (w->channels + 1) * LANES;
    const float *weights = w->weights + unit * 36 * w->channels;
    for (int64_t r = 0; r < rows; r++) /* what is written afterwards is fetched meanwhile */
        for (int64_t y = 0; y < height; y++)
            for (int64_t x = 0; x < width; x++)
                __builtin_prefetch(out + (unit + r) * w->out_unit + y * w->out_row + x * LANES, 1, 2);
    BY_ROWS(rows, products(made, weights, points, pitch, w->channels, ROWS_NOW))
    for (int64_t r = 0; r < rows; r++, unit++) {
        float *to = out + unit * w->out_unit, bias = w->bias ? w->bias[unit] : 0;
        if (height == 4 && width == 4)
            tile_from_points(to, w->out_row, 4, 4, made + r * LANES, TALL * LANES, bias);
        else
            tile_from_points(to, w->out_row, height, width, made + r * LANES, TALL * LANES, bias);
    }
}

/* The points of `count` tiles of a row, (tiles, 36, channels + 1, 16). */
static void winograd_points(const Winograd *w, const float *in, int64_t first, int64_t count,
                            float *points)
{
    int64_t pitch = (w->channels + 1) * LANES;
    for (int64_t t = 0; t < count; t++, points += 36 * pitch)
        for (int64_t c = 0; c < w->channels; c++)
            tile_to_points(points + c * LANES, pitch,
                           in + c * w->in_unit + (first + t) * 4 * LANES, w->in_row, 6);
}

/* From these the outputs of some units, TALL at most. */
static void winograd_units(const Winograd *w, const float *points, int64_t first, int64_t count,
                           int64_t unit, int64_t rows, float *out, int64_t height)
{
    for (int64_t t = first; t < first + count; t++, points += 36 * (w->channels + 1) * LANES) {
        int64_t width = w->columns - 4 * t < 4 ? w->columns - 4 * t : 4;
        units_of_tile(w, points, unit, rows, out + 4 * t * LANES, height, width);
    }
}

/* ------------------------------------------------------------------ gradients of the weights */

/* The points of a tile with eight channels side by side: point p of lane i at p·pitch + i·step. */
INLINE void turned_points(float *out, int64_t pitch, int64_t step, const float *in, int64_t in_unit,
                          int64_t in_row, int64_t channels)
{
    float points[36 * 8 * LANES] __attribute__((aligned(64)));
    for (int64_t c = 0; c < 8; c++)
        tile_to_points(points + c * LANES, 8 * LANES, in + (c < channels ? c : 0) * in_unit, in_row, 6);
    for (int p = 0; p < 36; p++)
        for (int i = 0; i < LANES; i += 8)
            turn8(out + p * pitch + i * step, step, points + p * 8 * LANES + i, LANES);
}

INLINE void gradient_tile(float *sums, int64_t pitch, const float *gradient, int64_t lanes,
                          const float *points, const int rows)
{
    const float *from[TALL];
    UNROLL for (int r = 0; r < rows; r++) from[r] = gradient + r * lanes;
    Vec made[TALL * IN_PIXEL] = {{0}};
    add_products(made, rows, from, 1, points, pitch, NULL, lanes);
    add_sums(sums, pitch, made, rows);
}

/* Adds to the points of the gradients of the weights, (36, units, channels up to a multiple of 16),
   what a row of tiles gives. */
static void winograd_dot_row(const Winograd *w, const float *in, const float *gradient,
                             float *memory, float *sums)
{
    int64_t wide = (w->channels + LANES - 1) / LANES * LANES;
    for (int64_t first = 0; first < w->tiles; first += w->at_once) {
        int64_t count = w->tiles - first < w->at_once ? w->tiles - first : w->at_once;
        int64_t lanes = count * LANES, pitch = lanes * wide + LANES, other = lanes * w->units + LANES;
        float *points = memory, *spread = memory + 36 * pitch;
        for (int64_t t = 0; t < count; t++) {
            int64_t x = (first + t) * 4 * LANES;
            for (int64_t c = 0; c < w->channels; c += 8)
                turned_points(points + t * LANES * wide + c, pitch, wide, in + c * w->in_unit + x,
                              w->in_unit, w->in_row, w->channels - c);
            for (int64_t u = 0; u < w->units; u++)
                tile_to_points(spread + u * lanes + t * LANES, other,
                               gradient + u * w->gradient_unit + x, w->gradient_row, 4);
        }
        for (int p = 0; p < 36; p++)
            for (int64_t i = 0; i < tiles_of(w->units); i++) {
                int64_t unit = tile_start(w->units, i), rows = tile_start(w->units, i + 1) - unit;
                for (int64_t c = 0; c < wide; c += LANES) {
                    float *to = sums + (p * w->units + unit) * wide + c;
                    BY_ROWS(rows, gradient_tile(to, wide, spread + p * other + unit * lanes, lanes,
                                                points + p * pitch + c, ROWS_NOW))
                }
            }
    }
}

/* ------------------------------------------------------------------ weights and points */

/* out = Σ by[k·step] · (row k), of `count` rows `pitch` apart, `inner` numbers each. */
INLINE void blend(float *restrict out, const float *rows, int64_t pitch, const float *by,
                    int64_t step, const int count, int64_t inner)
{
    for (int64_t i = 0; i < inner; i++) {
        float sum = 0;
        UNROLL for (int k = 0; k < count; k++) sum += by[k * step] * rows[k * pitch + i];
        out[i] = sum;
    }
}

/* G g Gᵀ of each kernel, as (units, 36, channels). For the gradient of the input, kernels are turned
   around, and it is (channels, 36, units). `memory` is for 27 numbers of each that is inner. */
static void weights_to_points(const float *g, const float *weight, int64_t units, int64_t channels,
                              int64_t inverse, float *memory, float *out)
{
    int64_t outer = inverse ? channels : units, inner = inverse ? units : channels;
    int64_t outer_step = inverse ? 9 : 9 * inner, inner_step = inverse ? 9 * outer : 9;
    float *half = memory + 9 * inner;
    for (int64_t o = 0; o < outer; o++) {
        const float *from = weight + o * outer_step;
        for (int64_t i = 0; i < inner; i++)
            for (int k = 0; k < 9; k++)
                memory[k * inner + i] = from[i * inner_step + (inverse ? 8 - k : k)];
        for (int k = 0; k < 18; k++)
            blend(half + k * inner, memory + k % 3 * inner, 3 * inner, g + k / 3 * 3, 1, 3, inner);
        for (int p = 0; p < 36; p++, out += inner)
            blend(out, half + p / 6 * 3 * inner, inner, g + p % 6 * 3, 1, 3, inner);
    }
}

/* Gᵀ s G of the sums, (36, units, wide), for weights that are not zero. `memory` is for 27 numbers
   of each channel. */
static void weights_from_points(const float *g, const float *weight, int64_t units, int64_t channels,
                                const float *sums, int64_t wide, float *memory, float *out)
{
    float *half = memory + 9 * channels;
    for (int64_t u = 0; u < units; u++, sums += wide) {
        for (int k = 0; k < 18; k++)
            blend(half + k * channels, sums + k % 6 * units * wide, 6 * units * wide, g + k / 6, 3,
                    6, channels);
        for (int k = 0; k < 9; k++)
            blend(memory + k * channels, half + k / 3 * 6 * channels, channels, g + k % 3, 3, 6,
                    channels);
        for (int64_t c = 0; c < channels; c++)
            for (int k = 0; k < 9; k++, weight++, out++)
                *out = *weight != 0 ? memory[k * channels + c] : 0;
    }
}
