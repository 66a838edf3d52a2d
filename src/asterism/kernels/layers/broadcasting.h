/* Two values number by number, of which either may repeat along some axes; and means along an axis. */

enum Combination { C_ADD, C_MUL, C_SUB, C_DIV, C_MAXIMUM, C_MINIMUM, C_PRELU,
                   C_EQUAL, C_GREATER, C_KEEP };
enum { MOST_AXES = 8 };

INLINE float combined(const int which, float a, float b)
{
    switch (which) {
    case C_ADD: return a + b;
    case C_MUL: return a * b;
    case C_SUB: return a - b;
    case C_DIV: return a / b;
    case C_MAXIMUM: return a > b || a != a ? a : b;
    case C_MINIMUM: return a < b || a != a ? a : b;
    case C_EQUAL: return a == b;
    case C_GREATER: return a > b;
    case C_KEEP: return a != 0 ? b : 0;
    default: return 0 > a ? a * b : a;
    }
}

/* Along the last axis, whose steps are 0 or 1. */
INLINE void combine_row(const int which, float *out, const float *a, const float *b, int64_t n,
                        int64_t step_a, int64_t step_b)
{
    if (step_a && step_b)
        for (int64_t i = 0; i < n; i++) out[i] = combined(which, a[i], b[i]);
    else if (step_a)
        for (int64_t i = 0; i < n; i++) out[i] = combined(which, a[i], *b);
    else
        for (int64_t i = 0; i < n; i++) out[i] = combined(which, *a, b[i * step_b]);
}

/* data[0]: of each axis its size, and the steps of both inputs along it. */
INLINE void combine_all(const int which, const Step *s, const float *a, const float *b, float *out)
{
    const int64_t *axes = s->data[0], last = s->size[1] - 1;
    int64_t at[MOST_AXES] = {0}, n = axes[3 * last];
    for (int64_t done = 0; done < s->size[2]; done += n, out += n) {
        combine_row(which, out, a, b, n, axes[3 * last + 1], axes[3 * last + 2]);
        for (int64_t i = last - 1; i >= 0; i--) {
            const int64_t *axis = axes + 3 * i;
            a += axis[1], b += axis[2];
            if (++at[i] < axis[0]) break;
            a -= at[i] * axis[1], b -= at[i] * axis[2], at[i] = 0;
        }
    }
}

/* size: which, axes, numbers in the result. */
static void combine(const Step *s, const float *in, const float *other, float *out, int64_t images)
{
    (void)images;
#define COMBINATION(WHICH) case WHICH: combine_all(WHICH, s, in, other, out); break;
    switch (s->size[0]) {
        COMBINATION(C_ADD) COMBINATION(C_MUL) COMBINATION(C_SUB) COMBINATION(C_DIV)
        COMBINATION(C_MAXIMUM) COMBINATION(C_MINIMUM) COMBINATION(C_PRELU)
        COMBINATION(C_EQUAL) COMBINATION(C_GREATER) COMBINATION(C_KEEP)
    }
    if (s->activation == RELU)
        for (int64_t i = 0; i < s->size[2]; i++) out[i] = 0 > out[i] ? 0 : out[i];
}

enum { PART = 512 };

/* size: outer, length, inner; and if there are zeros among them, as in conv_planes.h, how far each of the
   outer is from the next, where the first is, and over how many numbers the mean is. */
static void mean(const Step *s, const float *in, const float *other, float *out, int64_t images)
{
    int64_t length = s->size[1], inner = s->size[2], count = s->size[5] ? s->size[5] : length;
    int64_t next = s->size[3] ? s->size[3] : length * inner;
    (void)other, (void)images;
    in += s->size[4];
    for (int64_t o = 0; o < s->size[0]; o++, in += next, out += inner) {
        if (inner == 1) {
            double sum = 0; /* of short parts, whose own sums are exact enough */
            for (int64_t i = 0; i < length; i += PART)
                sum += sum_of_all(in + i, length - i < PART ? length - i : PART);
            *out = (float)(sum / count);
            continue;
        }
        int64_t j = 0;
        for (; j + 32 <= inner; j += 32) {
            Vec8 sum[4] = {{0}};
            for (int64_t i = 0; i < length; i++)
                UNROLL for (int v = 0; v < 4; v++) sum[v] += *(const Vec8 *)(in + i * inner + j + 8 * v);
            UNROLL for (int v = 0; v < 4; v++) *(Vec8 *)(out + j + 8 * v) = sum[v] / splat8(count);
        }
        for (; j < inner; j++) {
            float sum = 0;
            for (int64_t i = 0; i < length; i++) sum += in[i * inner + j];
            out[j] = sum / count;
        }
    }
}
