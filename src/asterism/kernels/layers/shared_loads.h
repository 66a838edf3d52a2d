/* Sums to which an entry adds its weight times a vector of inputs each, `pitch` apart.

   What bounds a sparse convolution are these loads: the machine multiplies twice as fast. Two or three
   entries whose inputs are the same but for one or two sums, as neighbours in a kernel have them, share
   theirs. They follow each other, entries alone first; the first one's offset says, in its low bits,
   which of the two after its place follow. */

enum { ALONE, NEXT, AFTER_NEXT, BOTH };

/* `apart`: sums from one to that which reads the next place's input. */
INLINE void add_shared(Vec *acc, const float *p, const Vec *weights, const int kind, const int sums,
                       const int apart, const int pitch)
{
    const int more = kind == ALONE ? 0 : kind == NEXT ? apart : 2 * apart;
    Vec next = weights[kind != ALONE], last = weights[kind == BOTH ? 2 : kind != ALONE];
    UNROLL for (int i = 0; i < sums + more; i++) {
        Vec x = *(const Vec *)(p + i * pitch);
        if (kind != ALONE) IN_REGISTER(x);
        if (i < sums) acc[i] += weights[0] * x;
        if (kind & NEXT && i >= apart && i - apart < sums) acc[i - apart] += next * x;
        if (kind & AFTER_NEXT && i >= 2 * apart) acc[i - 2 * apart] += last * x;
    }
}

/* Those of one kind, from e on; where the next kind begins. The sums come in `lines` groups, whose
   inputs are `below` apart. */
INLINE const Entry *add_kind(Vec *acc, const float *in, const Entry *e, const Entry *end,
                             const int kind, const int lines, int64_t below, const int sums,
                             const int apart, const int pitch)
{
    const int count = kind == ALONE ? 1 : kind == BOTH ? 3 : 2;
    for (; e < end; e += count) {
        int64_t first = entry(e);
        const float *p = in + (int32_t)first - kind;
        OPAQUE(p); /* or gcc computes an address for each sum */
        if ((first & BOTH) != kind) break;
        Vec weights[3];
        weights[0] = weight(e, first);
        UNROLL for (int i = 1; i < count; i++) weights[i] = weight(e + i, entry(e + i));
        add_shared(acc, p, weights, kind, sums, apart, pitch);
        if (lines > 1) {
            const float *q = p + below;
            OPAQUE(q);
            add_shared(acc + sums, q, weights, kind, sums, apart, pitch);
        }
    }
    return e;
}

/* `shared`: whether there are such. Where there are none, three loops less have an end to foresee. */
INLINE void add_entries(Vec *acc, const float *in, const Entry *e, const Entry *end, int64_t shared,
                        const int lines, int64_t below, const int sums, const int apart, const int pitch)
{
    e = add_kind(acc, in, e, end, ALONE, lines, below, sums, apart, pitch);
    if (!shared) return;
    e = add_kind(acc, in, e, end, NEXT, lines, below, sums, apart, pitch);
    e = add_kind(acc, in, e, end, AFTER_NEXT, lines, below, sums, apart, pitch);
    add_kind(acc, in, e, end, BOTH, lines, below, sums, apart, pitch);
}
