/* The file: container, small and fast sections, as docs/format.md has them. All numbers become
   floats, as the runtime makes them. What is read may be hostile. */

#include <stdlib.h>
#include <string.h>

#include "net.h"

/* The small section's decisions, as the Python reader has them compiled. */
#include "../asterism/kernels/codec/stream.c"

#include "primer.h"

enum { MAX_NAME = 1 << 12, MAX_TENSORS = 1 << 16, RECENT = 4, MEMORY = 8, FILE_RANK = 32 };
enum { COUNT, DTYPE, RANK, SIZE, CONSTANT_SHIFT, CONSTANT, SHIFT, LOW, TABLE, FIRST, GAP, SLOTS };
enum { IS_CONSTANT, IS_DENSE, IS_NEGATIVE, IS_RECENT, FLAGS = IS_RECENT + FILE_RANK * RECENT };
#define FLOOR ((uint64_t)1 << 26)
#define EXPANSION ((uint64_t)1 << 14)

/* ------------------------------------------------------------------------------ numbers of a type */

typedef struct {
    const char *name;
    int bytes;
    char kind; /* f: sign and magnitude; i: two's complement; u: no sign */
} Type;

static const Type TYPES[] = {
    {"float32", 4, 'f'}, {"float16", 2, 'f'}, {"bfloat16", 2, 'f'}, {"float64", 8, 'f'},
    {"int64", 8, 'i'},   {"int32", 4, 'i'},   {"int16", 2, 'i'},    {"int8", 1, 'i'},
    {"uint8", 1, 'u'},   {"bool", 1, 'u'},    {"uint16", 2, 'u'},   {"uint32", 4, 'u'},
    {"uint64", 8, 'u'},  {"float8_e4m3fn", 1, 'f'}, {"float8_e5m2", 1, 'f'},
};
enum { FLOAT32, FLOAT16, BFLOAT16, FLOAT64, TYPE_COUNT = sizeof TYPES / sizeof *TYPES };

static int magnitude_bits(const Type *type) { return 8 * type->bytes - (type->kind != 'u'); }

static uint64_t below(int bits) { return bits >= 64 ? UINT64_MAX : ((uint64_t)1 << bits) - 1; }

/* Sign and magnitude as the word of a file. */
static uint64_t joined(const Type *type, bool negative, uint64_t magnitude)
{
    if (type->kind == 'u') return magnitude;
    int bits = magnitude_bits(type);
    if (type->kind == 'i' && negative) magnitude = ~magnitude & below(bits);
    return (uint64_t)negative << bits | magnitude;
}

