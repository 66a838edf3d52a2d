/* The fast section, as docs/format.md has it. */

#include <stdlib.h>

#include "store.h"

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
    return (uint64_t)(width / 8) * (uint64_t)size +
           (uint64_t)(width % 8) * (uint64_t)((size + 7) / 8);
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
            return fail(bytes->report, ASTERISM_DAMAGED,
                        "the positions are not in ascending order");
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
    if (head[1] > FILE_RANK)
        return fail(store->report, ASTERISM_DAMAGED, "a tensor of too many dimensions");
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

bool read_fast(Store *store, Bytes section)
{
    uint64_t count;
    if (!varint(&section, &count)) return false;
    while (count-- > 0)
        if (!read_fast_tensor(store, &section)) return false;
    if (section.at < section.size)
        return fail(store->report, ASTERISM_DAMAGED, "bytes are left over after the last tensor");
    return true;
}
