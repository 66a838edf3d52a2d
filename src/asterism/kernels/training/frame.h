/* A frame: a band of a block's rows with the padding around it, which the taps read. What it holds may
   be computed on the way: normalised values, or the gradient before a batch norm. And what is made
   of it may be finished while it is in the cache: `Ending`. */
#ifndef ASTERISM_FRAME_H
#define ASTERISM_FRAME_H

#include "../program.h"

/* Blocks of images, (blocks, channels, height, width, 16), and what they are read as. */
typedef struct {
    const Training *kernels;
    const float *values;
    const Normal *normal; /* of each channel, or NULL: normalised, and without the negative if `relu` */
    int64_t relu;
    const Inverted *inverted; /* or NULL: the values are gradients of `before`, normalised */
    const float *before;
    int64_t images;
} Reading;

typedef struct {
    int64_t channels, height, width; /* of the values */
    int64_t pad_h, pad_w;            /* before the first row and column; where negative, left out */
    int64_t step_h, step_w;          /* from what one output reads to the next */
    int64_t reach_h, reach_w;        /* rows and columns that one output reads */
    int64_t out_rows, out_columns;
    Reading reading;
    int64_t band;          /* rows of outputs at a time */
    int64_t rows, columns; /* of the frame; columns at each phase of the step */
    int64_t whole;         /* the values are their own frame */
    char *used;            /* channels that are read */
} Frame;

/* Sets the last five fields from the others; `used` is nothing yet. `bytes`: how large it may be. */
int asterism_frame_new(Frame *frame, int64_t bytes);
void asterism_frame_free(Frame *frame);
void asterism_frame_set_band(Frame *frame, int64_t band);
int64_t asterism_frame_floats(const Frame *frame);

/* Where a tap reads, from the beginning of the frame, for the first output of the band. */
int64_t asterism_frame_at(const Frame *frame, int64_t channel, int64_t row, int64_t column);

/* The frame of the band that begins with output row y, in `memory` unless the values are their own.
   Bands come in their order: the rows that two of them share are kept. */
const float *asterism_frame_fill(const Frame *frame, int64_t block, int64_t y, float *memory);

/* What is done with rows as soon as they are made: their moments are taken; or, where they are
   gradients of a frame's normalised values, they go through its ReLU and are summed; or some are
   added. */
typedef struct {
    const Training *kernels;
    int64_t channels, height, width, images;
    Moments *moments;       /* of each thread and channel, or NULL */
    const Reading *reading; /* with a batch norm, or NULL */
    double *sums;           /* of each thread and channel, both */
    const float *added;     /* or NULL: at every step-th pixel, from channel `added_before` on */
    int64_t added_channels, added_before, added_step;
} Ending;

/* Some channels of a block, which a thread made. */
typedef struct {
    float *values; /* of all blocks */
    int64_t part, block, first, last;
} Made;

/* Memory of each thread for what is asked for, and their joined results, to those that are not NULL. */
int asterism_ending_new(Ending *ending, int64_t parts, int moments, int sums);
void asterism_ending_join(Ending *ending, int64_t parts, Moments *moments, double *sums);
void asterism_finish_rows(const Ending *ending, const Made *made, int64_t y, int64_t rows);

/* Which lanes of a block are images: one, or zero. */
void asterism_images_kept(float *keep, int64_t images, int64_t block);

#endif
