/* The small mode's flags, numbers, texts, positions and indices, as in file/reference.py: one
   description for both directions. What is read may be hostile: sizes come from Python, which has
   checked them against the file's allowance, and no cell is looked up beyond its table. */
#include "mixing.h"

enum { NUMBER_BITS = 64, LENGTHS = NUMBER_BITS + 1, HASHES = 1 << 16, LEVELS = 16 };
enum { MAX_CELLS = 1 << 16, LAST = MAX_CELLS - 1 };
enum { CLASSES = 5, NODES = 8, MAX_CHANNELS = 1 << 12 };

typedef struct {
    Coder coder; /* first: Python reads its first fields */
    Mixer flags, lengths, seconds, text;
    uint32_t before;
    uint8_t last[]; /* the length of the last number in each slot */
} Stream;

typedef struct {
    int64_t rows, channels, places, width;
} Grid;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static int code_byte(Stream *s, int byte)
{
    const uint32_t contexts[] = {s->before & 0xFF, s->before & 0xFFFF, s->before};
    uint32_t node = 1, cells[3];
    for (int place = 7; place >= 0; place--) {
        for (int i = 0; i < 3; i++)
            cells[i] = (contexts[i] * 0x9E3779B1u ^ node * 0x85EBCA6Bu) >> 16;
        node = node << 1 | (uint32_t)mix(&s->text, byte >> place & 1, node, 3, cells, 1);
    }
    s->before = (s->before << 8 | (node & 0xFF)) & 0xFFFFFF;
    return node & 0xFF;
}

void asterism_stream_free(Stream *s)
{
    close_mixer(&s->flags), close_mixer(&s->lengths), close_mixer(&s->seconds);
    close_mixer(&s->text);
    free(s->coder.out);
    free(s);
}

/* The models learn from what both sides know: it is written, and then taken back. */
static void learn(Stream *s, const uint8_t *primer, int64_t primed)
{
    for (int64_t i = 0; i < primed; i++) code_byte(s, primer[i]);
    s->before = 0;
    s->coder.range = FULL, s->coder.low = s->coder.code = 0, s->coder.out_size = 0;
}

/* Reads `data`, which must outlive it, or writes where `data` is NULL. NULL: no memory. */
Stream *asterism_stream_new(const uint8_t *data, int64_t size, const uint8_t *primer,
                            int64_t primed, int64_t flags, int64_t slots)
{
    Stream *s = calloc(1, sizeof *s + (size_t)slots);
    if (!s) return NULL;
    s->coder = (Coder){.range = FULL, .data = data, .size = size, .direction = ENCODING};
    fill_tables(&s->coder);
    for (uint64_t d = 1; d <= BASE_LIMIT; d++) s->coder.inverse[d] = (1ull << 40) / d + 1;
    open_mixer(&s->flags, &s->coder, flags, 0, NULL, WEIGHT);
    open_mixer(&s->lengths, &s->coder, slots * LENGTHS, 1,
               (int64_t[]){slots * LENGTHS * LENGTHS}, WEIGHT);
    open_mixer(&s->seconds, &s->coder, slots * LENGTHS, 0, NULL, WEIGHT);
    open_mixer(&s->text, &s->coder, 256, 3, (int64_t[]){HASHES, HASHES, HASHES}, 26000);
    if (failed(&s->coder)) {
        asterism_stream_free(s);
        return NULL;
    }
    learn(s, primer, primed);
    s->coder.direction = data ? DECODING : ENCODING;
    for (int i = 0; data && i < TAIL; i++) next_byte(&s->coder);
    return s;
}

/* Writes the last bytes: the shortest that decode to the bits so far. */
void asterism_stream_finish(Stream *s)
{
    Coder *c = &s->coder;
    for (int zeros = 24; zeros >= 0; zeros -= 8) {
        uint64_t rounded = (c->low + (1u << zeros) - 1) >> zeros << zeros;
        if (rounded < c->low + (uint64_t)c->range) {
            c->low = rounded;
            break;
        }
    }
    for (int i = 0; i < TAIL && !failed(c); i++) shift_out(c);
    for (int i = 0; i < TAIL && c->out_size && !c->out[c->out_size - 1]; i++) c->out_size--;
}

int asterism_code_flag(Stream *s, int value, int64_t flag)
{
    return mix(&s->flags, value, flag, 0, NULL, PRIOR);
}

