/* The file around its sections, as docs/format.md has it. */

#include <stdlib.h>
#include <string.h>

#include "store.h"

#define FLOOR ((uint64_t)1 << 26)     /* bytes that any file may decode to */
#define EXPANSION ((uint64_t)1 << 14) /* how many times its size a file may, beyond that */

static uint32_t checksum(const uint8_t *data, size_t size)
{
    uint32_t table[256], crc = 0xFFFFFFFF;
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int k = 0; k < 8; k++)
            table[i] = table[i] & 1 ? table[i] >> 1 ^ 0xEDB88320 : table[i] >> 1;
    }
    for (size_t i = 0; i < size; i++) crc = crc >> 8 ^ table[(crc ^ data[i]) & 0xFF];
    return ~crc;
}

bool read_file(Report *report, const uint8_t *data, size_t size, Tensors *tensors,
               const uint8_t **graph, size_t *graph_size)
{
    if (size < 4 || memcmp(data,
                           "\x8b"
                           "AST",
                           4))
        return fail(report, ASTERISM_DAMAGED, "this is not an .asterism file");
    if (size < 9) return cut_off(report);
    int version = data[4];
    if (version > 2)
        return fail(report, ASTERISM_UNSUPPORTED, "version %d: this library reads 1 and 2", version);
    if (checksum(data, size - 4) != word_at(data + size - 4, 4))
        return fail(report, ASTERISM_DAMAGED, "damaged or cut off: the checksum does not match");
    if (!version) return fail(report, ASTERISM_DAMAGED, "unknown version 0");
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
        return fail(report, ASTERISM_DAMAGED,
                    "none or two sections of tensors in the place of one");
    *graph = sections[2].data, *graph_size = sections[2].size;
    uint64_t limit = size > FLOOR / EXPANSION ? EXPANSION * size : FLOOR;
    Store store = {.report = report, .tensors = tensors, .left = limit};
    if (!(sections[0].data ? read_small(&store, sections[0], version)
                           : read_fast(&store, sections[1])))
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
