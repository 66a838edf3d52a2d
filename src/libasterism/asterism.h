/* libasterism: networks in `.asterism` files, loaded and run from C and C++, without Python.

   A network is loaded once and then only read: any number of threads may run it at once. Every
   function that can fail returns a code, and writes a message of one line into `message`, which may
   be NULL, and whose `room` bytes it never exceeds. A file from a stranger runs no code: all that is
   in it is checked before memory is taken or anything is computed. */

#ifndef ASTERISM_H
#define ASTERISM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define ASTERISM_API __attribute__((visibility("default")))
#else
#define ASTERISM_API
#endif

typedef enum {
    ASTERISM_OK = 0,
    ASTERISM_UNREADABLE = 1,  /* the file cannot be opened or read */
    ASTERISM_DAMAGED = 2,     /* it is no `.asterism` file, or a damaged one */
    ASTERISM_UNSUPPORTED = 3, /* it is right, but this library cannot run what is in it */
    ASTERISM_NO_MEMORY = 4,
    ASTERISM_MISUSED = 5 /* a pointer that must not be NULL is, or a number is out of range */
} asterism_status;

enum { ASTERISM_MAX_RANK = 12 };

typedef struct asterism_net asterism_net;

/* One input or output: the shape of one example, without the batch, and how many numbers that is. */
typedef struct {
    int64_t shape[ASTERISM_MAX_RANK];
    int rank;
    size_t size;
    int integer; /* of an input: whether its floats must be whole numbers, as the ids of words are */
} asterism_value;

/* The network in a file, or in `size` bytes that may be freed afterwards. `*net` is NULL unless the
   result is ASTERISM_OK; else asterism_free frees it. */
ASTERISM_API asterism_status asterism_load(const char *path, asterism_net **net, char *message,
                                           size_t room);
ASTERISM_API asterism_status asterism_load_bytes(const void *data, size_t size, asterism_net **net,
                                                 char *message, size_t room);

/* A batch of examples through the network: of each input and each output `batch` examples, one after
   the other. Inputs and outputs must not overlap. Takes memory for the values in between, and gives
   it back. A number that is not finite gives an answer without meaning, and no other harm. */
ASTERISM_API asterism_status asterism_run(const asterism_net *net, const float *const *inputs,
                                          float *const *outputs, size_t batch, char *message,
                                          size_t room);

ASTERISM_API size_t asterism_inputs(const asterism_net *net);
ASTERISM_API size_t asterism_outputs(const asterism_net *net);
/* NULL where there is no input or output of that number. */
ASTERISM_API const asterism_value *asterism_input(const asterism_net *net, size_t number);
ASTERISM_API const asterism_value *asterism_output(const asterism_net *net, size_t number);

ASTERISM_API void asterism_free(asterism_net *net); /* NULL is allowed */

#ifdef __cplusplus
}
#endif

#endif
