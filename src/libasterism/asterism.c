/* The library's functions: files in, networks out, and batches through them. */

#include "asterism.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net.h"

bool fail(Report *report, asterism_status status, const char *format, ...)
{
    if (report->status != ASTERISM_OK) return false;
    report->status = status;
    if (report->message && report->room) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(report->message, report->room, format, arguments);
        va_end(arguments);
    }
    return false;
}

void *take(Report *report, size_t count, size_t size)
{
    void *made = calloc(count ? count : 1, size);
    if (!made) fail(report, ASTERISM_NO_MEMORY, "no memory for %zu times %zu bytes", count, size);
    return made;
}

static Report new_report(char *message, size_t room)
{
    if (message && room) *message = 0;
    return (Report){ASTERISM_OK, message, room};
}

/* Inputs and outputs as callers see them. */
static bool tell(Report *report, asterism_net *net)
{
    int count = net->input_count + net->output_count;
    if (!(net->told = take(report, (size_t)count, sizeof *net->told))) return false;
    for (int i = 0; i < count; i++) {
        const Value *value =
            &net->values[i < net->input_count ? i : net->outputs[i - net->input_count]];
        asterism_value *told = &net->told[i];
        told->rank = value->rank, told->size = (size_t)value->size, told->integer = value->whole;
        memcpy(told->shape, value->shape, sizeof told->shape);
    }
    for (int i = 0; i < net->node_count; i++)
        if (net->nodes[i].count > net->most) net->most = net->nodes[i].count;
    return true;
}

static bool build(Report *report, asterism_net *net, const uint8_t *data, size_t size)
{
    const uint8_t *graph;
    size_t graph_size;
    if (!read_file(report, data, size, &net->tensors, &graph, &graph_size)) return false;
    if (!graph)
        return fail(report, ASTERISM_UNSUPPORTED,
                    "it holds weights without a graph: save it with example_inputs to run it");
    return read_graph(report, net, graph, graph_size) && find_shapes(report, net) &&
           prepare(report, net) && tell(report, net);
}

asterism_status asterism_load_bytes(const void *data, size_t size, asterism_net **net,
                                    char *message, size_t room)
{
    Report report = new_report(message, room);
    if (net) *net = NULL;
    if (!net || (!data && size)) {
        fail(&report, ASTERISM_MISUSED,
             "asterism_load_bytes needs data, and where to put the network");
        return report.status;
    }
    asterism_net *made = take(&report, 1, sizeof *made);
    if (made && build(&report, made, data, size))
        *net = made;
    else
        asterism_free(made);
    return report.status;
}

/* All bytes of a file, `*size` of them; NULL, and told, where it cannot be read. */
static uint8_t *bytes_of(Report *report, const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = NULL;
    size_t room = 0;
    *size = 0;
    bool fine = file != NULL;
    while (fine) {
        if (*size == room) {
            uint8_t *more = realloc(data, room = 2 * room + (1 << 16));
            if (!more) {
                fine = fail(report, ASTERISM_NO_MEMORY, "%s: no memory for the file", path);
                break;
            }
            data = more;
        }
        size_t got = fread(data + *size, 1, room - *size, file);
        *size += got;
        if (!got) break;
    }
    if (!file || (fine && ferror(file)))
        fine = fail(report, ASTERISM_UNREADABLE, "cannot read %s: %s", path, strerror(errno));
    if (file) fclose(file);
    if (!fine) free(data), data = NULL;
    return data;
}

asterism_status asterism_load(const char *path, asterism_net **net, char *message, size_t room)
{
    Report report = new_report(message, room);
    if (net) *net = NULL;
    if (!path || !net) {
        fail(&report, ASTERISM_MISUSED, "asterism_load needs a path, and where to put the network");
        return report.status;
    }
    size_t size;
    uint8_t *data = bytes_of(&report, path, &size);
    if (!data) return report.status;
    char reason[512];
    asterism_status status = asterism_load_bytes(data, size, net, reason, sizeof reason);
    free(data);
    if (status) fail(&report, status, "%s: %s", path, reason);
    return report.status;
}

asterism_status asterism_run(const asterism_net *net, const float *const *inputs,
                             float *const *outputs, size_t batch, char *message, size_t room)
{
    Report report = new_report(message, room);
    bool given = net && inputs && outputs;
    for (int i = 0; given && batch && i < net->input_count; i++) given = inputs[i] != NULL;
    for (int i = 0; given && batch && i < net->output_count; i++) given = outputs[i] != NULL;
    if (!given) {
        fail(&report, ASTERISM_MISUSED,
             "asterism_run needs a network and all its inputs and outputs");
        return report.status;
    }
    float *workspace = malloc(((size_t)(net->workspace + net->scratch) + 1) * sizeof *workspace);
    const float **sources = malloc(((size_t)net->most + 1) * sizeof *sources);
    if (!workspace || !sources)
        fail(&report, ASTERISM_NO_MEMORY, "no memory for %lld numbers", (long long)net->workspace);
    else
        for (size_t example = 0; example < batch; example++)
            run(net, inputs, outputs, example, workspace, sources);
    free(workspace), free(sources);
    return report.status;
}

size_t asterism_inputs(const asterism_net *net) { return net ? (size_t)net->input_count : 0; }

size_t asterism_outputs(const asterism_net *net) { return net ? (size_t)net->output_count : 0; }

const asterism_value *asterism_input(const asterism_net *net, size_t number)
{
    return number < asterism_inputs(net) ? &net->told[number] : NULL;
}

const asterism_value *asterism_output(const asterism_net *net, size_t number)
{
    return number < asterism_outputs(net) ? &net->told[(size_t)net->input_count + number] : NULL;
}

static void free_node(Node *node)
{
    for (int i = 0; i < 4; i++)
        free(node->matrices[i].starts), free(node->matrices[i].places),
            free(node->matrices[i].numbers);
    for (int i = 0; i < 3; i++) free(node->spans[i]);
    free(node->inputs), free(node->taps), free(node->starts), free(node->bounds);
    free(node->table), free(node->second);
}

void asterism_free(asterism_net *net)
{
    if (!net) return;
    for (int i = 0; i < net->node_count; i++) free_node(&net->nodes[i]);
    for (int i = 0; net->values && i < net->value_count; i++) free(net->values[i].numbers);
    free_tensors(&net->tensors);
    free(net->values), free(net->nodes), free(net->outputs), free(net->told);
    free(net);
}
