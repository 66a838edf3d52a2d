/* Pooling and elementwise layers. */

enum {
    O_CHANNELS, O_HEIGHT, O_WIDTH, O_OUT_H, O_OUT_W, O_DILATION_H, O_DILATION_W,
    O_PITCH, O_PLANE, O_MARGIN, /* how the input lies: as in conv_planes.h */
    O_WHOLE,                    /* whether a window is the whole image */
};

/* Numbers side by side. */
INLINE float sum_of_all(const float *in, int64_t count)
{
    Vec8 sum[4] = {{0}};
    int64_t i = 0;
    for (; i + 32 <= count; i += 32)
        UNROLL for (int v = 0; v < 4; v++) sum[v] += *(const Vec8 *)(in + i + v * 8);
    Vec8 all = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    for (; i + 8 <= count; i += 8) all += *(const Vec8 *)(in + i);
    float result = 0;
    for (int lane = 0; lane < 8; lane++) result += all[lane];
    for (; i < count; i++) result += in[i];
    return result;
}

/* data[0]: for each output row, its first input row and the one after its last; then columns.
   data[1]: what the sum of a window is multiplied by. */
INLINE void pool(const Step *s, const float *in, float *out, const int average)
{
    const int64_t *n = s->size;
    const int32_t *rows = s->data[0], *columns = rows + 2 * n[O_OUT_H];
    int64_t pitch = n[O_PITCH];
    in += n[O_MARGIN];
    for (int64_t c = 0; c < n[O_CHANNELS]; c++, in += n[O_PLANE]) {
        const float *factor = s->data[1];
        if (average && n[O_WHOLE]) { /* what is between rows are zeros */
            *out++ = sum_of_all(in, (n[O_HEIGHT] - 1) * pitch + n[O_WIDTH]) * *factor;
            continue;
        }
        for (int64_t y = 0; y < n[O_OUT_H]; y++)
            for (int64_t x = 0; x < n[O_OUT_W]; x++) {
                float result = average ? 0 : -__builtin_inff();
                for (int64_t i = rows[2 * y]; i < rows[2 * y + 1]; i += n[O_DILATION_H])
                    for (int64_t j = columns[2 * x]; j < columns[2 * x + 1]; j += n[O_DILATION_W]) {
                        float value = in[i * pitch + j];
                        if (average)
                            result += value;
                        else
                            result = value > result || value != value ? value : result;
                    }
                *out++ = average ? result * *factor++ : result;
            }
    }
}

static void pool_max(const Step *s, const float *in, const float *other, float *out, int64_t images)
{
    (void)other, (void)images;
    pool(s, in, out, 0);
}

static void pool_average(const Step *s, const float *in, const float *other, float *out,
                         int64_t images)
{
    (void)other, (void)images;
    pool(s, in, out, 1);
}

static void activate(const Step *s, const float *in, const float *other, float *out, int64_t images)
{
    int64_t n = s->size[0];
    (void)other, (void)images;
    if (s->activation == RELU)
        for (int64_t i = 0; i < n; i++) out[i] = 0 > in[i] ? 0 : in[i];
    else {
        if (in != out) __builtin_memcpy(out, in, n * sizeof(float));
        asterism_activate(s, out, n);
    }
}

static void add(const Step *s, const float *in, const float *other, float *out, int64_t images)
{
    (void)images;
    if (s->activation == RELU)
        for (int64_t i = 0; i < s->size[0]; i++) {
            float sum = in[i] + other[i];
            out[i] = 0 > sum ? 0 : sum;
        }
    else
        for (int64_t i = 0; i < s->size[0]; i++) out[i] = in[i] + other[i];
}

static void multiply(const Step *s, const float *in, const float *other, float *out, int64_t images)
{
    (void)images;
    for (int64_t i = 0; i < s->size[0]; i++) out[i] = in[i] * other[i];
}

static void scale(const Step *s, const float *in, const float *other, float *out, int64_t images)
{
    const float *factor = s->data[0], *shift = s->data[1];
    (void)other, (void)images;
    for (int64_t c = 0; c < s->size[0]; c++)
        for (int64_t i = 0; i < s->size[1]; i++) {
            *out++ = *in++ * factor[c] + shift[c];
        }
}

/* A number times zero is zero, unless it is infinite or none. Eight at a time: wider products have the
   machine lower its clock, for all that follows too. */
static int all_finite(const float *in, int64_t n)
{
    Vec8 sum[4] = {{0}};
    int64_t i = 0;
    for (; i + 32 <= n; i += 32)
        UNROLL for (int v = 0; v < 4; v++) sum[v] += *(const Vec8 *)(in + i + v * 8) * splat8(0);
    float rest = 0;
    for (; i < n; i++) rest += in[i] * 0;
    for (int v = 0; v < 4; v++)
        for (int lane = 0; lane < 8; lane++) rest += sum[v][lane];
    return rest == 0;
}
