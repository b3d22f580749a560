/* resolver.h - non-blocking name resolution: /etc/hosts, then DNS over UDP (libevent's evdns).
 *
 * A and AAAA are queried in parallel. Each lookup ends within the timeout. A resolver is used only
 * by the thread of its event loop. */
#ifndef WEIR_NET_RESOLVER_H
#define WEIR_NET_RESOLVER_H

#include <event2/event.h>

#include "net/address.h"

enum { NAMESERVERS_MAX = 8, RESOLVED_MAX = 64 /* addresses per name; more are dropped */ };

struct resolver_settings {
    struct address nameservers[NAMESERVERS_MAX];
    /* 0: use the name servers of /etc/resolv.conf. Its search list and options always apply. */
    unsigned nameserver_count;
    uint64_t timeout_us; /* for one lookup, including retries */
    /* for callers that resolve again; the resolver caches nothing */
    uint64_t min_ttl_us, max_ttl_us;
    bool ipv6; /* query AAAA */
};

enum resolved {
    RESOLVED, /* the name has addresses */
    /* The name does not exist or has no address of this family. */
    RESOLVED_NOTHING,
    /* No usable reply: timeout or server failure. */
    RESOLVED_FAILED
};

enum { FAMILY_V4, FAMILY_V6, FAMILY_COUNT };

struct resolver_answer {
    enum resolved family[FAMILY_COUNT];
    /* Addresses of both families, in any order. If some are reachable, those without a route are
     * left out. */
    struct ip ips[RESOLVED_MAX];
    unsigned count;
    uint64_t ttl_us; /* 0: unknown */
    const char *why; /* static text, if a family failed or has no address */
};

/* Returns whether this host has an address and a route for packets to `ip`. */
bool ip_has_route(const struct ip *ip);

struct resolver;
struct dns_lookup;

/* Returns NULL if out of memory. */
struct resolver *resolver_new(struct event_base *base, const struct resolver_settings *settings);
/* Frees the resolver without calling back its lookups. Run the event loop once more before freeing
 * the event base, because evdns cleans up there. */
void resolver_free(struct resolver *resolver); /* NULL is allowed */

/* Starts a lookup. `answered` is called exactly once, never during this call, unless the lookup is
 * cancelled. Returns NULL if out of memory. */
struct dns_lookup *resolver_look_up(struct resolver *resolver, const char *name,
                                    void (*answered)(void *context,
                                                     const struct resolver_answer *answer),
                                    void *context);
/* Cancels the lookup: `answered` is not called. */
void lookup_cancel(struct dns_lookup *lookup);

#endif
