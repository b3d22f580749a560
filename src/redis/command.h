/* command.h - encodes commands as RESP arrays of bulk strings into a text buffer. */
#ifndef WEIR_REDIS_COMMAND_H
#define WEIR_REDIS_COMMAND_H

#include "base/text.h"

/* Sizes below 10 take a fast path: most arguments are short numbers. */
static inline void redis_write_argument(struct text *t, const char *bytes, size_t size)
{
    if (size < 10) {
        char head[] = {'$', (char)('0' + size), '\r', '\n'};
        text_bytes(t, head, sizeof head);
    } else {
        text_char(t, '$');
        text_u64(t, size);
        text_literal(t, "\r\n");
    }
    text_bytes(t, bytes, size);
    text_literal(t, "\r\n");
}

/* Writes EVALSHA or EVAL and the script (or its SHA). `argc` more arguments follow. */
static inline void redis_write_head(struct text *t, int argc, struct slice command,
                                    struct slice script)
{
    text_char(t, '*');
    text_u64(t, (uint64_t)argc + 2);
    text_literal(t, "\r\n");
    redis_write_argument(t, command.p, command.n);
    redis_write_argument(t, script.p, script.n);
}

#endif
