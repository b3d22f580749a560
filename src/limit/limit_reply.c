#include "limit/limit_reply.h"

#include <endian.h>
#include <string.h>

#include "limit/next_unit.h"
#include "policy/shipped_limiter.h"

/* lua/guard.lua: retry_after of a script that failed; the message is in place of the delay */
enum { SCRIPT_FAILED = -2 };

static bool is_failure(const struct redis_reply *elements, const struct limit *limit)
{
    return limit->kind == LIMIT_CUSTOM && elements[4].type == RESP_STRING &&
           elements[0].integer == 0 && elements[2].integer == SCRIPT_FAILED;
}

bool limit_replies_begin(struct limit_replies *from, const struct redis_reply *reply,
                         struct redis_reply unpacked[LIMIT_REPLY_PACKED])
{
    uint64_t numbers[LIMIT_REPLY_PACKED];
    size_t count = reply->text.n / sizeof numbers[0];

    if (reply->type == RESP_ARRAY) {
        static const struct redis_reply none; /* an empty array has no elements to point to */
        const struct redis_reply *first = reply->count ? reply->elements : &none;
        *from = (struct limit_replies){first, first + reply->count};
        return true;
    }
    if (reply->type != RESP_STRING || count > LIMIT_REPLY_PACKED ||
        reply->text.n != count * sizeof numbers[0])
        return false;
    memcpy(numbers, reply->text.p, reply->text.n);
    for (size_t i = 0; i < count; i++)
        unpacked[i] =
            (struct redis_reply){.type = RESP_INTEGER, .integer = (int64_t)le64toh(numbers[i])};
    *from = (struct limit_replies){unpacked, unpacked + count};
    return true;
}

static bool read_all_numbers(const struct redis_reply *elements, const struct limit *limit,
                             struct limit_reply *reply)
{
    bool failed = is_failure(elements, limit);

    for (int i = 0; i < LIMIT_REPLY_NUMBERS - failed; i++)
        if (!limit_reply_is_number(&elements[i]))
            return false;
    *reply = (struct limit_reply){.granted = elements[0].integer,
                                  .remaining = elements[1].integer,
                                  .retry_after_us = elements[2].integer,
                                  .reset_us = elements[3].integer,
                                  .delay_us = failed ? 0 : elements[4].integer,
                                  .failure = failed ? elements[4].text.p : NULL};
    return true;
}

/* Reads the time until more units are available, or derives it. */
static bool read_next(struct limit_replies *from, const struct limit *limit,
                      const struct limit_numbers *numbers, struct limit_reply *reply)
{
    if (!limit_tells_next(limit)) {
        int64_t reserve = limit_reserve(limit, numbers);
        reply->next_us = next_unit_us(limit, numbers->limit, limit_capacity(limit, numbers),
                                      reply->remaining > reserve ? reply->remaining : reserve,
                                      reply->reset_us, limit_longest_delay(limit, numbers->share));
        return true;
    }
    if (from->end == from->next || !limit_reply_is_number(from->next))
        return false;
    reply->next_us = from->next++->integer;
    return true;
}

bool limit_reply_read(struct limit_replies *from, const struct limit *limit,
                      const struct limit_numbers *numbers, bool plain, struct limit_reply *reply)
{
    const struct redis_reply *elements = from->next;

    if (plain && (from->end - elements < LIMIT_REPLY_PLAIN || !limit_reply_is_number(elements)))
        return false;
    if (plain && elements[0].integer >= 0) {
        from->next += LIMIT_REPLY_PLAIN;
        *reply = (struct limit_reply){
            .granted = 1, .remaining = elements[0].integer, .reset_us = elements[1].integer};
        return limit_reply_is_number(&elements[1]) && read_next(from, limit, numbers, reply);
    }
    elements += plain; /* -1: all numbers follow */
    if (from->end - elements < LIMIT_REPLY_NUMBERS)
        return false;
    from->next = elements + LIMIT_REPLY_NUMBERS;
    return read_all_numbers(elements, limit, reply) && read_next(from, limit, numbers, reply);
}
