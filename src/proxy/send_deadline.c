#include "proxy/send_deadline.h"

#include "base/clock.h"

enum { OWN_RESPONSE_US = 10 * 1000000 };

static void arm(struct exchange *x, uint64_t now)
{
    deadline_arm(&x->worker->queue.write, &x->client_deadline, now,
                 x->policy->timeouts.send_us / 2);
}

static uint64_t taken(const struct exchange *x, bool exactly)
{
    return x->downstream->ops->taken(x->downstream, exactly);
}

void send_deadline_run(struct exchange *x, bool moved)
{
    struct worker *w = x->worker;
    bool reply = x->phase == PHASE_REPLY, runs;
    uint64_t now, most = x->policy->timeouts.send_us;

    runs = x->client_deadline.queue == (reply ? &w->queue.reply : &w->queue.write);
    if (runs && (reply || !moved))
        return;
    now = clock_cached_us();
    if (!runs)
        send_rate_begin(&x->send, now, taken(x, false));
    else if (!send_rate_moved(&x->send, &x->policy->timeouts, now, taken(x, false)))
        return;
    if (reply)
        deadline_arm(&w->queue.reply, &x->client_deadline, now,
                     most < OWN_RESPONSE_US ? most : OWN_RESPONSE_US);
    else
        arm(x, now);
}

bool send_deadline_renew(struct exchange *x)
{
    uint64_t now = clock_us();

    if (x->phase == PHASE_REPLY ||
        !send_rate_renew(&x->send, &x->policy->timeouts, now, taken(x, true)))
        return false;
    arm(x, now);
    return true;
}
