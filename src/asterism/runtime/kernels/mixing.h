/* The range coder and the mixer of docs/format.md, as in file/ranges.py and file/mixing.py: the same
   integers, so the same bits. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ENCODING, DECODING, LISTENING }; /* listening: the models learn, nothing is written */
enum { FINE, NO_MEMORY, ENDS_EARLY, NAME_TOO_LONG, BEYOND_TABLE };

enum { ONE = 1 << 16, LEAST = 32, HALF = 1 << 15, REACH = 2047, TAIL = 4, MAX_TABLES = 7 };
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
    const uint16_t *squash; /* REACH + 1 entries */
    const int16_t *stretch; /* ONE / 16 entries */
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

/* The bit: as given, or in decoding as the file says. */
static inline int code_bit(Coder *c, int64_t p, int bit)
{
    int64_t bound = (c->range >> 16) * p;
    if (c->direction == LISTENING) return bit;
    if (c->direction == DECODING) {
        bit = (int64_t)c->code < bound;
        if (!bit) c->code -= (uint64_t)bound;
    } else if (!bit)
        c->low += (uint64_t)bound;
    c->range = bit ? bound : c->range - bound;
    while (c->range < 1 << 24 && !failed(c)) {
        if (c->direction == DECODING)
            next_byte(c);
        else
            shift_out(c);
        c->range <<= 8;
    }
    return bit;
}

typedef struct {
    uint16_t ones, seen;
} Cell;

typedef struct {
    Coder *coder;
    Cell *bases, *tables[MAX_TABLES]; /* one piece of memory */
    int64_t sizes[MAX_TABLES];
    int64_t weights[MAX_TABLES];
    int count, prior;
} Mixer;

static void close_mixer(Mixer *m) { free(m->bases); }

static void forget(Mixer *m, int table)
{
    memset(m->tables[table], 0, (size_t)m->sizes[table] * sizeof(Cell));
}

static void open_mixer(Mixer *m, Coder *coder, int64_t bases, int count, const int64_t *sizes,
                       int prior, int weight)
{
    int64_t cells = bases;
    *m = (Mixer){.coder = coder, .count = count, .prior = prior};
    for (int i = 0; i < count; i++) cells += sizes[i];
    m->bases = calloc((size_t)cells, sizeof(Cell));
    if (!m->bases) {
        coder->status = NO_MEMORY;
        return;
    }
    for (int64_t i = 0; i < bases; i++) m->bases[i] = (Cell){1, 2};
    Cell *next = m->bases + bases;
    for (int i = 0; i < count; i++) {
        m->tables[i] = next, m->sizes[i] = sizes[i], m->weights[i] = weight;
        next += sizes[i];
    }
}

static inline int64_t clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

static inline void count_bit(Cell *cell, int bit, int limit)
{
    cell->ones += bit;
    if (++cell->seen > limit) cell->ones >>= 1, cell->seen >>= 1;
}

static inline int64_t squash(const Coder *c, int64_t x)
{
    return x >= 0 ? c->squash[x < REACH ? x : REACH] : ONE - c->squash[-x < REACH ? -x : REACH];
}

/* `count` tables take part, 0 or all: a constant where the compiler is to unroll them. */
static inline __attribute__((always_inline)) int mix(Mixer *m, int bit, int64_t base, int count,
                                                     const uint32_t *cells)
{
    Cell *own = &m->bases[base];
    int64_t p0 = clamp(divide(m->coder, (uint32_t)own->ones * ONE, own->seen), LEAST, ONE - LEAST);
    int64_t p = p0;
    int32_t start = m->coder->stretch[p0 >> 4], pulls[MAX_TABLES];
    if (count) {
        int64_t total = (int64_t)start * ONE;
        for (int i = 0; i < count; i++) {
            Cell cell = m->tables[i][cells[i]];
            uint32_t leaning = cell.ones * (uint32_t)ONE + (uint32_t)(m->prior * p0);
            uint32_t own_p = divide(m->coder, leaning, cell.seen + (uint32_t)m->prior);
            pulls[i] = cell.seen ? m->coder->stretch[own_p >> 4] - start : 0;
            total += m->weights[i] * pulls[i];
        }
        p = clamp(squash(m->coder, total >> 16), LEAST, ONE - LEAST);
    }
    bit = code_bit(m->coder, p, bit);
    int64_t error = (bit ? ONE : 0) - p;
    for (int i = 0; i < count; i++) {
        m->weights[i] = clamp(m->weights[i] + (error * pulls[i] >> RATE_SHIFT), -WEIGHT_LIMIT,
                              WEIGHT_LIMIT);
        count_bit(&m->tables[i][cells[i]], bit, CONTEXT_LIMIT);
    }
    count_bit(own, bit, BASE_LIMIT);
    return bit;
}
