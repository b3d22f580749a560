/* verification.c - the end of a client's verification: its certificate expires, or a reload changes
 * what its listener verifies clients by. */
#include "downstream/client.h"
#include "net/tls_certificate.h"

static const uint64_t look_again_us = 3600ull * 1000000; /* the clock of the machine may be set */

/* Serves no further request: the client must be verified on a new connection. */
static void stop_requests(struct client *c)
{
    struct timer_heap *expiries = &c->worker->downstream->expiries;

    if (c->ends)
        return;
    c->ends = true;
    c->protocol->stop(c);
    if (c->state == CLIENT_CLOSED)
        return;
    timer_cancel(expiries, &c->expiry);
    if (!timer_set(expiries, &c->expiry, clock_us() + c->worker->policy->timeouts.shutdown_us))
        client_cut(c, CAUSE_VERIFICATION_ENDED);
}

bool client_await_expiry(struct client *c)
{
    int64_t left_s = c->origin.certificate->until_s - (int64_t)(clock_wall_us() / 1000000);
    uint64_t left_us = left_s > 0 ? (uint64_t)left_s : 0;

    left_us = left_us < look_again_us / 1000000 ? left_us * 1000000 : look_again_us;
    return timer_set(&c->worker->downstream->expiries, &c->expiry, clock_us() + left_us);
}

static void timer_passed(struct timer *timer)
{
    struct client *c = CONTAINER_OF(timer, struct client, expiry);

    MAGIC_CHECK(c, CLIENT_MAGIC);
    bool valid = !c->ends && c->origin.certificate->until_s > (int64_t)(clock_wall_us() / 1000000);
    if (valid && client_await_expiry(c))
        return;
    if (c->ends || valid) /* the last requests have had their time, or there is no memory */
        client_cut(c, CAUSE_VERIFICATION_ENDED);
    else
        stop_requests(c);
}

static void verify_again(struct client *c, void *context)
{
    (void)context;
    if (c->protocol->is_verified && !c->protocol->is_verified(c))
        stop_requests(c);
}

void clients_verify_again(struct worker *w)
{
    clients_for_each(w, verify_again, NULL);
}

void verification_init(struct worker *w)
{
    timer_heap_init(&w->downstream->expiries, w->base, timer_passed);
}
