#include "proxy/client_requests.h"

#include "base/clock.h"
#include "base/log.h"
#include "net/ip_shares.h"
#include "proxy/worker_state.h"

/* Warns at most once per 10 s: the address may be a proxy that is missing in trusted_proxies. */
static void report_rejected(const struct exchange *x, const struct ip *group)
{
    static _Thread_local uint64_t logged_us;
    uint64_t now = clock_cached_us();
    char bytes[64];
    struct text text = text_over(bytes, sizeof bytes);

    if (logged_us && now - logged_us < 10000000)
        return;
    logged_us = now;
    ip_format(group, &text);
    log_warn("requests of %.*s are rejected: it has %u requests under way "
             "(size_limits.requests_per_client); if it is a proxy, add it to "
             "identity.trusted_proxies",
             (int)text.n, bytes, x->policy->size_limits.requests_per_client);
}

static bool is_trusted_proxy(const struct exchange *x, const struct identity *identity)
{
    const struct peer peer = {.ip = identity->ip, .has_ip = true};

    return identity_trusts(&x->policy->identity, &peer);
}

bool client_requests_group(const struct exchange *x, const struct identity *identity,
                           struct ip *group)
{
    if (!identity->has_ip || identity->listed == LISTED_ALLOWED || is_trusted_proxy(x, identity))
        return false;
    *group = identity_group(&x->policy->identity, &identity->ip).ip;
    return true;
}

bool client_requests_enter(struct exchange *x, const struct identity *identity)
{
    unsigned max = x->policy->size_limits.requests_per_client;

    if (!max || !identity->has_ip || identity->listed == LISTED_ALLOWED)
        return true;
    struct ip group = identity_group(&x->policy->identity, &identity->ip).ip;
    if (ip_shares_enter(x->worker->requests_by_ip, &group, max, &x->requests_entry) ||
        is_trusted_proxy(x, identity))
        return true;
    report_rejected(x, &group);
    return false;
}

void client_requests_leave(struct exchange *x)
{
    ip_shares_leave(x->worker->requests_by_ip, x->requests_entry);
    x->requests_entry = 0;
}
