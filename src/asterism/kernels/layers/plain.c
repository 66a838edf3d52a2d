/* Layers whose time is in the mathematical library or in memory: the same code for every machine. */
#include <math.h>
#include <string.h>
#include "../program.h"

static float hard_sigmoid(float v)
{
    float part = v * (1 / 6.0f) + 0.5f;
    return 0 > part ? 0 : part > 1 ? 1 : part;
}

static float softplus(float v) { return (0 > v ? 0 : v) + log1pf(expf(-fabsf(v))); }

static float power(float v, float exponent)
{
    if (exponent == 2) return v * v;
    if (exponent == 0.5f) return sqrtf(v);
    if (exponent == -0.5f) return 1 / sqrtf(v);
    if (exponent == -1) return 1 / v;
    return powf(v, exponent);
}

void asterism_activate(const Step *s, float *x, int64_t n)
{
#define EACH(EXPRESSION) for (int64_t i = 0; i < n; i++) { float v = x[i]; x[i] = (EXPRESSION); } break
    switch (s->activation) {
    case RELU: EACH(0 > v ? 0 : v);
    case LEAKY_RELU: EACH(0 > v ? v * s->a : v);
    case CLAMP: EACH(s->a > v ? s->a : v > s->b ? s->b : v);
    case GELU: EACH(0.5f * v * (1 + erff(v * 0.70710678f)));
    case GELU_TANH: EACH(0.5f * v * (1 + tanhf(0.79788456f * (v + 0.044715f * v * v * v))));
    case SILU: EACH(v / (1 + expf(-v)));
    case SIGMOID: EACH(1 / (1 + expf(-v)));
    case TANH: EACH(tanhf(v));
    case SCALE_SHIFT: EACH(v * s->a + s->b);
    case ELU: EACH(0 > v ? s->a * expm1f(v * s->b) : v);
    case POWER: EACH(power(v, s->a));
    case HARD_SWISH: EACH(v * hard_sigmoid(v));
    case HARD_SIGMOID: EACH(hard_sigmoid(v));
    case MISH: EACH(v * tanhf(softplus(v)));
    case EXP: EACH(expf(v));
    case LOG: EACH(logf(v));
    case ABS: EACH(fabsf(v));
    case SOFTPLUS: EACH(softplus(v));
    case ERF: EACH(erff(v));
    default: break;
    }
}

/* Of numbers less their mean, or of the squares of these. Eight sums side by side: each would wait for
   its last addition. */
static double sum_of(const float *in, int64_t n, double mean, const int power)
{
    double sums[8] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++) {
            double x = in[i + j] - mean;
            sums[j] += power == 2 ? x * x : x;
        }
    for (; i < n; i++) sum += power == 2 ? (in[i] - mean) * (in[i] - mean) : in[i] - mean;
    for (int j = 0; j < 8; j++) sum += sums[j];
    return sum;
}

/* size: rows, row length; data: weight and bias, or none. With b, nothing is subtracted. */
void asterism_layer_norm(const Step *s, const float *in, const float *other, float *out, int64_t images)
{
    const float *weight = s->data[0], *bias = s->data[1];
    int64_t n = s->size[1];
    (void)other, (void)images;
    for (int64_t row = 0; row < s->size[0]; row++, in += n, out += n) {
        double mean = s->b ? 0 : sum_of(in, n, 0, 1) / n;
        double factor = 1 / sqrt(sum_of(in, n, mean, 2) / n + s->a);
        for (int64_t i = 0; i < n; i++)
            out[i] = (float)((in[i] - mean) * factor);
        if (weight)
            for (int64_t i = 0; i < n; i++) out[i] = out[i] * weight[i] + bias[i];
    }
}

/* size: outer, length, inner, and whether the logarithm is wanted. */
void asterism_softmax(const Step *s, const float *in, const float *other, float *out, int64_t images)
{
    int64_t length = s->size[1], inner = s->size[2];
    (void)other, (void)images;
    for (int64_t o = 0; o < s->size[0]; o++)
        for (int64_t j = 0; j < inner; j++) {
            const float *from = in + o * length * inner + j;
            float *to = out + (from - in), most = from[0], sum = 0;
            for (int64_t i = 1; i < length; i++)
                if (from[i * inner] > most) most = from[i * inner];
            for (int64_t i = 0; i < length; i++) sum += to[i * inner] = expf(from[i * inner] - most);
            float log_sum = most + logf(sum);
            if (s->size[3])
                for (int64_t i = 0; i < length; i++) to[i * inner] = from[i * inner] - log_sum;
            else
                for (int64_t i = 0; i < length; i++) to[i * inner] /= sum;
        }
}

/* size: places, and how many numbers follow each of them. A place before the first is that of no
   input, but of the number a. */
void asterism_gather(const Step *s, const float *in, const float *other, float *out, int64_t images)
{
    const int32_t *places = s->data[0];
    (void)other, (void)images;
    int64_t run = s->size[1];
    if (run > 1)
        for (int64_t i = 0; i < s->size[0]; i++, out += run)
            if (places[i] >= 0)
                memcpy(out, in + places[i], run * sizeof(float));
            else
                for (int64_t j = 0; j < run; j++) out[j] = s->a;
    else
        for (int64_t i = 0; i < s->size[0]; i++) out[i] = places[i] < 0 ? s->a : in[places[i]];
}

/* size: chunks, their length, the distance between them in the output, the first one's place. */
void asterism_copy_chunks(const Step *s, const float *in, const float *other, float *out, int64_t images)
{
    (void)other, (void)images;
    for (int64_t i = 0; i < s->size[0]; i++)
        for (int64_t j = 0; j < s->size[1]; j++)
            out[i * s->size[2] + s->size[3] + j] = in[i * s->size[1] + j];
}

/* size: ids, numbers of each, rows of the table. Ids were checked; a damaged network may have others. */
void asterism_embed(const Step *s, const float *in, const float *other, float *out, int64_t images)
{
    const float *table = s->data[0];
    int64_t width = s->size[1], last = s->size[2] - 1;
    (void)other, (void)images;
    for (int64_t i = 0; i < s->size[0]; i++, out += width) {
        int64_t id = in[i] > 0 ? in[i] < last ? (int64_t)in[i] : last : 0;
        memcpy(out, table + id * width, width * sizeof(float));
    }
}
