/* Bytes of a file, numbers of a type, and memory for tensors: store.c; the two sections: small.c, fast.c */

#ifndef ASTERISM_STORE_H
#define ASTERISM_STORE_H

#include "net.h"

enum { MAX_NAME = 1 << 12, MAX_TENSORS = 1 << 16, FILE_RANK = 32, TYPE_COUNT = 15 };

typedef struct {
    const char *name;
    int bytes;
    char kind; /* f: sign and magnitude; i: two's complement; u: no sign */
} Type;

extern const Type TYPES[TYPE_COUNT]; /* by their numbers in a file */

int magnitude_bits(const Type *type);
uint64_t below(int bits); /* all bits below this one */
/* Sign and magnitude as the word of a file, and a word as the float that the runtime makes of it. */
uint64_t joined(const Type *type, bool negative, uint64_t magnitude);
float to_float(const Type *type, uint64_t word);

typedef struct {
    const uint8_t *data;
    size_t size, at;
    Report *report;
} Bytes;

bool cut_off(Report *report);
const uint8_t *some(Bytes *bytes, uint64_t count); /* NULL, and told, where fewer are left */
bool varint(Bytes *bytes, uint64_t *number);
uint64_t word_at(const uint8_t *from, int bytes);

typedef struct {
    Report *report;
    Tensors *tensors;
    size_t room;
    uint64_t left; /* bytes that may still be decoded */
} Store;

/* The next tensor, of this type and shape, all zeros. */
Tensor *new_tensor(Store *store, uint64_t type, int rank, const uint64_t *shape);
bool fill(Tensor *tensor, float number);

bool read_small(Store *store, Bytes section, int version);
bool read_fast(Store *store, Bytes section);

#endif
