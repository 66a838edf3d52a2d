/* A convolution in training: its non-zeros are collected, and blocks of images go through them.

   The weights are dense in memory, and scanned at each call: whatever pruned them, the non-zeros
   are those of this moment. Zeros get no gradient. A linear layer is a convolution of 1×1. A dense
   layer computes with all weights, zeros too: each unit has the same taps, and several share what
   they read. */
#include <stdlib.h>
#include <string.h>
#include "frame.h"

/* A non-zero: row and column are its place in the kernel, index that among the weights. */
typedef struct {
    int64_t unit, channel, row, column, index;
    float weight;
} Live;

static Live *collect(const int64_t *n, const float *weight, int64_t *count)
{
    int64_t own = n[T_CHANNELS] / n[T_GROUPS], kernel = n[T_KERNEL_H] * n[T_KERNEL_W], found = 0;
    int64_t weights = n[T_UNITS] * own * kernel;
    for (int64_t i = 0; i < weights; i++) found += n[T_DENSE] || weight[i] != 0;
    Live *live = malloc((size_t)(found + 1) * sizeof *live);
    if (!live) return NULL;
    *count = 0;
    for (int64_t i = 0; i < weights; i++)
        if (n[T_DENSE] || weight[i] != 0) {
            int64_t unit = i / (own * kernel), group = unit / (n[T_UNITS] / n[T_GROUPS]);
            live[(*count)++] = (Live){
                .unit = unit, .channel = group * own + i / kernel % own, .index = i,
                .row = i % kernel / n[T_KERNEL_W] * n[T_APART_H],
                .column = i % n[T_KERNEL_W] * n[T_APART_W], .weight = weight[i]};
        }
    return live;
}

static int sums_new(Sums *sums, int64_t units, int64_t count)
{
    sums->units = units;
    sums->taps = malloc((size_t)(count + 1) * sizeof(Entry));
    sums->begin = calloc((size_t)units + 2, sizeof(int64_t));
    return sums->taps && sums->begin ? DONE : NO_MEMORY;
}

static void sums_free(Sums *sums) { free(sums->taps), free(sums->begin); }

/* ------------------------------------------------------------------ forward */

static Frame input_frame(const int64_t *n)
{
    return (Frame){
        .channels = n[T_CHANNELS], .height = n[T_HEIGHT], .width = n[T_WIDTH],
        .pad_h = n[T_PAD_H], .pad_w = n[T_PAD_W], .step_h = n[T_STRIDE_H], .step_w = n[T_STRIDE_W],
        .reach_h = (n[T_KERNEL_H] - 1) * n[T_APART_H] + 1,
        .reach_w = (n[T_KERNEL_W] - 1) * n[T_APART_W] + 1,
        .out_rows = n[T_OUT_H], .out_columns = n[T_OUT_W]};
}

/* The outputs from a frame of inputs; taps are in the order of the weights. */
static int forward_sums(const int64_t *n, Frame *f, Sums *s, const Live *live, int64_t count)
{
    if (sums_new(s, n[T_UNITS], count)) return NO_MEMORY;
    for (int64_t t = 0; t < count; t++) {
        int64_t offset = asterism_frame_at(f, live[t].channel, live[t].row, live[t].column);
        s->taps[t] = (Entry){(int32_t)offset, live[t].weight};
        s->begin[live[t].unit + 1]++;
        f->used[live[t].channel] = 1;
    }
    for (int64_t u = 0; u < n[T_UNITS]; u++) s->begin[u + 1] += s->begin[u];
    s->columns = n[T_OUT_W], s->in_row = f->step_h * f->step_w * f->columns * LANES;
    s->out_step = LANES, s->out_row = n[T_OUT_W] * LANES, s->out_unit = n[T_OUT_H] * s->out_row;
    return DONE;
}

/* ------------------------------------------------------------------ backward, to the input

   Input row q·stride + phase is read by the taps whose row fits that phase, from output rows near q.
   So each phase of the stride is a convolution of its own over the gradient. */

