/* Work in equal parts, each on a thread of its own. */
#include <pthread.h>
#include "../program.h"

enum { MOST = 64 };

typedef struct {
    void (*part)(void *, int64_t);
    void *of;
    int64_t i;
} Part;

static void *run_part(void *given)
{
    const Part *part = given;
    part->part(part->of, part->i);
    return NULL;
}

void asterism_share(void (*part)(void *, int64_t), void *of, int64_t parts)
{
    pthread_t threads[MOST];
    Part each[MOST];
    int64_t started = 1;
    for (; started < parts && started < MOST; started++) {
        each[started] = (Part){part, of, started};
        if (pthread_create(&threads[started], NULL, run_part, &each[started])) break;
    }
    part(of, 0);
    for (int64_t i = started; i < parts; i++) part(of, i);
    for (int64_t i = 1; i < started; i++) pthread_join(threads[i], NULL);
}
