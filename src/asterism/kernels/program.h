/* A network as a list of steps over scratch memory. Python builds it, and has checked every size;
   the layout of these structs is mirrored in asterism/kernels/library.py. */
#ifndef ASTERISM_PROGRAM_H
#define ASTERISM_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

/* Raised with every change to what crosses the border, here and in library.py: a library that was
   compiled before such a change is refused and not called. */
enum { INTERFACE = 20 };

enum { DONE, NOT_FINITE, NO_MEMORY };
enum { BLOCK = 32 };  /* images that the fully connected kernels take at once */
enum { LANES = 16 };   /* floats in the widest vector; images side by side in training */
enum { LEFT = 2 };     /* weights of a row that a recurrent layer picks one by one */
enum { COLUMNS = 8 }; /* output columns that a convolution computes at once */

/* Of a constant, which is the same for every image, the offset is an address and the stride 0. */
enum Space { SCRATCH, INPUT, OUTPUT, CONSTANT };
enum Activation { NONE, RELU, LEAKY_RELU, CLAMP, GELU, GELU_TANH, SILU, SIGMOID, TANH,
                  SCALE_SHIFT, ELU, POWER, HARD_SWISH, HARD_SIGMOID, MISH, EXP, LOG, ABS, SOFTPLUS,
                  ERF };
enum Operation {
    PACK,
    CONV_SPARSE,
    CONV_DENSE,
    CONV_ROWS,
    CONV_COLUMNS,
    POOL_MAX,
    POOL_AVERAGE,
    FC_SPARSE_ONE,
    FC_DENSE,
    TO_COLUMNS,
    FC_SPARSE,
    FROM_COLUMNS,
    ACTIVATE,
    ADD,
    MULTIPLY,
    SCALE,
    LAYER_NORM,
    SOFTMAX,
    GATHER,
    COPY_CHUNKS,
    FC_SPARSE_ROWS,
    LSTM,
    GRU,
    COMBINE,
    MEAN,
    CONV_TAPS,
    RESIZE,
    EMBED,
    MATMUL,
    KEYS,
    ATTEND,
    SPREAD,
    CONV_PLANES,
    DENSE_PLANES,
    TURN,
    DENSE_PLACES,
    DEPTHWISE_PLACES,
    CONV_PLANES16,
    SPREAD16,
    TO_16,
    FROM_16,
};

typedef struct {
    int64_t space, offset, stride; /* floats; the stride is from one image to the next */
} Operand;

typedef struct {
    int64_t operation, whole_block, activation;
    float a, b;
    Operand in, other, out;
    int64_t size[20];
    const void *data[5];
} Step;

/* A non-zero: where its input is, from that of the first output, and what it weighs. */
typedef struct {
    int32_t offset;
    float weight;
} Entry;

typedef struct {
    float offset_bits; /* an int32; one entry for four output channels */
    float weight[4];
} DenseEntry;

#include "training/training.h"

typedef void Kernel(const Step *step, const float *in, const float *other, float *out, int64_t images);

typedef struct {
    Kernel *pack, *conv_sparse, *conv_dense, *conv_rows, *conv_columns,
        *fc_sparse_one, *fc_dense, *fc_sparse,
        *to_columns, *from_columns, *pool_max, *pool_average, *activate, *add, *multiply, *scale,
        *fc_sparse_rows, *lstm, *gru, *combine, *mean, *conv_taps, *resize,
        *matmul, *keys, *attend, *spread, *conv_planes, *dense_planes,
        *turn, *dense_places, *depthwise_places, *conv_planes16, *spread16, *to_16, *from_16;
    int (*finite)(const float *, int64_t);
    Training training;
} Kernels;

extern const Kernels asterism_portable, asterism_avx2, asterism_avx512vl, asterism_avx512;
const Kernels *asterism_kernels_of(int level);
void asterism_layer_norm(const Step *, const float *, const float *, float *, int64_t);
void asterism_softmax(const Step *, const float *, const float *, float *, int64_t);
void asterism_gather(const Step *, const float *, const float *, float *, int64_t);
void asterism_copy_chunks(const Step *, const float *, const float *, float *, int64_t);
void asterism_embed(const Step *, const float *, const float *, float *, int64_t);
void asterism_activate(const Step *, float *, int64_t);

#endif
