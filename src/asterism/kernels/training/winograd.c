/* A convolution of 3×3 with most of its weights, by Winograd's method: blocks of images, shared by
   threads, go through it a row of tiles at a time. The stride is one, and so is the padding: inputs
   and outputs have one size. */
#include <string.h>
#include "frame.h"

enum { SIDE = 4, POINTS = 36 }; /* of a tile of outputs; of its transform */

static const int64_t CACHE = 300 << 10; /* bytes for the points of the tiles at once */

typedef struct {
    const int64_t *n;
    const Training *kernels;
    Frame in, gradient;
    Winograd sums, inverse, dots; /* rows of tiles: outputs, gradients of the input and of the weights */
    Ending ending;
    float *out, *to_in;
    float *totals; /* of each thread, the points of the gradients of the weights; NULL in forward */
    int64_t parts, memory, points;
    int status;
} Pass;

static int64_t up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* G: row i has what gives the value of a polynomial of three coefficients at point i. */
static void value_at_points(float g[18])
{
    const double at[5] = {0, WINOGRAD_NEAR, -WINOGRAD_NEAR, WINOGRAD_FAR, -WINOGRAD_FAR};
    for (int i = 0; i < 5; i++) {
        double factor = 1;
        for (int k = 0; k < 5; k++) factor /= k == i ? 1 : at[i] - at[k];
        for (int k = 0; k < 3; k++, factor *= at[i]) g[3 * i + k] = (float)factor;
    }
    g[15] = g[16] = 0, g[17] = 1;
}

static int frame_new(Frame *f, const int64_t *n, int64_t channels, Reading reading)
{
    *f = (Frame){
        .channels = channels, .height = n[T_HEIGHT], .width = n[T_WIDTH], .pad_h = 1, .pad_w = 1,
        .step_h = 1, .step_w = 1, .reach_h = 3, .reach_w = 3, .reading = reading,
        .out_rows = up(n[T_HEIGHT], SIDE) * SIDE, .out_columns = up(n[T_WIDTH], SIDE) * SIDE};
    if (asterism_frame_new(f, 0)) return NO_MEMORY;
    asterism_frame_set_band(f, SIDE);
    memset(f->used, 1, (size_t)channels);
    return DONE;
}

