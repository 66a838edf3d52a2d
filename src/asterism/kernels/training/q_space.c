/* theta = q ⊙ omega in pruned layers, in one pass: what torch does in six. */
#include <stdint.h>
#include <string.h>

/* A layer, in the order of its memory. Where few weights are left `live` lists their `count` places,
   rising, and omega has one number for each, or is NULL where it is 1. Otherwise live is NULL and
   omega has a number for each of `size` weights, 0 where it is pruned, or nowhere if count is -1.
   theta or gradient, if NULL, is left alone. */
typedef struct {
    float *theta, *gradient;
    const float *omega;
    const int64_t *live;
    int64_t size, count;
} Pruned;

static void clear(float *from, float *to)
{
    memset(from, 0, (size_t)(to - from) * sizeof *from);
}

static void clear_between(const Pruned *p, float *values)
{
    float *after = values;
    for (int64_t j = 0; j < p->count; after = values + p->live[j++] + 1)
        clear(after, values + p->live[j]);
    clear(after, values + p->size);
}

static void multiply(const Pruned *p, float *values, int zero)
{
    if (p->count < 0) {
        for (int64_t i = 0; i < p->size; i++) values[i] *= p->omega[i];
        return;
    }
    if (!p->live) {
        for (int64_t i = 0; i < p->size; i++)
            values[i] = p->omega[i] == 0 ? 0 : values[i] * p->omega[i];
        return;
    }
    if (p->omega)
        for (int64_t j = 0; j < p->count; j++) values[p->live[j]] *= p->omega[j];
    if (zero) clear_between(p, values);
}

static void divide(const Pruned *p, float *values)
{
    if (p->count < 0) {
        for (int64_t i = 0; i < p->size; i++) values[i] /= p->omega[i];
    } else if (!p->live) {
        for (int64_t i = 0; i < p->size; i++)
            values[i] = p->omega[i] == 0 ? 0 : values[i] / p->omega[i];
    } else if (p->omega) {
        for (int64_t j = 0; j < p->count; j++) values[p->live[j]] /= p->omega[j];
    }
}

/* q = theta / omega and its gradient, in place; where pruned theta is 0 and stays it, and the
   gradient becomes 0 if `zero` says, and else anything. */
void asterism_to_q(const Pruned *layers, int64_t count, int zero)
{
    for (const Pruned *p = layers; p < layers + count; p++) {
        if (p->theta) divide(p, p->theta);
        if (p->gradient) multiply(p, p->gradient, zero);
    }
}

/* theta = q ⊙ omega in place, +0 where pruned, whatever stood there. */
void asterism_to_theta(const Pruned *layers, int64_t count)
{
    for (const Pruned *p = layers; p < layers + count; p++) multiply(p, p->theta, 1);
}
