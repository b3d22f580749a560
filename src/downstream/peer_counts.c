#include "downstream/peer_counts.h"

#include "base/clock.h"
#include "base/log.h"
#include "net/ip_counts.h"
#include "net/ip_rates.h"
#include "policy/identity.h"
#include "proxy/worker_state.h"

/* Warns at most once per 10 s: the peer may be a proxy that is missing in trusted_proxies. */
static void report_refused(const struct address *peer, unsigned max)
{
    static _Thread_local uint64_t logged_us;
    uint64_t now = clock_us();
    char text[ADDRESS_TEXT_MAX];

    if (logged_us && now - logged_us < 10000000)
        return;
    logged_us = now;
    log_warn("connection from %s refused: its address has %u connections "
             "(size_limits.connections_per_ip); if it is a proxy, add it to "
             "identity.trusted_proxies, which are not counted",
             address_format(peer, text), max);
}

/* The default is a quarter of size_limits.connections, or of the connections for which there are
 * descriptors if that is less. */
static unsigned connections_per_ip_max(const struct worker *w)
{
    const struct size_limits *sizes = &w->policy->size_limits;
    unsigned slots = w->shared->connections_max;

    if (!sizes->connections_per_ip_derived || slots == 0 || slots >= sizes->connections)
        return sizes->connections_per_ip;
    return slots < 4 ? 1 : slots / 4;
}

bool peer_count(struct worker *w, const struct address *peer, bool *counted)
{
    unsigned max = connections_per_ip_max(w);
    const struct peer source = peer_of_address(peer);

    *counted = w->shared->ip_counts && !identity_trusts(&w->policy->identity, &source);
    if (!*counted || ip_counts_enter(w->shared->ip_counts, peer, max))
        return true;
    *counted = false;
    counter_add(&w->stats.connections_refused, 1);
    report_refused(peer, max);
    return false;
}

bool peer_may_ask(const struct worker *w, unsigned listener, const struct peer *peer)
{
    const struct policy *policy = w->policy;
    const struct listen_settings *listen = &policy->listen[listener];

    return (listen->decides && identity_trusts(&policy->decisions.peers, peer)) ||
           (listen->serves_limits && identity_trusts(&policy->rate_limit_service.peers, peer));
}

bool peer_may_handshake(struct worker *w, unsigned listener, const struct peer *peer)
{
    const struct policy *policy = w->policy;
    unsigned max = policy->size_limits.handshakes_per_ip;
    struct ip ip;

    if (max == 0 || !peer->has_ip || identity_trusts(&policy->identity, peer) ||
        peer_may_ask(w, listener, peer))
        return true;
    ip = identity_group(&policy->identity, &peer->ip).ip;
    return ip_rates_admit(w->shared->handshakes, &ip, max, clock_us());
}

void peer_uncount(struct worker *w, const struct address *peer)
{
    ip_counts_leave(w->shared->ip_counts, peer);
}
