/* A convolution of 3×3 with most of its weights, by Winograd's method: blocks of images, shared by
   threads, go through it a row of tiles at a time. */
#include <stdlib.h>
#include <string.h>
#include "frame.h"

enum { SIDE = 4, POINTS = 36 }; /* of a tile of outputs; of its transform */

static const int64_t CACHE = 300 << 10; /* bytes for the points of the tiles at once */

static int64_t up(int64_t a, int64_t b) { return (a + b - 1) / b; }

static float *floats(int64_t count)
{
    return aligned_alloc(64, ((size_t)count * sizeof(float) + 127) / 64 * 64);
}

/* ------------------------------------------------------------------ weights */

/* G: row i has what gives the value of a polynomial of three coefficients at point i. */
static void points(double g[6][3])
{
    const double at[5] = {0, WINOGRAD_NEAR, -WINOGRAD_NEAR, WINOGRAD_FAR, -WINOGRAD_FAR};
    for (int i = 0; i < 5; i++) {
        double factor = 1;
        for (int k = 0; k < 5; k++) factor /= k == i ? 1 : at[i] - at[k];
        for (int k = 0; k < 3; k++, factor *= at[i]) g[i][k] = factor;
    }
    g[5][0] = g[5][1] = 0, g[5][2] = 1;
}

/* out = Σ by[k] · (row k), for three rows of `count` numbers. */
static void combine(float *out, const float *rows, int64_t pitch, const double *by, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = (float)(by[0] * rows[i] + by[1] * rows[pitch + i] + by[2] * rows[2 * pitch + i]);
}

/* G g Gᵀ of each kernel, as (units, 36, channels). For the gradient of the input, kernels are turned
   around, and it is (channels, 36, units). `kernels` is memory for 27 numbers of each that is inner. */
static void weights_to_points(const int64_t *n, const float *weight, int inverse, float *kernels,
                              float *out)
{
    double g[6][3];
    points(g);
    int64_t outer = n[inverse ? T_CHANNELS : T_UNITS], inner = n[inverse ? T_UNITS : T_CHANNELS];
    int64_t outer_step = inverse ? 9 : 9 * inner, inner_step = inverse ? 9 * outer : 9;
    for (int64_t o = 0; o < outer; o++) {
        float *half = kernels + 9 * inner;
        for (int64_t i = 0; i < inner; i++)
            for (int k = 0; k < 9; k++)
                kernels[k * inner + i] =
                    weight[o * outer_step + i * inner_step + (inverse ? 8 - k : k)];
        for (int k = 0; k < 18; k++)
            combine(half + k * inner, kernels + k % 3 * inner, 3 * inner, g[k / 3], inner);
        for (int p = 0; p < POINTS; p++, out += inner)
            combine(out, half + p / 6 * 3 * inner, inner, g[p % 6], inner);
    }
}

/* Gᵀ s G of the sums of all parts, each (36, units, channels up to `wide`), for weights that are
   not zero. */
static void weights_from_points(const int64_t *n, const float *weight, const float *sums,
                                int64_t parts, int64_t wide, float *out)
{
    double g[6][3];
    points(g);
    int64_t pitch = n[T_UNITS] * wide, channels = n[T_CHANNELS];
    for (int64_t u = 0; u < n[T_UNITS]; u++)
        for (int64_t c = 0; c < channels; c++, weight += 9, out += 9) {
            double half[3][6] = {{0}};
            for (int p = 0; p < POINTS; p++) {
                double sum = 0;
                for (int64_t part = 0; part < parts; part++)
                    sum += sums[(part * POINTS + p) * pitch + u * wide + c];
                for (int k = 0; k < 3; k++) half[k][p % 6] += g[p / 6][k] * sum;
            }
            for (int i = 0; i < 9; i++) {
                double sum = 0;
                for (int x = 0; x < 6; x++) sum += half[i / 3][x] * g[x][i % 3];
                out[i] = weight[i] != 0 ? (float)sum : 0;
            }
        }
}

