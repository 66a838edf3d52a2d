/* Convolutions by whole rows, for vectors of eight floats or sixteen: sparse and dense ones.

   A vector of sixteen is a cache line: loaded from anywhere but a line's beginning it costs two loads.
   So every load here is of a whole vector, and the sums move instead. Those of the kernel's rightmost
   column are made first and shifted left by one place, the next column's are added to them, and so on
   up to the column that needs no shift; the same from the left. What a shift lets in are zeros, which is
   what padding consists of: an image as wide as its line needs no halo.

   Entries in lines one below the other, which a dense kernel has throughout, share their loads.

   Packed as for conv.h, but in strips of one, two or four vectors, `step` of which are new. The input
   channels come in parts whose lines stay in the first-level cache; the sums of the parts so far
   are in `other`. If there is one part, that may be what is added to the result. */

enum {
    R_CHANNELS, R_HEIGHT, R_STRIPS, R_LINE, R_STRIP_PITCH, R_OUT_W, R_WIDTH, R_PLANE, R_STEP,
    R_LEFT, R_RIGHT, /* shifts to the right and to the left */
    R_FIRST,         /* the first valid output of a strip that has one before it */
    R_POOL, R_PARTS,
    R_ABOVE, R_BELOW, /* rows of zeros that the next layer reads around the result: its padding */
    R_ADDED, R_ADDED_BEGIN, R_ADDED_PLANE, /* whether `other` is added to the result, in lines as long */
    R_SHARED, /* whether any entries share loads */
};

/* Every lane takes the value of the one after it, or before it, in its row. */
INLINE void shift_left(Vec *acc, const int rows, const int wide)
{
    UNROLL for (int i = 0; i < rows * wide; i++) {
        Vec next = i % wide + 1 < wide ? acc[i + 1] : splat(0);
#if WIDTH == 16
        acc[i] = (Vec)_mm512_alignr_epi32((__m512i)next, (__m512i)acc[i], 1);
#elif defined __AVX512VL__
        acc[i] = (Vec)_mm256_alignr_epi32((__m256i)next, (__m256i)acc[i], 1);
#else
        acc[i] = __builtin_shufflevector(acc[i], next, 1, 2, 3, 4, 5, 6, 7, 8);
#endif
    }
}

INLINE void shift_right(Vec *acc, const int rows, const int wide)
{
    UNROLL for (int i = rows * wide - 1; i >= 0; i--) {
        Vec before = i % wide ? acc[i - 1] : splat(0);
#if WIDTH == 16
        acc[i] = (Vec)_mm512_alignr_epi32((__m512i)acc[i], (__m512i)before, 15);
#elif defined __AVX512VL__
        acc[i] = (Vec)_mm256_alignr_epi32((__m256i)acc[i], (__m256i)before, 7);
#else
        acc[i] = __builtin_shufflevector(before, acc[i], 7, 8, 9, 10, 11, 12, 13, 14);
#endif
    }
}

INLINE Vec pooled(Vec v) /* as pooled8 */
{
#if WIDTH == 16
    const __m512i even = {0x200000000, 0x600000004, 0xa00000008, 0xe0000000c};
    v = larger(v, (Vec)_mm512_alignr_epi32((__m512i)v, (__m512i)v, 1));
    return _mm512_permutexvar_ps(even, v);
#else
    return pooled8(v);
#endif
}

/* The lanes from first to before last, and if it is whole, zeros in the others. */
INLINE void put_lanes(float *out, Vec v, int64_t first, int64_t last, int whole)
{
#if WIDTH == 16
    __mmask16 valid = lanes(first, last);
    if (whole)
        _mm512_storeu_ps(out, _mm512_maskz_mov_ps(valid, v));
    else
        _mm512_mask_storeu_ps(out, valid, v);
#else
    const Vec8i lane = {0, 1, 2, 3, 4, 5, 6, 7};
    if (whole)
        *(Vec *)out = keep(v, first, last);
    else
        _mm256_maskstore_ps(out, (__m256i)((lane >= (int32_t)first) & (lane < (int32_t)last)), v);
#endif
}

