/* Where the elements of an array are not zero: the one loop of the fast mode that numpy is slow at. */
#include <stdint.h>

enum { GROUP = 64 }; /* bytes that are looked at together, as most are zeros */

typedef uint64_t Any __attribute__((may_alias, aligned(1)));

static inline int blank(const void *group)
{
    const Any *a = group;
    return !(a[0] | a[1] | a[2] | a[3] | a[4] | a[5] | a[6] | a[7]);
}

/* `out` has room for all. */
#define FIND(name, type)                                                  \
    static int64_t name(const type *words, int64_t count, uint32_t *out) \
    {                                                                     \
        enum { STEP = GROUP / sizeof(type) };                             \
        int64_t found = 0, i = 0;                                         \
        for (; i + STEP <= count; i += STEP) {                            \
            if (blank(words + i)) continue;                               \
            for (int64_t j = i; j < i + STEP; j++) {                      \
                out[found] = (uint32_t)j;                                 \
                found += words[j] != 0;                                   \
            }                                                             \
        }                                                                 \
        for (; i < count; i++)                                            \
            if (words[i]) out[found++] = (uint32_t)i;                     \
        return found;                                                     \
    }

FIND(find_1, uint8_t)
FIND(find_2, uint16_t)
FIND(find_4, uint32_t)
FIND(find_8, uint64_t)

/* The places, of at most 2^32 words of 1, 2, 4 or 8 bytes; returns how many. */
int64_t asterism_find_nonzeros(const void *words, int64_t count, int64_t bytes, uint32_t *out)
{
    switch (bytes) {
    case 1: return find_1(words, count, out);
    case 2: return find_2(words, count, out);
    case 4: return find_4(words, count, out);
    default: return find_8(words, count, out);
    }
}
