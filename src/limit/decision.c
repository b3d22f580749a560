#include "limit/decision.h"

#include "limit/numbers.h"

const char *const verdict_label[VERDICT_COUNT] = {
#define X(name, label) [name] = label,
    VERDICTS(X)
#undef X
};

int64_t decision_retry_after(const struct decision *d)
{
    if (d->verdict == VERDICT_FAILED_CLOSED)
        return 1;
    if (d->verdict != VERDICT_LIMITED || d->rejected_by < 0)
        return -1;
    int64_t us = d->results[d->rejected_by].retry_after_us;
    int64_t seconds = seconds_up(us + d->jitter_us);
    return us < 0 ? -1 : seconds > 1 ? seconds : 1;
}

void decision_spread(struct decision *d, int64_t share, uint64_t random)
{
    int64_t us = d->verdict == VERDICT_LIMITED && d->rejected_by >= 0
                     ? d->results[d->rejected_by].retry_after_us
                     : 0;
    __int128 most = us > 0 ? (__int128)us * share / SHARE_WHOLE : 0;

    d->jitter_us = (int64_t)(most * (int64_t)(random >> 32) >> 32);
}

/* Compares everything that the text depends on, except the recorded numbers. The rejecting limit
 * must be shown: otherwise the numbers determine which limit the X- fields show. */
bool decision_reads_like(const struct decision *d, const struct decision *other)
{
    if (d->verdict != VERDICT_LIMITED || other->verdict != VERDICT_LIMITED || d->rejected_by < 0 ||
        d->rejected_by != other->rejected_by || d->result_count != other->result_count ||
        !limit_result_is_shown(&d->results[d->rejected_by]))
        return false;
    for (unsigned i = 0; i < d->result_count; i++) {
        const struct limit_result *a = &d->results[i], *b = &other->results[i];
        if (a->limit != b->limit || a->verdict != b->verdict || a->shadow != b->shadow ||
            a->quota != b->quota || a->capacity != b->capacity)
            return false;
    }
    int64_t wait = decision_retry_after(d), other_wait = decision_retry_after(other);
    return wait > 0 && other_wait > 0 && (wait == 1) == (other_wait == 1);
}
