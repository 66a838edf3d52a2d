/* The range coder and the mixer of docs/format.md, as in file/ranges.py and file/mixing.py: the same
   integers, so the same bits. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ENCODING, DECODING };
enum { FINE, NO_MEMORY, ENDS_EARLY, NAME_TOO_LONG, BEYOND_TABLE };

enum { ONE = 1 << 16, LEAST = 32, HALF = 1 << 15, REACH = 2047, TAIL = 4, MAX_TABLES = 7 };
static const int64_t FULL = 0xFFFFFFFF;
enum { BASE_LIMIT = 1023, CONTEXT_LIMIT = 255, WEIGHT_LIMIT = 1 << 20, RATE_SHIFT = 14 };
enum { PRIOR = 16, WEIGHT = 22000 };

typedef struct {
    int64_t status; /* up to `out_size` also for Python to read: library.py */
    int64_t at, range;
    uint8_t *out;
    int64_t out_size, out_room;
    uint64_t low, code;
    const uint8_t *data;
    int64_t size;
    int direction;
    uint16_t squash[REACH + 1];
    int16_t stretch[ONE / 16];
    uint64_t inverse[BASE_LIMIT + 1]; /* of each count, in units of 2^-40, rounded up */
} Coder;

/* n / d, exactly: n is below 2^27 and d at most BASE_LIMIT, so the error stays below 1 / d. */
static inline uint32_t divide(const Coder *c, uint32_t n, uint32_t d)
{
    return (uint32_t)(n * c->inverse[d] >> 40);
}

/* Nothing is coded any more after a failure: every loop asks for it. */
static inline int failed(const Coder *c) { return __builtin_expect(c->status != FINE, 0); }

static void next_byte(Coder *c)
{
    if (c->at >= c->size + TAIL) {
        c->status = ENDS_EARLY;
        return;
    }
    c->code = (c->code << 8 | (c->at < c->size ? c->data[c->at] : 0)) & 0xFFFFFFFF;
    c->at++;
}

static void shift_out(Coder *c)
{
    if (c->out_size == c->out_room) {
        int64_t room = 2 * c->out_room + 1024;
        uint8_t *out = realloc(c->out, (size_t)room);
        if (!out) {
            c->status = NO_MEMORY;
            return;
        }
        c->out = out, c->out_room = room;
    }
    if (c->low > 0xFFFFFFFF) { /* carry */
        int64_t at = c->out_size - 1;
        while (at > 0 && c->out[at] == 0xFF) c->out[at--] = 0;
        c->out[at]++;
    }
    c->out[c->out_size++] = c->low >> 24 & 0xFF;
    c->low = c->low << 8 & 0xFFFFFFFF;
}

static void refill(Coder *c)
{
    while (c->range < 1 << 24 && !failed(c)) {
        if (c->direction == DECODING)
            next_byte(c);
        else
            shift_out(c);
        c->range <<= 8;
    }
}

/* The bit: as given, or in decoding as the file says. What only one direction needs is kept up in
   both: that is cheaper than to ask. */
static inline int code_bit(Coder *c, int64_t p, int bit)
{
    int64_t bound = (c->range >> 16) * p;
    if (c->direction == DECODING) bit = (int64_t)c->code < bound;
    if (bit)
        c->range = bound;
    else
        c->range -= bound, c->code -= (uint64_t)bound, c->low += (uint64_t)bound;
    if (__builtin_expect(c->range < 1 << 24, 0)) refill(c);
    return bit;
}

typedef uint32_t Cell; /* the bits seen, in the upper half, and the ones among them */
enum { SEEN = 16, ONES = (1 << SEEN) - 1, NEW_BASE = 2 << SEEN | 1 };

typedef struct {
    Coder *coder;
    Cell *bases, *tables[MAX_TABLES]; /* one piece of memory */
    int64_t sizes[MAX_TABLES];
    int64_t weights[MAX_TABLES];
    int count;
} Mixer;

static void close_mixer(Mixer *m) { free(m->bases); }

static void forget(Mixer *m, int table)
{
    memset(m->tables[table], 0, (size_t)m->sizes[table] * sizeof(Cell));
}

