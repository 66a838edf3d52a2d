/* What both sections of tensors are read with: bytes, numbers of a type, and memory for tensors. What
   is read may be hostile. */

#include "store.h"

#include <stdlib.h>
#include <string.h>

const Type TYPES[TYPE_COUNT] = {
    {"float32", 4, 'f'}, {"float16", 2, 'f'},       {"bfloat16", 2, 'f'},    {"float64", 8, 'f'},
    {"int64", 8, 'i'},   {"int32", 4, 'i'},         {"int16", 2, 'i'},       {"int8", 1, 'i'},
    {"uint8", 1, 'u'},   {"bool", 1, 'u'},          {"uint16", 2, 'u'},      {"uint32", 4, 'u'},
    {"uint64", 8, 'u'},  {"float8_e4m3fn", 1, 'f'}, {"float8_e5m2", 1, 'f'},
};
enum { FLOAT32, FLOAT16, BFLOAT16, FLOAT64 };

int magnitude_bits(const Type *type) { return 8 * type->bytes - (type->kind != 'u'); }

uint64_t below(int bits) { return bits >= 64 ? UINT64_MAX : ((uint64_t)1 << bits) - 1; }

/* Sign and magnitude as the word of a file. */
uint64_t joined(const Type *type, bool negative, uint64_t magnitude)
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

float to_float(const Type *type, uint64_t word)
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

bool cut_off(Report *report) { return fail(report, ASTERISM_DAMAGED, "the file is cut off"); }

const uint8_t *some(Bytes *bytes, uint64_t count)
{
    if (count > bytes->size - bytes->at) {
        cut_off(bytes->report);
        return NULL;
    }
    bytes->at += (size_t)count;
    return bytes->data + bytes->at - count;
}

bool varint(Bytes *bytes, uint64_t *number)
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

uint64_t word_at(const uint8_t *from, int bytes)
{
    uint64_t word = 0;
    for (int i = bytes - 1; i >= 0; i--) word = word << 8 | from[i];
    return word;
}

/* The next tensor, of this type and shape, all zeros. */
Tensor *new_tensor(Store *store, uint64_t type, int rank, const uint64_t *shape)
{
    Report *report = store->report;
    if (type >= TYPE_COUNT) {
        fail(report, ASTERISM_UNSUPPORTED, "unknown dtype number %llu", (unsigned long long)type);
        return NULL;
    }
    if (TYPES[type].kind == 'f' && TYPES[type].bytes == 1) {
        fail(report, ASTERISM_UNSUPPORTED,
             "there is no %s here: save the network in another precision", TYPES[type].name);
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

bool fill(Tensor *tensor, float number)
{
    for (int64_t i = 0; i < tensor->size; i++) tensor->numbers[i] = number;
    return true;
}