static float from_bits(uint32_t bits)
{
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

static float from_half(uint32_t bits)
{
    uint32_t sign = (bits & 0x8000) << 16, exponent = bits >> 10 & 31, rest = bits & 0x3FF;
    if (exponent == 31) return from_bits(sign | 0x7F800000 | rest << 13);
    if (exponent) return from_bits(sign | (exponent + 112) << 23 | rest << 13);
    float small = (float)rest / 16777216; /* 2^24: of the smallest numbers */
    return sign ? -small : small;
}

static float to_float(const Type *type, uint64_t word)
{
    double wide;
    switch (type - TYPES) {
    case FLOAT32: return from_bits((uint32_t)word);
    case FLOAT16: return from_half((uint32_t)word);
    case BFLOAT16: return from_bits((uint32_t)word << 16);
    case FLOAT64: memcpy(&wide, &word, sizeof wide); return (float)wide;
    default: break;
    }
    if (type->kind == 'u') return (float)word;
    bool negative = word >> magnitude_bits(type);
    int64_t size = (int64_t)((negative ? ~word : word) & below(magnitude_bits(type)));
    return (float)(negative ? -size - 1 : size);
}

/* ------------------------------------------------------------------------------ bytes */

typedef struct {
    const uint8_t *data;
    size_t size, at;
    Report *report;
} Bytes;

static bool cut_off(Report *report) { return fail(report, ASTERISM_DAMAGED, "the file is cut off"); }

static const uint8_t *some(Bytes *bytes, uint64_t count)
{
    if (count > bytes->size - bytes->at) {
        cut_off(bytes->report);
        return NULL;
    }
    bytes->at += (size_t)count;
    return bytes->data + bytes->at - count;
}

static bool varint(Bytes *bytes, uint64_t *number)
{
    *number = 0;
    for (int place = 0; place < 10; place++) {
        const uint8_t *byte = some(bytes, 1);
        if (!byte) return false;
        if (place == 9 && *byte > 1) break;
        *number |= (uint64_t)(*byte & 127) << 7 * place;
        if (*byte < 128) return true;
    }
    return fail(bytes->report, ASTERISM_DAMAGED, "a number is too large");
}

static uint64_t word_at(const uint8_t *from, int bytes)
{
    uint64_t word = 0;
    for (int i = bytes - 1; i >= 0; i--) word = word << 8 | from[i];
    return word;
}

/* ------------------------------------------------------------------------------ a tensor's memory */

typedef struct {
    Report *report;
    Tensors *tensors;
    size_t room;
    uint64_t left; /* bytes that may still be decoded */
} Store;

/* The next tensor, of this type and shape, all zeros. */
static Tensor *new_tensor(Store *store, uint64_t type, int rank, const uint64_t *shape)
{
    Report *report = store->report;
    if (type >= TYPE_COUNT) {
        fail(report, ASTERISM_UNSUPPORTED, "unknown dtype number %llu", (unsigned long long)type);
        return NULL;
    }
    if (TYPES[type].kind == 'f' && TYPES[type].bytes == 1) {
        fail(report, ASTERISM_UNSUPPORTED, "there is no %s here: save the network in another precision",
             TYPES[type].name);
        return NULL;
    }
    uint64_t each = TYPES[type].bytes > 4 ? 8 : 4, footprint = 1, size = 1;
    for (int i = 0; i < rank; i++) {
        uint64_t length = shape[i] ? shape[i] : 1;
        if (length > store->left / each / footprint) {
            fail(report, ASTERISM_DAMAGED, "a tensor is larger than a file of this size may have");
            return NULL;
        }
        footprint *= length, size *= shape[i];
    }
    if (footprint * each > store->left || store->tensors->count == MAX_TENSORS) {
        fail(report, ASTERISM_DAMAGED, "more tensors than a file of this size may have");
        return NULL;
    }
    store->left -= footprint * each;
    if (store->tensors->count == store->room) {
        size_t room = 2 * store->room + 16;
        Tensor *more = realloc(store->tensors->all, room * sizeof *more);
        if (!more) {
            fail(report, ASTERISM_NO_MEMORY, "no memory for the tensors");
            return NULL;
        }
        store->tensors->all = more, store->room = room;
    }
    float *numbers = take(report, size ? size : 1, sizeof *numbers);
    if (!numbers) return NULL;
    Tensor *tensor = &store->tensors->all[store->tensors->count++];
    *tensor = (Tensor){.rank = rank, .size = (int64_t)size, .numbers = numbers};
    for (int i = 0; i < rank; i++) tensor->shape[i] = (int64_t)shape[i];
    return tensor;
}

static bool fill(Tensor *tensor, float number)
{
    for (int64_t i = 0; i < tensor->size; i++) tensor->numbers[i] = number;
    return true;
}

/* ------------------------------------------------------------------------------ small section */

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
    int known;
} Small;