/* ------------------------------------------------------------------ blocks */

/* From a block to a block, or, with a gradient, to the sums of the gradients of the weights. */
typedef struct {
    const Training *kernels;
    Frame frame, gradient_frame;
    Winograd row; /* of tiles */
    int64_t out_rows, blocks, parts, in_block, out_block;
    const float *in, *gradient;
    float *out, *sums;
    int64_t memory, part_sums; /* floats */
    int status;
} Pass;

static int frame_of_tiles(Frame *f, int64_t rows)
{
    if (asterism_frame_new(f)) return NO_MEMORY;
    memset(f->used, 1, (size_t)f->channels);
    f->band = SIDE;
    if (!f->whole) f->rows = rows;
    return DONE;
}

static int pass_new(Pass *p, int level, const int64_t *n, int64_t threads)
{
    int64_t tiles_h = up(n[T_OUT_H], SIDE), tiles_w = up(n[T_OUT_W], SIDE);
    int64_t channels = n[T_CHANNELS], units = n[T_UNITS];
    p->kernels = &asterism_kernels_of(level)->training;
    p->frame = (Frame){
        .channels = channels, .height = n[T_HEIGHT], .width = n[T_WIDTH], .pad_h = n[T_PAD_H],
        .pad_w = n[T_PAD_W], .step_h = 1, .step_w = 1, .reach_h = 3, .reach_w = 3,
        .out_rows = tiles_h * SIDE, .out_columns = tiles_w * SIDE};
    p->gradient_frame = (Frame){
        .channels = units, .height = n[T_OUT_H], .width = n[T_OUT_W], .step_h = 1, .step_w = 1,
        .reach_h = 1, .reach_w = 1, .out_rows = tiles_h * SIDE, .out_columns = tiles_w * SIDE};
    if (frame_of_tiles(&p->frame, SIDE + 2) || frame_of_tiles(&p->gradient_frame, SIDE)) return NO_MEMORY;
    int64_t wide = up(channels, LANES) * LANES;
    int64_t tile = POINTS * LANES * (p->gradient ? wide + units : channels + 1);
    int64_t most = CACHE / (tile * (int64_t)sizeof(float)), row = n[T_OUT_W] * LANES;
    p->row = (Winograd){
        .channels = channels, .units = units, .tiles = tiles_w, .columns = n[T_OUT_W],
        .at_once = most < 1 ? 1 : most < tiles_w ? most : tiles_w,
        .in_row = p->frame.columns * LANES, .in_unit = p->frame.rows * p->frame.columns * LANES,
        .out_row = row, .out_unit = n[T_OUT_H] * row,
        .gradient_row = p->gradient_frame.columns * LANES,
        .gradient_unit = p->gradient_frame.rows * p->gradient_frame.columns * LANES};
    p->memory = (p->row.at_once * tile) + 2 * POINTS * LANES;
    p->part_sums = POINTS * units * wide;
    p->blocks = n[T_BLOCKS], p->parts = threads < p->blocks ? threads : p->blocks;
    p->out_rows = n[T_OUT_H], p->out_block = units * n[T_OUT_H] * row;
    p->in_block = channels * n[T_HEIGHT] * n[T_WIDTH] * LANES;
    return DONE;
}

static void pass_free(Pass *p)
{
    asterism_frame_free(&p->frame), asterism_frame_free(&p->gradient_frame);
}

