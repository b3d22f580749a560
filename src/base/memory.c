#include "base/memory.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where the innermost memory_try() of the thread returns; NULL: there is none. */
static _Thread_local jmp_buf *recovery;

void memory_exhausted(void)
{
    if (recovery)
        longjmp(*recovery, 1);
    fputs("weir: out of memory\n", stderr);
    exit(1);
}

bool memory_try(void (*work)(void *context), void *context)
{
    jmp_buf here, *const outer = recovery;

    if (setjmp(here) != 0) {
        recovery = outer;
        return false;
    }
    recovery = &here;
    work(context);
    recovery = outer;
    return true;
}

static void *checked(void *memory)
{
    if (!memory)
        memory_exhausted();
    return memory;
}

void *xmalloc(size_t size)
{
    return checked(malloc(size ? size : 1));
}

void *xcalloc(size_t count, size_t size)
{
    return checked(calloc(count ? count : 1, size ? size : 1));
}

void *xrealloc(void *old, size_t size)
{
    return checked(realloc(old, size ? size : 1));
}

char *xstrdup(const char *text)
{
    return checked(strdup(text));
}
