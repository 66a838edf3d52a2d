/* Runs one compiled network on another machine: a recording on stdin, the answers to stdout. */
#include <stdio.h>
#include <stdlib.h>
#include "program.h"

void *asterism_new(const Step *, int64_t, const Step *, int64_t, int64_t, int64_t,
                   int64_t, int);
int asterism_run(void *, const float *, float *, int64_t, int64_t);

enum { ONE, MANY, SCRATCH_FLOATS, IN_FLOATS, OUT_FLOATS, IMAGES, DATA_BYTES, HEADER };

static void *read_all(size_t bytes)
{
    char *memory = aligned_alloc(64, (bytes / 64 + 1) * 64);
    if (!memory || fread(memory, 1, bytes, stdin) != bytes) exit(2);
    return memory;
}

int main(void)
{
    int64_t *n = read_all(HEADER * sizeof *n);
    Step *steps = read_all((n[ONE] + n[MANY]) * sizeof *steps);
    char *data = read_all(n[DATA_BYTES]);
    for (int64_t i = 0; i < n[ONE] + n[MANY]; i++) /* recorded as offsets into the data */
        for (int d = 0; d < 4; d++) steps[i].data[d] = data + (intptr_t)steps[i].data[d];
    float *in = read_all(n[IMAGES] * n[IN_FLOATS] * sizeof *in);
    float *out = calloc(n[IMAGES] * n[OUT_FLOATS] + 1, sizeof *out);
    void *program = asterism_new(steps, n[ONE], steps + n[ONE], n[MANY], n[SCRATCH_FLOATS],
                                 n[IN_FLOATS], n[OUT_FLOATS], 1, 0);
    if (!out || !program || asterism_run(program, in, out, n[IMAGES], 1)) return 3;
    return fwrite(out, sizeof *out, n[IMAGES] * n[OUT_FLOATS], stdout) != (size_t)(n[IMAGES] * n[OUT_FLOATS]);
}