static void run_part(void *of, int64_t part)
{
    Pass *p = of;
    int64_t framed = p->gradient ? asterism_frame_floats(&p->gradient_frame) : 0;
    float *frame = floats(asterism_frame_floats(&p->frame)), *gradient_frame = floats(framed);
    float *memory = floats(p->memory), *sums = p->sums + part * p->part_sums;
    if (!frame || !gradient_frame || !memory) {
        p->status = NO_MEMORY;
    } else {
        memset(memory, 0, (size_t)p->memory * sizeof(float));
        int64_t last = p->blocks * (part + 1) / p->parts;
        for (int64_t b = p->blocks * part / p->parts; b < last; b++)
            for (int64_t y = 0; y < p->out_rows; y += SIDE) {
                const float *in = asterism_frame_fill(&p->frame, p->in + b * p->in_block, y, frame);
                if (p->gradient) {
                    const float *gradient = asterism_frame_fill(
                        &p->gradient_frame, p->gradient + b * p->out_block, y, gradient_frame);
                    p->kernels->winograd_dot_row(&p->row, in, gradient, memory, sums);
                    continue;
                }
                int64_t height = p->out_rows - y < SIDE ? p->out_rows - y : SIDE;
                float *out = p->out + b * p->out_block + y * p->row.out_row;
                p->kernels->winograd_row(&p->row, in, out, height, memory);
            }
    }
    free(frame), free(gradient_frame), free(memory);
}

static int convolve(int level, const int64_t *n, const float *weight, int inverse, const float *bias,
                    const float *in, float *out, int64_t threads)
{
    Pass p = {.in = in, .out = out};
    float *points = floats(n[T_UNITS] * n[T_CHANNELS] * POINTS), *kernels = floats(27 * n[T_CHANNELS]);
    p.status = points && kernels ? pass_new(&p, level, n, threads) : NO_MEMORY;
    if (!p.status) {
        int64_t given[T_COUNT]; /* sizes of the layer, not of its inverse */
        memcpy(given, n, sizeof given);
        if (inverse) given[T_UNITS] = n[T_CHANNELS], given[T_CHANNELS] = n[T_UNITS];
        weights_to_points(given, weight, inverse, kernels, points);
        p.row.weights = points, p.row.bias = bias;
        asterism_share(run_part, &p, p.parts);
    }
    pass_free(&p), free(points), free(kernels);
    return p.status;
}

/* ------------------------------------------------------------------ the layer */

int asterism_winograd_forward(int level, const int64_t *n, const float *weight, const float *bias,
                              const float *in, float *out, int64_t threads)
{
    return convolve(level, n, weight, 0, bias, in, out, threads);
}

static int gradient_of_weights(int level, const int64_t *n, const float *weight, const float *in,
                               const float *gradient, float *to_weight, int64_t threads)
{
    Pass p = {.in = in, .gradient = gradient};
    p.status = pass_new(&p, level, n, threads);
    p.sums = p.status ? NULL : calloc((size_t)(p.parts * p.part_sums), sizeof(float));
    if (!p.sums) p.status = NO_MEMORY;
    if (!p.status) asterism_share(run_part, &p, p.parts);
    if (!p.status)
        weights_from_points(n, weight, p.sums, p.parts, up(n[T_CHANNELS], LANES) * LANES, to_weight);
    pass_free(&p), free(p.sums);
    return p.status;
}

/* The gradients of the weights and, unless that is NULL, of the input. */
int asterism_winograd_backward(int level, const int64_t *n, const float *weight, const float *in,
                               const float *gradient, float *to_weight, float *to_in,
                               int64_t threads)
{
    int64_t inverse[T_COUNT];
    memcpy(inverse, n, sizeof inverse);
    inverse[T_CHANNELS] = n[T_UNITS], inverse[T_HEIGHT] = n[T_OUT_H], inverse[T_WIDTH] = n[T_OUT_W];
    inverse[T_UNITS] = n[T_CHANNELS], inverse[T_OUT_H] = n[T_HEIGHT], inverse[T_OUT_W] = n[T_WIDTH];
    inverse[T_PAD_H] = 2 - n[T_PAD_H], inverse[T_PAD_W] = 2 - n[T_PAD_W];
    int status = gradient_of_weights(level, n, weight, in, gradient, to_weight, threads);
    if (status || !to_in) return status;
    return convolve(level, inverse, weight, 1, NULL, gradient, to_in, threads);
}
