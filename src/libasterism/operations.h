/* Written by generate.py: do not edit. */

enum {
    OP_CONV,
    OP_LINEAR,
    OP_MAX_POOL,
    OP_AVG_POOL,
    OP_ADAPTIVE_AVG_POOL,
    OP_ADAPTIVE_MAX_POOL,
    OP_BATCH_NORM,
    OP_LAYER_NORM,
    OP_RELU,
    OP_GELU,
    OP_SILU,
    OP_SIGMOID,
    OP_TANH,
    OP_SOFTMAX,
    OP_LEAKY_RELU,
    OP_CLAMP,
    OP_ADD,
    OP_MUL,
    OP_CAT,
    OP_FLATTEN,
    OP_RESHAPE,
    OP_PERMUTE,
    OP_WEIGHT,
    OP_WEIGHT_NORM,
    OP_SUB,
    OP_DIV,
    OP_MAXIMUM,
    OP_MINIMUM,
    OP_SCALE_SHIFT,
    OP_SLICE,
    OP_EXPAND,
    OP_MEAN,
    OP_LOG_SOFTMAX,
    OP_HARD_SWISH,
    OP_HARD_SIGMOID,
    OP_ELU,
    OP_POWER,
    OP_MISH,
    OP_EXP,
    OP_LOG,
    OP_ABS,
    OP_SOFTPLUS,
    OP_PAD,
    OP_RESIZE,
    OP_CONV_TRANSPOSE,
    OP_CONV3D,
    OP_RMS_NORM,
    OP_GROUP_NORM,
    OP_PRELU,
    OP_ERF,
    OP_EQUAL,
    OP_GREATER,
    OP_KEEP,
    OP_EMBEDDING,
    OP_ATTENTION,
    OP_MATMUL,
    OP_HIDE,
    OP_CUT,
    OP_LSTM,
    OP_GRU,
};
enum {
    CONV_PADDING_H,
    CONV_PADDING_W,
    CONV_STRIDE_H,
    CONV_STRIDE_W,
    CONV_GROUPS,
    CONV_DILATION_H,
    CONV_DILATION_W,
};
enum {
    MAX_POOL_KERNEL_H,
    MAX_POOL_KERNEL_W,
    MAX_POOL_STRIDE_H,
    MAX_POOL_STRIDE_W,
    MAX_POOL_PADDING_H,
    MAX_POOL_PADDING_W,
    MAX_POOL_CEIL,
    MAX_POOL_DILATION_H,
    MAX_POOL_DILATION_W,
};
enum {
    AVG_POOL_KERNEL_H,
    AVG_POOL_KERNEL_W,
    AVG_POOL_STRIDE_H,
    AVG_POOL_STRIDE_W,
    AVG_POOL_PADDING_H,
    AVG_POOL_PADDING_W,
    AVG_POOL_CEIL,
    AVG_POOL_COUNT_PADDING,
    AVG_POOL_DIVISOR,
};
enum {
    ADAPTIVE_AVG_POOL_SIZE_H,
    ADAPTIVE_AVG_POOL_SIZE_W,
};
enum {
    ADAPTIVE_MAX_POOL_SIZE_H,
    ADAPTIVE_MAX_POOL_SIZE_W,
};
enum {
    BATCH_NORM_EPS,
};
enum {
    LAYER_NORM_RANK,
    LAYER_NORM_EPS,
};
enum {
    GELU_TANH,
};
enum {
    SOFTMAX_DIM,
};
enum {
    LEAKY_RELU_SLOPE,
};
enum {
    CLAMP_LOW,
    CLAMP_HIGH,
};
enum {
    CAT_DIM,
};
enum {
    FLATTEN_START,
    FLATTEN_END,
};
enum {
    WEIGHT_NORM_DIM,
};
enum {
    SCALE_SHIFT_FACTOR,
    SCALE_SHIFT_SHIFT,
};
enum {
    SLICE_DIM,
    SLICE_START,
    SLICE_SIZE,
    SLICE_STEP,
};
enum {
    MEAN_DIM,
    MEAN_COUNT,
};
enum {
    LOG_SOFTMAX_DIM,
};
enum {
    ELU_ALPHA,
    ELU_WIDTH,
};
enum {
    POWER_EXPONENT,
};
enum {
    PAD_DIM,
    PAD_BEFORE,
    PAD_AFTER,
    PAD_MODE,
    PAD_VALUE,
};
enum {
    RESIZE_DIM,
    RESIZE_SIZE,
    RESIZE_MODE,
    RESIZE_SCALE,
};
enum {
    CONV_TRANSPOSE_PADDING_D,
    CONV_TRANSPOSE_PADDING_H,
    CONV_TRANSPOSE_PADDING_W,
    CONV_TRANSPOSE_STRIDE_D,
    CONV_TRANSPOSE_STRIDE_H,
    CONV_TRANSPOSE_STRIDE_W,
    CONV_TRANSPOSE_GROUPS,
    CONV_TRANSPOSE_DILATION_D,
    CONV_TRANSPOSE_DILATION_H,
    CONV_TRANSPOSE_DILATION_W,
    CONV_TRANSPOSE_OUTPUT_PADDING_D,
    CONV_TRANSPOSE_OUTPUT_PADDING_H,
    CONV_TRANSPOSE_OUTPUT_PADDING_W,
};
enum {
    CONV3D_PADDING_D,
    CONV3D_PADDING_H,
    CONV3D_PADDING_W,
    CONV3D_STRIDE_D,
    CONV3D_STRIDE_H,
    CONV3D_STRIDE_W,
    CONV3D_GROUPS,
    CONV3D_DILATION_D,
    CONV3D_DILATION_H,
    CONV3D_DILATION_W,
};
enum {
    RMS_NORM_RANK,
    RMS_NORM_EPS,
};
enum {
    GROUP_NORM_GROUPS,
    GROUP_NORM_EPS,
};
enum {
    ATTENTION_HEADS,
    ATTENTION_CAUSAL,
    ATTENTION_MASK,
    ATTENTION_SCALE,
};
enum {
    HIDE_CAUSAL,
    HIDE_MASK,
    HIDE_FILL,
};
enum {
    LSTM_CELLS,
};
static const Operation OPERATIONS[] = {
    {"conv", 1, 1, 2, 7, false, false, {0, 0, 1, 1, 1, 1, 1}, 0},
    {"linear", 2, 1, 2, 0, false, false, {0}, 0},
    {"max_pool", 3, 1, 0, 9, false, false, {1, 1, 0, 0, 0, 0, 0, 1, 1}, 0},
    {"avg_pool", 4, 1, 0, 9, false, false, {1, 1, 0, 0, 0, 0, 0, 1, 0}, 0},
    {"adaptive_avg_pool", 5, 1, 0, 2, false, false, {1, 1}, 0},
    {"adaptive_max_pool", 6, 1, 0, 2, false, false, {1, 1}, 0},
    {"batch_norm", 7, 1, 4, 1, false, false, {1e-05}, 1},
    {"layer_norm", 8, 1, 2, 2, false, false, {1, 1e-05}, 2},
    {"relu", 9, 1, 0, 0, false, false, {0}, 0},
    {"gelu", 10, 1, 0, 1, false, false, {0}, 0},
    {"silu", 11, 1, 0, 0, false, false, {0}, 0},
    {"sigmoid", 12, 1, 0, 0, false, false, {0}, 0},
    {"tanh", 13, 1, 0, 0, false, false, {0}, 0},
    {"softmax", 14, 1, 0, 1, false, false, {-1}, 0},
    {"leaky_relu", 15, 1, 0, 1, false, false, {0.01}, 1},
    {"clamp", 16, 1, 0, 2, false, false, {0.0, 6.0}, 3},
    {"add", 17, 2, 0, 0, false, false, {0}, 0},
    {"mul", 18, 2, 0, 0, false, false, {0}, 0},
    {"cat", 19, -1, 0, 1, false, false, {1}, 0},
    {"flatten", 20, 1, 0, 2, false, true, {1, -1}, 0},
    {"reshape", 21, 1, 0, 0, true, true, {0}, 0},
    {"permute", 22, 1, 0, 0, true, false, {0}, 0},
    {"weight", 23, 1, 1, 0, false, false, {0}, 0},
    {"weight_norm", 24, 1, 2, 1, false, false, {0}, 0},
    {"sub", 25, 2, 0, 0, false, false, {0}, 0},
    {"div", 26, 2, 0, 0, false, false, {0}, 0},
    {"maximum", 27, 2, 0, 0, false, false, {0}, 0},
    {"minimum", 28, 2, 0, 0, false, false, {0}, 0},
    {"scale_shift", 29, 1, 0, 2, false, false, {1.0, 0.0}, 3},
    {"slice", 30, 1, 0, 4, false, false, {1, 0, 1, 1}, 0},
    {"expand", 31, 1, 0, 0, true, false, {0}, 0},
    {"mean", 32, 1, 0, 2, false, false, {1, 1}, 0},
    {"log_softmax", 33, 1, 0, 1, false, false, {-1}, 0},
    {"hard_swish", 34, 1, 0, 0, false, false, {0}, 0},
    {"hard_sigmoid", 35, 1, 0, 0, false, false, {0}, 0},
    {"elu", 36, 1, 0, 2, false, false, {1.0, 1.0}, 3},
    {"power", 37, 1, 0, 1, false, false, {2.0}, 1},
    {"mish", 38, 1, 0, 0, false, false, {0}, 0},
    {"exp", 39, 1, 0, 0, false, false, {0}, 0},
    {"log", 40, 1, 0, 0, false, false, {0}, 0},
    {"abs", 41, 1, 0, 0, false, false, {0}, 0},
    {"softplus", 42, 1, 0, 0, false, false, {0}, 0},
    {"pad", 43, 1, 0, 5, false, false, {1, 0, 0, 0, 0.0}, 16},
    {"resize", 44, 1, 0, 4, false, false, {2, 1, 0, 0.0}, 8},
    {"conv_transpose", 45, 1, 2, 13, false, false, {0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0}, 0},
    {"conv3d", 46, 1, 2, 10, false, false, {0, 0, 0, 1, 1, 1, 1, 1, 1, 1}, 0},
    {"rms_norm", 47, 1, 1, 2, false, false, {1, 1e-05}, 2},
    {"group_norm", 48, 1, 2, 2, false, false, {1, 1e-05}, 2},
    {"prelu", 49, 1, 1, 0, false, false, {0}, 0},
    {"erf", 50, 1, 0, 0, false, false, {0}, 0},
    {"equal", 51, 2, 0, 0, false, false, {0}, 0},
    {"greater", 52, 2, 0, 0, false, false, {0}, 0},
    {"keep", 53, 2, 0, 0, false, false, {0}, 0},
    {"embedding", 60, 1, 1, 0, false, false, {0}, 0},
    {"attention", 61, 3, 1, 4, false, false, {1, 0, 0, 0.0}, 8},
    {"matmul", 62, 2, 0, 0, false, false, {0}, 0},
    {"hide", 63, 1, 1, 3, false, false, {0, 1, -INFINITY}, 4},
    {"cut", 64, 1, 1, 0, true, false, {0}, 0},
    {"lstm", 80, -1, 8, 1, false, false, {0}, 0},
    {"gru", 81, -1, 8, 0, false, false, {0}, 0},
};
