/* A frame: a band of a block's rows with the padding around it, which the taps read. */
#ifndef ASTERISM_FRAME_H
#define ASTERISM_FRAME_H

#include "../program.h"

typedef struct {
    int64_t channels, height, width; /* of the values */
    int64_t pad_h, pad_w;            /* before the first row and column; where negative, left out */
    int64_t step_h, step_w;          /* from what one output reads to the next */
    int64_t reach_h, reach_w;        /* rows and columns that one output reads */
    int64_t out_rows, out_columns;
    int64_t band;          /* rows of outputs at a time */
    int64_t rows, columns; /* of the frame; columns at each phase of the step */
    int64_t whole;         /* the values are their own frame */
    char *used;            /* channels that are read */
} Frame;

/* Sets the last five fields from the others; `used` is nothing yet. */
int asterism_frame_new(Frame *frame);
void asterism_frame_free(Frame *frame);
int64_t asterism_frame_floats(const Frame *frame);

/* Where a tap reads, from the beginning of the frame, for the first output of the band. */
int64_t asterism_frame_at(const Frame *frame, int64_t channel, int64_t row, int64_t column);

/* The frame of the band that begins with output row y; `memory` unless the values are their own. */
const float *asterism_frame_fill(const Frame *frame, const float *values, int64_t y, float *memory);

#endif