uint64_t asterism_code_number(Stream *s, uint64_t value, int64_t slot)
{
    int length = value ? NUMBER_BITS - __builtin_clzll(value) : 0, reached = 0;
    int64_t row = slot * LENGTHS;
    while (reached < NUMBER_BITS && !failed(&s->coder)) {
        uint32_t cell = (uint32_t)((row + s->last[slot]) * LENGTHS + reached);
        if (!mix(&s->lengths, length > reached, row + reached, 1, &cell, 2)) break;
        reached++;
    }
    s->last[slot] = (uint8_t)reached;
    uint64_t number = reached > 0;
    for (int place = reached - 2; place >= 0 && !failed(&s->coder); place--) {
        int bit = value >> place & 1;
        bit = place == reached - 2 ? mix(&s->seconds, bit, row + reached, 0, NULL, PRIOR)
                                   : code_bit(&s->coder, HALF, bit);
        number = number << 1 | (uint64_t)bit;
    }
    return number;
}

void asterism_code_numbers(Stream *s, uint64_t *values, int64_t count, int64_t slot)
{
    for (int64_t i = 0; i < count && !failed(&s->coder); i++)
        values[i] = asterism_code_number(s, values[i], slot);
}

/* A text without zero bytes, and the zero that ends it within `room` bytes; returns its length. */
int64_t asterism_code_text(Stream *s, uint8_t *text, int64_t room)
{
    for (int64_t i = 0; i < room && !failed(&s->coder); i++) {
        text[i] = (uint8_t)code_byte(s, text[i]);
        if (!text[i]) return i;
    }
    if (!failed(&s->coder)) s->coder.status = NAME_TOO_LONG;
    return 0;
}

void asterism_code_bits(Stream *s, uint8_t *bits, const uint8_t *hints, int64_t count)
{
    Mixer m;
    open_mixer(&m, &s->coder, LEVELS, 1, (int64_t[]){4}, WEIGHT);
    uint32_t before = 0;
    for (int64_t i = 0; i < count && !failed(&s->coder); i++) {
        bits[i] = (uint8_t)mix(&m, bits[i], hints[i], 1, &before, PRIOR);
        before = (before << 1 | bits[i]) & 3;
    }
    close_mixer(&m);
}

/* A row of a plain matrix. In rows that are in order none begins before `first`, where the one
   above did; otherwise it is −1. */
static void code_line(Mixer *m, uint8_t *restrict line, const uint8_t *above,
                      const uint8_t *hints, int64_t channels, int64_t first)
{
    uint32_t before = 0;
    bool empty = first >= 0;
    for (int64_t at = 0; at < channels && !failed(m->coder); at++) {
        if (empty && at < first) continue;
        const uint32_t cells[] = {0, before | (uint32_t)above[at] << 2, hints[at],
                                  (uint32_t)(at & LAST)};
        line[at] = (uint8_t)mix(m, line[at], empty, 4, cells, PRIOR);
        empty = empty && !line[at];
        before = (before << 1 | line[at]) & 3;
    }
}

/* A row of kernels: all the channels of one output. */
static void code_kernels(Mixer *m, uint8_t *restrict line, const uint8_t *hints, int64_t channels,
                         int64_t places, int64_t width, int64_t first)
{
    forget(m, 1);
    bool empty = first >= 0;
    int64_t at = 0;
    for (int64_t channel = 0; channel < channels; channel++)
        for (int64_t place = 0, x = 0; place < places && !failed(m->coder); place++, at++) {
            uint32_t near = x ? line[at - 1] : 0, spot = (uint32_t)(place & LAST);
            if (place >= width) {
                near |= (uint32_t)line[at - width] << 1;
                if (x) near |= (uint32_t)line[at - width - 1] << 2;
                if (x + 1 < width) near |= (uint32_t)line[at - width + 1] << 3;
            }
            const uint32_t cells[] = {spot, 0, near, hints[channel], spot,
                                      (uint32_t)(channel & LAST), (uint32_t)(at & LAST)};
            if (!empty || at >= first) {
                line[at] = (uint8_t)mix(m, line[at], empty, 7, cells, PRIOR);
                empty = empty && !line[at];
            }
            x = x + 1 < width ? x + 1 : 0;
        }
}

