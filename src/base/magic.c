#include "base/magic.h"

#include <stdio.h>
#include <stdlib.h>

void magic_broken(uint32_t found, uint32_t expected, const char *file, int line)
{
    fprintf(stderr, "weir: %s:%d: object has magic %08x, expected %08x; this is a bug in weir\n",
            file, line, found, expected);
    abort();
}
