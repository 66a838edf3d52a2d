/* theta = q ⊙ omega in pruned and in small layers, all of them in one pass: in place, or to and from
   one row of numbers for all layers. */
#include <stdint.h>
#include <string.h>

/* A layer, in the order of its memory. Where few weights are left `live` lists their `count` places,
   rising, and omega has one number for each. Otherwise live is NULL and omega has a number for each
   of `size` weights, 0 where it is pruned, or nowhere if count is -1. omega is NULL where it is 1.
   theta or gradient, if NULL, is left alone. */
typedef struct {
    float *theta, *gradient;
    const float *omega;
    const int64_t *live;
    int64_t size, count;
} Scaled;

static void clear(float *from, float *to)
{
    memset(from, 0, (size_t)(to - from) * sizeof *from);
}

static void clear_between(const Scaled *s, float *values)
{
    float *after = values;
    for (int64_t j = 0; j < s->count; after = values + s->live[j++] + 1)
        clear(after, values + s->live[j]);
    clear(after, values + s->size);
}

/* to ← from ⊙ omega; +0 where pruned if `zero` says, and else anything where few are left. */
static void multiply(const Scaled *s, const float *from, float *to, int zero)
{
    const float *omega = s->omega;
    if (s->live) {
        if (omega || from != to)
            for (int64_t j = 0; j < s->count; j++)
                to[s->live[j]] = omega ? from[s->live[j]] * omega[j] : from[s->live[j]];
        if (zero) clear_between(s, to);
    } else if (!omega) {
        if (from != to) memcpy(to, from, (size_t)s->size * sizeof *to);
    } else if (s->count < 0) {
        for (int64_t i = 0; i < s->size; i++) to[i] = from[i] * omega[i];
    } else {
        for (int64_t i = 0; i < s->size; i++) to[i] = omega[i] == 0 ? 0 : from[i] * omega[i];
    }
}

/* to ← from / omega, where from is 0 where pruned. */
static void divide(const Scaled *s, const float *from, float *to)
{
    const float *omega = s->omega;
    if (from != to && (s->live || !omega)) memcpy(to, from, (size_t)s->size * sizeof *to);
    if (!omega) return;
    if (s->live)
        for (int64_t j = 0; j < s->count; j++) to[s->live[j]] = from[s->live[j]] / omega[j];
    else if (s->count < 0)
        for (int64_t i = 0; i < s->size; i++) to[i] = from[i] / omega[i];
    else
        for (int64_t i = 0; i < s->size; i++) to[i] = omega[i] == 0 ? 0 : from[i] / omega[i];
}

/* q = theta / omega and its gradient, in place; where pruned theta is 0 and stays it, and the
   gradient becomes 0 if `zero` says, and else anything. */
void asterism_to_q(const Scaled *layers, int64_t count, int zero)
{
    for (const Scaled *s = layers; s < layers + count; s++) {
        if (s->theta) divide(s, s->theta, s->theta);
        if (s->gradient) multiply(s, s->gradient, s->gradient, zero);
    }
}

/* theta = q ⊙ omega in place, +0 where pruned, whatever stood there. */
void asterism_to_theta(const Scaled *layers, int64_t count)
{
    for (const Scaled *s = layers; s < layers + count; s++) multiply(s, s->theta, s->theta, 1);
}

/* The same, from all layers to one row: q and its gradients, 0 where pruned. */
void asterism_bundle(const Scaled *layers, int64_t count, float *q, float *gradients)
{
    for (const Scaled *s = layers; s < layers + count; s++) {
        divide(s, s->theta, q);
        multiply(s, s->gradient, gradients, 1);
        q += s->size;
        gradients += s->size;
    }
}

/* And back. */
void asterism_unbundle(const Scaled *layers, int64_t count, const float *q)
{
    for (const Scaled *s = layers; s < layers + count; s++) {
        multiply(s, q, s->theta, 1);
        q += s->size;
    }
}
