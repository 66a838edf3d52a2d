/* The graph of a file: inputs, layers, outputs. What is read may be hostile. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "net.h"
#include "operations.h"
#include "table.h"

enum { OPERATION_COUNT = sizeof OPERATIONS / sizeof *OPERATIONS };
enum { ONE_INPUT = 1, SEVERAL = 2, WITH_RANGES = 2, FILE_LIST = 8 };
#define MAX_NUMBER ((int64_t)0xFFFFFFFF)
#define MAX_WEIGHT ((int64_t)0x7FFFFFFF)

typedef struct {
    const uint8_t *data;
    size_t size, at;
    Report *report;
} Reader;

/* -1, and told, where there is none. */
static int64_t number(Reader *r)
{
    int64_t found = 0;
    for (int shift = 0; shift < 35 && r->at < r->size; shift += 7) {
        uint8_t byte = r->data[r->at++];
        found |= (int64_t)(byte & 127) << shift;
        if (byte < 128 && found <= MAX_NUMBER) return found;
        if (byte < 128) break;
    }
    fail(r->report, ASTERISM_DAMAGED, "a number in the graph is cut off or too large");
    return -1;
}

/* How many things follow, of at least a byte each; -1, and told, where they cannot. */
static int64_t counted(Reader *r)
{
    int64_t count = number(r);
    if (count <= (int64_t)(r->size - r->at)) return count;
    fail(r->report, ASTERISM_DAMAGED, "the graph announces %lld entries and ends before",
         (long long)count);
    return -1;
}

static int64_t unzigzag(int64_t number) { return number % 2 ? -(number + 1) / 2 : number / 2; }

/* Up to eight numbers; how many, or -1. */
static int list(Reader *r, int64_t *numbers)
{
    int64_t count = number(r);
    if (count > FILE_LIST) {
        fail(r->report, ASTERISM_DAMAGED, "%lld dimensions in the graph", (long long)count);
        return -1;
    }
    for (int i = 0; i < count; i++)
        if ((numbers[i] = number(r)) < 0) return -1;
    return (int)count;
}

static bool read_input(Reader *r, Value *value, int version)
{
    if ((value->rank = list(r, value->shape)) < 0) return false;
    if (version == ONE_INPUT) return true;
    int64_t kind = number(r);
    value->whole = kind % 2;
    if (kind / 2 > value->rank)
        return fail(r->report, ASTERISM_DAMAGED, "an input has no dimension that could be free");
    return kind >= 0;
}

/* The inputs, and in version 2 the outputs. */
static bool read_ends(Reader *r, asterism_net *net, int version)
{
    int64_t count = version == ONE_INPUT ? 1 : counted(r);
    Value *inputs = count > 0 ? take(r->report, (size_t)count, sizeof *inputs) : NULL;
    net->values = inputs;
    net->input_count = net->value_count = inputs ? (int)count : 0;
    for (int i = 0; i < net->input_count; i++)
        if (!read_input(r, &inputs[i], version)) return false;
    int64_t outputs = version == ONE_INPUT ? 1 : counted(r);
    if (r->report->status) return false;
    if (count <= 0 || outputs <= 0)
        return fail(r->report, ASTERISM_DAMAGED, "the graph has no inputs or no outputs");
    if (!(net->outputs = take(r->report, (size_t)outputs, sizeof *net->outputs))) return false;
    net->output_count = (int)outputs;
    for (int i = 0; version != ONE_INPUT && i < outputs; i++) {
        int64_t value = number(r);
        if (value < 0 || value > MAX_WEIGHT)
            return fail(r->report, ASTERISM_DAMAGED, "an output of the graph does not exist");
        net->outputs[i] = (int)value;
    }
    return true;
}

/* The name of an operation that files know by their name alone. */
static bool refuse_named(Reader *r)
{
    int64_t length = number(r);
    if (length < 0 || length > (int64_t)(r->size - r->at))
        return fail(r->report, ASTERISM_DAMAGED, "the graph ends early");
    char name[64] = "";
    for (int i = 0; i < length && i < (int)sizeof name - 1; i++) {
        uint8_t byte = r->data[r->at + (size_t)i];
        name[i] =
            byte > ' ' && byte < 127 ? (char)byte : '?'; /* a message stays one line of text */
    }
    return fail(r->report, ASTERISM_UNSUPPORTED, "the runtime has no operation %s", name);
}

static const Operation *coded(int64_t code)
{
    for (int i = 0; i < OPERATION_COUNT; i++)
        if (OPERATIONS[i].code == code) return &OPERATIONS[i];
    return NULL;
}

