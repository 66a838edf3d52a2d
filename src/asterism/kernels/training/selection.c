/* The passes over the weights of a cut: counting magnitudes in bins, and the mask of a cut. A
   magnitude is the bits of a float32 without its sign, which order as the numbers do. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP = 32 }; /* weights that are looked at together before any is counted */

/* theta, and alive, which is 0 where a weight may not be chosen, or NULL where all may. */
typedef struct {
    const float *theta, *alive;
    int64_t size;
} Weights;

/* Bins that begin at `starts`, rising, each of 2^free_bits magnitudes, in parts of 2^finer. */
typedef struct {
    const int32_t *starts;
    int64_t bins, free_bits, finer;
    int64_t *table; /* of each part: weights, the sum of their last `finer` bits, and of the squares */
} Histogram;

static inline int32_t bits_of(float value)
{
    int32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits & 0x7fffffff;
}

static int64_t bin_of(const Histogram *h, int32_t bits)
{
    int64_t low = 0, high = h->bins;
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (h->starts[middle] <= bits) low = middle;
        else high = middle;
    }
    return low;
}

static inline void count_one(const Histogram *h, int32_t bits)
{
    int64_t bin = bin_of(h, bits), ahead = bits - h->starts[bin];
    if (ahead >> h->free_bits) return;
    int64_t rest = ahead & (((int64_t)1 << h->finer) - 1);
    int64_t *part = h->table + 3 * ((bin << (h->free_bits - h->finer)) + (ahead >> h->finer));
    part[0]++;
    part[1] += rest;
    part[2] += rest * rest;
}

/* Whether any of a group lies from the first bin to the last: of most layers only few do. */
static inline int any_within(const float *theta, uint32_t first, uint32_t span)
{
    uint32_t found = 0;
    for (int64_t i = 0; i < GROUP; i++) found |= (uint32_t)bits_of(theta[i]) - first <= span;
    return found != 0;
}

/* All magnitudes, in parts of 2^16. A count and a sum of 16 bits share one number: as long as there
   are no more than CHUNK weights the sum does not reach the count. */
enum { PARTS = 1 << 15, CHUNK = 1 << 23, SUM_BITS = 40 };

typedef struct {
    uint64_t count_and_sum, squares;
} Part;

static int count_all(const Weights *w, const Histogram *h)
{
    Part *parts = calloc(PARTS, sizeof *parts);
    if (!parts) return 0;
    for (int64_t at = 0; at < w->size; at += CHUNK) {
        int64_t end = at + CHUNK < w->size ? at + CHUNK : w->size;
        for (int64_t i = at; i < end; i++) {
            uint32_t bits = (uint32_t)bits_of(w->theta[i]);
            uint64_t rest = bits & 0xffff, one = (uint64_t)1 << SUM_BITS;
            if (w->alive && w->alive[i] == 0) continue;
            Part *part = parts + (bits >> 16);
            part->count_and_sum += one + rest;
            part->squares += rest * rest;
        }
        for (int64_t part = 0; part < PARTS; part++) {
            h->table[3 * part] += (int64_t)(parts[part].count_and_sum >> SUM_BITS);
            h->table[3 * part + 1] +=
                (int64_t)(parts[part].count_and_sum & (((uint64_t)1 << SUM_BITS) - 1));
            h->table[3 * part + 2] += (int64_t)parts[part].squares;
        }
        memset(parts, 0, PARTS * sizeof *parts);
    }
    free(parts);
    return 1;
}

void asterism_count_magnitudes(const Weights *w, const Histogram *h)
{
    if (h->free_bits == 31 && h->finer == 16 && count_all(w, h)) return;
    uint32_t first = (uint32_t)h->starts[0];
    uint32_t span = (uint32_t)h->starts[h->bins - 1] - first + (((uint32_t)1 << h->free_bits) - 1);
    for (int64_t at = 0; at < w->size; at += GROUP) {
        int64_t end = at + GROUP < w->size ? at + GROUP : w->size;
        if (end - at == GROUP && !any_within(w->theta + at, first, span))
            continue;
        for (int64_t i = at; i < end; i++) {
            int32_t bits = bits_of(w->theta[i]);
            if ((uint32_t)bits - first <= span && (!w->alive || w->alive[i] != 0))
                count_one(h, bits);
        }
    }
}

/* mask: 1 where a magnitude has at least these bits, `least`, and may be chosen. */
void asterism_mask(const Weights *w, int32_t least, uint8_t *mask)
{
    if (w->alive)
        for (int64_t i = 0; i < w->size; i++)
            mask[i] = (bits_of(w->theta[i]) >= least) & (w->alive[i] != 0);
    else
        for (int64_t i = 0; i < w->size; i++) mask[i] = bits_of(w->theta[i]) >= least;
}

/* values ← +0 where they are not kept. */
void asterism_keep(float *values, const uint8_t *kept, int64_t size)
{
    for (int64_t i = 0; i < size; i++) {
        uint32_t bits;
        memcpy(&bits, values + i, sizeof bits);
        bits &= -(uint32_t)(kept[i] != 0);
        memcpy(values + i, &bits, sizeof bits);
    }
}

/* The first `count` places that are kept, rising; there are at least that many. */
void asterism_list_kept(const uint8_t *kept, int64_t count, int64_t *places)
{
    int64_t found = 0;
    for (int64_t i = 0; found < count; i++) {
        places[found] = i;
        found += kept[i] != 0;
    }
}
