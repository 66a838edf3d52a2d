/* What the files of training/ share with each other and with the kernels of each instruction set. */
#ifndef ASTERISM_TRAINING_H
#define ASTERISM_TRAINING_H

#include <stdint.h>

/* The sizes of a convolution; apart: dilation; dense: whether its zeros are computed with. */
enum {
    T_BLOCKS, T_CHANNELS, T_HEIGHT, T_WIDTH, T_UNITS, T_OUT_H, T_OUT_W, T_KERNEL_H, T_KERNEL_W,
    T_STRIDE_H, T_STRIDE_W, T_PAD_H, T_PAD_W, T_APART_H, T_APART_W, T_GROUPS,
    T_DENSE, T_COUNT,
};

/* Units that are summed from taps in a frame of inputs, over a band of rows. */
typedef struct {
    Entry *taps; /* those of unit u are taps[begin[u]] to before taps[begin[u + 1]] */
    int64_t *begin;
    int64_t units, rows, columns;
    int64_t in_row;                      /* floats from what one row reads to the next row's */
    int64_t out_unit, out_row, out_step; /* from an output to that of the next unit, below, beside */
} Sums;

/* Besides 0 and infinity, Winograd's points are plus and minus these. */
#define WINOGRAD_NEAR 0.6875f
#define WINOGRAD_FAR 1.375f

/* A row of tiles of four by four outputs. */
typedef struct {
    const float *weights, *bias; /* weights: at their points, (units, 36, channels) */
    int64_t channels, units, tiles, columns, at_once;
    int64_t in_unit, in_row, out_unit, out_row, gradient_unit, gradient_row; /* floats to the next */
} Winograd;

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
    void (*sum_rows_dense)(const Sums *, const float *, const float *, float *);
    void (*dot_rows_dense)(const Sums *, const float *, const float *, float *, float *);
    void (*winograd_row)(const Winograd *, const float *, float *, int64_t, float *);
    void (*winograd_dot_row)(const Winograd *, const float *, const float *, float *, float *);
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
