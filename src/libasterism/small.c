/* The small section, as docs/format.md has it. */

#include <stdlib.h>
#include <string.h>

#include "store.h"

/* Its decisions, as the Python reader has them compiled. */
#include "../asterism/kernels/codec/stream.c"

#include "primer.h"

enum { RECENT = 4, MEMORY = 8 };
enum { COUNT, DTYPE, RANK, SIZE, CONSTANT_SHIFT, CONSTANT, SHIFT, LOW, TABLE, FIRST, GAP, SLOTS };
enum { IS_CONSTANT, IS_DENSE, IS_NEGATIVE, IS_RECENT };
enum { IS_ORDERED = IS_RECENT + FILE_RANK * RECENT, FLAGS };

/* How many weights lead into each unit, of the last tensors. */
typedef struct {
    uint32_t *weights[MEMORY];
    int64_t lengths[MEMORY];
    uint8_t *vector;
    int64_t length;
} Units;

typedef struct {
    Store *store;
    Stream *stream;
    Units units;
    Bytes raw;
    uint64_t recent[RECENT];
    int known, version;
} Small;

/* Whether the coder has read what makes sense so far. */
static bool sound(Small *s)
{
    switch (s->stream->coder.status) {
    case FINE: return true;
    case NO_MEMORY: return fail(s->store->report, ASTERISM_NO_MEMORY, "no memory for the models");
    case ENDS_EARLY:
        return fail(s->store->report, ASTERISM_DAMAGED, "the coded data end too early");
    case NAME_TOO_LONG: return fail(s->store->report, ASTERISM_DAMAGED, "a name is too long");
    default: return fail(s->store->report, ASTERISM_DAMAGED, "an index beyond its table");
    }
}

static uint64_t read_number(Small *s, int slot) { return asterism_code_number(s->stream, 0, slot); }

static bool read_flag(Small *s, int flag) { return asterism_code_flag(s->stream, 0, flag); }

static uint64_t read_size(Small *s, int axis)
{
    uint64_t size = 0;
    int place = 0;
    while (place < s->known && !read_flag(s, IS_RECENT + axis * RECENT + place)) place++;
    size = place < s->known ? s->recent[place] : read_number(s, SIZE);
    for (int i = 0; place == s->known && i < s->known; i++)
        if (s->recent[i] == size) place = i;
    if (place == s->known && s->known < RECENT) s->known++;
    for (int i = place < RECENT ? place : RECENT - 1; i > 0; i--) s->recent[i] = s->recent[i - 1];
    s->recent[0] = size;
    return size;
}

static uint8_t hint(uint32_t count)
{
    int length = 0;
    for (; count; count >>= 1) length++;
    return (uint8_t)(1 + (length < LEVELS - 2 ? length : LEVELS - 2));
}

/* The latest tensor of which this number of inputs can be a multiple; -1: none. */
static int inputs_of(const Units *units, int64_t channels)
{
    for (int i = 0; i < MEMORY && units->weights[i]; i++)
        if (units->lengths[i] > 1 && channels % units->lengths[i] == 0) return i;
    return -1;
}

/* Hints of `length` units by the counts of the tensor `i`, which may be none. */
static void hints_by_weight(const Units *units, int i, int64_t length, uint8_t *hints)
{
    if (i >= 0 && units->lengths[i] == length)
        for (int64_t k = 0; k < length; k++) hints[k] = hint(units->weights[i][k]);
}

static void hints_by_vector(const Units *units, int64_t length, uint8_t *hints)
{
    if (units->vector && units->length == length)
        for (int64_t k = 0; k < length; k++) hints[k] = hint(units->vector[k]);
}

static Grid grid_of(const Units *units, const Tensor *t)
{
    if (t->rank < 2) return (Grid){1, 1, t->size, t->size};
    Grid grid = {t->shape[0], t->shape[1], 1, 1};
    for (int i = 2; i < t->rank; i++) grid.places *= t->shape[i];
    grid.width = t->shape[t->rank - 1];
    if (t->rank > 2) return grid;
    int known = inputs_of(units, grid.channels);
    if (known >= 0 && units->lengths[known] < grid.channels) {
        grid.places = grid.channels / units->lengths[known];
        grid.channels = units->lengths[known];
    }
    int64_t root = 0;
    while ((root + 1) * (root + 1) <= grid.places) root++;
    grid.width = root * root == grid.places ? root : grid.places;
    return grid;
}

/* The places of those of `flags` that are set; how many. */
static int64_t places_of(const uint8_t *flags, int64_t size, int64_t *places)
{
    int64_t count = 0;
    for (int64_t i = 0; i < size; i++)
        if (flags[i]) places[count++] = i;
    return count;
}