typedef struct {
    Frame frame;
    Sums *phases;
    int64_t count;
} Inverse;

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

static int64_t lowest(int64_t padding, int64_t reach, int64_t stride)
{
    return floor_div(padding - (reach - 1), stride);
}

/* It holds what the inverse reads, and in any case the outputs of the band itself. */
static Frame gradient_frame(const int64_t *n, int to_in)
{
    Frame in = input_frame(n), f = {
        .channels = n[T_UNITS], .height = n[T_OUT_H], .width = n[T_OUT_W], .step_h = 1, .step_w = 1,
        .reach_h = 1, .reach_w = 1, .out_rows = n[T_OUT_H], .out_columns = n[T_OUT_W]};
    if (!to_in) return f;
    f.pad_h = larger(-lowest(in.pad_h, in.reach_h, in.step_h), 0);
    f.pad_w = larger(-lowest(in.pad_w, in.reach_w, in.step_w), 0);
    f.reach_h = f.pad_h + 1 + (in.step_h - 1 + in.pad_h) / in.step_h;
    f.reach_w = f.pad_w + 1 + (in.step_w - 1 + in.pad_w) / in.step_w;
    f.out_rows = larger((in.height + in.step_h - 1) / in.step_h, n[T_OUT_H]);
    f.out_columns = larger((in.width + in.step_w - 1) / in.step_w, n[T_OUT_W]);
    return f;
}

/* Where in the gradient's frame a tap's output is for this phase of the input; −1 if nowhere. */
static int64_t inverse_at(const Frame *f, const int64_t *n, const Live *tap, int64_t y, int64_t x)
{
    int64_t row = y + n[T_PAD_H] - tap->row, column = x + n[T_PAD_W] - tap->column;
    if (row % n[T_STRIDE_H] || column % n[T_STRIDE_W]) return -1;
    row = row / n[T_STRIDE_H] + f->pad_h, column = column / n[T_STRIDE_W] + f->pad_w;
    return asterism_frame_at(f, tap->unit, row, column);
}

static void inverse_taps(Inverse *v, Sums *s, const int64_t *n, const Live *live, int64_t count,
                         int64_t y, int64_t x)
{
    int64_t *next = s->begin + 1; /* filled, it becomes `begin` */
    for (int64_t t = 0; t < count; t++)
        if (inverse_at(&v->frame, n, &live[t], y, x) >= 0) next[live[t].channel + 1]++;
    for (int64_t c = 1; c <= n[T_CHANNELS]; c++) next[c] += next[c - 1];
    for (int64_t t = 0; t < count; t++) {
        int64_t at = inverse_at(&v->frame, n, &live[t], y, x);
        if (at < 0) continue;
        s->taps[next[live[t].channel]++] = (Entry){(int32_t)at, live[t].weight};
        v->frame.used[live[t].unit] = 1;
    }
}

static int inverse_phase(Inverse *v, const int64_t *n, const Live *live, int64_t count, int64_t phase)
{
    int64_t y = phase / n[T_STRIDE_W], x = phase % n[T_STRIDE_W], row = n[T_WIDTH] * LANES;
    Sums *s = &v->phases[phase];
    if (sums_new(s, n[T_CHANNELS], count)) return NO_MEMORY;
    inverse_taps(v, s, n, live, count, y, x);
    s->rows = (n[T_HEIGHT] - y + n[T_STRIDE_H] - 1) / n[T_STRIDE_H];
    s->columns = (n[T_WIDTH] - x + n[T_STRIDE_W] - 1) / n[T_STRIDE_W];
    s->in_row = v->frame.columns * LANES;
    s->out_step = n[T_STRIDE_W] * LANES, s->out_row = n[T_STRIDE_H] * row;
    s->out_unit = n[T_HEIGHT] * row;
    return DONE;
}

