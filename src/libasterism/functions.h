/* Functions of plain values, as exported C files have them. */

#ifndef ASTERISM_FUNCTIONS_H
#define ASTERISM_FUNCTIONS_H

#include <math.h>
#include <stdint.h>

#define BYTE(p) (*(p))
#define FLOAT(p) (*(p))
#define INTEGER(p) (*(p))
typedef struct {
    const uint8_t *codes;
    const float *values;
    int bits;
} numbers;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
static float sigmoid_of(float x) { return 1 / (1 + expf(-x)); }
#include "../asterism/export/c/functions/reading.c"
#include "../asterism/export/c/functions/values.c"
#include "../asterism/export/c/functions/activations.c"
static numbers plain(const float *values) { return (numbers){0, values, 0}; }
#pragma GCC diagnostic pop

#endif