static bool read_vector_mask(Small *s, int64_t size, uint8_t *mask)
{
    Units *units = &s->units;
    uint8_t *hints = take(s->store->report, (size_t)size, 1);
    uint8_t *kept = take(s->store->report, (size_t)size, 1);
    if (hints && kept) {
        for (int i = 0; i < MEMORY && units->weights[i]; i++)
            if (units->lengths[i] == size) {
                hints_by_weight(units, i, size, hints);
                break;
            }
        asterism_code_bits(s->stream, mask, hints, size);
        memcpy(kept, mask, (size_t)size);
        free(units->vector);
        units->vector = kept, units->length = size, kept = NULL;
    }
    free(hints), free(kept);
    return s->store->report->status == ASTERISM_OK && sound(s);
}

static bool read_grid_mask(Small *s, const Grid *grid, uint8_t *mask)
{
    Report *report = s->store->report;
    size_t rows = (size_t)grid->rows, channels = (size_t)grid->channels;
    uint8_t *row_flags = take(report, rows, 2), *channel_flags = take(report, channels, 3);
    int64_t *places = take(report, rows + channels, sizeof *places);
    if (row_flags && channel_flags && places) {
        uint8_t *row_hints = row_flags + rows, *channel_hints = channel_flags + channels;
        uint8_t *live_hints = channel_hints + channels;
        hints_by_vector(&s->units, grid->rows, row_hints);
        bool ordered = s->version > 1 && read_flag(s, IS_ORDERED);
        int known = inputs_of(&s->units, grid->channels);
        hints_by_weight(&s->units, known, grid->channels, channel_hints);
        asterism_code_bits(s->stream, row_flags, row_hints, grid->rows);
        asterism_code_bits(s->stream, channel_flags, channel_hints, grid->channels);
        int64_t live_rows = places_of(row_flags, grid->rows, places);
        int64_t live = places_of(channel_flags, grid->channels, places + rows);
        for (int64_t i = 0; i < live; i++) live_hints[i] = channel_hints[places[rows + (size_t)i]];
        if (!failed(&s->stream->coder))
            asterism_code_rows(s->stream, mask, grid, places, live_rows, places + rows, live,
                               live_hints, ordered);
    }
    free(row_flags), free(channel_flags), free(places);
    return report->status == ASTERISM_OK && sound(s);
}

static bool remember_weight(Small *s, const Grid *grid, int64_t size, const int64_t *where,
                            int64_t count)
{
    Units *units = &s->units;
    uint32_t *counts = take(s->store->report, (size_t)grid->rows, sizeof *counts);
    if (!counts) return false;
    for (int64_t i = 0; i < count; i++) counts[where[i] / (size / grid->rows)]++;
    free(units->weights[MEMORY - 1]);
    for (int i = MEMORY - 1; i > 0; i--)
        units->weights[i] = units->weights[i - 1], units->lengths[i] = units->lengths[i - 1];
    units->weights[0] = counts, units->lengths[0] = grid->rows;
    return true;
}

/* The flat places of the elements that are not zero, `*count` of them; NULL where that failed. */
static int64_t *read_places(Small *s, const Tensor *t, Grid *grid, int64_t *count)
{
    Report *report = s->store->report;
    bool dense = read_flag(s, IS_DENSE), fine = sound(s);
    uint8_t *mask = take(report, (size_t)t->size, 1);
    int64_t *where = NULL;
    *grid = grid_of(&s->units, t);
    fine = fine && mask;
    if (fine && dense) memset(mask, 1, (size_t)t->size);
    if (fine && !dense)
        fine = t->rank < 2 ? read_vector_mask(s, t->size, mask) : read_grid_mask(s, grid, mask);
    if (fine) {
        *count = 0;
        for (int64_t i = 0; i < t->size; i++) *count += mask[i];
        where = take(report, (size_t)*count + 1, sizeof *where);
        if (where) places_of(mask, t->size, where);
        fine = where && (t->rank < 2 || remember_weight(s, grid, t->size, where, *count));
    }
    free(mask);
    if (!fine) free(where), where = NULL;
    return where;
}

static bool read_constant(Small *s, Tensor *t, const Type *type)
{
    bool negative = type->kind != 'u' && read_flag(s, IS_NEGATIVE);
    uint64_t shift = read_number(s, CONSTANT_SHIFT), magnitude = read_number(s, CONSTANT);
    int bits = magnitude_bits(type);
    if (!sound(s)) return false;
    if (shift > (uint64_t)bits || (magnitude && (shift == 64 || magnitude > below(bits) >> shift)))
        return fail(s->store->report, ASTERISM_DAMAGED, "a constant does not fit %s", type->name);
    magnitude = shift < 64 ? magnitude << shift : 0;
    return fill(t, to_float(type, joined(type, negative, magnitude)));
}

/* The table's entry as a word whose low bits are zeros. */
static uint64_t entry(const Type *type, uint64_t symbol, int width, int up)
{
    bool negative = false;
    if (type->kind != 'u') {
        uint64_t half = (uint64_t)1 << width;
        negative = symbol < half;
        symbol = negative ? half - 1 - symbol : symbol - half;
    }
    return joined(type, negative, up < 64 ? symbol << up : 0);
}

