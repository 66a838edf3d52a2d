/* Sparse convolutions over a block of images: a vector holds one place of WIDTH images.

   No load is unaligned and nothing needs packing; but a tile's inputs take WIDTH times the room, so
   this suits few channels. Tiles of one or two rows by up to eight columns, as a pooled one needs;
   entries side by side share their loads. */

enum { L_CHANNELS, L_HEIGHT, L_WIDTH, L_PITCH_X, L_PITCH_Y, L_OUT_W, L_PLANE, L_POOL };

INLINE Vec larger(Vec a, Vec b)
{
#if WIDTH == 16
    return _mm512_max_ps(a, b);
#elif WIDTH == 8
    return _mm256_max_ps(a, b);
#else
    VecI more = a > b;
    return (Vec)((more & (VecI)a) | (~more & (VecI)b));
#endif
}

INLINE void put_column(const Step *s, float *out, Vec v)
{
    *(Vec *)out = s->activation == RELU ? larger(splat(0), v) : v;
}

INLINE void columns_tile(const Step *s, const float *in, float *out, const Entry *e,
                         const Entry *end, float bias, const int pitch, const int rows,
                         const int wide)
{
    Vec acc[2 * 8];
    int64_t below = s->size[L_PITCH_Y], width = s->size[L_OUT_W];
    UNROLL for (int i = 0; i < rows * wide; i++) acc[i] = splat(bias);
    add_entries(acc, in, e, end, 1, rows, below, wide, 1, pitch);
    if (s->size[L_POOL] && rows > 1)
        UNROLL for (int x = 0; x + 1 < wide; x += 2) {
            Vec left = larger(acc[x], acc[wide + x]);
            put_column(s, out + x / 2 * BLOCK, larger(left, larger(acc[x + 1], acc[wide + x + 1])));
        }
    else
        UNROLL for (int i = 0; i < rows * wide; i++)
            put_column(s, out + (i / wide * width + i % wide) * BLOCK, acc[i]);
}

/* All channels of a tile at row u and column x. */
static void columns_at(const Step *s, const float *in, float *out, int64_t u, int64_t x, int64_t rows,
                       int64_t wide)
{
    const int32_t *starts = s->data[1], *channels = s->data[2];
    const float *bias = s->data[3];
    const int64_t *n = s->size;
    int64_t shrink = n[L_POOL] ? 2 : 1, near = n[L_PITCH_X] == BLOCK;
    in += u * n[L_PITCH_Y] + x * n[L_PITCH_X];
    out += (u / shrink * n[L_OUT_W] + x / shrink) * BLOCK;
    for (int64_t c = 0; c < n[L_CHANNELS]; c++) {
        const Entry *e = s->data[0], *end = e + starts[c + 1];
        float *to = out + channels[c] * n[L_PLANE] * BLOCK;
        e += starts[c];
#define TILE_OF(R, W) \
    case 32 + 16 * (R - 1) + W: columns_tile(s, in, to, e, end, bias[c], BLOCK, R, W); break; \
    case 16 * (R - 1) + W: columns_tile(s, in, to, e, end, bias[c], 2 * BLOCK, R, W); break;
        switch (32 * near + 16 * (rows - 1) + wide) {
            TILE_OF(1, 1) TILE_OF(1, 2) TILE_OF(1, 4) TILE_OF(2, 1) TILE_OF(2, 2) TILE_OF(2, 4)
#if WIDTH == 16
            TILE_OF(1, 8) TILE_OF(2, 8)
#endif
        }
    }
}

/* Tiles at an edge reach back over the ones before them, and compute the same again. */
static void conv_columns(const Step *s, const float *in, const float *other, float *out,
                         int64_t images)
{
    const int64_t *n = s->size;
    int64_t rows = n[L_HEIGHT] > 1 ? 2 : 1, wide = WIDTH == 16 ? 8 : 4;
    while (wide > n[L_WIDTH]) wide /= 2;
    (void)other;
    for (int64_t image = 0; image < images; image += WIDTH)
        for (int64_t top = 0; top < n[L_HEIGHT]; top += rows)
            for (int64_t left = 0; left < n[L_WIDTH]; left += wide) {
                int64_t u = top + rows > n[L_HEIGHT] ? n[L_HEIGHT] - rows : top;
                int64_t x = left + wide > n[L_WIDTH] ? n[L_WIDTH] - wide : left;
                columns_at(s, in + image, out + image, u, x, rows, wide);
            }
}
