/* What the files of training/ share with each other and with the kernels of each instruction set. */
#ifndef ASTERISM_TRAINING_H
#define ASTERISM_TRAINING_H

#include <stdint.h>

/* Units that are summed from taps in a frame of inputs, over a band of rows. */
typedef struct {
    Entry *taps; /* those of unit u are taps[begin[u]] to before taps[begin[u + 1]] */
    int64_t *begin;
    int64_t units, rows, columns;
    int64_t in_row;                      /* floats from what one row reads to the next row's */
    int64_t out_unit, out_row, out_step; /* from an output to that of the next unit, below, beside */
} Sums;

/* One channel in batch norm. */
typedef struct {
    int64_t blocks, pixels, images, pitch; /* floats from a block's pixels to the next block's */
    int64_t relu;
    const float *last; /* of the last block, the lanes that are images: one or zero */
} Norm;

typedef struct {
    int64_t width; /* lanes of a tap's gradient */
    void (*sum_rows)(const Sums *, const float *, const float *, float *);
    void (*dot_rows)(const Sums *, const float *, const float *, float *);
    void (*fold_sums)(float *, double *, int64_t);
    void (*norm_moments)(const Norm *, const float *, float *, float *);
    void (*norm_apply)(const Norm *, const float *, const float *, float, float, float, float *);
    void (*norm_sums)(const Norm *, const float *, const float *, const float *, float, double *,
                      double *);
    void (*norm_backward)(const Norm *, const float *, const float *, const float *, float, float,
                          float, float, float *, float *);
    void (*halve)(const float *, float *, int64_t, int64_t);
    void (*halve_backward)(const float *, const float *, const float *, float *, int64_t, int64_t);
} Training;

/* Calls part(of, i) for every i below `parts`, on as many threads. */
void asterism_share(void (*part)(void *of, int64_t i), void *of, int64_t parts);

#endif
