/* Convolutions over whole channels in whole numbers of 16 bits: a vector has twice as many of them as of
   floats, and what bounds a sparse convolution is how many it loads.

   Planes lie as in conv_planes.h, number by number. A number stands for itself times the scale of its
   value; what that is, only the weights know: a weight is a fraction, w / 2^15, and turns numbers of the
   input's scale into such of the result's. Products are rounded, and sums that are too large are the
   largest there is. */

enum { HALVES = 16 };
typedef int16_t Halves16 __attribute__((vector_size(2 * HALVES), aligned(2), may_alias));

typedef struct {
    int32_t offset;
    int16_t weight[2]; /* twice the same: a vector of it is one load */
} Entry16;

INLINE Halves16 splat16(int16_t x) { return (Halves16){0} + x; }

INLINE Halves16 times16(Halves16 a, Halves16 b)
{
#ifdef __AVX2__
    return (Halves16)_mm256_mulhrs_epi16((__m256i)a, (__m256i)b);
#else
    UNROLL for (int i = 0; i < HALVES; i++) a[i] = (int16_t)((a[i] * b[i] + (1 << 14)) >> 15);
    return a;
#endif
}

INLINE Halves16 plus16(Halves16 a, Halves16 b)
{
#ifdef __AVX2__
    return (Halves16)_mm256_adds_epi16((__m256i)a, (__m256i)b);
#else
    UNROLL for (int i = 0; i < HALVES; i++) {
        int sum = a[i] + b[i];
        a[i] = (int16_t)(sum > INT16_MAX ? INT16_MAX : sum < INT16_MIN ? INT16_MIN : sum);
    }
    return a;
#endif
}

INLINE Halves16 load16(const int16_t *from) { return *(const Halves16 *)from; }

INLINE Halves16 weight16(const Entry16 *e)
{
#ifdef __AVX2__
    int32_t both;
    __builtin_memcpy(&both, e->weight, sizeof both);
    return (Halves16)_mm256_set1_epi32(both);
#else
    return splat16(e->weight[0]);
#endif
}

enum { B_RATIO = B_END + 1 }; /* what is added, in the result's scale: the weight that it has */

INLINE void planes_tile16(const Step *s, const int16_t *in, const int16_t *added, int16_t *out, int64_t at,
                          const Entry16 *e, const Entry16 *end, int16_t bias, const int vectors)
{
    const int16_t *valid = s->data[4];
    Halves16 acc[ROWS];
    UNROLL for (int v = 0; v < vectors; v++) acc[v] = splat16(bias);
    for (; e < end; e++) {
        const int16_t *p = in + e->offset;
        OPAQUE(p);
        Halves16 w = weight16(e);
        UNROLL for (int v = 0; v < vectors; v++)
            acc[v] = plus16(acc[v], times16(w, load16(p + v * HALVES)));
    }
    if (added) {
        Halves16 ratio = splat16((int16_t)s->size[B_RATIO]);
        UNROLL for (int v = 0; v < vectors; v++)
            acc[v] = plus16(acc[v], times16(ratio, load16(added + v * HALVES)));
    }
    if (s->activation == RELU)
        UNROLL for (int v = 0; v < vectors; v++) acc[v] &= acc[v] > 0;
    if (valid)
        UNROLL for (int v = 0; v < vectors; v++) acc[v] &= load16(valid + at + v * HALVES);
    UNROLL for (int v = 0; v < vectors; v++) *(Halves16 *)(out + v * HALVES) = acc[v];
}

INLINE void zero16(int16_t *out, int64_t count) { __builtin_memset(out, 0, 2 * count); }

/* As zero_between for floats. */
static void zero_between16(const Step *s, int16_t *out, const int32_t *channels)
{
    const int64_t *n = s->size;
    if (!s->data[4]) return;
    zero16(out, n[B_MARGIN]);
    out += n[B_MARGIN];
    for (int64_t c = 0; c < n[B_CHANNELS]; c++)
        zero16(out + channels[c] * n[B_PLANE] + n[B_LENGTH], n[B_PLANE] - n[B_LENGTH]);
    for (int64_t c = n[B_CHANNELS]; c < n[B_CHANNELS] + n[B_UNREAD]; c++)
        zero16(out + channels[c] * n[B_PLANE] + n[B_END], n[B_PLANE] - n[B_END]);
}

/* As conv_planes. */
static void conv_planes16(const Step *s, const float *in_, const float *other_, float *out_, int64_t images)
{
    const Entry16 *entries = s->data[0];
    const int32_t *starts = s->data[1], *channels = s->data[2];
    const int16_t *bias = s->data[3], *in = (const int16_t *)in_, *other = (const int16_t *)other_;
    int16_t *out = (int16_t *)out_;
    const int64_t *n = s->size;
    int64_t all = (n[B_LENGTH] + HALVES - 1) / HALVES, most = n[B_TILE] < ROWS ? n[B_TILE] : ROWS;
    int64_t tiles = (all + most - 1) / most, rows = (all + tiles - 1) / tiles;
    (void)images;
    for (int64_t tile = 0; tile < tiles; tile++) {
        int64_t at = tile * rows * HALVES;
        if (tile && at > n[B_LENGTH] - rows * HALVES) at = n[B_LENGTH] - rows * HALVES;
        for (int64_t c = 0; c < n[B_CHANNELS]; c++) {
            const Entry16 *e = entries + starts[c], *end = entries + starts[c + 1];
            int16_t *to = out + n[B_MARGIN] + channels[c] * n[B_PLANE] + at;
            const int16_t *added = other + n[B_ADDED_MARGIN] + channels[c] * n[B_ADDED_PLANE] + at;
            if (!n[B_ADDED]) added = NULL;
#define PLANES_OF16(R) planes_tile16(s, in + at, added, to, at, e, end, bias[c], R)
            CASES(PLANES_OF16)
        }
    }
    zero_between16(s, out, channels);
}

