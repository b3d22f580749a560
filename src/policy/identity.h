/* identity.h - client identity from a request header or the client address. */
#ifndef WEIR_POLICY_IDENTITY_H
#define WEIR_POLICY_IDENTITY_H

#include "policy/policy.h"

enum { IDENTITY_TEXT_MAX = CLIENT_ID_MAX + 4 };

struct identity {
    bool from_header;      /* true: an id; false: an address */
    bool peer_trusted;     /* the peer matches trusted_proxies */
    bool headers_believed; /* identity headers from this peer are accepted */
    bool has_ip;           /* false: unix socket without usable X-Forwarded-For */
    enum listed listed;    /* list of the address `ip`; set even if identity_of() returns false */
    unsigned source;       /* index in identity.from of the source used */
    /* full client address: rightmost in X-Forwarded-For that is not a trusted proxy */
    struct ip ip;
    size_t size; /* of text */
    /* "id:client-2", "ip:203.0.113.7", "ip:2001:db8::/64" or "ip:unix" */
    char text[IDENTITY_TEXT_MAX];
};

static inline struct slice identity_text(const struct identity *identity)
{
    return (struct slice){identity->text, identity->size};
}

/* Returns true if the peer of a connection matches trusted_proxies. */
bool identity_trusts(const struct identity_settings *settings, const struct address *peer);

/* Source of a connection: the socket's peer, or the source address in a PROXY protocol header. */
struct identity_peer {
    const struct address *address;
    /* PROXY protocol header without an address: `address` is the proxy's and is not trusted */
    bool unknown;
};

/* Determines the identity: the first source in identity.from that has a value, else the address.
 * With known_clients_only, ids of unknown clients are skipped. If the policy has a quota database,
 * every id counts as known here. If the database has no such client, the caller continues with
 * identity_next(). Empty identity headers count as missing, as do those that are not accepted.
 *
 * Returns false if the request must be rejected with 400 and the reason `*why`:
 *   - an identity header occurs twice
 *   - Connection names it
 *   - it is longer than CLIENT_ID_MAX bytes
 *   - it contains control bytes */
MUST_CHECK bool identity_of(const struct policy *policy, const struct identity_peer *peer,
                            const struct fields *fields, struct identity *identity, const char **why);

/* Sets `text` from `ip`: IPv6 is masked to identity.ipv6_prefix. Without `ip`: "ip:unix". */
void identity_write_address(const struct identity_settings *settings, struct identity *identity);

/* Continues with the sources after an unknown id. Results as for identity_of(). */
MUST_CHECK bool identity_next(const struct policy *policy, const struct fields *fields,
                              struct identity *identity, const char **why);

/* Drops request headers that could mislead the server: twins of headers that the policy evaluates
 * (names_are_twins), and identity headers from peers that are not accepted. Dropped headers are not
 * forwarded and count as missing in limits and rules. */
void policy_sort_headers(const struct policy *policy, bool headers_believed, struct fields *fields);

#endif