/* Whether the coder has read what makes sense so far. */
static bool sound(Small *s)
{
    switch (s->stream->coder.status) {
    case FINE: return true;
    case NO_MEMORY: return fail(s->store->report, ASTERISM_NO_MEMORY, "no memory for the models");
    case ENDS_EARLY: return fail(s->store->report, ASTERISM_DAMAGED, "the coded data end too early");
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
        int known = inputs_of(&s->units, grid->channels);
        hints_by_weight(&s->units, known, grid->channels, channel_hints);
        asterism_code_bits(s->stream, row_flags, row_hints, grid->rows);
        asterism_code_bits(s->stream, channel_flags, channel_hints, grid->channels);
        int64_t live_rows = places_of(row_flags, grid->rows, places);
        int64_t live = places_of(channel_flags, grid->channels, places + rows);
        for (int64_t i = 0; i < live; i++) live_hints[i] = channel_hints[places[rows + (size_t)i]];
        if (!failed(&s->stream->coder))
            asterism_code_rows(s->stream, mask, grid, places, live_rows, places + rows, live,
                               live_hints);
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
    if (fine && (uint64_t)count * low % 8 && raw[(uint64_t)count * low / 8] & (0xFF >> (uint64_t)count * low % 8))
        fine = fail(report, ASTERISM_DAMAGED, "the last byte of the values is not filled with zeros");
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
    if (rank > FILE_RANK) return fail(store->report, ASTERISM_DAMAGED, "a tensor of too many dimensions");
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

static bool read_small(Store *store, Bytes section)
{
    Small s = {.store = store};
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

/* ------------------------------------------------------------------------------ fast section */

enum { LAYOUT_CONSTANT, LAYOUT_DENSE, LAYOUT_BITMAP, LAYOUT_ELIAS_FANO };
enum { CHUNK = 1 << 16, MAX_FAST_TABLE = 1 << 10 };

/* Numbers of `width` bits, in chunks of planes. */
typedef struct {
    const uint8_t *data; /* of the chunk that is read */
    int64_t left, at;    /* numbers from the chunk's first on; which of them is next */
    int width;
} Packed;

static uint64_t chunk_bytes(int64_t size, int width)
{
    return (uint64_t)(width / 8) * (uint64_t)size + (uint64_t)(width % 8) * (uint64_t)((size + 7) / 8);
}

static bool open_packed(Bytes *bytes, Packed *packed, int64_t count, int width)
{
    uint64_t whole = (uint64_t)count / CHUNK;
    uint64_t size = whole * chunk_bytes(CHUNK, width) + chunk_bytes(count % CHUNK, width);
    *packed = (Packed){some(bytes, size), count, 0, width};
    return packed->data != NULL;
}

static uint64_t next_packed(Packed *p)
{
    int64_t size = p->left < CHUNK ? p->left : CHUNK;
    if (p->at == size) {
        p->data += chunk_bytes(size, p->width);
        p->left -= size, p->at = 0;
        size = p->left < CHUNK ? p->left : CHUNK;
    }
    int64_t i = p->at++, plane = (size + 7) / 8;
    uint64_t number = 0;
    for (int k = 0; k < p->width / 8; k++) number |= (uint64_t)p->data[k * size + i] << 8 * k;
    const uint8_t *bits = p->data + p->width / 8 * size;
    for (int k = 0; k < p->width % 8; k++) {
        uint64_t bit = bits[k * plane + i / 8] >> (7 - i % 8) & 1;
        number |= bit << (8 * (p->width / 8) + k);
    }
    return number;
}

static int bit_length(uint64_t number)
{
    int length = 0;
    for (; number; number >>= 1) length++;
    return length;
}

/* `count` values, to the places `where`, or to all in turn where that is NULL. */
static bool read_fast_values(Bytes *bytes, Tensor *t, const Type *type, const int64_t *where,
                             int64_t count)
{
    uint64_t size, least = 0;
    if (!varint(bytes, &size)) return false;
    if (size > MAX_FAST_TABLE) return fail(bytes->report, ASTERISM_DAMAGED, "a table is too large");
    const uint8_t *table = NULL, *one;
    int width, word = type->bytes;
    if (size) {
        if (!(table = some(bytes, size * (uint64_t)word))) return false;
        width = bit_length(size - 1);
    } else {
        if (!(one = some(bytes, 1))) return false;
        width = *one;
        if (width > 8 * word) return fail(bytes->report, ASTERISM_DAMAGED, "values are too wide");
        if (!(one = some(bytes, (uint64_t)word))) return false;
        least = word_at(one, word);
    }
    Packed packed;
    if (!open_packed(bytes, &packed, count, width)) return false;
    for (int64_t i = 0; i < count; i++) {
        uint64_t found = next_packed(&packed);
        if (size && found >= size)
            return fail(bytes->report, ASTERISM_DAMAGED, "an index beyond its table");
        if (size) {
            found = word_at(table + found * (uint64_t)word, word);
        } else {
            found = (found + least) & below(8 * word);
            if (type->kind != 'u') found = found >> 1 | (found & 1) << (8 * word - 1);
        }
        t->numbers[where ? where[i] : i] = to_float(type, found);
    }
    return true;
}

static bool bit_at(const uint8_t *bitmap, int64_t i) { return bitmap[i / 8] >> (7 - i % 8) & 1; }

static bool read_elias_fano(Bytes *bytes, int64_t count, int64_t size, int64_t *where)
{
    int low = bit_length((uint64_t)(size / count)) - 1;
    int64_t length = count + ((size - 1) >> low) + 1, found = 0, last = -1;
    const uint8_t *bitmap = some(bytes, ((uint64_t)length + 7) / 8);
    if (!bitmap) return false;
    for (int64_t i = 0; i < length; i++)
        if (bit_at(bitmap, i)) {
            if (found == count) return fail(bytes->report, ASTERISM_DAMAGED, "too many positions");
            where[found] = (i - found) << low, found++;
        }
    Packed packed;
    if (found < count) return fail(bytes->report, ASTERISM_DAMAGED, "too few positions");
    if (!open_packed(bytes, &packed, count, low)) return false;
    for (int64_t i = 0; i < count; i++) {
        where[i] |= (int64_t)next_packed(&packed);
        if (where[i] <= last || where[i] >= size)
            return fail(bytes->report, ASTERISM_DAMAGED, "the positions are not in ascending order");
        last = where[i];
    }
    return true;
}

static bool read_sparse(Bytes *bytes, Tensor *t, const Type *type, int layout)
{
    uint64_t count = 0;
    const uint8_t *bitmap = NULL;
    if (layout == LAYOUT_BITMAP) {
        if (!(bitmap = some(bytes, ((uint64_t)t->size + 7) / 8))) return false;
        for (int64_t i = 0; i < t->size; i++) count += bit_at(bitmap, i);
    } else {
        if (!varint(bytes, &count)) return false;
        if (count == 0 || count > (uint64_t)t->size)
            return fail(bytes->report, ASTERISM_DAMAGED, "more positions than elements, or none");
    }
    int64_t *where = take(bytes->report, (size_t)count + 1, sizeof *where), found = 0;
    bool fine = where != NULL;
    for (int64_t i = 0; fine && bitmap && i < t->size; i++)
        if (bit_at(bitmap, i)) where[found++] = i;
    fine = fine && (bitmap || read_elias_fano(bytes, (int64_t)count, t->size, where));
    fine = fine && read_fast_values(bytes, t, type, where, (int64_t)count);
    free(where);
    return fine;
}

static bool read_fast_tensor(Store *store, Bytes *bytes)
{
    uint64_t length, shape[FILE_RANK];
    if (!varint(bytes, &length)) return false;
    if (length > MAX_NAME) return fail(store->report, ASTERISM_DAMAGED, "a name is too long");
    const uint8_t *name = some(bytes, length), *head = name ? some(bytes, 2) : NULL;
    if (!head) return false;
    if (head[1] > FILE_RANK) return fail(store->report, ASTERISM_DAMAGED, "a tensor of too many dimensions");
    for (int i = 0; i < head[1]; i++)
        if (!varint(bytes, &shape[i])) return false;
    Tensor *t = new_tensor(store, head[0], head[1], shape);
    if (!t || !t->size) return t != NULL;
    const Type *type = &TYPES[head[0]];
    const uint8_t *layout = some(bytes, 1), *word;
    if (!layout) return false;
    switch (*layout) {
    case LAYOUT_CONSTANT:
        word = some(bytes, (uint64_t)type->bytes);
        return word && fill(t, to_float(type, word_at(word, type->bytes)));
    case LAYOUT_DENSE: return read_fast_values(bytes, t, type, NULL, t->size);
    case LAYOUT_BITMAP:
    case LAYOUT_ELIAS_FANO: return read_sparse(bytes, t, type, *layout);
    default: return fail(store->report, ASTERISM_UNSUPPORTED, "unknown layout %d", *layout);
    }
}

static bool read_fast(Store *store, Bytes section)
{
    uint64_t count;
    if (!varint(&section, &count)) return false;
    while (count-- > 0)
        if (!read_fast_tensor(store, &section)) return false;
    if (section.at < section.size)
        return fail(store->report, ASTERISM_DAMAGED, "bytes are left over after the last tensor");
    return true;
}

/* ------------------------------------------------------------------------------ container */

static uint32_t checksum(const uint8_t *data, size_t size)
{
    uint32_t table[256], crc = 0xFFFFFFFF;
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int k = 0; k < 8; k++) table[i] = table[i] & 1 ? table[i] >> 1 ^ 0xEDB88320 : table[i] >> 1;
    }
    for (size_t i = 0; i < size; i++) crc = crc >> 8 ^ table[(crc ^ data[i]) & 0xFF];
    return ~crc;
}

bool read_file(Report *report, const uint8_t *data, size_t size, Tensors *tensors,
               const uint8_t **graph, size_t *graph_size)
{
    if (size < 4 || memcmp(data, "\x8b" "AST", 4))
        return fail(report, ASTERISM_DAMAGED, "this is not an .asterism file");
    if (size < 9) return cut_off(report);
    if (data[4] > 1) return fail(report, ASTERISM_UNSUPPORTED, "version %d: this library reads 1", data[4]);
    if (checksum(data, size - 4) != word_at(data + size - 4, 4))
        return fail(report, ASTERISM_DAMAGED, "damaged or cut off: the checksum does not match");
    if (data[4] != 1) return fail(report, ASTERISM_DAMAGED, "unknown version %d", data[4]);
    Bytes body = {data, size - 4, 5, report}, sections[4] = {{0}};
    while (body.at < body.size) {
        uint8_t kind = data[body.at++];
        const char *kinds = "SFGP", *known = kind ? strchr(kinds, kind) : NULL;
        if (!known || sections[known - kinds].data)
            return fail(report, ASTERISM_DAMAGED, "a section of unknown or repeated kind %d", kind);
        uint64_t length;
        if (!varint(&body, &length)) return false;
        const uint8_t *content = some(&body, length);
        if (!content) return false;
        sections[known - kinds] = (Bytes){content, (size_t)length, 0, report};
    }
    if (!sections[0].data == !sections[1].data)
        return fail(report, ASTERISM_DAMAGED, "none or two sections of tensors in the place of one");
    *graph = sections[2].data, *graph_size = sections[2].size;
    uint64_t limit = size > FLOOR / EXPANSION ? EXPANSION * size : FLOOR;
    Store store = {.report = report, .tensors = tensors, .left = limit};
    if (!(sections[0].data ? read_small(&store, sections[0]) : read_fast(&store, sections[1])))
        return false;
    for (size_t k = 0; k < tensors->count; k++)
        for (int64_t i = 0; i < tensors->all[k].size; i++)
            tensors->all[k].nonzeros += tensors->all[k].numbers[i] != 0;
    return true;
}

void free_tensors(Tensors *tensors)
{
    for (size_t i = 0; i < tensors->count; i++) free(tensors->all[i].numbers);
    free(tensors->all);
}
