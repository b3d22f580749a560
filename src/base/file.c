#include "base/file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

static bool read_stream(struct arena *arena, FILE *stream, size_t max, struct slice *bytes)
{
    size_t room = 4096, size = 0;
    char *buffer = arena_zeroed_or_null(arena, room + 1, 1), *larger;

    while (buffer) {
        size += fread(buffer + size, 1, room - size, stream);
        if (size < room || size > max)
            break;
        if ((larger = arena_zeroed_or_null(arena, room * 2 + 1, 1)))
            memcpy(larger, buffer, size);
        buffer = larger;
        room *= 2;
    }
    if (buffer && !ferror(stream) && size > max)
        errno = EFBIG;
    *bytes = (struct slice){buffer, size};
    return buffer && !ferror(stream) && size <= max;
}

bool file_read(struct arena *arena, const char *path, size_t max, struct slice *bytes,
               const char **why)
{
    FILE *stream = fopen(path, "re");
    bool good = stream && read_stream(arena, stream, max, bytes);
    if (!good)
        *why = strerror(errno);
    bool has_memory = good || errno != ENOMEM;
    if (stream)
        fclose(stream);
    if (!has_memory)
        memory_exhausted();
    return good;
}