INLINE void put_rows(const Step *s, float *out, Vec *acc, int64_t strip, int64_t u, const int rows,
                     const int wide)
{
    const int64_t *n = s->size;
    int64_t column = strip * n[R_STEP], first = strip ? n[R_FIRST] : 0;
    int64_t last = n[R_OUT_W] - column, most = n[R_LINE] - n[R_RIGHT];
    if (strip + 1 < n[R_STRIPS] && last > most) last = most;
    int whole = n[R_WIDTH] == n[R_LINE] && n[R_STRIPS] == 1;
    if (whole && n[R_OUT_W] == n[R_LINE] && !n[R_POOL]) {
        UNROLL for (int i = 0; i < rows * wide; i++) *(Vec *)(out + u * n[R_LINE] + i * WIDTH) = acc[i];
        return;
    }
    UNROLL for (int v = 0; v < wide; v++) {
        int64_t low = first - v * WIDTH, high = last - v * WIDTH;
        if (n[R_POOL]) {
            float *to = out + u / 2 * n[R_WIDTH] + (column + v * WIDTH) / 2;
            UNROLL for (int r = 0; r + 1 < rows; r += 2) {
                Vec both = larger(acc[r * wide + v], acc[(r + 1) * wide + v]);
                put_lanes(to + r / 2 * n[R_WIDTH], pooled(both), low / 2, high < 0 ? 0 : high / 2, 0);
            }
        } else {
            float *to = out + u * n[R_WIDTH] + column + v * WIDTH;
            UNROLL for (int r = 0; r < rows; r++)
                put_lanes(to + r * n[R_WIDTH], acc[r * wide + v], low, high, whole);
        }
    }
}

/* Where the network's results go may be far: it comes nearer while a tile of them is made. */
INLINE void fetch_rows(const Step *s, const float *out, int64_t strip, int64_t u, const int rows,
                       const int wide)
{
    const int64_t *n = s->size;
    const float *to = out + u * n[R_WIDTH] + strip * n[R_STEP];
    if (s->out.space != OUTPUT || n[R_POOL]) return;
    UNROLL for (int r = 0; r < rows; r++)
        UNROLL for (int v = 0; v < wide; v += LANES / WIDTH)
            __builtin_prefetch(to + r * n[R_WIDTH] + v * WIDTH, 1);
}

INLINE void rows_tile(const Step *s, const float *in, float *out, const int32_t *starts, float bias,
                      float *so_far, const float *added, int64_t part, int64_t strip, int64_t u,
                      const int rows, const int wide)
{
    const Entry *e = s->data[0];
    const int sums = rows * wide;
    int64_t left = s->size[R_LEFT], right = s->size[R_RIGHT], shared = s->size[R_SHARED];
    Vec acc[SUMS], parked[SUMS];
    if (part + 1 == s->size[R_PARTS]) fetch_rows(s, out, strip, u, rows, wide);
    UNROLL for (int i = 0; i < sums; i++) acc[i] = splat(0);
    if (starts[0] == starts[right]) /* nothing to shift */
        starts += right;
    else
        for (; right > 0; right--, starts++) {
            add_entries(acc, in, e + starts[0], e + starts[1], shared, 1, 0, sums, wide, WIDTH);
            shift_left(acc, rows, wide);
        }
    UNROLL for (int i = 0; i < sums; i++) acc[i] += part ? ((const Vec *)so_far)[i] : splat(bias);
    if (starts[0] == starts[left])
        starts += left;
    else {
        UNROLL for (int i = 0; i < sums; i++) parked[i] = acc[i], acc[i] = splat(0);
        for (; left > 0; left--, starts++) {
            add_entries(acc, in, e + starts[0], e + starts[1], shared, 1, 0, sums, wide, WIDTH);
            shift_right(acc, rows, wide);
        }
        UNROLL for (int i = 0; i < sums; i++) acc[i] += parked[i];
    }
    add_entries(acc, in, e + starts[0], e + starts[1], shared, 1, 0, sums, wide, WIDTH);
    if (part + 1 < s->size[R_PARTS]) {
        UNROLL for (int i = 0; i < sums; i++) ((Vec *)so_far)[i] = acc[i];
        return;
    }
    if (added)
        UNROLL for (int i = 0; i < sums; i++) acc[i] += *(const Vec *)(added + i * WIDTH);
    if (s->activation == RELU)
        UNROLL for (int i = 0; i < sums; i++) acc[i] = larger(splat(0), acc[i]);
    put_rows(s, out, acc, strip, u, rows, wide);
}

