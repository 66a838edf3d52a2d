/* One layer in training: its non-zeros are collected, and the blocks of images go through them. */
#include <stdlib.h>
#include <string.h>
#include "../program.h"

typedef struct {
    Taps live;
    float *rows; /* two rows of outputs */
    int64_t in, out;
} Layer;

static void collect(const int64_t *n, Taps *live, const float *weight)
{
    int64_t weights = n[T_CHANNELS] * n[T_KERNEL_H] * n[T_KERNEL_W], count = 0;
    for (int64_t o = 0; o < n[T_OUT]; o++) {
        live->begin[o] = count;
        for (int64_t i = o * weights; i < (o + 1) * weights; i++)
            if (weight[i] != 0) {
                int64_t dx = i % n[T_KERNEL_W], dy = i / n[T_KERNEL_W] % n[T_KERNEL_H];
                int64_t c = i / (n[T_KERNEL_W] * n[T_KERNEL_H]) % n[T_CHANNELS];
                int64_t offset = ((c * n[T_HEIGHT] + dy) * n[T_WIDTH] + dx) * BLOCK;
                live->taps[count++] = (Tap){offset, i, weight[i]};
            }
    }
    live->begin[n[T_OUT]] = count;
}

static int begin(Layer *layer, const int64_t *n, const float *weight)
{
    int64_t weights = n[T_OUT] * n[T_CHANNELS] * n[T_KERNEL_H] * n[T_KERNEL_W], count = 0;
    for (int64_t i = 0; i < weights; i++) count += weight[i] != 0;
    layer->live.taps = malloc((size_t)(count + 1) * sizeof(Tap));
    layer->live.begin = malloc((size_t)(n[T_OUT] + 1) * sizeof(int64_t));
    layer->rows = aligned_alloc(64, 2 * (size_t)(n[T_OUT_W] * BLOCK) * sizeof(float));
    layer->in = n[T_CHANNELS] * n[T_HEIGHT] * n[T_WIDTH] * BLOCK;
    layer->out = n[T_OUT] * n[T_OUT_H] * n[T_OUT_W] * BLOCK / (n[T_POOL] ? 4 : 1);
    if (!layer->live.taps || !layer->live.begin || !layer->rows) return NO_MEMORY;
    collect(n, &layer->live, weight);
    return DONE;
}

static int end(Layer *layer, int status)
{
    free(layer->live.taps), free(layer->live.begin), free(layer->rows);
    return status;
}

/* winner: of each pooled output, which of its four it was; not touched without pooling. */
int asterism_taps_forward(int level, const int64_t *n, const float *weight, const float *bias,
                          const float *in, float *out, int32_t *winner)
{
    Layer layer;
    if (begin(&layer, n, weight)) return end(&layer, NO_MEMORY);
    for (int64_t b = 0; b < n[T_BLOCKS]; b++)
        asterism_kernels_of(level)->taps_forward(n, &layer.live, bias, in + b * layer.in,
                                                 out + b * layer.out, winner + b * layer.out,
                                                 layer.rows);
    return end(&layer, DONE);
}

static float total(const float *lanes)
{
    float sum = 0;
    for (int i = 0; i < LANES; i++) sum += lanes[i];
    return sum;
}

/* The gradients of weights, biases and, unless that is NULL, inputs; all but the biases' must hold
   zeros. */
int asterism_taps_backward(int level, const int64_t *n, const float *weight, const float *in,
                           const float *gradient, const int32_t *winner, float *weight_gradient,
                           float *bias_gradient, float *in_gradient)
{
    Layer layer;
    if (begin(&layer, n, weight)) return end(&layer, NO_MEMORY);
    int64_t count = layer.live.begin[n[T_OUT]];
    size_t bytes = (size_t)(count + n[T_OUT]) * LANES * sizeof(float);
    float *sums = aligned_alloc(64, bytes);
    if (!sums) return end(&layer, NO_MEMORY);
    memset(sums, 0, bytes);
    for (int64_t b = 0; b < n[T_BLOCKS]; b++)
        asterism_kernels_of(level)->taps_backward(
            n, &layer.live, in + b * layer.in, gradient + b * layer.out, winner + b * layer.out,
            sums, sums + LANES * count, in_gradient ? in_gradient + b * layer.in : NULL, layer.rows);
    for (int64_t t = 0; t < count; t++)
        weight_gradient[layer.live.taps[t].index] = total(sums + LANES * t);
    for (int64_t o = 0; o < n[T_OUT]; o++) bias_gradient[o] = total(sums + LANES * (count + o));
    free(sums);
    return end(&layer, DONE);
}
