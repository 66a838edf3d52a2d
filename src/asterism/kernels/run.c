/* Runs a program over a batch: in blocks of images, on several threads if asked to. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "program.h"

enum { FEW = 4 }; /* images that run one by one */
enum { MAX_THREADS = 256 };

typedef struct Scratch {
    struct Scratch *next;
} Scratch;

typedef struct {
    const Step *one, *many; /* for single images, and for blocks of them */
    int64_t one_steps, many_steps, scratch_floats, in_floats, out_floats;
    int64_t least; /* images that a thread takes at once */
    const Kernels *kernels;
    Scratch *spare;
} Program;

static pthread_mutex_t spares = PTHREAD_MUTEX_INITIALIZER; /* of every program */

static float *memory(Scratch *scratch) { return (float *)((char *)scratch + 64); }

static Scratch *borrow(Program *program)
{
    pthread_mutex_lock(&spares);
    Scratch *scratch = program->spare;
    if (scratch) program->spare = scratch->next;
    pthread_mutex_unlock(&spares);
    if (scratch) return scratch;
    size_t bytes = 64 + ((size_t)program->scratch_floats * sizeof(float) + 63) / 64 * 64;
    scratch = aligned_alloc(64, bytes);
    if (scratch) memset(scratch, 0, bytes);
    return scratch;
}

static void give_back(Program *program, Scratch *scratch)
{
    pthread_mutex_lock(&spares);
    scratch->next = program->spare;
    program->spare = scratch;
    pthread_mutex_unlock(&spares);
}

typedef struct {
    const Program *program;
    float *scratch, *out;
    const float *in;
} Place;

static float *at(const Place *place, const Operand *operand, int64_t image)
{
    if (operand->space == CONSTANT) return (float *)(intptr_t)operand->offset;
    float *base = operand->space == SCRATCH ? place->scratch
                  : operand->space == INPUT ? (float *)place->in : place->out;
    return base + operand->offset + image * operand->stride;
}

