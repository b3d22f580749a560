/* command.h - commands as bytes (RESP arrays of bulk strings), written into a text. */
#ifndef WEIR_REDIS_COMMAND_H
#define WEIR_REDIS_COMMAND_H

#include "base/text.h"

/* Most arguments are numbers of a few digits. */
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

/* EVALSHA or EVAL and the script, with `argc` arguments to come. */
static inline void redis_write_head(struct text *t, int argc, struct slice command, struct slice script)
{
    text_char(t, '*');
    text_u64(t, (uint64_t)argc + 2);
    text_literal(t, "\r\n");
    redis_write_argument(t, command.p, command.n);
    redis_write_argument(t, script.p, script.n);
}

#endif