static int inverse_new(Inverse *v, const int64_t *n, const Live *live, int64_t count)
{
    int64_t phases = n[T_STRIDE_H] * n[T_STRIDE_W];
    v->phases = calloc((size_t)phases, sizeof(Sums));
    if (!v->phases) return NO_MEMORY;
    for (; v->count < phases; v->count++)
        if (inverse_phase(v, n, live, count, v->count)) return v->count++, NO_MEMORY;
    return DONE;
}

static void inverse_free(Inverse *v)
{
    for (int64_t i = 0; i < v->count; i++) sums_free(&v->phases[i]);
    free(v->phases);
    asterism_frame_free(&v->frame);
}

/* ------------------------------------------------------------------ blocks, shared by threads */

static const int64_t CACHE = 400 << 10; /* bytes for frames */
enum { AT_ONCE = 6 };                    /* units that are made, and finished while they are near */

typedef struct {
    const int64_t *n;
    const Training *kernels;
    void (*sum_rows)(const Sums *, const float *, const float *, float *);
    Frame frame;
    Sums sums;
    Inverse inverse; /* its frame is of the gradient */
    Ending ending;
    const float *bias;
    float *out, *to_in;
    double *totals; /* of each thread, those of the taps; NULL in forward */
    int64_t count, parts;
    int status;
} Conv;

/* Memory of a thread. */
typedef struct {
    float *frame, *gradient, *turned, *sums;
} Scratch;

/* The units first to before last of some sums. */
static Sums some_of(const Sums *sums, int64_t first, int64_t last)
{
    Sums s = *sums;
    s.begin += first, s.units = last - first;
    return s;
}

static void forward_block(const Conv *c, int64_t part, int64_t block, const Scratch *m)
{
    int64_t units = c->n[T_UNITS];
    for (int64_t y = 0; y < c->frame.out_rows; y += c->frame.band) {
        int64_t rows = smaller(c->frame.band, c->frame.out_rows - y);
        const float *from = asterism_frame_fill(&c->frame, block, y, m->frame);
        for (int64_t first = 0; first < units; first += AT_ONCE) {
            Made made = {c->out, part, block, first, smaller(first + AT_ONCE, units)};
            Sums s = some_of(&c->sums, first, made.last);
            s.rows = rows;
            float *out = c->out + (block * units + first) * s.out_unit + y * s.out_row;
            c->sum_rows(&s, c->bias ? c->bias + first : NULL, from, out);
            asterism_finish_rows(&c->ending, &made, y, rows);
        }
    }
}

/* The units of a dense layer up to whole vectors: its gradients are (taps, units). */
static int64_t wide(const int64_t *n) { return (n[T_UNITS] + LANES - 1) / LANES * LANES; }

/* The totals so far of (taps, units), in double, and zeros again. */
static void fold_dense(const int64_t *n, float *sums, double *totals, int64_t taps)
{
    for (int64_t u = 0; u < n[T_UNITS]; u++)
        for (int64_t t = 0; t < taps; t++) totals[u * taps + t] += sums[t * wide(n) + u];
    memset(sums, 0, (size_t)(taps * wide(n)) * sizeof(float));
}

static void weights_band(const Conv *c, int64_t block, int64_t y, const float *gradient,
                         const Scratch *m)
{
    const Frame *f = &c->inverse.frame;
    Sums s = c->sums;
    s.rows = smaller(f->band, c->n[T_OUT_H] - y);
    if (s.rows <= 0) return;
    s.out_row = f->columns * LANES, s.out_unit = f->rows * s.out_row;
    const float *from = asterism_frame_fill(&c->frame, block, y, m->frame);
    gradient += asterism_frame_at(f, 0, f->pad_h, f->pad_w);
    if (c->n[T_DENSE])
        c->kernels->dot_rows_dense(&s, from, gradient, m->turned, m->sums);
    else
        c->kernels->dot_rows(&s, from, gradient, m->sums);
}

