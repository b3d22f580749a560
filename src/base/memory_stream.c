#include "base/memory_stream.h"

#include <stdlib.h>
#include <string.h>

/* fopencookie(3): returns 0 on error. */
static ssize_t append_bytes(void *cookie, const char *bytes, size_t n)
{
    struct memory_stream *stream = cookie;

    if (stream->room - stream->size <= n) { /* one byte more, for the NUL */
        size_t room = stream->room + stream->room / 2 + n + 1;
        char *larger = realloc(stream->text, room);
        if (!larger) {
            stream->failed = true;
            return 0;
        }
        stream->text = larger;
        stream->room = room;
    }
    memcpy(stream->text + stream->size, bytes, n);
    stream->size += n;
    stream->text[stream->size] = 0;
    return (ssize_t)n;
}

bool memory_stream_open(struct memory_stream *stream)
{
    *stream = (struct memory_stream){0};
    stream->file = fopencookie(stream, "w", (cookie_io_functions_t){.write = append_bytes});
    if (stream->file)
        append_bytes(stream, "", 0); /* so that there is a text even if nothing is written */
    if (stream->file && !stream->failed)
        return true;
    (void)memory_stream_close(stream);
    return false;
}

char *memory_stream_close(struct memory_stream *stream)
{
    char *text;

    if (stream->file && fclose(stream->file) != 0)
        stream->failed = true;
    if (stream->failed) {
        free(stream->text);
        stream->text = NULL;
    }
    text = stream->text;
    *stream = (struct memory_stream){0};
    return text;
}
