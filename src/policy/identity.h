/* identity.h - client identity: an id from a header, cookie, query parameter, token or certificate,
 * or the client's address.
 *
 *   identity_source.c   the table of sources; writes and parses the text of an identity
 *   identity.c          the client's address, and the choice among the sources
 *   identity_cookies.c  cookies
 *   identity_pairs.c    query parameters
 *   identity_hash.c     hashes of values
 *   identity_token.c    JSON Web Tokens
 *   identity_json.c     values in the content
 *   identity_certificate.c    names in the client's certificate */
#ifndef WEIR_POLICY_IDENTITY_H
#define WEIR_POLICY_IDENTITY_H

#include "policy/policy.h"

enum { IDENTITY_TEXT_MAX = CLIENT_ID_MAX + 12 }; /* with the longest prefix */

/* Why identity_of() returned false. */
enum identity_failure {
    IDENTITY_MALFORMED,    /* the response is 400 */
    IDENTITY_INVALID_TOKEN /* the response is 401 */
};

struct content_facts; /* policy/criteria.h */

enum identity_token { TOKEN_UNREAD, TOKEN_NONE, TOKEN_INVALID, TOKEN_VALID };

struct identity {
    bool is_id;           /* false: an address */
    bool peer_trusted;    /* the peer matches trusted_proxies */
    bool headers_trusted; /* from this peer, headers, cookies and query parameters are accepted */
    bool has_ip;          /* false: unix socket without usable client_ip_header */
    enum listed listed;   /* list of the address `ip`; set even if identity_of() returns false */
    enum identity_failure failure;
    unsigned source; /* index in identity.from of the source used */
    /* full client address: rightmost in client_ip_header that is not a trusted proxy */
    struct ip ip;
    enum identity_token token_state; /* of the request's token */
    bool token_counted;
    bool needs_content;      /* a source has the value in the content, which is not read yet */
    const char *token_fault; /* TOKEN_INVALID: why, as text */
    const char *token_doubt; /* TOKEN_INVALID: why servers may read another one; NULL: none does */
    int token;               /* TOKEN_VALID: its index in the cache, during this call */
    size_t size;             /* of text */
    /* "id:client-2", "jwt:alice", "json:alice", "certificate:alice", "cookie:HASH", "query:HASH",
     * "ip:203.0.113.7", "ip:2001:db8::/64" or "ip:unix" */
    char text[IDENTITY_TEXT_MAX];
};

static inline struct slice identity_text(const struct identity *identity)
{
    return (struct slice){identity->text, identity->size};
}

/* Returns whether the last element of X-Forwarded-For, which the proxy at the other end of the
 * connection appends, is an address. False: there is no such field. */
bool forwarded_for_is_valid(const struct fields *fields);

/* Returns true if the peer of a connection matches trusted_proxies. */
bool identity_trusts(const struct identity_settings *settings, const struct peer *peer);

/* Source of a connection: the socket's peer, or the source address in a PROXY protocol header. */
struct identity_peer {
    const struct peer *source;
    /* PROXY protocol header without an address: `source` is the proxy and is not trusted */
    bool unknown;
    bool trusted; /* whether trusted_proxies names it or not: a proxy that asks for a decision */
};

struct tls_certificate; /* net/tls_certificate.h */
struct token_checker;

/* The parts of a request that sources read. */
struct identity_input {
    const struct policy *policy;
    struct identity_peer peer;
    const struct tls_certificate *certificate; /* the client's, verified; NULL: none */
    const struct fields *fields;
    struct slice query;           /* beginning with "?", as received */
    struct token_checker *tokens; /* the worker's; NULL: jwt sources have no value */
    /* With the values of identity.paths; NULL: json sources have no value. */
    const struct content_facts *content;
};

/* Sets only what depends on the address: ip, has_ip, listed, peer_trusted and headers_trusted. */
void identity_find_address(const struct identity_input *input, struct identity *identity);

/* Determines the identity: the first source in identity.from that has a value, else the address.
 * With known_clients_only, ids of unknown clients are skipped. If the policy has a quota database,
 * every id counts as known here. If the database has no such client, the caller continues with
 * identity_next(). Empty values count as missing, as do those that are not accepted.
 *
 * Returns false if the request must be rejected, for `identity->failure` and the reason `*why`:
 *   - IDENTITY_MALFORMED: an identity or token header occurs twice or has control bytes; Connection
 *     names it (X-Client-Id, Authorization and Cookie count nevertheless); servers may read other
 *     credentials in it (http/credentials.h); a parameter (with identity.cookies: reject, a cookie)
 *     has two values, or a name that servers may read as this one, or malformed percent-encoding;
 *     another parameter has malformed percent-encoding in its name; the name of a cookie stands
 *     after a blank; a cookie contains NUL, CR or LF; a name in the content stands twice
 *   - IDENTITY_INVALID_TOKEN: the token is not valid, with jwt.invalid: 401 */
