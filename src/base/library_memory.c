#include "base/library_memory.h"

#include <jansson.h>
#include <openssl/crypto.h>
#include <stdatomic.h>
#include <stdlib.h>

static atomic_bool failed;
static _Thread_local bool failed_here;

static void *note_failure(void *memory, size_t size)
{
    if (!memory && size) {
        atomic_store_explicit(&failed, true, memory_order_relaxed);
        failed_here = true;
    }
    return memory;
}

static void *openssl_malloc(size_t size, const char *file, int line)
{
    (void)file, (void)line;
    return note_failure(malloc(size), size);
}

static void *openssl_realloc(void *memory, size_t size, const char *file, int line)
{
    (void)file, (void)line;
    return note_failure(realloc(memory, size), size);
}

static void openssl_free(void *memory, const char *file, int line)
{
    (void)file, (void)line;
    free(memory);
}

static void *jansson_malloc(size_t size)
{
    return note_failure(malloc(size), size);
}

void library_memory_watch(void)
{
    (void)CRYPTO_set_mem_functions(openssl_malloc, openssl_realloc, openssl_free);
    json_set_alloc_funcs(jansson_malloc, free);
}

bool library_memory_failed(void)
{
    return atomic_exchange_explicit(&failed, false, memory_order_relaxed);
}

bool library_memory_failed_here(void)
{
    bool result = failed_here;

    failed_here = false;
    return result;
}
