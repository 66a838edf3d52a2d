/* Frames: copies with padding around them, small enough for the second cache. Columns that lie a
   step apart are put side by side, so that the taps of a strided convolution read in one stretch. */
#include <stdlib.h>
#include <string.h>
#include "frame.h"

static int64_t up(int64_t a, int64_t b) { return (a + b - 1) / b; }

static int64_t row_bytes(const Frame *f)
{
    return f->step_w * f->columns * LANES * (int64_t)sizeof(float);
}

static int is_read_as_it_is(const Reading *r) { return !r->normal && !r->inverted; }

int asterism_frame_new(Frame *f, int64_t bytes)
{
    f->used = calloc((size_t)f->channels + 1, 1);
    f->columns = up((f->out_columns - 1) * f->step_w + f->reach_w, f->step_w);
    int64_t rows = (f->out_rows - 1) * f->step_h + f->reach_h;
    f->whole = is_read_as_it_is(&f->reading) && !f->pad_h && !f->pad_w && f->step_w == 1 &&
               rows <= f->height && f->columns <= f->width;
    if (f->whole) f->rows = f->height, f->columns = f->width;
    int64_t most = bytes / (f->channels * row_bytes(f)); /* rows */
    int64_t band = most < f->reach_h ? 1 : (most - f->reach_h) / f->step_h + 1;
    asterism_frame_set_band(f, f->whole ? f->out_rows : up(f->out_rows, up(f->out_rows, band)));
    return f->used ? DONE : NO_MEMORY;
}

void asterism_frame_set_band(Frame *f, int64_t band)
{
    f->band = band;
    if (!f->whole) f->rows = (band - 1) * f->step_h + f->reach_h;
}

void asterism_frame_free(Frame *f) { free(f->used); }

/* Behind the frame is a row for what is computed on the way. */
int64_t asterism_frame_floats(const Frame *f)
{
    return f->whole ? 0 : (f->channels * f->rows * f->step_w * f->columns + f->width) * LANES;
}

int64_t asterism_frame_at(const Frame *f, int64_t channel, int64_t row, int64_t column)
{
    int64_t line = (channel * f->rows + row) * f->step_w + column % f->step_w;
    return (line * f->columns + column / f->step_w) * LANES;
}

/* `count` floats of a channel as they are read; `at` is where they begin in the values. What is read
   after the channel's rows are those of the next, a plane further. */
static void read_stretch(const Frame *f, int64_t channel, int64_t at, int64_t count,
                         const float *keep, float *to)
{
    const Reading *r = &f->reading;
    int64_t ahead = channel + 1 < f->channels ? f->height * f->width * LANES : 0;
    if (is_read_as_it_is(r))
        r->kernels->copy(to, r->values + at, count, ahead);
    else if (r->normal)
        r->kernels->normalise(to, r->values + at, NULL, count, ahead, &r->normal[channel], r->relu);
    else
        r->kernels->denormalise(to, r->values + at, r->before + at, count, ahead,
                                &r->inverted[channel], keep);
}

static void clear(float *to, int64_t pixels)
{
    memset(to, 0, (size_t)(pixels * LANES) * sizeof(float));
}

/* A row that begins at `at`, with zeros where there are none. */
static void fill_row(const Frame *f, int64_t channel, int64_t at, const float *keep, float *to)
{
    int64_t before = f->pad_w < 0 ? 0 : f->pad_w, from = f->pad_w < 0 ? -f->pad_w : 0;
    if (before > f->columns) before = f->columns;
    int64_t count = f->width - from < f->columns - before ? f->width - from : f->columns - before;
    if (count < 0) count = 0;
    clear(to, before);
    read_stretch(f, channel, at + from * LANES, count * LANES, keep, to + before * LANES);
    clear(to + (before + count) * LANES, f->columns - before - count);
}

/* The same where columns lie a step apart: phase by phase. */
static void fill_phases(const Frame *f, int64_t channel, int64_t at, const float *keep, float *row,
                        float *to)
{
    read_stretch(f, channel, at, f->width * LANES, keep, row);
    for (int64_t phase = 0; phase < f->step_w; phase++)
        for (int64_t i = 0, x = phase - f->pad_w; i < f->columns; i++, x += f->step_w, to += LANES)
            if (x >= 0 && x < f->width)
                memcpy(to, row + x * LANES, LANES * sizeof(float));
            else
                clear(to, 1);
}