static void open_grid_mixer(Mixer *m, Coder *coder, int64_t channels, int64_t places)
{
    int64_t line[] = {1, 8, LEVELS, channels};
    int64_t kernels[] = {places, 1, 16, LEVELS, places, channels, channels * places};
    int count = places > 1 ? 7 : 4;
    int64_t *sizes = places > 1 ? kernels : line;
    for (int i = 0; i < count; i++) sizes[i] = least(sizes[i], MAX_CELLS);
    open_mixer(m, coder, 2, count, sizes, WEIGHT);
}

/* The mask's live rows and channels; hints are of the live channels. */
void asterism_code_rows(Stream *s, uint8_t *mask, const Grid *grid, const int64_t *rows,
                        int64_t live_rows, const int64_t *channels, int64_t live_channels,
                        const uint8_t *hints, int ordered)
{
    Mixer m;
    open_grid_mixer(&m, &s->coder, live_channels, grid->places);
    size_t length = (size_t)(live_channels * grid->places), kernel = (size_t)grid->places;
    uint8_t *lines = calloc(2, length + 1), *line = lines, *above = lines ? lines + length : NULL;
    if (!lines) s->coder.status = NO_MEMORY;
    int64_t first = ordered ? 0 : -1;
    for (int64_t r = 0; r < live_rows && !failed(&s->coder); r++) {
        uint8_t *row = mask + rows[r] * grid->channels * grid->places, *spare = above;
        for (int64_t c = 0; c < live_channels; c++)
            memcpy(line + c * grid->places, row + channels[c] * grid->places, kernel);
        forget(&m, 0);
        if (grid->places > 1)
            code_kernels(&m, line, hints, live_channels, grid->places, grid->width, first);
        else
            code_line(&m, line, above, hints, live_channels, first);
        for (int64_t c = 0; c < live_channels; c++)
            memcpy(row + channels[c] * grid->places, line + c * grid->places, kernel);
        const uint8_t *found = ordered ? memchr(line, 1, length) : NULL;
        if (found) first = found - line;
        above = line, line = spare;
    }
    free(lines);
    close_mixer(&m);
}

static int64_t code_index(Mixer *m, int64_t value, int levels, const uint32_t *contexts)
{
    uint32_t node = 1, cells[5];
    for (int place = levels - 1; place >= 0; place--) {
        int bit = value >> place & 1;
        if (node < NODES) {
            for (int i = 0; i < 5; i++) cells[i] = contexts[i] * NODES + node;
            bit = mix(m, bit, node, 5, cells, PRIOR);
        } else
            bit = mix(m, bit, node, 0, NULL, PRIOR);
        node = node << 1 | (uint32_t)bit;
    }
    return (int64_t)node - (1 << levels);
}

/* The indices into a table of `size` > 1, of the elements at the flat places `where`. */
void asterism_code_indices(Stream *s, uint16_t *index, const int64_t *where, int64_t count,
                           const Grid *grid, int64_t size)
{
    Mixer m;
    int levels = 64 - __builtin_clzll((uint64_t)size - 1);
    int64_t stride = grid->channels * grid->places, row = -1;
    open_mixer(&m, &s->coder, 1 << levels, 5,
               (int64_t[]){NODES, CLASSES * NODES, CLASSES * NODES, CLASSES * NODES,
                           least(grid->channels, MAX_CHANNELS) * NODES}, WEIGHT);
    uint8_t *line = calloc(1, (size_t)stride), *same = calloc(1, (size_t)stride); /* classes */
    if (!line || !same) s->coder.status = NO_MEMORY;
    for (int64_t i = 0; i < count && !failed(&s->coder); i++) {
        if (where[i] / stride != row) {
            row = where[i] / stride;
            memset(line, 0, (size_t)stride);
            forget(&m, 0);
        }
        int64_t at = where[i] % stride, place = at % grid->places;
        const uint32_t contexts[] = {0, place % grid->width ? line[at - 1] : 0,
                                     place >= grid->width ? line[at - grid->width] : 0, same[at],
                                     (uint32_t)(at / grid->places % MAX_CHANNELS)};
        int64_t value = code_index(&m, index[i], levels, contexts);
        if (value >= size && !failed(&s->coder)) s->coder.status = BEYOND_TABLE;
        line[at] = same[at] = (uint8_t)(1 + (CLASSES - 1) * least(value, size - 1) / size);
        index[i] = (uint16_t)value;
    }
    free(line), free(same);
    close_mixer(&m);
}
