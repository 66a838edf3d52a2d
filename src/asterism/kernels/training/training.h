/* What the files of training/ share with each other and with the kernels of each instruction set. */
#ifndef ASTERISM_TRAINING_H
#define ASTERISM_TRAINING_H

#include <stdint.h>

/* The sizes of a convolution. Apart: dilation; dense: whether its zeros are computed with; relu:
   whether its input is normalised and then without the negative; added: see `Ending`. */
enum {
    T_BLOCKS, T_CHANNELS, T_HEIGHT, T_WIDTH, T_UNITS, T_OUT_H, T_OUT_W, T_KERNEL_H, T_KERNEL_W,
    T_STRIDE_H, T_STRIDE_W, T_PAD_H, T_PAD_W, T_APART_H, T_APART_W, T_GROUPS,
    T_DENSE, T_IMAGES, T_RELU, T_ADDED_CHANNELS, T_ADDED_BEFORE, T_ADDED_STEP,
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

/* A channel's batch norm: (x − mean)·scale + bias. */
typedef struct {
    float mean, scale, bias;
} Normal;

/* What its gradient becomes: (g − by_mean − by_spread·(x − mean))·scale. */
typedef struct {
    float mean, scale, by_mean, by_spread;
} Inverted;

/* How many values, their mean, and the sum of their squared distances from it. */
typedef struct {
    double count, mean, squares;
} Moments;

void asterism_join_moments(Moments *to, const Moments *more);

typedef struct {
    int64_t width; /* lanes of a tap's gradient */
    void (*sum_rows)(const Sums *, const float *, const float *, float *);
    void (*dot_rows)(const Sums *, const float *, const float *, float *);
    void (*fold_sums)(float *, double *, int64_t);
    void (*sum_rows_dense)(const Sums *, const float *, const float *, float *);
    void (*dot_rows_dense)(const Sums *, const float *, const float *, float *, float *);
    int64_t tall; /* units that Winograd's products make at once */
    void (*winograd_points)(const Winograd *, const float *, int64_t, int64_t, float *);
    void (*winograd_units)(const Winograd *, const float *, int64_t, int64_t, int64_t, int64_t,
                           float *, int64_t);
    void (*winograd_dot_row)(const Winograd *, const float *, const float *, float *, float *);
    void (*weights_to_points)(const float *, const float *, int64_t, int64_t, int64_t, float *,
                              float *);
    void (*weights_from_points)(const float *, const float *, int64_t, int64_t, const float *,
                                int64_t, float *, float *);
    void (*add_moments)(const float *, int64_t, const float *, Moments *);
    void (*copy)(float *, const float *, int64_t, int64_t);
    void (*normalise)(float *, const float *, const float *, int64_t, int64_t, const Normal *,
                      int64_t);
    void (*sum_gradients)(float *, const float *, const float *, const float *, int64_t,
                          const Normal *, int64_t, double *, double *);
    void (*denormalise)(float *, const float *, const float *, int64_t, int64_t, const Inverted *,
                        const float *);
    void (*to_lanes)(const float *, int64_t, int64_t, float *);
    void (*halve)(const float *, float *, int64_t, int64_t);
    void (*halve_backward)(const float *, const float *, const float *, float *, int64_t, int64_t);
} Training;

/* Memory for `count` floats that is kept for later calls, or NULL. */
float *asterism_borrow(int64_t count);
void asterism_give_back(float *memory);

/* Calls part(of, i) for every i below `parts`, on as many threads. */
void asterism_share(void (*part)(void *of, int64_t i), void *of, int64_t parts);

#endif
