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
    const Kernels *kernels;
    pthread_mutex_t lock;
    Scratch *spare;
} Program;

static float *memory(Scratch *scratch) { return (float *)((char *)scratch + 64); }

static Scratch *borrow(Program *program)
{
    pthread_mutex_lock(&program->lock);
    Scratch *scratch = program->spare;
    if (scratch) program->spare = scratch->next;
    pthread_mutex_unlock(&program->lock);
    if (scratch) return scratch;
    size_t bytes = 64 + ((size_t)program->scratch_floats * sizeof(float) + 63) / 64 * 64;
    scratch = aligned_alloc(64, bytes);
    if (scratch) memset(scratch, 0, bytes);
    return scratch;
}

static void give_back(Program *program, Scratch *scratch)
{
    pthread_mutex_lock(&program->lock);
    scratch->next = program->spare;
    program->spare = scratch;
    pthread_mutex_unlock(&program->lock);
}

typedef struct {
    const Program *program;
    float *scratch, *out;
    const float *in;
} Place;

static float *at(const Place *place, const Operand *operand, int64_t image)
{
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

/* Steps of whole blocks one by one; those of images in groups, image by image, to stay in cache. So is
   the input checked: when it is about to be read. */
static int run_steps(const Place *place, const Step *steps, int64_t count, int64_t images,
                      double *times)
{
    for (int64_t i = 0, end; i < count; i = end) {
        end = i + 1;
        if (!steps[i].whole_block)
            while (end < count && !steps[end].whole_block) end++;
        int64_t together = steps[i].whole_block ? images : 1, floats = place->program->in_floats;
        for (int64_t image = 0; image < images; image += together) {
            if (i == 0 &&
                !place->program->kernels->finite(place->in + image * floats, together * floats))
                return NOT_FINITE;
            for (int64_t j = i; j < end; j++) {
                double started = times ? seconds() : 0;
                run_step(place, &steps[j], image, together);
                if (times) times[j] += seconds() - started;
            }
        }
    }
    return DONE;
}

static int run_range(Program *program, const float *in, float *out, int64_t images, double *times)
{
    Scratch *scratch = borrow(program);
    if (!scratch) return NO_MEMORY;
    int status = DONE;
    while (images > 0) {
        int64_t now = images < FEW ? 1 : images < BLOCK ? images : BLOCK;
        Place place = {program, memory(scratch), out, in};
        status = now == 1 ? run_steps(&place, program->one, program->one_steps, 1, times)
                          : run_steps(&place, program->many, program->many_steps, now, times);
        if (status != DONE) break;
        in += now * program->in_floats;
        out += now * program->out_floats;
        images -= now;
    }
    give_back(program, scratch);
    return status;
}

typedef struct {
    Program *program;
    const float *in;
    float *out;
    int64_t images, share;
    atomic_llong *next;
    int status;
} Work;

static void *worker(void *argument)
{
    Work *work = argument;
    Program *program = work->program;
    for (;;) {
        int64_t first = atomic_fetch_add(work->next, work->share);
        if (first >= work->images || work->status) return NULL;
        int64_t count = work->images - first < work->share ? work->images - first : work->share;
        work->status = run_range(program, work->in + first * program->in_floats,
                                 work->out + first * program->out_floats, count, NULL);
    }
}

static int run_threads(Program *program, const float *in, float *out, int64_t images, int64_t threads)
{
    pthread_t ids[MAX_THREADS];
    Work work[MAX_THREADS];
    atomic_llong next = 0;
    int64_t blocks = (images + BLOCK - 1) / BLOCK, started = 0;
    int64_t share = (blocks / (4 * threads) ? blocks / (4 * threads) : 1) * BLOCK;
    for (int64_t i = 0; i < threads; i++)
        work[i] = (Work){program, in, out, images, share, &next, DONE};
    while (started + 1 < threads &&
           !pthread_create(&ids[started], NULL, worker, &work[started + 1]))
        started++;
    worker(&work[0]);
    int status = work[0].status;
    for (int64_t i = 0; i < started; i++) {
        pthread_join(ids[i], NULL);
        if (work[i + 1].status) status = work[i + 1].status;
    }
    return status;
}

/* 0 portable, 1 AVX2 and FMA, 2 AVX-512: the best that this machine runs. */
int asterism_level(void)
{
#ifdef ASTERISM_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
        return 2;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 1;
#endif
    return 0;
}

const Kernels *asterism_kernels_of(int level)
{
#ifdef ASTERISM_X86
    if (level == 1) return &asterism_avx2;
    if (level == 2) return &asterism_avx512;
#else
    (void)level;
#endif
    return &asterism_portable;
}

int asterism_interface(void)
{
    return INTERFACE;
}

Program *asterism_new(const Step *one, int64_t one_steps, const Step *many, int64_t many_steps,
                      int64_t scratch_floats, int64_t in_floats, int64_t out_floats, int level)
{
    Program *program = malloc(sizeof *program);
    if (!program) return NULL;
    *program = (Program){one, many, one_steps, many_steps, scratch_floats, in_floats, out_floats,
                         asterism_kernels_of(level), PTHREAD_MUTEX_INITIALIZER, NULL};
    return program;
}

void asterism_free(Program *program)
{
    while (program->spare) {
        Scratch *next = program->spare->next;
        free(program->spare);
        program->spare = next;
    }
    pthread_mutex_destroy(&program->lock);
    free(program);
}

int asterism_run(Program *program, const float *in, float *out, int64_t images, int64_t threads)
{
    int64_t most = (images + BLOCK - 1) / BLOCK;
    if (threads > most) threads = most;
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    if (threads > 1) return run_threads(program, in, out, images, threads);
    return run_range(program, in, out, images, NULL);
}

/* As asterism_run on one thread, and adds to `times` the seconds of each step. */
int asterism_profile(Program *program, const float *in, float *out, int64_t images, double *times)
{
    return run_range(program, in, out, images, times);
}
