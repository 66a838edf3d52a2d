/* How tables are read. */

/* ---- next */
/* The next whole number of a table: seven bits a byte, the lowest first. */
static uint32_t next(const uint8_t **table)
{
    uint32_t number = 0;
    int shift = 0;
    uint8_t byte;
    do {
        byte = BYTE(*table);
        *table += 1;
        number |= (uint32_t)(byte & 127) << shift;
        shift += 7;
    } while (byte & 128);
    return number;
}

/* ---- number */
/* One of many floats: as it is, or one of few values by a code of some bits; 0 where there are none. */
static float number(numbers from, uint32_t k)
{
    if (from.bits > 0) {
        uint32_t at = k * (uint32_t)from.bits;
        k = (BYTE(from.codes + at / 8) >> at % 8) & ((1u << from.bits) - 1);
    }
    return from.values ? FLOAT(from.values + k) : 0;
}
