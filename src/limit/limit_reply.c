#include "limit/limit_reply.h"

/* lua/guard.lua: retry_after of a script that failed; the message is in place of the delay */
enum { SCRIPT_FAILED = -2 };

static bool is_failure(const struct redis_reply *elements, const struct limit *limit)
{
    return limit->kind == LIMIT_CUSTOM && elements[4].type == RESP_STRING &&
           elements[0].integer == 0 && elements[2].integer == SCRIPT_FAILED;
}

bool limit_reply_read(const struct redis_reply *elements, const struct limit *limit,
                      struct limit_reply *reply)
{
    bool failed = is_failure(elements, limit);

    for (int i = 0; i < LIMIT_REPLY_NUMBERS - failed; i++)
        if (!limit_reply_is_number(&elements[i]))
            return false;
    reply->granted = elements[0].integer;
    reply->remaining = elements[1].integer;
    reply->retry_after_us = elements[2].integer;
    reply->reset_us = elements[3].integer;
    reply->delay_us = failed ? 0 : elements[4].integer;
    reply->failure = failed ? elements[4].text.p : NULL;
    return true;
}
