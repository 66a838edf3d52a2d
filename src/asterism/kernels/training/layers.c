/* Batch norm and 2×2 max-pooling in training: channels, or planes, are shared by threads. */
#include <math.h>
#include "../program.h"

enum { N_BLOCKS, N_CHANNELS, N_PIXELS, N_IMAGES, N_RELU };
enum { AHEAD = 512 }; /* floats that are fetched early */

typedef struct Norms Norms;
struct Norms {
    const int64_t *n;
    const Training *kernels;
    /* Of a channel in one block: where it begins, and the lanes that are images. */
    void (*stretch)(const Norms *, int64_t channel, int64_t at, const float *keep);
    const float *in, *other, *gradient, *out;
    const Normal *normal;
    const Inverted *inverted;
    float *to;
    Moments *moments;
    double *sums; /* of each channel, both */
    int64_t parts;
};

void asterism_join_moments(Moments *to, const Moments *more)
{
    double count = to->count + more->count, apart = more->mean - to->mean;
    if (!count) return;
    to->squares += more->squares + apart * apart * to->count * more->count / count;
    to->mean += apart * more->count / count;
    to->count = count;
}

void asterism_images_kept(float *keep, int64_t images, int64_t block)
{
    for (int64_t i = 0; i < LANES; i++) keep[i] = block * LANES + i < images;
}

static void channels_part(void *of, int64_t part)
{
    const Norms *a = of;
    const int64_t *n = a->n;
    int64_t channels = n[N_CHANNELS], last = channels * (part + 1) / a->parts;
    for (int64_t c = channels * part / a->parts; c < last; c++)
        for (int64_t b = 0; b < n[N_BLOCKS]; b++) {
            float keep[LANES];
            asterism_images_kept(keep, n[N_IMAGES], b);
            a->stretch(a, c, (b * channels + c) * n[N_PIXELS] * LANES, keep);
        }
}

static int share_channels(Norms *a, int level, int64_t threads)
{
    a->kernels = &asterism_kernels_of(level)->training;
    a->parts = threads < a->n[N_CHANNELS] ? threads : a->n[N_CHANNELS];
    asterism_share(channels_part, a, a->parts);
    return DONE;
}

static void moments_stretch(const Norms *a, int64_t c, int64_t at, const float *keep)
{
    a->kernels->add_moments(a->in + at, a->n[N_PIXELS] * LANES, keep, &a->moments[c]);
}

/* Of each channel; they must hold zeros. */
int asterism_norm_moments(int level, const int64_t *n, const float *in, Moments *moments,
                          int64_t threads)
{
    Norms a = {.n = n, .stretch = moments_stretch, .in = in, .moments = moments};
    return share_channels(&a, level, threads);
}

static void apply_stretch(const Norms *a, int64_t c, int64_t at, const float *keep)
{
    (void)keep;
    a->kernels->normalise(a->to + at, a->in + at, a->other ? a->other + at : NULL,
                          a->n[N_PIXELS] * LANES, AHEAD, &a->normal[c], a->n[N_RELU]);
}

int asterism_norm_apply(int level, const int64_t *n, const float *in, const float *other,
                        const Normal *normal, float *out, int64_t threads)
{
    Norms a = {.n = n, .stretch = apply_stretch, .in = in, .other = other, .normal = normal, .to = out};
    return share_channels(&a, level, threads);
}

static void sums_stretch(const Norms *a, int64_t c, int64_t at, const float *keep)
{
    (void)keep;
    a->kernels->sum_gradients(a->to + at, a->gradient + at, a->in + at,
                              a->out ? a->out + at : NULL, a->n[N_PIXELS] * LANES, &a->normal[c], a->n[N_RELU], &a->sums[2 * c],
                              &a->sums[2 * c + 1]);
}

/* The gradient without the ReLU, to `to`, which may be the gradient; the sums must hold zeros. */
int asterism_norm_sums(int level, const int64_t *n, const float *in, const float *out,
                       const float *gradient, const Normal *normal, float *to, double *sums,
                       int64_t threads)
{
    Norms a = {.n = n, .stretch = sums_stretch, .in = in, .out = out, .gradient = gradient,
               .normal = normal, .to = to, .sums = sums};
    return share_channels(&a, level, threads);
}

static void invert_stretch(const Norms *a, int64_t c, int64_t at, const float *keep)
{
    a->kernels->denormalise(a->to + at, a->gradient + at, a->in + at, a->n[N_PIXELS] * LANES,
                            AHEAD, &a->inverted[c], keep);
}

int asterism_norm_invert(int level, const int64_t *n, const float *in, const float *gradient,
                         const Inverted *inverted, float *to, int64_t threads)
{
    Norms a = {.n = n, .stretch = invert_stretch, .in = in, .gradient = gradient,
               .inverted = inverted, .to = to};
    return share_channels(&a, level, threads);
}

/* A running average moves towards what a batch has, as torch moves it. */
static float moved(float average, double to, double momentum)
{
    return average + (float)momentum * ((float)to - average);
}

/* Of each channel from its moments, or from running averages, which have no count: what a batch norm
   does, and one over the standard deviation. Without weight and bias, these are one and zero. `by`: what
   is added to the variance, and the part by which moments move the running averages. */
int asterism_normals(int level, const int64_t *n, const Moments *moments, const float *weight,
                     const float *bias, const double *by, float *running_mean, float *running_variance,
                     Normal *normal, double *inverse, int64_t threads)
{
    (void)level, (void)threads;
    for (int64_t c = 0; c < n[0]; c++) {
        const Moments *m = &moments[c];
        inverse[c] = 1 / sqrt(m->squares / (m->count ? m->count : 1) + by[0]);
        normal[c] = (Normal){(float)m->mean, (float)(inverse[c] * (weight ? weight[c] : 1)),
                             bias ? bias[c] : 0};
        if (!m->count) continue;
        running_mean[c] = moved(running_mean[c], m->mean, by[1]);
        running_variance[c] = moved(running_variance[c], m->squares / (m->count - 1), by[1]);
    }
    return DONE;
}

/* What its gradients become, and those of weight and bias, from both sums of each channel. */
int asterism_inverted(int level, const int64_t *n, const Moments *moments, const Normal *normal,
                      const double *inverse, const double *sums, Inverted *inverted,
                      float *to_weight, float *to_bias, int64_t threads)
{
    (void)level, (void)threads;
    for (int64_t c = 0; c < n[0]; c++) {
        double count = moments[c].count, weighted = sums[2 * c + 1] * inverse[c];
        to_weight[c] = (float)weighted, to_bias[c] = (float)sums[2 * c];
        inverted[c] = (Inverted){normal[c].mean, normal[c].scale,
                                 count ? (float)(sums[2 * c] / count) : 0,
                                 count ? (float)(weighted * inverse[c] / count) : 0};
    }
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

enum { B_IMAGES, B_FEATURES };

/* From images, one after the other, to blocks of them side by side, with zeros for missing ones. */
int asterism_to_blocks(int level, const int64_t *n, const float *in, float *out, int64_t threads)
{
    (void)threads;
    const Training *kernels = &asterism_kernels_of(level)->training;
    int64_t features = n[B_FEATURES];
    for (int64_t first = 0; first < n[B_IMAGES]; first += LANES, out += features * LANES)
        kernels->to_lanes(in + first * features, features,
                          n[B_IMAGES] - first < LANES ? n[B_IMAGES] - first : LANES, out);
    return DONE;
}
