#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *or_die(void *memory)
{
    if (memory)
        return memory;
    fputs("weir: out of memory\n", stderr);
    exit(1);
}

void *xmalloc(size_t size)
{
    return or_die(malloc(size ? size : 1));
}

void *xcalloc(size_t count, size_t size)
{
    return or_die(calloc(count ? count : 1, size ? size : 1));
}

void *xrealloc(void *old, size_t size)
{
    return or_die(realloc(old, size ? size : 1));
}

char *xstrdup(const char *text)
{
    return or_die(strdup(text));
}
