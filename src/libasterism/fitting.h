/* One node, and whether its input, weights and settings fit: sizes.c */

#ifndef ASTERISM_FITTING_H
#define ASTERISM_FITTING_H

#include "net.h"

/* One node and what it reads; `what` tells what does not fit. */
typedef struct {
    const asterism_net *net;
    const Node *node;
    const Value *in, *second, *third;
    Value *out;
    Weight weights[MAX_WEIGHTS];
    const char *what;
} Fitting;

/* Finds the shape of the result; false where it does not fit, and then `what` is told, unless the
   operation is one that this library has not. */
bool fit(Fitting *f);

#endif
