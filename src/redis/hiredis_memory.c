/* hiredis_memory.c - hiredis 0.14 without its abort() if out of memory.
 *
 * hiredis 0.14 calls abort() if a small allocation of redisAsyncConnect() or redisAsyncFree()
 * fails. weir replaces the two functions for that, hi_malloc() and hi_strdup(), by ones with a
 * reserve. hiredis 1.1 and newer return errors; there is no reserve then. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "redis/socket.h"

#if HIREDIS_MAJOR >= 1

bool hiredis_memory_reserve(void)
{
    return true;
}

#else

/* Opening a connection takes at most six blocks; the largest contains a Unix path or its address.
 * Closing it takes one at a time. */
enum { BLOCKS = 256, BLOCK_BYTES = 128 };

/* Never freed: hiredis frees the blocks that it takes. */
static struct {
    pthread_mutex_t lock;
    void *block[BLOCKS];
    unsigned count;
} reserve = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Called by hiredis. */
void *hi_malloc(size_t size);
char *hi_strdup(const char *text);

bool hiredis_memory_reserve(void)
{
    pthread_mutex_lock(&reserve.lock);
    while (reserve.count < BLOCKS && (reserve.block[reserve.count] = malloc(BLOCK_BYTES)))
        reserve.count++;
    bool full = reserve.count == BLOCKS;
    pthread_mutex_unlock(&reserve.lock);
    return full;
}

void *hi_malloc(size_t size)
{
    void *memory = malloc(size);

    if (memory)
        return memory;
    pthread_mutex_lock(&reserve.lock);
    if (size <= BLOCK_BYTES && reserve.count)
        memory = reserve.block[--reserve.count];
    pthread_mutex_unlock(&reserve.lock);
    if (!memory)
        abort(); /* hiredis does not check */
    return memory;
}

char *hi_strdup(const char *text)
{
    size_t size = strlen(text) + 1;
    return memcpy(hi_malloc(size), text, size);
}

#endif