static void run_step(const Place *place, const Step *s, int64_t image, int64_t images)
{
    const Kernels *k = place->program->kernels;
    Kernel *const kernels[] = {
        [PACK] = k->pack, [CONV_SPARSE] = k->conv_sparse, [CONV_DENSE] = k->conv_dense,
        [CONV_ROWS] = k->conv_rows, [CONV_COLUMNS] = k->conv_columns,
        [POOL_MAX] = k->pool_max, [POOL_AVERAGE] = k->pool_average,
        [FC_SPARSE_ONE] = k->fc_sparse_one, [FC_DENSE] = k->fc_dense,
        [TO_COLUMNS] = k->to_columns, [FC_SPARSE] = k->fc_sparse, [FROM_COLUMNS] = k->from_columns,
        [ACTIVATE] = k->activate, [ADD] = k->add, [MULTIPLY] = k->multiply, [SCALE] = k->scale,
        [LAYER_NORM] = asterism_layer_norm, [SOFTMAX] = asterism_softmax,
        [GATHER] = asterism_gather, [COPY_CHUNKS] = asterism_copy_chunks,
        [EMBED] = asterism_embed, [MATMUL] = k->matmul,
        [KEYS] = k->keys, [ATTEND] = k->attend,
        [FC_SPARSE_ROWS] = k->fc_sparse_rows, [LSTM] = k->lstm, [GRU] = k->gru,
        [COMBINE] = k->combine, [MEAN] = k->mean, [CONV_TAPS] = k->conv_taps,
        [RESIZE] = k->resize, [SPREAD] = k->spread, [CONV_PLANES] = k->conv_planes,
        [DENSE_PLANES] = k->dense_planes, [TURN] = k->turn, [DENSE_PLACES] = k->dense_places,
        [DEPTHWISE_PLACES] = k->depthwise_places, [CONV_PLANES16] = k->conv_planes16,
        [SPREAD16] = k->spread16, [TO_16] = k->to_16, [FROM_16] = k->from_16,
    };
    kernels[s->operation](s, at(place, &s->in, image), at(place, &s->other, image),
                          at(place, &s->out, image), images);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

/* Steps of whole blocks one by one; those of images in groups, image by image, to stay in cache. Each
   image is looked through when it is first needed, so that it comes from afar only once. */
static int run_steps(const Place *place, const Step *steps, int64_t count, int64_t images, double *times)
{
    const Program *program = place->program;
    for (int64_t i = 0, end; i < count; i = end) {
        end = i + 1;
        if (!steps[i].whole_block)
            while (end < count && !steps[end].whole_block) end++;
        int64_t repeats = steps[i].whole_block ? 1 : images, numbers = program->in_floats * (images / repeats);
        for (int64_t image = 0; image < repeats; image++) {
            if (!i && !program->kernels->finite(place->in + image * numbers, numbers)) return NOT_FINITE;
            for (int64_t j = i; j < end; j++) {
                double started = times ? seconds() : 0;
                run_step(place, &steps[j], image, steps[j].whole_block ? images : 1);
                if (times) times[j] += seconds() - started;
            }
        }
    }
    return DONE;
}

/* How many images of a batch run in blocks; the others, a few that are left, one by one. Answers depend
   on it in their last digits, so that it must not depend on threads. */
static int64_t in_blocks(int64_t images)
{
    return images % BLOCK < FEW ? images / BLOCK * BLOCK : images;
}

/* Images of a batch from `first` on, at most a block of them: by the program for blocks, or one by one. */
static int run_part(Program *program, float *scratch, const float *in, float *out, int64_t first,
                    int64_t count, int blocks, double *times)
{
    in += first * program->in_floats, out += first * program->out_floats;
    if (blocks) {
        Place place = {program, scratch, out, in};
        return run_steps(&place, program->many, program->many_steps, count, times);
    }
    int status = DONE;
    for (int64_t i = 0; i < count && !status; i++) {
        Place place = {program, scratch, out + i * program->out_floats, in + i * program->in_floats};
        status = run_steps(&place, program->one, program->one_steps, 1, times);
    }
    return status;
}

static int run_alone(Program *program, const float *in, float *out, int64_t images, double *times)
{
    Scratch *scratch = borrow(program);
    if (!scratch) return NO_MEMORY;
    int status = DONE;
    int64_t blocks = in_blocks(images);
    for (int64_t first = 0, count; first < images && !status; first += count) {
        int64_t left = (first < blocks ? blocks : images) - first;
        count = left < BLOCK ? left : BLOCK;
        status = run_part(program, memory(scratch), in, out, first, count, first < blocks, times);
    }
    give_back(program, scratch);
    return status;
}

/* A batch that threads share: whoever is free takes the next images, fewer of them towards the end, so
   that one which starts late or is held up does not make the others wait for long. */
typedef struct {
    Program *program;
    const float *in;
    float *out;
    int64_t images, threads;
    atomic_llong next;
    atomic_int status;
} Work;

/* The next images: half of a fair share of what is left. How many, and the first of them. */
static int64_t take(Work *work, int64_t *first)
{
    long long next = work->next;
    int64_t count, blocks = in_blocks(work->images);
    do {
        int64_t left = (next < blocks ? blocks : work->images) - next;
        count = left / (2 * work->threads);
        if (count < work->program->least) count = work->program->least;
        if (count > BLOCK) count = BLOCK;
        if (count > left) count = left;
    } while (!atomic_compare_exchange_weak(&work->next, &next, next + count));
    *first = next;
    return count;
}

static void take_parts(void *of, int64_t thread)
{
    Work *work = of;
    Program *program = work->program;
    int64_t first, count = take(work, &first), blocks = in_blocks(work->images);
    Scratch *scratch = count ? borrow(program) : NULL;
    (void)thread;
    if (count && !scratch) work->status = NO_MEMORY;
    for (; count && !work->status; count = take(work, &first)) {
        int status = run_part(program, memory(scratch), work->in, work->out, first, count,
                              first < blocks, NULL);
        if (status) work->status = status;
    }
    if (scratch) give_back(program, scratch);
}

static int run_threads(Program *program, const float *in, float *out, int64_t images, int64_t threads)
{
    Work work = {.program = program, .in = in, .out = out, .images = images, .threads = threads};
    asterism_share(take_parts, &work, threads);
    return work.status;
}

/* A forked process has none of the other threads; what they are about must be whole at that moment. */
static void before_fork(void) { pthread_mutex_lock(&spares); }

static void after_fork(void) { pthread_mutex_unlock(&spares); }

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork, after_fork);
}

int asterism_interface(void)
{
    return INTERFACE;
}

/* `least`: images that are worth a thread's while, from one to BLOCK. */
Program *asterism_new(const Step *one, int64_t one_steps, const Step *many, int64_t many_steps,
                      int64_t scratch_floats, int64_t in_floats, int64_t out_floats, int64_t least,
                      int level)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    Program *program = malloc(sizeof *program);
    if (!program) return NULL;
    *program = (Program){one, many, one_steps, many_steps, scratch_floats, in_floats, out_floats,
                         least, asterism_kernels_of(level), NULL};
    return program;
}

void asterism_free(Program *program)
{
    while (program->spare) {
        Scratch *next = program->spare->next;
        free(program->spare);
        program->spare = next;
    }
    free(program);
}

int asterism_run(Program *program, const float *in, float *out, int64_t images, int64_t threads)
{
    int64_t most = (images + program->least - 1) / program->least;
    if (threads > most) threads = most;
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    if (threads > 1) return run_threads(program, in, out, images, threads);
    return run_alone(program, in, out, images, NULL);
}

/* As asterism_run on one thread, and adds to `times` the seconds of each step. */
int asterism_profile(Program *program, const float *in, float *out, int64_t images, double *times)
{
    return run_alone(program, in, out, images, times);
}
