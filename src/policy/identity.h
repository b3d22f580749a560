/* identity.h - who is asking: from a header, or from the address through trusted proxies. */
#ifndef WEIR_POLICY_IDENTITY_H
#define WEIR_POLICY_IDENTITY_H

#include "policy/policy.h"

enum { IDENTITY_TEXT_MAX = CLIENT_ID_MAX + 4 };

struct identity {
    bool from_header;      /* an id, else an address */
    bool peer_trusted;     /* the peer is one of trusted_proxies */
    bool headers_believed; /* identity headers of this peer are */
    bool has_ip;           /* false: a unix peer without a usable X-Forwarded-For */
    enum listed
        listed;      /* is the address below on a list of addresses? Set also where identity_of says false */
    unsigned source; /* index of identity.from that gave it */
    struct ip ip;    /* the client's address, seen through trusted proxies from the right, whole */
    size_t size;     /* of text */
    char text[IDENTITY_TEXT_MAX]; /* "id:client-2", "ip:203.0.113.7", "ip:2001:db8::/64", "ip:unix"; prefixes
                                     keep them apart */
};

static inline struct slice identity_text(const struct identity *identity)
{
    return (struct slice){identity->text, identity->size};
}

/* Is the peer of a connection one of trusted_proxies? */
bool identity_trusts(const struct identity_settings *settings, const struct address *peer);

/* Whom a connection comes from: the socket's peer, or the address that a PROXY protocol header names. */
struct identity_peer {
    const struct address *address;
    bool unknown; /* a PROXY protocol header names nobody: the address is the proxy's, and is not trusted */
};

/* The first of identity.from that gives a value (with known_clients_only: of a known client); the address
 * when none does. False: the request is to be refused with 400 and `*why`: an identity header that comes
 * twice, is longer than CLIENT_ID_MAX or holds control bytes. An empty one is none, and so
 * is one that is not believed. Where the policy has quotas from a database an id counts as known here: whoever has asked the database goes on with identity_next. */
MUST_CHECK bool identity_of(const struct policy *policy, const struct identity_peer *peer,
                            const struct fields *fields, struct identity *identity, const char **why);

/* Sets the text of an identity that is an address: its `ip`, in groups as the policy has them, or "unix". */
void identity_write_address(const struct identity_settings *settings, struct identity *identity);

/* The id is nobody's: what the sources after it say. */
MUST_CHECK bool identity_next(const struct policy *policy, const struct fields *fields,
                              struct identity *identity, const char **why);

/* Drops request headers that could mislead the server: twins of those that the policy reads (names_are_twins),
 * and identity headers that are not believed. They are not forwarded, and count as none in limits and rules. */
void policy_sort_headers(const struct policy *policy, bool headers_believed, struct fields *fields);

#endif