/* The height of tiles that leaves the fewest rows to compute twice, each with its entries to load. */
static int64_t tile_height(int64_t height, int64_t wide, int64_t even)
{
    static const int64_t heights[] = {16, 14, 12, 8, 6, 4, 3, 2, 1};
    int64_t best = 0, least = INT64_MAX;
    for (int i = 0; i < 9; i++) {
        int64_t h = heights[i], cost = (height + h - 1) / h * (h * wide + 2);
        if (h * wide <= SUMS && h <= height && !(even && h % 2) && cost < least)
            best = h, least = cost;
    }
    return best;
}

/* One part of the input channels, for all output channels of a tile. */
static void rows_part(const Step *s, const float *in, float *other, float *out, int64_t part,
                      int64_t strip, int64_t u, int64_t height)
{
    const int64_t *n = s->size;
    const int32_t *channels = s->data[2];
    int64_t wide = n[R_LINE] / WIDTH, columns = n[R_LEFT] + 1 + n[R_RIGHT];
    const int32_t *starts = (const int32_t *)s->data[1] + part * n[R_CHANNELS] * columns;
    const float *bias = s->data[3];
    for (int64_t c = 0; c < n[R_CHANNELS]; c++, starts += columns) {
        float *so_far = other + c * SUMS * WIDTH;
        float *to = out + channels[c] * n[R_PLANE];
        const float *added = NULL;
        if (n[R_ADDED]) added = other + n[R_ADDED_BEGIN] + channels[c] * n[R_ADDED_PLANE] + u * n[R_LINE];
#define TILE(R, V) \
    case 8 * R + V: \
        rows_tile(s, in, to, starts, bias[c], so_far, added, part, strip, u, R, V); \
        break;
        switch (8 * height + wide) {
            TILE(12, 1) TILE(8, 1) TILE(6, 1) TILE(4, 1) TILE(3, 1) TILE(2, 1) TILE(1, 1)
            TILE(6, 2) TILE(4, 2) TILE(3, 2) TILE(2, 2) TILE(1, 2) TILE(3, 4) TILE(2, 4) TILE(1, 4)
#if SUMS == 16
            TILE(16, 1) TILE(14, 1) TILE(8, 2) TILE(4, 4)
#endif
        }
    }
}

static void clear_around(const Step *s, float *out)
{
    const int64_t *n = s->size;
    const int32_t *channels = s->data[2];
    int64_t above = n[R_ABOVE] * n[R_LINE], image = n[R_HEIGHT] * n[R_LINE], below = n[R_BELOW] * n[R_LINE];
    for (int64_t c = 0; c < n[R_CHANNELS]; c++) {
        float *plane = out + channels[c] * n[R_PLANE];
        for (int64_t i = -above; i < 0; i += WIDTH) *(Vec *)(plane + i) = splat(0);
        for (int64_t i = image; i < image + below; i += WIDTH) *(Vec *)(plane + i) = splat(0);
    }
}

static void conv_rows(const Step *s, const float *in, const float *other, float *out, int64_t images)
{
    const int64_t *n = s->size;
    int64_t height = tile_height(n[R_HEIGHT], n[R_LINE] / WIDTH, n[R_POOL]);
    (void)images;
    out += n[R_ABOVE] * n[R_LINE];
    for (int64_t strip = 0; strip < n[R_STRIPS]; strip++)
        for (int64_t top = 0; top < n[R_HEIGHT]; top += height) {
            int64_t u = top + height > n[R_HEIGHT] ? n[R_HEIGHT] - height : top;
            const float *at = in + strip * n[R_STRIP_PITCH] + u * n[R_LINE];
            for (int64_t part = 0; part < n[R_PARTS]; part++)
                rows_part(s, at, (float *)other, out, part, strip, u, height);
        }
    if (n[R_ABOVE] || n[R_BELOW]) clear_around(s, out);
}