/* `tile`: floats for the points of one. */
static Winograd row_of_tiles(const Frame *f, int64_t units, int64_t tile)
{
    int64_t tiles = up(f->width, SIDE), most = CACHE / (tile * (int64_t)sizeof(float));
    return (Winograd){
        .channels = f->channels, .units = units, .tiles = tiles, .columns = f->width,
        .at_once = most < 1 ? 1 : most < tiles ? most : tiles,
        .in_row = f->columns * LANES, .in_unit = f->rows * f->columns * LANES,
        .out_row = f->width * LANES, .out_unit = f->height * f->width * LANES};
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static int pass_new(Pass *p, Reading in, const Reading *gradient)
{
    const int64_t *n = p->n;
    int64_t channels = n[T_CHANNELS], units = n[T_UNITS], wide = up(channels, LANES) * LANES;
    int64_t forth = POINTS * LANES * (channels + 1), back = POINTS * LANES * (units + 1);
    int64_t both = POINTS * LANES * (wide + units);
    if (frame_new(&p->in, n, channels, in)) return NO_MEMORY;
    p->sums = row_of_tiles(&p->in, units, forth), p->memory = p->sums.at_once * forth;
    if (!gradient) return DONE;
    if (frame_new(&p->gradient, n, units, *gradient)) return NO_MEMORY;
    p->inverse = row_of_tiles(&p->gradient, channels, back);
    p->dots = row_of_tiles(&p->in, units, both);
    p->dots.gradient_row = p->inverse.in_row, p->dots.gradient_unit = p->inverse.in_unit;
    p->memory = larger(p->inverse.at_once * back, p->dots.at_once * both + 2 * POINTS * LANES);
    p->points = POINTS * units * wide;
    return DONE;
}

/* A row of tiles through `w`, from a frame, some at a time; of units that are done, finished. */
static void make_row(const Pass *p, const Winograd *w, const float *from, Made made, int64_t y,
                     float *memory)
{
    int64_t height = p->in.height - y < SIDE ? p->in.height - y : SIDE;
    float *out = made.values + made.block * w->units * w->out_unit + y * w->out_row;
    int64_t groups = up(w->units, p->kernels->tall);
    for (int64_t first = 0; first < w->tiles; first += w->at_once) {
        int64_t count = w->tiles - first < w->at_once ? w->tiles - first : w->at_once;
        p->kernels->winograd_points(w, from, first, count, memory);
        for (int64_t i = 0; i < groups; i++) {
            made.first = w->units * i / groups, made.last = w->units * (i + 1) / groups;
            p->kernels->winograd_units(w, memory, first, count, made.first, made.last - made.first,
                                       out, height);
            if (first + count == w->tiles) asterism_finish_rows(&p->ending, &made, y, height);
        }
    }
}

static void run_band(const Pass *p, int64_t part, int64_t block, int64_t y, float *frame,
                     float *gradient_frame, float *memory)
{
    const float *in = asterism_frame_fill(&p->in, block, y, frame);
    if (!p->totals) {
        make_row(p, &p->sums, in, (Made){p->out, part, block, 0, 0}, y, memory);
        return;
    }
    const Frame *f = &p->gradient;
    const float *gradient = asterism_frame_fill(f, block, y, gradient_frame);
    p->kernels->winograd_dot_row(&p->dots, in, gradient + asterism_frame_at(f, 0, 1, 1), memory,
                                 p->totals + part * p->points);
    if (p->to_in) make_row(p, &p->inverse, gradient, (Made){p->to_in, part, block, 0, 0}, y, memory);
}

static void run_part(void *of, int64_t part)
{
    Pass *p = of;
    int64_t framed = p->totals ? asterism_frame_floats(&p->gradient) : 0;
    float *frame = asterism_borrow(asterism_frame_floats(&p->in));
    float *gradient = asterism_borrow(framed), *memory = asterism_borrow(p->memory);
    if (!frame || !gradient || !memory) {
        p->status = NO_MEMORY;
    } else {
        memset(memory, 0, (size_t)p->memory * sizeof(float));
        int64_t blocks = p->n[T_BLOCKS], last = blocks * (part + 1) / p->parts;
        for (int64_t b = blocks * part / p->parts; b < last; b++)
            for (int64_t y = 0; y < p->in.height; y += SIDE)
                run_band(p, part, b, y, frame, gradient, memory);
    }
    asterism_give_back(frame), asterism_give_back(gradient), asterism_give_back(memory);
}

/* Runs it with the weights' points, and joins what the threads summed. */
static void run(Pass *p, const float *weight, float *to_weight)
{
    const int64_t *n = p->n;
    int64_t channels = n[T_CHANNELS], units = n[T_UNITS];
    int64_t sums = to_weight ? p->parts * p->points : 0;
    float *points = asterism_borrow(units * channels * POINTS), g[18];
    float *memory = asterism_borrow(27 * larger(units, channels));
    p->totals = to_weight ? asterism_borrow(sums) : NULL;
    value_at_points(g);
    if (!points || !memory || (to_weight && !p->totals)) p->status = NO_MEMORY;
    if (!p->status) {
        p->kernels->weights_to_points(g, weight, units, channels, to_weight != NULL, memory, points);
        p->sums.weights = p->inverse.weights = points;
        if (to_weight) memset(p->totals, 0, (size_t)sums * sizeof(float));
        asterism_share(run_part, p, p->parts);
    }
    if (!p->status && to_weight) {
        for (int64_t i = p->points; i < sums; i++) p->totals[i % p->points] += p->totals[i];
        p->kernels->weights_from_points(g, weight, units, channels, p->totals,
                                        up(channels, LANES) * LANES, memory, to_weight);
    }
    asterism_give_back(points), asterism_give_back(memory), asterism_give_back(p->totals);
    asterism_frame_free(&p->in), asterism_frame_free(&p->gradient);
}

/* The arguments of both are those of convolution.c. */
int asterism_winograd_forward(int level, const int64_t *n, const float *weight, const float *bias,
                              const float *in, const Normal *in_normal, float *out, Moments *moments,
                              int64_t threads)
{
    const Training *kernels = &asterism_kernels_of(level)->training;
    Pass p = {.n = n, .kernels = kernels, .out = out,
              .parts = threads < n[T_BLOCKS] ? threads : n[T_BLOCKS]};
    Reading reading = {.kernels = kernels, .values = in, .normal = in_normal, .relu = n[T_RELU],
                       .images = n[T_IMAGES]};
    p.ending = (Ending){.kernels = kernels, .channels = n[T_UNITS], .height = n[T_OUT_H],
                        .width = n[T_OUT_W], .images = n[T_IMAGES]};
    p.status = asterism_ending_new(&p.ending, p.parts, moments != NULL, 0);
    if (pass_new(&p, reading, NULL)) p.status = NO_MEMORY;
    p.sums.bias = bias;
    run(&p, weight, NULL);
    asterism_ending_join(&p.ending, p.parts, moments, NULL);
    return p.status;
}

int asterism_winograd_backward(int level, const int64_t *n, const float *weight, const float *in,
                               const Normal *in_normal, const float *gradient, const float *made,
                               const Inverted *inverted, const float *added, float *to_weight,
                               float *to_in, double *in_sums, int64_t threads)
{
    const Training *kernels = &asterism_kernels_of(level)->training;
    Pass p = {.n = n, .kernels = kernels, .to_in = to_in,
              .parts = threads < n[T_BLOCKS] ? threads : n[T_BLOCKS]};
    Reading reading = {.kernels = kernels, .values = in, .normal = in_normal, .relu = n[T_RELU],
                       .images = n[T_IMAGES]};
    Reading of_gradient = {.kernels = kernels, .values = gradient, .before = made,
                           .inverted = inverted, .images = n[T_IMAGES]};
    p.ending = (Ending){.kernels = kernels, .channels = n[T_CHANNELS], .height = n[T_HEIGHT],
                        .width = n[T_WIDTH], .images = n[T_IMAGES],
                        .reading = in_sums ? &reading : NULL, .added = added,
                        .added_channels = n[T_ADDED_CHANNELS], .added_before = n[T_ADDED_BEFORE],
                        .added_step = n[T_ADDED_STEP]};
    p.status = asterism_ending_new(&p.ending, p.parts, 0, in_sums != NULL);
    if (pass_new(&p, reading, &of_gradient)) p.status = NO_MEMORY;
    run(&p, weight, to_weight);
    asterism_ending_join(&p.ending, p.parts, NULL, in_sums);
    return p.status;
}
