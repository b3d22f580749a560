#include "limit/numbers.h"

static int64_t sf_integer(int64_t value)
{
    return value < SF_INTEGER_MAX ? value : SF_INTEGER_MAX;
}

int64_t decision_number(const struct decision *d, enum decision_number number,
                        const struct limit_result *r, uint64_t wall_us)
{
    switch (number) {
    case NUMBER_REMAINING: return r->remaining;
    case NUMBER_USED: return r->capacity > r->remaining ? r->capacity - r->remaining : 0;
    case NUMBER_RESET: return seconds_up(r->reset_us);
    case NUMBER_RESET_AT: return seconds_up((int64_t)wall_us + r->reset_us);
    case NUMBER_SF_REMAINING: return sf_integer(r->remaining);
    case NUMBER_SF_NEXT: return sf_integer(seconds_up(r->next_us));
    case NUMBER_WAIT:
    case NUMBER_COUNT: break;
    }
    return decision_retry_after(d);
}

void marks_add(struct marks *marks, const struct text *out, size_t at, unsigned number,
               unsigned result)
{
    size_t size = out->n - at;

    if (!marks)
        return;
    if (marks->count == MARKS_MAX || out->n > UINT16_MAX || size > UINT8_MAX) {
        marks->too_many = true;
        return;
    }
    marks->mark[marks->count++] =
        (struct mark){(uint16_t)at, (uint8_t)size, (uint8_t)number, (uint8_t)result};
}

void decision_put_number(struct text *out, const struct decision *d, enum decision_number number,
                         const struct limit_result *r, uint64_t wall_us, struct marks *marks)
{
    size_t at = out->n;

    text_i64(out, decision_number(d, number, r, wall_us));
    marks_add(marks, out, at, number, (unsigned)(r - d->results));
}
