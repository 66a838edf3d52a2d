/* Batch norm and 2×2 max-pooling in training: channels, or planes, are shared by threads. */
#include <math.h>
#include <string.h>
#include "../program.h"

enum { N_BLOCKS, N_CHANNELS, N_PIXELS, N_IMAGES, N_TRAINING, N_RELU };

typedef struct {
    const int64_t *n;
    const Training *kernels;
    Norm norm;
    float eps, last[LANES];
    const float *in, *other, *out, *gradient, *weight, *bias;
    float *mean, *variance, *to_out, *to_in, *to_other, *to_weight, *to_bias;
    int64_t parts;
} Norms;

static void prepare(Norms *a, int level, int64_t threads)
{
    const int64_t *n = a->n;
    a->kernels = &asterism_kernels_of(level)->training;
    a->parts = threads < n[N_CHANNELS] ? threads : n[N_CHANNELS];
    int64_t left = n[N_IMAGES] - (n[N_BLOCKS] - 1) * LANES;
    for (int64_t i = 0; i < LANES; i++) a->last[i] = i < left;
    int64_t plane = n[N_PIXELS] * LANES;
    a->norm = (Norm){n[N_BLOCKS], n[N_PIXELS], n[N_IMAGES], n[N_CHANNELS] * plane, n[N_RELU], a->last};
}

static double scale_of(const Norms *a, int64_t c)
{
    return 1 / sqrt((double)a->variance[c] + a->eps);
}

static void forward_part(void *of, int64_t part)
{
    const Norms *a = of;
    int64_t channels = a->n[N_CHANNELS], plane = a->n[N_PIXELS] * LANES;
    for (int64_t c = channels * part / a->parts; c < channels * (part + 1) / a->parts; c++) {
        const float *in = a->in + c * plane, *other = a->other ? a->other + c * plane : NULL;
        if (a->n[N_TRAINING]) a->kernels->norm_moments(&a->norm, in, &a->mean[c], &a->variance[c]);
        float scale = (float)(scale_of(a, c) * (a->weight ? a->weight[c] : 1));
        a->kernels->norm_apply(&a->norm, in, other, a->mean[c], scale, a->bias ? a->bias[c] : 0,
                               a->to_out + c * plane);
    }
}

/* Mean and variance are set in training, and given otherwise. */
int asterism_norm_forward(int level, const int64_t *n, float eps, const float *in,
                          const float *other, const float *weight, const float *bias, float *mean,
                          float *variance, float *out, int64_t threads)
{
    Norms a = {.n = n, .eps = eps, .in = in, .other = other, .weight = weight, .bias = bias,
               .mean = mean, .variance = variance, .to_out = out};
    prepare(&a, level, threads);
    asterism_share(forward_part, &a, a.parts);
    return DONE;
}

static void backward_part(void *of, int64_t part)
{
    const Norms *a = of;
    int64_t channels = a->n[N_CHANNELS], plane = a->n[N_PIXELS] * LANES;
    double count = (double)a->n[N_IMAGES] * a->n[N_PIXELS];
    for (int64_t c = channels * part / a->parts; c < channels * (part + 1) / a->parts; c++) {
        int64_t at = c * plane;
        double plain, weighted, scale = scale_of(a, c);
        a->kernels->norm_sums(&a->norm, a->in + at, a->out + at, a->gradient + at, a->mean[c],
                              &plain, &weighted);
        a->to_weight[c] = (float)(weighted * scale), a->to_bias[c] = (float)plain;
        float by_mean = a->n[N_TRAINING] ? (float)(plain / count) : 0;
        float by_spread = a->n[N_TRAINING] ? (float)(weighted * scale * scale / count) : 0;
        a->kernels->norm_backward(&a->norm, a->in + at, a->out + at, a->gradient + at, a->mean[c],
                                  (float)(scale * (a->weight ? a->weight[c] : 1)), by_mean,
                                  by_spread, a->to_in + at, a->to_other ? a->to_other + at : NULL);
    }
}

int asterism_norm_backward(int level, const int64_t *n, float eps, const float *in,
                           const float *out, const float *gradient, const float *weight,
                           float *mean, float *variance, float *to_in, float *to_other,
                           float *to_weight, float *to_bias, int64_t threads)
{
    Norms a = {.n = n, .eps = eps, .in = in, .out = out, .gradient = gradient, .weight = weight,
               .mean = mean, .variance = variance, .to_in = to_in, .to_other = to_other,
               .to_weight = to_weight, .to_bias = to_bias};
    prepare(&a, level, threads);
    asterism_share(backward_part, &a, a.parts);
    return DONE;
}

enum { H_PLANES, H_ROWS, H_COLUMNS }; /* of outputs */

typedef struct {
    const int64_t *n;
    const Training *kernels;
    const float *in, *out, *gradient;
    float *made;
    int64_t parts;
} Halves;

static void halves_part(void *of, int64_t part)
{
    const Halves *h = of;
    int64_t rows = h->n[H_ROWS], columns = h->n[H_COLUMNS], plane = rows * columns * LANES;
    int64_t planes = h->n[H_PLANES];
    for (int64_t p = planes * part / h->parts; p < planes * (part + 1) / h->parts; p++)
        if (h->gradient)
            h->kernels->halve_backward(h->in + 4 * p * plane, h->out + p * plane,
                                       h->gradient + p * plane, h->made + 4 * p * plane, rows,
                                       columns);
        else
            h->kernels->halve(h->in + 4 * p * plane, h->made + p * plane, rows, columns);
}

int asterism_halve(int level, const int64_t *n, const float *in, float *out, int64_t threads)
{
    Halves h = {.n = n, .kernels = &asterism_kernels_of(level)->training, .in = in, .made = out,
                .parts = threads < n[H_PLANES] ? threads : n[H_PLANES]};
    asterism_share(halves_part, &h, h.parts);
    return DONE;
}

int asterism_halve_backward(int level, const int64_t *n, const float *in, const float *out,
                            const float *gradient, float *to_in, int64_t threads)
{
    Halves h = {.n = n, .kernels = &asterism_kernels_of(level)->training, .in = in, .out = out,
                .gradient = gradient, .made = to_in,
                .parts = threads < n[H_PLANES] ? threads : n[H_PLANES]};
    asterism_share(halves_part, &h, h.parts);
    return DONE;
}
