/* Loads a network, tells what it takes, and runs it on one example: floats from the standard input,
   as many as it takes, or zeros where there are none. */

#include <asterism.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **arguments)
{
    char message[256];
    asterism_net *net;
    if (count != 2) {
        fprintf(stderr, "usage: classify net.asterism < numbers\n");
        return 2;
    }
    if (asterism_load(arguments[1], &net, message, sizeof message) != ASTERISM_OK) {
        fprintf(stderr, "%s\n", message);
        return 1;
    }
    if (asterism_inputs(net) != 1 || asterism_outputs(net) != 1) {
        fprintf(stderr, "%s: this example is for networks with one input and one output\n",
                arguments[1]);
        asterism_free(net);
        return 1;
    }
    const asterism_value *given = asterism_input(net, 0), *made = asterism_output(net, 0);
    printf("takes");
    for (int i = 0; i < given->rank; i++)
        printf("%s %lld", i ? " ×" : "", (long long)given->shape[i]);
    printf(", gives %zu numbers\n", made->size);

    float *in = calloc(given->size, sizeof *in), *out = calloc(made->size, sizeof *out);
    for (size_t i = 0; in && i < given->size && scanf("%f", &in[i]) == 1; i++) {}
    int failed = !in || !out;
    if (!failed)
        failed = asterism_run(net, (const float *const[]){in}, (float *const[]){out}, 1, message,
                              sizeof message);
    if (failed) fprintf(stderr, "%s\n", in && out ? message : "no memory");
    for (size_t i = 0; !failed && i < made->size; i++) printf("%g\n", out[i]);
    free(in), free(out);
    asterism_free(net);
    return failed;
}