const float *asterism_frame_fill(const Frame *f, int64_t block, int64_t y, float *memory)
{
    int64_t top = y * f->step_h - f->pad_h, line = f->step_w * f->columns * LANES;
    int64_t pitch = f->width * LANES, plane = f->height * pitch, first = block * f->channels * plane;
    if (f->whole) return f->reading.values + first + top * pitch;
    int64_t next = f->band * f->step_h, had = y > 0 && f->rows > next ? f->rows - next : 0;
    float keep[LANES], *row = memory + f->channels * f->rows * line;
    asterism_images_kept(keep, f->reading.images, block);
    for (int64_t c = 0; c < f->channels; c++) {
        float *to = memory + c * f->rows * line;
        if (!f->used[c]) continue;
        if (had) f->reading.kernels->copy(to, to + next * line, had * line, 0);
        for (int64_t r = had; r < f->rows; r++) {
            int64_t at = first + c * plane + (top + r) * pitch;
            if (top + r < 0 || top + r >= f->height)
                clear(to + r * line, f->step_w * f->columns);
            else if (f->step_w == 1)
                fill_row(f, c, at, keep, to + r * line);
            else
                fill_phases(f, c, at, keep, row, to + r * line);
        }
    }
    return memory;
}

int asterism_ending_new(Ending *e, int64_t parts, int moments, int sums)
{
    size_t count = (size_t)(parts * e->channels);
    if (moments) e->moments = calloc(count, sizeof(Moments));
    if (sums) e->sums = calloc(count, 2 * sizeof(double));
    return (moments && !e->moments) || (sums && !e->sums) ? NO_MEMORY : DONE;
}

void asterism_ending_join(Ending *e, int64_t parts, Moments *moments, double *sums)
{
    for (int64_t i = 0; i < parts * e->channels && moments && e->moments; i++)
        asterism_join_moments(&moments[i % e->channels], &e->moments[i]);
    for (int64_t i = 0; i < 2 * parts * e->channels && sums && e->sums; i++)
        sums[i % (2 * e->channels)] += e->sums[i];
    free(e->moments), free(e->sums);
}

/* Adds, at every step-th pixel, the values of the channel that belongs to this one. */
static void add_rows(const Ending *e, const Made *m, int64_t c, int64_t y, int64_t rows, float *to)
{
    int64_t step = e->added_step, height = (e->height + step - 1) / step;
    int64_t width = (e->width + step - 1) / step;
    const float *from = e->added + (m->block * e->added_channels + e->added_before + c) * height * width * LANES;
    for (int64_t r = 0; r < rows; r++, to += e->width * LANES) {
        if ((y + r) % step) continue;
        const float *row = from + (y + r) / step * width * LANES;
        for (int64_t x = 0; x < width; x++, row += LANES)
            for (int i = 0; i < LANES; i++) to[x * step * LANES + i] += row[i];
    }
}

void asterism_finish_rows(const Ending *e, const Made *m, int64_t y, int64_t rows)
{
    int64_t row = e->width * LANES, count = rows * row;
    if (rows <= 0 || (!e->moments && !e->reading && !e->added)) return;
    float keep[LANES];
    asterism_images_kept(keep, e->images, m->block);
    for (int64_t c = m->first; c < m->last; c++) {
        int64_t at = ((m->block * e->channels + c) * e->height + y) * row;
        int64_t own = m->part * e->channels + c;
        if (e->moments) e->kernels->add_moments(m->values + at, count, keep, &e->moments[own]);
        if (e->reading)
            e->kernels->sum_gradients(m->values + at, m->values + at, e->reading->values + at, NULL,
                                      count, &e->reading->normal[c], e->reading->relu,
                                      &e->sums[2 * own], &e->sums[2 * own + 1]);
        if (e->added) add_rows(e, m, c, y, rows, m->values + at);
    }
}
