#include "proxy/send_rate.h"

#include "policy/policy.h"

/* Returns the bytes due at `rate` (bytes per second) in this time. */
static uint64_t bytes_due(uint64_t rate, uint64_t time_us)
{
    return rate * (time_us / 1000) / 1000;
}

bool rate_mark_move(struct rate_mark *mark, uint64_t rate, uint64_t period_us, uint64_t now_us,
                    uint64_t bytes)
{
    uint64_t since_mark = bytes - mark->bytes, due = bytes_due(rate, now_us - mark->since_us),
             most = bytes_due(rate, period_us);

    if (since_mark < due)
        return false;
    mark->since_us = now_us;
    mark->bytes = bytes - (since_mark - due < most ? since_mark - due : most);
    return true;
}

static void begin_mark(struct send_rate *rate, uint64_t now_us, uint64_t taken, bool exact)
{
    rate->mark = (struct rate_mark){now_us, taken};
    rate->exact = exact;
}

void send_rate_begin(struct send_rate *rate, uint64_t now_us, uint64_t taken)
{
    rate->kept_us = now_us;
    begin_mark(rate, now_us, taken, false);
}

bool send_rate_moved(struct send_rate *rate, const struct timeouts *timeouts, uint64_t now_us,
                     uint64_t taken)
{
    if (rate->exact ||
        taken - rate->mark.bytes < bytes_due(timeouts->send_min_rate, now_us - rate->mark.since_us))
        return false;
    send_rate_begin(rate, now_us, taken);
    return true;
}

bool send_rate_renew(struct send_rate *rate, const struct timeouts *timeouts, uint64_t now_us,
                     uint64_t taken)
{
    if (!rate->exact) {
        begin_mark(rate, now_us, taken, true);
        return true;
    }
    if (taken == rate->mark.bytes) /* without a rate, any byte within send_us is enough */
        return timeouts->send_min_rate == 0 && now_us - rate->mark.since_us < timeouts->send_us;
    if (!rate_mark_move(&rate->mark, timeouts->send_min_rate, timeouts->send_us, now_us, taken))
        return false;
    rate->kept_us = now_us;
    return true;
}
