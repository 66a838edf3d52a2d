/* What the parts of the library share. */

#ifndef ASTERISM_NET_H
#define ASTERISM_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "asterism.h"
#include "private.h"

enum { MAX_RANK = ASTERISM_MAX_RANK, MAX_WEIGHTS = 8, MAX_SETTINGS = 16, MAX_LIST = 8 };
#define MAX_SIZE ((int64_t)1 << 28)  /* numbers in one value */
#define MAX_TOTAL ((int64_t)1 << 29) /* numbers in all values, for one example */
#define NONE INT64_MIN

/* Where a message goes. The first failure is the one that is told. */
typedef struct {
    asterism_status status;
    char *message;
    size_t room;
} Report;

/* Always false, for `return fail(...)`. */
bool fail(Report *report, asterism_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* An array of `count` things of `size` bytes, all zeros; NULL, and told, where there is no memory. */
void *take(Report *report, size_t count, size_t size);

typedef struct {
    int64_t shape[32];
    int rank;
    int64_t size, nonzeros;
    float *numbers;
    bool kept; /* whether running reads it as it is */
} Tensor;

typedef struct {
    Tensor *all;
    size_t count;
} Tensors;

/* Files, sections and tensors: container.c */
bool read_file(Report *report, const uint8_t *data, size_t size, Tensors *tensors,
               const uint8_t **graph, size_t *graph_size);
void free_tensors(Tensors *tensors);

/* An operation as files know it; table.h holds all of them. */
typedef struct {
    const char *name;
    int kind; /* of operations.h: those of one kind are checked, prepared and run alike */
    int code, arity, weights, settings;
    bool free, view;
    double defaults[MAX_SETTINGS];
    uint32_t floats; /* a bit for each setting that is a float in files */
} Operation;

typedef struct {
    int64_t shape[MAX_RANK];
    int rank;
    int64_t size;
    int root;       /* the value in whose memory it lies: itself, but for views */
    bool whole;     /* ids */
    bool constant;  /* the same for every example */
    float *numbers; /* of a constant */
    int64_t offset; /* in the workspace, or -1 */
    int last;       /* the last node that reads it */
} Value;

/* A matrix by rows, without its zeros. */
typedef struct {
    int64_t rows, columns;
    int64_t *starts;
    int32_t *places;
    float *numbers;
} Sparse;

/* What a place of a kernel does along one axis: `count` inputs from `input` on, to `output` on. */
typedef struct {
    int64_t input, output, count;
} Span;

typedef struct {
    int32_t channel, place[3];
    float weight;
} Tap;

typedef struct {
    const Operation *operation;
    int op, out; /* its place in operations.h, the value that it makes */
    int *inputs, count;
    int64_t weights[MAX_WEIGHTS]; /* the number of a tensor, -v for the value v, or NONE */
    double settings[MAX_SETTINGS];
    int64_t list[MAX_LIST];
    int listed;
    bool in_place;
    /* what `prepare` has made */
    Sparse matrices[4];
    Tap *taps;
    int64_t *starts;
    Span *spans[3];
    int32_t *bounds;
    float *table, *second;
    int64_t scratch, start;
    bool needed;
} Node;

struct asterism_net {
    Tensors tensors;
    Value *values;
    int value_count, input_count;
    Node *nodes;
    int node_count;
    int *outputs, output_count;
    asterism_value *told; /* inputs, then outputs */
    int64_t workspace, scratch;
    int most; /* inputs of a node */
};

/* The graph, the shapes of its values and its work: graph.c, shapes.c */
bool read_graph(Report *report, asterism_net *net, const uint8_t *data, size_t size);
bool find_shapes(Report *report, asterism_net *net);

/* What layers need before the first example, the memory of values, and one example: run.c.
   `workspace` has room for net->workspace and net->scratch numbers, and `sources` for net->most. */
bool prepare(Report *report, asterism_net *net);
void run(const asterism_net *net, const float *const *inputs, float *const *outputs, size_t example,
         float *workspace, const float **sources);

/* A weight of a node: where it is a value, that of the value; NULL where the node has none. */
typedef struct {
    const int64_t *shape;
    int rank;
    int64_t size, nonzeros;
    const float *numbers;
} Weight;

Weight weight_of(const asterism_net *net, const Node *node, int number);

#endif
