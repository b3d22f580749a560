#include "http2/closed_streams.h"

#include <stdbool.h>

void closed_streams_opened(struct closed_streams *streams, int32_t id)
{
    int64_t expected = streams->newest ? (int64_t)streams->newest + 2 : 1;

    if (id < expected)
        return;
    if (id > expected) {
        streams->skipped_from = (int32_t)expected;
        streams->skipped_to = id - 1;
    }
    streams->newest = id;
}

static bool is_stored(const struct closed_streams *streams, int32_t id)
{
    for (unsigned i = 0; i < RESET_STREAMS_STORED; i++)
        if (streams->reset[i] == id)
            return true;
    return false;
}

void closed_streams_reset(struct closed_streams *streams, int32_t id)
{
    int32_t *stored = &streams->reset[streams->next];

    if (is_stored(streams, id))
        return;
    if (*stored > streams->forgotten)
        streams->forgotten = *stored;
    *stored = id;
    streams->next = (uint8_t)((streams->next + 1) % RESET_STREAMS_STORED);
}

enum closed_kind closed_streams_kind(const struct closed_streams *streams, int32_t id)
{
    if (id <= streams->forgotten || is_stored(streams, id))
        return CLOSED_LATE;
    return id >= streams->skipped_from && id <= streams->skipped_to ? CLOSED_SKIPPED : CLOSED_ENDED;
}
