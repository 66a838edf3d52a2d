/* What each layer needs before the first example (make_…), and how it computes one (run_…). Sizes have
   been checked by shapes.c. */

#ifndef ASTERISM_LAYERS_H
#define ASTERISM_LAYERS_H

#include "net.h"

enum { ADDED, SHOWN, HIDDEN }; /* what a mask holds */

static inline int32_t small(int64_t size)
{
    return (int32_t)size;
} /* at most MAX_SIZE: see shapes.c */

static inline const Value *input(const asterism_net *net, const Node *node, int number)
{
    return &net->values[node->inputs[number]];
}

static inline int64_t product(const int64_t *shape, int from, int to)
{
    int64_t size = 1;
    for (int i = from; i < to; i++) size *= shape[i];
    return size;
}

/* A weight that running reads as it is: layers.c */
const float *kept(asterism_net *net, const Node *node, int number);

/* Fully connected layers and convolutions: weighted.c */
bool make_sparse(Report *report, const Weight *weight, Sparse *made);
void multiply(const Sparse *m, const float *x, const float *bias, float *y);
void run_linear(const asterism_net *net, const Node *node, const float *x, float *y);
bool make_taps(Report *report, const asterism_net *net, Node *node);
void run_conv(const asterism_net *net, const Node *node, const float *x, float *y);

/* Pooling, norms, two values: values.c */
bool make_windows(Report *report, const asterism_net *net, Node *node);
void run_pool(const asterism_net *net, const Node *node, const float *x, float *y);
bool make_norm(Report *report, asterism_net *net, Node *node);
void run_norm(const asterism_net *net, const Node *node, const float *x, float *y);
bool make_axes(Report *report, const asterism_net *net, Node *node);
void run_two(const asterism_net *net, const Node *node, const float *a, const float *b, float *y);

/* Numbers in another order or at another size: moving.c */
bool make_steps(Report *report, const asterism_net *net, Node *node);
void run_steps(const asterism_net *net, const Node *node, const float *x, float *y);
void run_pad(const asterism_net *net, const Node *node, const float *x, float *y);
float masked(const Weight *mask, int64_t head, int64_t row, int64_t column);
void run_hide(const asterism_net *net, const Node *node, const float *x, float *y);
void run_cat(const asterism_net *net, const Node *node, const float *const *sources, float *y);
bool make_sources(Report *report, const asterism_net *net, Node *node);
void run_resize(const asterism_net *net, const Node *node, const float *x, float *y);

/* Attention, recurrent layers: sequences.c */
bool make_mask(Report *report, const asterism_net *net, Node *node);
void run_attention(const asterism_net *net, const Node *node, const float *const *x, float *y,
                   float *scores);
bool make_recurrent(Report *report, asterism_net *net, Node *node);
void run_recurrent(const asterism_net *net, const Node *node, const float *const *x, float *y,
                   float *scratch);

/* Any layer: layers.c */
bool make(Report *report, asterism_net *net, Node *node);
void run_node(const asterism_net *net, const Node *node, const float *const *x, float *y,
              float *scratch);

#endif
