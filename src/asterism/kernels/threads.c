/* Work that threads share. Helpers stay: to wake one takes less than to start one, and one that has
   just been busy looks out for more for a while before it sleeps, as waking it can take longer than a
   layer does. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>
#include "program.h"

enum { MOST = 255 };                 /* helpers */
static const double PATIENCE = 1e-3; /* seconds of looking out */

typedef struct Shared Shared;
struct Shared {
    void (*part)(void *, int64_t);
    void *of;
    int64_t parts, next; /* next: the first that no thread has taken; under the lock */
    atomic_llong left;   /* that are not done */
    Shared *after;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    _Atomic(Shared *) first; /* of those with parts that no thread has taken */
    int64_t helpers, asleep;
} pool = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, 0, 0};

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A moment, which goes to whoever else wants this core. */
static void moment(void)
{
#if defined(__x86_64__)
    for (int i = 0; i < 16; i++) __builtin_ia32_pause();
#endif
    sched_yield();
}

/* The next part, taken under the lock; all of them are when it was the last. */
static int64_t take(Shared *work)
{
    int64_t part = work->next++;
    if (work->next < work->parts) return part;
    Shared *first = pool.first;
    if (first == work) {
        pool.first = work->after;
        return part;
    }
    while (first && first->after != work) first = first->after;
    if (first) first->after = work->after;
    return part;
}

static void run_part(Shared *work, int64_t part)
{
    work->part(work->of, part);
    if (atomic_fetch_sub(&work->left, 1) > 1) return;
    pthread_mutex_lock(&pool.lock); /* whose work it was may be gone from here on */
    pthread_cond_broadcast(&pool.done);
    pthread_mutex_unlock(&pool.lock);
}

static void *help(void *unused)
{
    for (;;) {
        for (double until = seconds() + PATIENCE; !pool.first && seconds() < until;) moment();
        pthread_mutex_lock(&pool.lock);
        pool.asleep++;
        while (!pool.first) pthread_cond_wait(&pool.work, &pool.lock);
        pool.asleep--;
        Shared *work = pool.first;
        int64_t part = take(work);
        pthread_mutex_unlock(&pool.lock);
        run_part(work, part);
    }
    return unused;
}

/* A forked process has none of the helpers; what they are about must be whole at that moment. */
static void before_fork(void) { pthread_mutex_lock(&pool.lock); }

static void after_fork(void) { pthread_mutex_unlock(&pool.lock); }

static void after_fork_in_child(void)
{
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.work, NULL);
    pthread_cond_init(&pool.done, NULL);
    pool.first = NULL;
    pool.helpers = pool.asleep = 0;
}

static void watch_forks(void) { pthread_atfork(before_fork, after_fork, after_fork_in_child); }

static void offer(Shared *work)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_t id;
    pthread_mutex_lock(&pool.lock);
    while (pool.helpers < work->parts - 1 && pool.helpers < MOST &&
           !pthread_create(&id, NULL, help, NULL)) {
        pthread_detach(id);
        pool.helpers++;
    }
    work->after = pool.first, pool.first = work;
    int64_t wake = pool.asleep < work->parts - 1 ? pool.asleep : work->parts - 1;
    pthread_mutex_unlock(&pool.lock);
    while (wake-- > 0) pthread_cond_signal(&pool.work);
}

void asterism_share(void (*part)(void *, int64_t), void *of, int64_t parts)
{
    if (parts == 1) {
        part(of, 0);
        return;
    }
    Shared work = {.part = part, .of = of, .parts = parts, .left = parts};
    offer(&work);
    for (;;) {
        pthread_mutex_lock(&pool.lock);
        int64_t mine = work.next < parts ? take(&work) : parts;
        pthread_mutex_unlock(&pool.lock);
        if (mine == parts) break;
        run_part(&work, mine);
    }
    for (double until = seconds() + PATIENCE; work.left && seconds() < until;) moment();
    pthread_mutex_lock(&pool.lock);
    while (work.left) pthread_cond_wait(&pool.done, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}