static void inverse_band(const Conv *c, int64_t part, int64_t block, int64_t y,
                         const float *gradient)
{
    const int64_t *n = c->n;
    int64_t channels = n[T_CHANNELS], band = c->inverse.frame.band, row = y * n[T_STRIDE_H];
    int64_t rows = smaller(band * n[T_STRIDE_H], n[T_HEIGHT] - row);
    for (int64_t first = 0; first < channels; first += AT_ONCE) {
        Made made = {c->to_in, part, block, first, smaller(first + AT_ONCE, channels)};
        for (int64_t i = 0; i < c->inverse.count; i++) {
            Sums s = some_of(&c->inverse.phases[i], first, made.last);
            int64_t at = i / n[T_STRIDE_W] * n[T_WIDTH] + i % n[T_STRIDE_W];
            s.rows = smaller(band, s.rows - y);
            c->sum_rows(&s, NULL, gradient, c->to_in + (block * channels + first) * s.out_unit +
                                                at * LANES + y * s.out_row);
        }
        asterism_finish_rows(&c->ending, &made, row, rows);
    }
}

static void backward_block(const Conv *c, int64_t part, int64_t block, const Scratch *m)
{
    const Frame *f = &c->inverse.frame;
    double *totals = c->totals + part * c->count;
    for (int64_t y = 0; y < f->out_rows; y += f->band) {
        const float *gradient = asterism_frame_fill(f, block, y, m->gradient);
        weights_band(c, block, y, gradient, m);
        if (c->to_in) inverse_band(c, part, block, y, gradient);
    }
    if (c->n[T_DENSE])
        fold_dense(c->n, m->sums, totals, c->count / c->n[T_UNITS]);
    else
        c->kernels->fold_sums(m->sums, totals, c->count);
}

static void conv_part(void *of, int64_t part)
{
    Conv *c = of;
    const int64_t *n = c->n;
    int64_t lanes = c->totals ? c->count * c->kernels->width : 0, turning = 0;
    if (c->totals && n[T_DENSE])
        lanes = c->count / n[T_UNITS] * wide(n), turning = n[T_OUT_W] * LANES * wide(n);
    Scratch m = {
        asterism_borrow(asterism_frame_floats(&c->frame)),
        asterism_borrow(c->totals ? asterism_frame_floats(&c->inverse.frame) : 0),
        asterism_borrow(turning), asterism_borrow(lanes)};
    if (!m.frame || !m.gradient || !m.turned || !m.sums) {
        c->status = NO_MEMORY;
    } else {
        memset(m.sums, 0, (size_t)lanes * sizeof(float));
        memset(m.turned, 0, (size_t)turning * sizeof(float));
        int64_t last = n[T_BLOCKS] * (part + 1) / c->parts;
        for (int64_t b = n[T_BLOCKS] * part / c->parts; b < last; b++)
            if (c->totals) backward_block(c, part, b, &m); else forward_block(c, part, b, &m);
    }
    asterism_give_back(m.frame), asterism_give_back(m.gradient);
    asterism_give_back(m.turned), asterism_give_back(m.sums);
}

static int conv_new(Conv *c, const Live *live, Reading in, const Reading *gradient)
{
    const int64_t *n = c->n;
    c->sum_rows = n[T_DENSE] ? c->kernels->sum_rows_dense : c->kernels->sum_rows;
    c->frame = input_frame(n), c->frame.reading = in;
    if (asterism_frame_new(&c->frame, gradient ? CACHE / 2 : CACHE) || !live) return NO_MEMORY;
    if (gradient) {
        Frame *f = &c->inverse.frame;
        *f = gradient_frame(n, c->to_in != NULL), f->reading = *gradient;
        if (asterism_frame_new(f, CACHE / 2)) return NO_MEMORY;
        asterism_frame_set_band(f, smaller(f->band, c->frame.band));
        asterism_frame_set_band(&c->frame, f->band);
        if (c->to_in && inverse_new(&c->inverse, n, live, c->count)) return NO_MEMORY;
        for (int64_t t = 0; t < c->count; t++) f->used[live[t].unit] = 1;
    }
    return forward_sums(n, &c->frame, &c->sums, live, c->count);
}

