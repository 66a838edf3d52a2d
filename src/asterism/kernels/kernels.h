/* All kernels for one instruction set: each .c file sets the sizes that suit it, and includes this.
   WIDTH: floats in a vector. ROWS: units in a sparse convolution's tile. SUMS: vectors of sums in one
   that goes by whole rows; if there are such.
   PLACES: places in a tile of sixteen outputs each. */
#include "program.h"
#ifdef __AVX2__
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 32") /* or a tile goes through memory */
#define OPAQUE(pointer) __asm__("" : "+r"(pointer))
#ifdef __AVX2__
#define IN_REGISTER(x) __asm__("" : "+v"(x)) /* or gcc loads it for each product */
#else
#define IN_REGISTER(x) (void)(x)
#endif

typedef int32_t Vec8i __attribute__((vector_size(32)));
typedef float Vec4 __attribute__((vector_size(16), aligned(4), may_alias));

#include "layers/conv.h"
#include "layers/fc.h"
#include "layers/shared_loads.h"
#include "layers/conv_columns.h"
#include "layers/conv_planes.h"
#include "layers/sixteen_bits.h"
#include "layers/conv_places.h"
#include "layers/pooling_and_elementwise.h"
#include "layers/attention.h"
#include "layers/recurrent.h"
#include "layers/broadcasting.h"
#include "layers/taps.h"
#include "training/sums.h"
#include "training/layers.h"
#include "training/dense.h"
#include "training/winograd.h"
#ifdef SUMS
#include "layers/conv_rows.h"
#endif

const Kernels KERNELS = {
    .pack = pack, .conv_sparse = conv_sparse, .conv_dense = conv_dense,
    .conv_columns = conv_columns, .spread = spread, .conv_planes = conv_planes,
    .dense_planes = dense_planes,
    .conv_planes16 = conv_planes16, .spread16 = spread16, .to_16 = to_16, .from_16 = from_16,
    .turn = turn, .dense_places = dense_places, .depthwise_places = depthwise_places,
    .fc_sparse_one = fc_sparse_one, .fc_dense = fc_dense, .fc_sparse = fc_sparse,
    .to_columns = to_columns, .from_columns = from_columns,
    .pool_max = pool_max, .pool_average = pool_average,
    .activate = activate, .add = add, .multiply = multiply, .scale = scale,
    .matmul = matmul, .keys = keys, .attend = attend,
    .fc_sparse_rows = fc_sparse_rows, .lstm = lstm, .gru = gru,
    .combine = combine, .mean = mean, .conv_taps = conv_taps, .resize = resize,
    .finite = all_finite,
    .training = {
        .width = WIDTH, .sum_rows = sum_rows, .dot_rows = dot_rows, .fold_sums = fold_sums,
        .sum_rows_dense = sum_rows_dense, .dot_rows_dense = dot_rows_dense,
        .tall = TALL, .winograd_points = winograd_points,
        .winograd_units = winograd_units, .winograd_dot_row = winograd_dot_row,
        .weights_to_points = weights_to_points, .weights_from_points = weights_from_points,
        .copy = copy, .add_moments = add_moments, .normalise = normalise,
        .sum_gradients = sum_gradients, .denormalise = denormalise, .to_lanes = to_lanes,
        .halve = halve, .halve_backward = halve_backward,
    },
#ifdef SUMS
    .conv_rows = conv_rows,
#endif
};
