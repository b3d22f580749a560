#include "proxy/send_rate.h"

#include "policy/policy.h"

/* Returns the bytes due at the minimum rate in this time. */
static uint64_t bytes_due(const struct timeouts *timeouts, uint64_t time_us)
{
    return timeouts->send_min_rate * (time_us / 1000) / 1000;
}

static void mark(struct send_rate *rate, uint64_t now_us, uint64_t taken, bool exact)
{
    rate->since_us = now_us;
    rate->taken = taken;
    rate->exact = exact;
}

void send_rate_begin(struct send_rate *rate, uint64_t now_us, uint64_t taken)
{
    rate->kept_us = now_us;
    mark(rate, now_us, taken, false);
}

bool send_rate_moved(struct send_rate *rate, const struct timeouts *timeouts, uint64_t now_us,
                     uint64_t taken)
{
    if (rate->exact || taken - rate->taken < bytes_due(timeouts, now_us - rate->since_us))
        return false;
    send_rate_begin(rate, now_us, taken);
    return true;
}

bool send_rate_renew(struct send_rate *rate, const struct timeouts *timeouts, uint64_t now_us,
                     uint64_t taken)
{
    uint64_t since_mark = taken - rate->taken, surplus,
             due = bytes_due(timeouts, now_us - rate->since_us),
             most = bytes_due(timeouts, timeouts->send_us);

    if (!rate->exact) {
        mark(rate, now_us, taken, true);
        return true;
    }
    if (since_mark == 0) /* without a rate, any byte within send_us is enough */
        return timeouts->send_min_rate == 0 && now_us - rate->since_us < timeouts->send_us;
    if (since_mark < due)
        return false;
    surplus = since_mark - due;
    rate->kept_us = now_us;
    mark(rate, now_us, taken - (surplus < most ? surplus : most), true);
    return true;
}
