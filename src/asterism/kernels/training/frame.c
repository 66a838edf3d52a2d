/* Frames: copies with padding around them, small enough for the second cache. Columns that lie a
   step apart are put side by side, so that the taps of a strided convolution read in one stretch. */
#include <stdlib.h>
#include <string.h>
#include "frame.h"

static const int64_t CACHE = 400 << 10; /* bytes */

static int64_t up(int64_t a, int64_t b) { return (a + b - 1) / b; }

static int64_t row_bytes(const Frame *f)
{
    return f->step_w * f->columns * LANES * (int64_t)sizeof(float);
}

int asterism_frame_new(Frame *f)
{
    f->used = calloc((size_t)f->channels + 1, 1);
    f->columns = up((f->out_columns - 1) * f->step_w + f->reach_w, f->step_w);
    int64_t rows = (f->out_rows - 1) * f->step_h + f->reach_h;
    f->whole = !f->pad_h && !f->pad_w && f->step_w == 1 && rows <= f->height &&
               f->columns <= f->width;
    f->band = f->out_rows;
    if (f->whole) {
        f->rows = f->height, f->columns = f->width;
    } else {
        int64_t most = CACHE / (f->channels * row_bytes(f)); /* rows */
        int64_t band = most < f->reach_h ? 1 : (most - f->reach_h) / f->step_h + 1;
        f->band = up(f->out_rows, up(f->out_rows, band)); /* bands of one size */
        f->rows = (f->band - 1) * f->step_h + f->reach_h;
    }
    return f->used ? DONE : NO_MEMORY;
}

void asterism_frame_free(Frame *f) { free(f->used); }

int64_t asterism_frame_floats(const Frame *f)
{
    return f->whole ? 0 : f->channels * f->rows * f->step_w * f->columns * LANES;
}

int64_t asterism_frame_at(const Frame *f, int64_t channel, int64_t row, int64_t column)
{
    int64_t line = (channel * f->rows + row) * f->step_w + column % f->step_w;
    return (line * f->columns + column / f->step_w) * LANES;
}

/* Columns first, first + step, … of a row, and zeros where there are none. */
static void fill_line(const Frame *f, const float *row, int64_t first, float *to)
{
    if (f->step_w == 1) {
        int64_t before = first < 0 ? -first : 0, from = first < 0 ? 0 : first;
        if (before > f->columns) before = f->columns;
        int64_t count = f->width - from < f->columns - before ? f->width - from : f->columns - before;
        if (count < 0) count = 0;
        memset(to, 0, (size_t)(before * LANES) * sizeof(float));
        memcpy(to + before * LANES, row + from * LANES, (size_t)(count * LANES) * sizeof(float));
        memset(to + (before + count) * LANES, 0,
               (size_t)((f->columns - before - count) * LANES) * sizeof(float));
        return;
    }
    for (int64_t i = 0, x = first; i < f->columns; i++, x += f->step_w, to += LANES)
        if (x >= 0 && x < f->width)
            memcpy(to, row + x * LANES, LANES * sizeof(float));
        else
            memset(to, 0, LANES * sizeof(float));
}

const float *asterism_frame_fill(const Frame *f, const float *values, int64_t y, float *memory)
{
    int64_t top = y * f->step_h - f->pad_h, line = f->columns * LANES, pitch = f->width * LANES;
    if (f->whole) return values + top * pitch;
    for (int64_t c = 0; c < f->channels; c++) {
        float *to = memory + c * f->rows * f->step_w * line;
        const float *from = values + c * f->height * pitch;
        for (int64_t r = 0; r < f->rows && f->used[c]; r++, to += f->step_w * line) {
            int inside = top + r >= 0 && top + r < f->height;
            if (!inside) memset(to, 0, (size_t)row_bytes(f));
            for (int64_t phase = 0; phase < f->step_w && inside; phase++)
                fill_line(f, from + (top + r) * pitch, phase - f->pad_w, to + phase * line);
        }
    }
    return memory;
}