static void conv_free(Conv *c)
{
    asterism_frame_free(&c->frame);
    sums_free(&c->sums);
    inverse_free(&c->inverse);
}

/* in_normal: of each channel, or NULL. moments: of each unit, or NULL. */
int asterism_conv_forward(int level, const int64_t *n, const float *weight, const float *bias,
                          const float *in, const Normal *in_normal, float *out, Moments *moments,
                          int64_t threads)
{
    Conv c = {.n = n, .kernels = &asterism_kernels_of(level)->training, .bias = bias,
              .out = out, .parts = smaller(threads, n[T_BLOCKS])};
    Live *live = collect(n, weight, &c.count);
    Reading reading = {.kernels = c.kernels, .values = in, .normal = in_normal, .relu = n[T_RELU],
                       .images = n[T_IMAGES]};
    c.status = conv_new(&c, live, reading, NULL);
    c.ending = (Ending){.kernels = c.kernels, .channels = n[T_UNITS], .height = n[T_OUT_H],
                        .width = n[T_OUT_W], .images = n[T_IMAGES]};
    if (asterism_ending_new(&c.ending, c.parts, moments != NULL, 0)) c.status = NO_MEMORY;
    if (!c.status) asterism_share(conv_part, &c, c.parts);
    asterism_ending_join(&c.ending, c.parts, moments, NULL);
    conv_free(&c), free(live);
    return c.status;
}

/* The gradients of the weights, which must hold zeros, and, unless that is NULL, of the input, to
   which `added` is added if there is such. Where the input was normalised, that of what it was
   before its ReLU, and both sums of it for each channel.
   inverted: of each unit, where `gradient` is that of `made`, normalised; else NULL. */
int asterism_conv_backward(int level, const int64_t *n, const float *weight, const float *in,
                           const Normal *in_normal, const float *gradient, const float *made,
                           const Inverted *inverted, const float *added, float *to_weight,
                           float *to_in, double *in_sums, int64_t threads)
{
    Conv c = {.n = n, .kernels = &asterism_kernels_of(level)->training, .to_in = to_in,
              .parts = smaller(threads, n[T_BLOCKS])};
    Live *live = collect(n, weight, &c.count);
    Reading reading = {.kernels = c.kernels, .values = in, .normal = in_normal, .relu = n[T_RELU],
                       .images = n[T_IMAGES]};
    Reading of_gradient = {.kernels = c.kernels, .values = gradient, .before = made,
                           .inverted = inverted, .images = n[T_IMAGES]};
    c.status = conv_new(&c, live, reading, &of_gradient);
    c.ending = (Ending){.kernels = c.kernels, .channels = n[T_CHANNELS], .height = n[T_HEIGHT],
                        .width = n[T_WIDTH], .images = n[T_IMAGES],
                        .reading = in_sums ? &reading : NULL, .added = added,
                        .added_channels = n[T_ADDED_CHANNELS], .added_before = n[T_ADDED_BEFORE],
                        .added_step = n[T_ADDED_STEP]};
    if (asterism_ending_new(&c.ending, c.parts, 0, in_sums != NULL)) c.status = NO_MEMORY;
    c.totals = calloc((size_t)(c.parts * c.count) + 1, sizeof(double));
    if (!c.totals) c.status = NO_MEMORY;
    if (!c.status) asterism_share(conv_part, &c, c.parts);
    for (int64_t t = 0; t < c.count && !c.status; t++) {
        double total = 0;
        for (int64_t part = 0; part < c.parts; part++) total += c.totals[part * c.count + t];
        to_weight[live[t].index] = live[t].weight != 0 ? (float)total : 0;
    }
    asterism_ending_join(&c.ending, c.parts, NULL, in_sums);
    conv_free(&c), free(live), free(c.totals);
    return c.status;
}