static bool read_inputs(Reader *r, Node *node, int place, bool follows)
{
    int arity = node->operation->arity, last = node->out - 1;
    int64_t count = follows ? 1 : arity >= 0 ? arity : counted(r);
    if (count < 0) return false;
    if (follows && arity > 1)
        return fail(r->report, ASTERISM_DAMAGED, "layer %d has one input where it takes %d", place,
                    arity);
    if (!count) return fail(r->report, ASTERISM_DAMAGED, "layer %d has no inputs", place);
    if (!(node->inputs = take(r->report, (size_t)count, sizeof *node->inputs))) return false;
    node->count = (int)count;
    for (int i = 0; i < node->count; i++) {
        int64_t back = follows ? 0 : number(r);
        if (back < 0) return false;
        if (back > last)
            return fail(r->report, ASTERISM_DAMAGED, "layer %d reads a value that does not exist",
                        place);
        node->inputs[i] = last - (int)back;
    }
    return true;
}

static bool read_weights(Reader *r, Node *node, int place, int64_t *expected)
{
    for (int i = 0; i < MAX_WEIGHTS; i++) node->weights[i] = NONE;
    for (int i = 0; i < node->operation->weights; i++) {
        int64_t distance = number(r);
        if (distance < 0) return false;
        if (!distance) continue;
        int64_t weight = *expected + unzigzag(distance - 1);
        if (weight < -(int64_t)(node->out - 1) || weight > MAX_WEIGHT)
            return fail(r->report, ASTERISM_DAMAGED, "layer %d names the weight %lld", place,
                        (long long)weight);
        node->weights[i] = weight;
        if (weight >= 0) *expected = weight + 1;
    }
    return true;
}

static bool read_settings(Reader *r, Node *node, int place)
{
    const Operation *operation = node->operation;
    if (operation->free) {
        node->listed = list(r, node->list);
        for (int i = 0; i < node->listed; i++) node->list[i] = unzigzag(node->list[i]);
        return node->listed >= 0;
    }
    memcpy(node->settings, operation->defaults, sizeof node->settings);
    int64_t count = operation->settings ? number(r) : 0;
    if (count > operation->settings)
        return fail(r->report, ASTERISM_DAMAGED, "layer %d has %lld settings of %d", place,
                    (long long)count, operation->settings);
    for (int i = 0; i < count; i++) {
        if (operation->floats >> i & 1) {
            uint64_t bits = 0;
            if (r->size - r->at < 8)
                return fail(r->report, ASTERISM_DAMAGED, "the graph ends early");
            for (int k = 7; k >= 0; k--) bits = bits << 8 | r->data[r->at + (size_t)k];
            memcpy(&node->settings[i], &bits, sizeof bits);
            r->at += 8;
        } else {
            int64_t found = number(r);
            if (found < 0) return false;
            node->settings[i] = (double)unzigzag(found);
        }
    }
    return count >= 0;
}

static bool read_node(Reader *r, Node *node, int place, int64_t *expected)
{
    int64_t code = number(r);
    if (code < 0) return false;
    if (code < 2) return refuse_named(r);
    node->operation = coded(code / 2);
    if (!node->operation)
        return fail(r->report, ASTERISM_UNSUPPORTED,
                    "layer %d has the unknown code %lld: the file needs a"
                    " newer library",
                    place, (long long)code / 2);
    node->op = (int)(node->operation - OPERATIONS);
    return read_inputs(r, node, place, code % 2) && read_weights(r, node, place, expected) &&
           read_settings(r, node, place);
}

bool read_graph(Report *report, asterism_net *net, const uint8_t *data, size_t size)
{
    Reader r = {data, size, 0, report};
    int64_t version = number(&r), expected = 0;
    if (version < 0) return false;
    if (version < ONE_INPUT || version > SEVERAL + WITH_RANGES)
        return fail(report, ASTERISM_UNSUPPORTED,
                    "the graph is of version %lld, and this library reads up to %d",
                    (long long)version, SEVERAL + WITH_RANGES);
    bool has_ranges = version > SEVERAL; /* a byte of each value, which floats do not need */
    version -= has_ranges ? WITH_RANGES : 0;
    if (!read_ends(&r, net, (int)version)) return false;
    int64_t count = counted(&r);
    if (count < 0) return false;
    if (!count) return fail(report, ASTERISM_DAMAGED, "the graph has no layers");
    Value *values = take(report, (size_t)(net->input_count + count), sizeof *values);
    net->nodes = take(report, (size_t)count, sizeof *net->nodes);
    if (values) {
        memcpy(values, net->values, (size_t)net->input_count * sizeof *values);
        free(net->values);
        net->values = values, net->value_count = net->input_count + (int)count;
    }
    if (!values || !net->nodes) return false;
    net->node_count = (int)count;
    for (int i = 0; i < net->node_count; i++) net->nodes[i].out = net->input_count + i;
    for (int i = 0; i < net->node_count; i++)
        if (!read_node(&r, &net->nodes[i], i, &expected)) return false;
    if (r.size - r.at != (has_ranges ? (size_t)net->value_count : 0))
        return fail(report, ASTERISM_DAMAGED, "the graph ends early, or bytes are left after it");
    if (version == ONE_INPUT) net->outputs[0] = net->value_count - 1;
    for (int i = 0; i < net->output_count; i++)
        if (net->outputs[i] >= net->value_count)
            return fail(report, ASTERISM_DAMAGED, "an output of the graph does not exist");
    return true;
}