/* The next `low` bits of a tensor's rests, the highest first. */
static uint64_t rest_at(const uint8_t *raw, uint64_t at, int low)
{
    uint64_t rest = 0;
    for (int i = 0; i < low; i++, at++) rest = rest << 1 | (raw[at / 8] >> (7 - at % 8) & 1);
    return rest;
}

static bool read_values(Small *s, Tensor *t, const Type *type, const Grid *grid,
                        const int64_t *where, int64_t count)
{
    Report *report = s->store->report;
    uint64_t shift = read_number(s, SHIFT), low = read_number(s, LOW), size = read_number(s, TABLE);
    uint64_t last = read_number(s, FIRST);
    uint64_t bits = (uint64_t)magnitude_bits(type);
    if (!sound(s)) return false;
    if (shift > bits || low > bits - shift || size == 0 || size > 1 << 16)
        return fail(report, ASTERISM_DAMAGED, "a table of values that cannot be");
    int width = (int)(bits - shift - low), most = width + (type->kind != 'u');
    uint64_t *table = take(report, (size_t)size, sizeof *table);
    uint16_t *index = take(report, (size_t)count + 1, sizeof *index);
    bool fine = table && index;
    for (uint64_t i = 0; fine && i < size; i++) {
        uint64_t gap = i ? read_number(s, GAP) : 0, next = i ? last + gap + 1 : last;
        if (i && (gap == UINT64_MAX || next <= last)) next = UINT64_MAX;
        fine = sound(s);
        if (fine && (next > below(most) || (i && next == UINT64_MAX && most < 64)))
            fine = fail(report, ASTERISM_DAMAGED, "a value does not fit %s", type->name);
        if (fine) table[i] = entry(type, next, width, (int)(low + shift));
        last = next;
    }
    const uint8_t *raw = fine ? some(&s->raw, ((uint64_t)count * low + 7) / 8) : NULL;
    fine = fine && raw;
    if (fine && (uint64_t)count * low % 8 &&
        raw[(uint64_t)count * low / 8] & (0xFF >> (uint64_t)count * low % 8))
        fine =
            fail(report, ASTERISM_DAMAGED, "the last byte of the values is not filled with zeros");
    if (fine && size > 1) {
        asterism_code_indices(s->stream, index, where, count, grid, (int64_t)size);
        fine = sound(s);
    }
    for (int64_t i = 0; fine && i < count; i++) {
        uint64_t rest = rest_at(raw, (uint64_t)i * low, (int)low);
        uint64_t word = table[index[i]] ^ (shift < 64 ? rest << shift : 0);
        t->numbers[where[i]] = to_float(type, word);
    }
    free(table), free(index);
    return fine;
}

static bool read_small_tensor(Small *s)
{
    Store *store = s->store;
    uint8_t name[MAX_NAME + 1] = {0};
    uint64_t shape[FILE_RANK], number, rank;
    asterism_code_text(s->stream, name, sizeof name);
    if (!sound(s)) return false;
    number = read_number(s, DTYPE), rank = read_number(s, RANK);
    if (!sound(s)) return false;
    if (rank > FILE_RANK)
        return fail(store->report, ASTERISM_DAMAGED, "a tensor of too many dimensions");
    for (int i = 0; i < (int)rank; i++) shape[i] = read_size(s, i);
    if (!sound(s)) return false;
    Tensor *t = new_tensor(store, number, (int)rank, shape);
    if (!t || !t->size) return t != NULL;
    const Type *type = &TYPES[number];
    if (read_flag(s, IS_CONSTANT)) return sound(s) && read_constant(s, t, type);
    Grid grid;
    int64_t count = 0, *where = read_places(s, t, &grid, &count);
    bool fine = where && read_values(s, t, type, &grid, where, count);
    free(where);
    return fine;
}

bool read_small(Store *store, Bytes section, int version)
{
    Small s = {.store = store, .version = version};
    uint64_t length;
    if (!varint(&section, &length)) return false;
    const uint8_t *coded = some(&section, length);
    if (!coded) return false;
    s.raw = (Bytes){section.data + section.at, section.size - section.at, 0, store->report};
    s.stream = asterism_stream_new(coded, (int64_t)length, PRIMER, sizeof PRIMER - 1, FLAGS, SLOTS);
    if (!s.stream) return fail(store->report, ASTERISM_NO_MEMORY, "no memory for the models");
    uint64_t count = read_number(&s, COUNT);
    bool fine = sound(&s);
    while (fine && count-- > 0) fine = read_small_tensor(&s);
    if (fine && (s.stream->coder.at < (int64_t)length || s.raw.at < s.raw.size))
        fine = fail(store->report, ASTERISM_DAMAGED, "bytes are left over after the values");
    for (int i = 0; i < MEMORY; i++) free(s.units.weights[i]);
    free(s.units.vector);
    asterism_stream_free(s.stream);
    return fine;
}
