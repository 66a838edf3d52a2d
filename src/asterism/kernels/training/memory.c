/* Memory for training's layers. What is given back is kept: new memory would be cleared by the system,
   page by page. */
#include <pthread.h>
#include <stdlib.h>
#include "../program.h"

enum { KEPT = 64, BEFORE = 16 }; /* BEFORE: floats in front, of which the first is the size */

static float *kept[KEPT];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int64_t size_of(const float *memory) { return *(const int64_t *)memory; }

float *asterism_borrow(int64_t count)
{
    float *found = NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < KEPT && !found; i++)
        if (kept[i] && size_of(kept[i]) >= count && size_of(kept[i]) <= 2 * count + 4096)
            found = kept[i], kept[i] = NULL;
    pthread_mutex_unlock(&lock);
    if (!found) {
        found = aligned_alloc(64, ((size_t)(count + BEFORE) * sizeof(float) + 127) / 64 * 64);
        if (!found) return NULL;
        *(int64_t *)found = count;
    }
    return found + BEFORE;
}

void asterism_give_back(float *memory)
{
    if (!memory) return;
    float *given = memory - BEFORE;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < KEPT && given; i++)
        if (!kept[i]) kept[i] = given, given = NULL;
    if (given) { /* the first goes, and it comes last */
        float *oldest = kept[0];
        for (int i = 1; i < KEPT; i++) kept[i - 1] = kept[i];
        kept[KEPT - 1] = given, given = oldest;
    }
    pthread_mutex_unlock(&lock);
    free(given);
}
