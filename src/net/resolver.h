/* resolver.h - names to addresses without blocking: /etc/hosts, then DNS (libevent's evdns, by UDP).
 *
 * A and AAAA are asked for side by side. Each lookup ends within the timeout, whatever becomes of the name servers.
 * One thread uses a resolver: the one whose event loop it runs on. */
#ifndef WEIR_NET_RESOLVER_H
#define WEIR_NET_RESOLVER_H

#include <event2/event.h>

#include "net/address.h"

enum { NAMESERVERS_MAX = 8, RESOLVED_MAX = 64 /* addresses of a name; more are left out */ };

struct resolver_settings {
    struct address nameservers[NAMESERVERS_MAX];
    unsigned
        nameserver_count; /* 0: those of /etc/resolv.conf, whose search list and options hold in any case */
    uint64_t timeout_us;  /* for a lookup, with its repetitions */
    uint64_t min_ttl_us, max_ttl_us; /* for who looks names up again; the resolver itself remembers nothing */
    bool ipv6;                       /* ask for AAAA */
};

enum resolved {
    RESOLVED, /* to addresses */
    RESOLVED_NOTHING /* there is no such name, or it has no such address */,
    RESOLVED_FAILED /* nobody answered, or nobody who knew */
};

enum { FAMILY_V4, FAMILY_V6, FAMILY_COUNT };

struct resolver_answer {
    enum resolved family[FAMILY_COUNT];
    struct ip ips
        [RESOLVED_MAX]; /* of both, in any order; those that this host has no route to are left out where it has one to others */
    unsigned count;
    uint64_t ttl_us; /* 0: none was said */
    const char *why; /* static text where a family failed or has nothing */
};

struct resolver;
struct lookup;

/* NULL: no memory. */
struct resolver *resolver_new(struct event_base *base, const struct resolver_settings *settings);
/* Its lookups end without a word. The event loop has to turn once more before it is freed (evdns tidies up there). */
void resolver_free(struct resolver *resolver); /* NULL is allowed */

/* `answered` is called once, never from inside this call. NULL: no memory. */
struct lookup *resolver_ask(struct resolver *resolver, const char *name,
                            void (*answered)(void *context, const struct resolver_answer *answer),
                            void *context);
/* Nobody wants to know any more. */
void lookup_cancel(struct lookup *lookup);

#endif