MUST_CHECK bool identity_of(const struct identity_input *input, struct identity *identity,
                            const char **why);

/* The same, after the content has been read, for which the first result was needs_content. */
MUST_CHECK bool identity_of_content(const struct identity_input *input, struct identity *identity,
                                    const char **why);

/* Continues with the sources after an unknown id. Results as for identity_of(). */
MUST_CHECK bool identity_next(const struct identity_input *input, struct identity *identity,
                              const char **why);

/* Returns whether the quota database decides on a request of this identity and rule: whether it is
 * limited or, with known_clients_only, which client it is if another one is blocked. */
bool identity_needs_quota(const struct identity_input *input, const struct rule *rule,
                          struct identity *identity);

/* What became of one source. */
enum source_result {
    SOURCE_NOT_TRUSTED,   /* the peer is not accepted for this source */
    SOURCE_ABSENT,        /* no value, or an empty one; of a token, see token_state */
    SOURCE_BAD,           /* the request must be rejected */
    SOURCE_NEEDS_CONTENT, /* the content is not read yet */
    SOURCE_UNKNOWN,       /* with known_clients_only: the id of no known client */
    SOURCE_USED
};

/* Tries one source as identity_of() does, which must have set `identity` before: for weir explain.
 * `source`: index in identity.from. */
enum source_result identity_try(const struct identity_input *input, unsigned source,
                                struct identity *identity, const char **why);

/* Returns the group of addresses that count as one client (ipv4_prefix, ipv6_prefix). */
static inline struct ip_range identity_group(const struct identity_settings *settings,
                                             const struct ip *ip)
{
    unsigned bits = ip_is_v4(ip) ? 96 + settings->ipv4_prefix : settings->ipv6_prefix;
    return (struct ip_range){bits < 128 ? ip_masked(ip, bits) : *ip, bits};
}

/* Sets `text` from `ip`, grouped. Without `ip`: "ip:unix". */
void identity_write_address(const struct identity_settings *settings, struct identity *identity);

/* Parses a client as operators name it, in `clients` and for inspect, reset and grant:
 *   client-2, id:client-2     an id from a header
 *   jwt:alice, json:alice     a claim, a value in the content
 *   certificate:alice         a name in the client's certificate
 *   cookie:VALUE, query:VALUE the value as the client sends it
 *   id:h:HASH, cookie:h:HASH  a hashed value, by its hash
 *   ip:203.0.113.7, ip:unix   an address; its group as identity_of() writes it
 * Sets text, is_id, ip and has_ip. Returns false, with the reason in `*why`, if it is none. */
MUST_CHECK bool identity_parse(const struct identity_settings *settings, struct slice name,
                               struct identity *identity, const char **why);

/* Writes the name that identity_parse() takes for an identity's text: the text, with "h:" before
 * the hash of a cookie or query parameter. */
void identity_write_full_name(struct text *out, struct slice text);
/* The same, but header ids lose "id:", unless the rest could be taken for another name. */
void identity_write_name(struct text *out, struct slice text);

/* Returns true if an identity's text is that of an id, false if that of an address. */
bool identity_text_is_id(struct slice text);

/* Returns `target` (or any text with a query) with `***` in place of the values of parameters that
 * identities and limits' keys are read from, for logs. `out` receives the changed text; a target
 * without them is returned as it is. Text that does not fit in `out` is cut. */
struct slice identity_redact(const struct policy *policy, struct slice target, struct text *out);

/* Drops request headers that could mislead the server: twins of headers that the policy evaluates
 * (names_are_twins), identity headers from peers that are not accepted, and client_ip_header from
 * peers that are not trusted. Dropped headers are not forwarded and count as missing in limits and
 * rules. */
void policy_sort_headers(const struct policy *policy, const struct identity *identity,
                         struct fields *fields);
/* Returns whether the request has a twin of a header that the policy evaluates, or of one that
 * overrides the method. On the decision listener it cannot be dropped. */
bool policy_has_twin(const struct policy *policy, const struct fields *fields);
/* Drops the request's trailers whose names, or twins of them, the policy reads or sets in request
 * headers: a server that merges trailers into the header would take them for these. */
void policy_sort_trailers(const struct policy *policy, struct fields *trailers);

#endif