/* Sixteen numbers from `in` on: each, or every second. */
INLINE Halves16 sixteen(const int16_t *in, const int stride)
{
    if (stride == 1) return load16(in);
#ifdef __AVX2__
    __m256i low = _mm256_set1_epi32(0xffff);
    __m256i one = _mm256_and_si256((__m256i)load16(in), low);
    __m256i two = _mm256_and_si256((__m256i)load16(in + HALVES), low);
    return (Halves16)_mm256_permute4x64_epi64(_mm256_packus_epi32(one, two), 0xd8);
#else
    Halves16 found;
    UNROLL for (int i = 0; i < HALVES; i++) found[i] = in[2 * i];
    return found;
#endif
}

/* A plane's rows in whole vectors, zeros in what is too much: the next row writes over it. */
INLINE void spread_rows16(const Step *s, const Cut *c, const int16_t *in, int16_t *out, const int stride,
                          const int vectors)
{
    int64_t pitch = s->size[S_PITCH], down = s->size[S_DOWN];
    Halves16 mask;
    UNROLL for (int i = 0; i < HALVES; i++) mask[i] = -(HALVES * (vectors - 1) + i < c->count);
    for (int64_t row = 0; row < c->rows; row++, in += down, out += pitch) {
        UNROLL for (int v = 0; v + 1 < vectors; v++)
            *(Halves16 *)(out + HALVES * v) = sixteen(in + stride * HALVES * v, stride);
        int last = HALVES * (vectors - 1);
        *(Halves16 *)(out + last) = sixteen(in + stride * last, stride) & mask;
    }
}

INLINE void spread_plane16(const Step *s, const Cut *c, const int16_t *in, int16_t *out)
{
    const int64_t *n = s->size;
    if (c->count <= HALVES && n[S_STRIDE] == 1)
        spread_rows16(s, c, in, out, 1, 1);
    else if (c->count <= 2 * HALVES && n[S_STRIDE] == 1)
        spread_rows16(s, c, in, out, 1, 2);
    else if (c->count <= HALVES && n[S_STRIDE] == 2)
        spread_rows16(s, c, in, out, 2, 1);
    else
        for (int64_t row = 0; row < c->rows; row++)
            for (int64_t i = 0; i < c->count; i++)
                out[row * n[S_PITCH] + i] = in[row * n[S_DOWN] + i * n[S_STRIDE]];
}

/* As spread. */
static void spread16(const Step *s, const float *in, const float *other, float *out_, int64_t images)
{
    const int64_t *n = s->size;
    const Cut *c = s->data[0], *last = c + n[S_PLANES];
    int16_t *out = (int16_t *)out_;
    (void)other, (void)images;
    if (!n[S_ZEROS]) zero16(out, n[S_MARGIN]);
    for (; c < last; c++) {
        const int16_t *from = (const int16_t *)in + c->from;
        int16_t *to = out + n[S_MARGIN] + c->plane * n[S_PLANE];
        if (!n[S_ZEROS]) zero16(to, n[S_PLANE]);
        spread_plane16(s, c, from, to + c->first);
    }
}

/* What is no number is the largest one. */
INLINE int16_t whole(float x)
{
    return (int16_t)__builtin_rintf(!(x < INT16_MAX) ? INT16_MAX : x < INT16_MIN ? INT16_MIN : x);
}

/* size: how many numbers; a: by what they are multiplied. */
static void to_16(const Step *s, const float *in, const float *other, float *out_, int64_t images)
{
    int16_t *out = (int16_t *)out_;
    int64_t i = 0;
    (void)other, (void)images;
#ifdef __AVX2__
    for (__m256 most = _mm256_set1_ps(INT16_MAX); i + HALVES <= s->size[0]; i += HALVES) {
        __m256i both[2];
        UNROLL for (int k = 0; k < 2; k++) {
            __m256 x = (__m256)(*(const Vec8 *)(in + i + 8 * k) * splat8(s->a));
            /* What is too low is the least, and what is no number the largest. */
            both[k] = _mm256_cvtps_epi32(_mm256_min_ps(x, most));
        }
        __m256i packed = _mm256_packs_epi32(both[0], both[1]);
        *(Halves16 *)(out + i) = (Halves16)_mm256_permute4x64_epi64(packed, 0xd8);
    }
#endif
    for (; i < s->size[0]; i++) out[i] = whole(in[i] * s->a);
}

static void from_16(const Step *s, const float *in_, const float *other, float *out, int64_t images)
{
    const int16_t *in = (const int16_t *)in_;
    (void)other, (void)images;
    for (int64_t i = 0; i < s->size[0]; i++) out[i] = in[i] * s->a;
}
