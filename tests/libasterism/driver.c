/* Networks out of a file of many, each loaded, run on two examples and freed; with a second argument
   each runs in four threads at once too, which must all answer the same.

   In: of each its size in bytes, 8 bytes little-endian, and the file itself. Out: of each the
   status, the seconds it took, the length of its message and the message; if it ran, how many
   outputs, and of each its size and numbers. */

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "asterism.h"

enum { BATCH = 2, MOST = 64 };

static void put(const void *data, size_t size)
{
    if (fwrite(data, 1, size, stdout) != size) exit(4);
}

static void put_size(uint64_t size) { put(&size, sizeof size); }

/* Numbers between -1 and 1, or small whole ones. */
static float *example(const asterism_value *value)
{
    size_t count = BATCH * value->size;
    float *made = malloc(count * sizeof *made);
    for (size_t i = 0; made && i < count; i++)
        made[i] = value->integer ? (float)(i * 37 % 7) : (float)(i * 37 % 101) / 50 - 1;
    return made;
}

static asterism_status try_it(const asterism_net *net, float **outputs, char *message, size_t room)
{
    float *inputs[MOST] = {0};
    size_t given = asterism_inputs(net), made = asterism_outputs(net);
    asterism_status status = ASTERISM_NO_MEMORY;
    int fine = given <= MOST && made <= MOST;
    for (size_t i = 0; fine && i < given; i++)
        fine = (inputs[i] = example(asterism_input(net, i))) != NULL;
    for (size_t i = 0; fine && i < made; i++)
        fine = (outputs[i] = malloc(BATCH * asterism_output(net, i)->size * sizeof(float))) != NULL;
    if (fine)
        status = asterism_run(net, (const float *const *)inputs, outputs, BATCH, message, room);
    for (size_t i = 0; i < MOST; i++) free(inputs[i]);
    return status;
}

/* One of several threads that share a network. */
typedef struct {
    const asterism_net *net;
    float **expected;
    asterism_status status;
} Thread;

static void *run_again(void *argument)
{
    Thread *thread = argument;
    float *outputs[MOST] = {0};
    thread->status = try_it(thread->net, outputs, NULL, 0);
    for (size_t i = 0; !thread->status && i < asterism_outputs(thread->net); i++) {
        size_t count = BATCH * asterism_output(thread->net, i)->size;
        if (memcmp(outputs[i], thread->expected[i], count * sizeof(float))) exit(5);
    }
    for (size_t i = 0; i < MOST; i++) free(outputs[i]);
    return NULL;
}

static asterism_status run_in_threads(const asterism_net *net, float **expected)
{
    pthread_t ids[4];
    Thread threads[4];
    asterism_status status = ASTERISM_OK;
    for (int i = 0; i < 4; i++) {
        threads[i] = (Thread){net, expected, ASTERISM_OK};
        if (pthread_create(&ids[i], NULL, run_again, &threads[i])) exit(6);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(ids[i], NULL);
        if (threads[i].status) status = threads[i].status;
    }
    return status;
}

static void attempt(const uint8_t *data, size_t size, int threads)
{
    char message[256] = "";
    float *outputs[MOST] = {0};
    asterism_net *net;
    clock_t start = clock();
    asterism_status status = asterism_load_bytes(data, size, &net, message, sizeof message);
    if (!status) status = try_it(net, outputs, message, sizeof message);
    if (!status && threads) status = run_in_threads(net, outputs);
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    put_size(status), put(&seconds, sizeof seconds);
    put_size(strlen(message)), put(message, strlen(message));
    if (!status) put_size(asterism_outputs(net));
    for (size_t i = 0; !status && i < asterism_outputs(net); i++) {
        size_t count = BATCH * asterism_output(net, i)->size;
        put_size(count), put(outputs[i], count * sizeof(float));
    }
    for (size_t i = 0; i < MOST; i++) free(outputs[i]);
    asterism_free(net);
    fflush(stdout);
}

int main(int count, char **arguments)
{
    FILE *file = count > 1 ? fopen(arguments[1], "rb") : NULL;
    uint64_t size;
    if (!file) return 2;
    while (fread(&size, sizeof size, 1, file) == 1) {
        uint8_t *data = malloc(size ? size : 1); /* of exactly this size: the sanitizer sees more */
        if (!data || fread(data, 1, size, file) != size) return 3;
        attempt(data, size, count > 2);
        free(data);
    }
    return fclose(file);
}
