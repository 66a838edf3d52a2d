/* The proximal step of all layers in one pass, in the order and rounding of torch's operations: no
   contraction to fused multiply-adds here, which CMakeLists.txt sees to. */
#include <math.h>
#include <stdint.h>

/* A layer: theta (or q) and psi, one for each weight, or NULL where it is 1. With `renew` psi
   becomes 1 / (|theta|^order + offset) / at_zero first. */
typedef struct {
    float *theta, *psi;
    int64_t size, order, renew;
    float offset, at_zero;
} Shrunk;

static void renew_psi(const Shrunk *s)
{
    if (s->order == 1)
        for (int64_t i = 0; i < s->size; i++)
            s->psi[i] = 1 / (fabsf(s->theta[i]) + s->offset) / s->at_zero;
    else
        for (int64_t i = 0; i < s->size; i++)
            s->psi[i] = 1 / (s->theta[i] * s->theta[i] + s->offset) / s->at_zero;
}

/* value clamped to ±amount; a NaN stays one. */
static inline float within(float value, float amount)
{
    float low = value < -amount ? -amount : value;
    return low > amount ? amount : low;
}

/* Weights move by psi times `far`; the divisor of order 2 is rounded once where psi is 1. */
static void shrink(const Shrunk *s, double far)
{
    float *theta = s->theta, pull = far, divisor = 1 + 2 * far;
    if (s->order == 1 && s->psi)
        for (int64_t i = 0; i < s->size; i++) theta[i] -= within(theta[i], s->psi[i] * pull);
    else if (s->order == 1)
        for (int64_t i = 0; i < s->size; i++) theta[i] -= within(theta[i], pull);
    else if (s->psi)
        for (int64_t i = 0; i < s->size; i++) theta[i] /= 1 + 2 * (s->psi[i] * pull);
    else
        for (int64_t i = 0; i < s->size; i++) theta[i] /= divisor;
}

/* Each layer by the number of `pulls` that is its own, in pieces that fit in the cache: psi is read
   where it was written. */
void asterism_shrink(const Shrunk *layers, int64_t count, const double *pulls)
{
    enum { PIECE = 4096 };
    for (int64_t i = 0; i < count; i++)
        for (int64_t at = 0; at < layers[i].size; at += PIECE) {
            Shrunk piece = layers[i];
            piece.theta += at;
            if (piece.psi) piece.psi += at;
            piece.size = layers[i].size - at < PIECE ? layers[i].size - at : PIECE;
            if (piece.renew) renew_psi(&piece);
            shrink(&piece, pulls[i]);
        }
}