static void open_mixer(Mixer *m, Coder *coder, int64_t bases, int count, const int64_t *sizes,
                       int weight)
{
    int64_t cells = bases;
    *m = (Mixer){.coder = coder, .count = count};
    for (int i = 0; i < count; i++) cells += sizes[i];
    m->bases = calloc((size_t)cells, sizeof(Cell));
    if (!m->bases) {
        coder->status = NO_MEMORY;
        return;
    }
    for (int64_t i = 0; i < bases; i++) m->bases[i] = NEW_BASE;
    Cell *next = m->bases + bases;
    for (int i = 0; i < count; i++) {
        m->tables[i] = next, m->sizes[i] = sizes[i], m->weights[i] = weight;
        next += sizes[i];
    }
}

/* What hardly ever happens: a jump that is never taken costs less than a choice. */
#define RARE(condition) __builtin_expect_with_probability(condition, 0, 1.0)

static inline int64_t clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

static inline void count_bit(Cell *cell, int bit, uint32_t limit)
{
    *cell += (1 << SEEN) + (uint32_t)bit;
    if (RARE(*cell >> SEEN > limit)) *cell = *cell >> 1 & ~(1u << (SEEN - 1));
}

static inline int64_t squash(const Coder *c, int64_t x)
{
    return x >= 0 ? c->squash[x < REACH ? x : REACH] : ONE - c->squash[-x < REACH ? -x : REACH];
}

/* a * b / 2^60, rounded down, of numbers of up to 2^60 */
static uint64_t product(uint64_t a, uint64_t b)
{
    const uint64_t low = (1u << 30) - 1;
    uint64_t middle = (a >> 30) * (b & low) + (a & low) * (b >> 30) + ((a & low) * (b & low) >> 30);
    return (a >> 30) * (b >> 30) + (middle >> 30);
}

/* squash: 2^16 / (1 + e^(-x/256)), rounded down; stretch, its inverse by the upper 12 of 16 bits: the
   first x with squash(x) >= p + 8. */
static void fill_tables(Coder *c)
{
    const uint64_t step = 1148426689630428643u; /* e^(-1/256) * 2^60, rounded down */
    uint64_t power = 1ull << 60;
    for (int x = 0; x <= REACH; x++, power = product(power, step)) {
        uint64_t divisor = (1ull << 60) + power, rest = 1ull << 60, quotient = 0;
        for (int bit = 0; bit < 16; bit++) {
            rest *= 2, quotient *= 2;
            if (rest >= divisor) rest -= divisor, quotient++;
        }
        c->squash[x] = (uint16_t)quotient;
    }
    int64_t x = -REACH;
    for (int64_t p = 8; p < ONE; p += 16) {
        while (x < REACH && squash(c, x) < p) x++;
        c->stretch[p >> 4] = (int16_t)x;
    }
}

/* `count` tables take part, 0 or all; it and `prior` are constants, for the compiler. A cell that
   has seen nothing divides out to p0, and so pulls by 0. */
static inline __attribute__((always_inline)) int mix(Mixer *m, int bit, int64_t base, int count,
                                                     const uint32_t *cells, uint32_t prior)
{
    Coder *c = m->coder;
    Cell *own = &m->bases[base], *used[MAX_TABLES];
    uint32_t p0 = divide(c, *own << SEEN, *own >> SEEN);
    p0 = p0 < LEAST ? LEAST : p0 > ONE - LEAST ? ONE - LEAST : p0;
    int64_t p = p0, start = c->stretch[p0 >> 4], pulls[MAX_TABLES];
    if (count) {
        int64_t total = start * ONE;
#pragma GCC unroll 8
        for (int i = 0; i < count; i++) {
            used[i] = &m->tables[i][cells[i]];
            uint32_t own_p =
                divide(c, (*used[i] << SEEN) + prior * p0, (*used[i] >> SEEN) + prior);
            pulls[i] = c->stretch[own_p >> 4] - start;
            total += m->weights[i] * pulls[i];
        }
        p = clamp(squash(c, total >> 16), LEAST, ONE - LEAST);
    }
    bit = code_bit(c, p, bit);
    int64_t error = (bit ? ONE : 0) - p;
#pragma GCC unroll 8
    for (int i = 0; i < count; i++) {
        int64_t weight = m->weights[i] + (error * pulls[i] >> RATE_SHIFT);
        if (RARE(weight < -WEIGHT_LIMIT || weight > WEIGHT_LIMIT))
            weight = clamp(weight, -WEIGHT_LIMIT, WEIGHT_LIMIT);
        m->weights[i] = weight;
        count_bit(used[i], bit, CONTEXT_LIMIT);
    }
    count_bit(own, bit, BASE_LIMIT);
    return bit;
}
