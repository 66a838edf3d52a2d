/* Convolutions weight by weight, whatever the table of inputs says; and images at another size. */

typedef struct {
    int32_t channel, place[3]; /* where its input channel begins; depth, height, width in the kernel */
    float weight;
} VolumeTap;

enum { V_OUTPUTS, V_IN_D, V_IN_H, V_IN_W, V_D, V_H, V_W, V_KERNEL_D, V_KERNEL_H, V_PHASES, V_STEP };

/* A row of the result: its numbers phase by phase, then in their order. */
INLINE void put_row(const Step *s, float *out, const float *row, int64_t width, int64_t phases)
{
    int64_t pitch = width / phases + 1;
    for (int64_t phase = 0; phase < phases; phase++)
        for (int64_t i = phase, j = phase * pitch; i < width; i += phases, j++)
            out[i] = s->activation == RELU && 0 > row[j] ? 0 : row[j];
}

/* data: taps, where each output's begin, tables, biases. The tables say for each place in the kernel
   which input each output reads, or −1: along the depth, then the height. Along the width they are the
   first output, the first input, and how many outputs there are. */
static void conv_taps(const Step *s, const float *in, const float *other, float *out, int64_t images)
{
    const VolumeTap *taps = s->data[0];
    const int32_t *starts = s->data[1], *deep = s->data[2];
    const float *bias = s->data[3];
    const int64_t *n = s->size;
    const int32_t *high = deep + n[V_KERNEL_D] * n[V_D], *wide = high + n[V_KERNEL_H] * n[V_H];
    int64_t length = n[V_PHASES] * (n[V_W] / n[V_PHASES] + 1), step = n[V_STEP];
    float *row = (float *)other;
    (void)images;
    for (int64_t o = 0; o < n[V_OUTPUTS]; o++)
        for (int64_t d = 0; d < n[V_D]; d++)
            for (int64_t h = 0; h < n[V_H]; h++, out += n[V_W]) {
                for (int64_t i = 0; i < length; i++) row[i] = bias[o];
                for (const VolumeTap *t = taps + starts[o]; t < taps + starts[o + 1]; t++) {
                    int64_t z = deep[t->place[0] * n[V_D] + d], y = high[t->place[1] * n[V_H] + h];
                    if (z < 0 || y < 0) continue;
                    const int32_t *span = wide + 3 * t->place[2];
                    const float *from = in + t->channel + (z * n[V_IN_H] + y) * n[V_IN_W] + span[1];
                    float *to = row + span[0], weight = t->weight;
                    if (step == 1)
                        for (int64_t i = 0; i < span[2]; i++) to[i] += weight * from[i];
                    else
                        for (int64_t i = 0; i < span[2]; i++) to[i] += weight * from[i * step];
                }
                put_row(s, out, row, n[V_W], n[V_PHASES]);
            }
}

/* size: outer, length, new length, inner; data: for each new index two old ones, and the part that the
   second has. */
static void resize(const Step *s, const float *in, const float *other, float *out, int64_t images)
{
    const int32_t *low = s->data[0], *high = s->data[1];
    const float *part = s->data[2];
    int64_t inner = s->size[3];
    (void)other, (void)images;
    for (int64_t o = 0; o < s->size[0]; o++, in += s->size[1] * inner)
        for (int64_t i = 0; i < s->size[2]; i++, out += inner) {
            const float *one = in + low[i] * inner, *two = in + high[i] * inner;
            float p = part[i];
            if (p == 0)
                for (int64_t j = 0; j < inner; j++) out[j] = one[j];
            else
                for (int64_t j = 0; j < inner; j++) out[j] = one[j] * (1 - p) + two[j] * p;
        }
}
