/* field_names.c - recognition of known field names and methods. */
#include <stdlib.h>

#include "http/parse.h"

enum { NAME_LONGEST = 30, LETTERS = 32, GROUPS = (NAME_LONGEST + 1) * LETTERS };

struct known_name {
    const char *lower;
    uint8_t id;
};

/* Of names of one length and first letter, frequent ones come first. */
#define ROW(lower, id) {lower, id},
/* clang-format off */
static const struct known_name known[] = {
    {"te", FIELD_TE}, {"via", FIELD_VIA}, {"host", FIELD_HOST}, {"date", FIELD_DATE},
    {"proxy", FIELD_NEVER_FORWARDED}, {"expect", FIELD_EXPECT}, {"referer", FIELD_REFERER},
    {"upgrade", FIELD_UPGRADE}, {"trailer", FIELD_TRAILER}, {"forwarded", FIELD_FORWARDED},
    {"connection", FIELD_CONNECTION}, {"user-agent", FIELD_USER_AGENT},
    {"keep-alive", FIELD_KEEP_ALIVE}, {"x-client-id", FIELD_X_CLIENT_ID},
    {"retry-after", FIELD_RETRY_AFTER}, {"script-name", FIELD_NEVER_FORWARDED},
    {"traceparent", FIELD_TRACEPARENT}, {"content-type", FIELD_CONTENT_TYPE},
    {"x-request-id", FIELD_X_REQUEST_ID}, {"max-forwards", FIELD_MAX_FORWARDS},
    {"x-weir-client", FIELD_X_WEIR_CLIENT}, {"x-http-method", FIELD_METHOD_OVERRIDE},
    {"x-rewrite-url", FIELD_NEVER_FORWARDED}, {"x-script-name", FIELD_NEVER_FORWARDED},
    {"content-length", FIELD_CONTENT_LENGTH}, {"x-original-url", FIELD_NEVER_FORWARDED},
    {"accept-encoding", FIELD_ACCEPT_ENCODING}, {"x-forwarded-for", FIELD_X_FORWARDED_FOR},
    {"x-forwarded-host", FIELD_X_FORWARDED_HOST}, {"proxy-connection", FIELD_PROXY_CONNECTION},
    {"transfer-encoding", FIELD_TRANSFER_ENCODING}, {"x-forwarded-proto", FIELD_X_FORWARDED_PROTO},
    {"x-method-override", FIELD_METHOD_OVERRIDE}, {"proxy-authenticate", FIELD_PROXY_AUTHENTICATE},
    {"proxy-authorization", FIELD_PROXY_AUTHORIZATION},
    {"x-http-method-override", FIELD_METHOD_OVERRIDE},
#define CLAIM(lower) {lower, FIELD_PROXY_CLAIM}
    CLAIM("x-host"), CLAIM("x-scheme"), CLAIM("x-real-ip"), CLAIM("client-ip"),
    CLAIM("x-client-ip"), CLAIM("x-remote-ip"), CLAIM("x-forwarded"), CLAIM("x-url-scheme"),
    CLAIM("x-remote-addr"), CLAIM("forwarded-for"), CLAIM("fly-client-ip"), CLAIM("x-original-uri"),
    CLAIM("true-client-ip"), CLAIM("x-proxyuser-ip"), CLAIM("x-original-host"),
    CLAIM("front-end-https"), CLAIM("proxy-client-ip"), CLAIM("cf-connecting-ip"),
    CLAIM("fastly-client-ip"), CLAIM("x-azure-clientip"), CLAIM("x-azure-socketip"),
    CLAIM("x-originating-ip"), CLAIM("x-original-method"), CLAIM("appengine-user-ip"),
    CLAIM("cf-connecting-ipv6"), CLAIM("wl-proxy-client-ip"), CLAIM("x-cluster-client-ip"),
    CLAIM("x-appengine-user-ip"), CLAIM("x-http-host-override"), CLAIM("client-cert"),
    CLAIM("client-cert-chain"), CLAIM("x-client-cert"), CLAIM("x-arr-clientcert"),
    CLAIM("x-envoy-external-address"), CLAIM("x-original-forwarded-for"),
    FAMILY_NAMES(ROW)
};
/* clang-format on */

/* The known names by length and first letter: those of group g are names[first[g]] to
 * names[first[g + 1] - 1]. */
static struct known_name names[COUNT_OF(known)];
static uint8_t first[GROUPS + 1];

/* Both cases of a letter have the same last five bits. */
static inline unsigned name_bucket(const char *name, size_t n)
{
    return (unsigned)n * LETTERS + (unsigned)(name[0] & (LETTERS - 1));
}

__attribute__((constructor)) static void index_names(void)
{
    unsigned count = 0;

    for (unsigned group = 0; group < GROUPS; group++) {
        first[group] = (uint8_t)count;
        for (size_t i = 0; i < COUNT_OF(known); i++)
            if (name_bucket(known[i].lower, strlen(known[i].lower)) == group)
                names[count++] = known[i];
    }
    first[GROUPS] = (uint8_t)count;
    if (count != COUNT_OF(known))
        abort(); /* a name is longer than NAME_LONGEST */
}

static inline bool eight_equal(const char *token, const char *lower)
{
    uint64_t a, b;

    memcpy(&a, token, sizeof a);
    memcpy(&b, lower, sizeof b);
    return (a | UINT64_C(0x2020202020202020)) == b;
}

static inline bool four_equal(const char *token, const char *lower)
{
    uint32_t a, b;

    memcpy(&a, token, sizeof a);
    memcpy(&b, lower, sizeof b);
    return (a | UINT32_C(0x20202020)) == b;
}

/* Setting bit 0x20 maps an upper-case letter to lower case and maps no other tchar to a letter, a
 * digit or "-". */
static bool token_equals(const char *token, const char *lower, size_t n)
{
    size_t i = 0;

    if (n >= 8) {
        for (; i + 8 < n; i += 8)
            if (!eight_equal(token + i, lower + i))
                return false;
        return eight_equal(token + n - 8, lower + n - 8);
    }
    if (n >= 4)
        return four_equal(token, lower) && four_equal(token + n - 4, lower + n - 4);
    for (; i < n; i++)
        if ((token[i] | 0x20) != lower[i])
            return false;
    return true;
}

/* Returns whether the name is an X-Forwarded-* that is not in the table, such as -Port or -User, or
 * about a client's certificate: X-SSL-Client-*, SSL-Client-* and X-Amzn-Mtls-*. */
static bool is_claim_of_family(struct slice name)
{
    if (name.n <= 12)
        return false;
    return (eight_equal(name.p, "x-forwar") && eight_equal(name.p + 4, "rwarded-")) ||
           (eight_equal(name.p, "x-ssl-cl") && eight_equal(name.p + 5, "-client-")) ||
           (eight_equal(name.p, "ssl-clie") && eight_equal(name.p + 3, "-client-")) ||
           (eight_equal(name.p, "x-amzn-m") && eight_equal(name.p + 4, "zn-mtls-"));
}

enum field_id field_id_of(struct slice name)
{
    if (name.n && name.n <= NAME_LONGEST) {
        unsigned group = name_bucket(name.p, name.n);
        for (unsigned i = first[group]; i < first[group + 1]; i++)
            if (token_equals(name.p, names[i].lower, name.n))
                return names[i].id;
    }
    return is_claim_of_family(name) ? FIELD_PROXY_CLAIM : FIELD_OTHER;
}

/* Methods are case-sensitive: RFC 9110 section 9.1. */
enum method method_of(struct slice text)
{
#define RETURN_IF(name)                                                                            \
    if (slice_equal(text, SLICE(#name)))                                                           \
    return METHOD_##name
    RETURN_IF(GET);
    RETURN_IF(POST);
    RETURN_IF(PUT);
    RETURN_IF(HEAD);
    RETURN_IF(PATCH);
    RETURN_IF(DELETE);
    RETURN_IF(OPTIONS);
    RETURN_IF(TRACE);
    RETURN_IF(CONNECT);
#undef RETURN_IF
    return METHOD_OTHER;
}

bool method_is_idempotent(enum method method)
{
    switch (method) {
    case METHOD_GET:
    case METHOD_HEAD:
    case METHOD_OPTIONS:
    case METHOD_TRACE:
    case METHOD_PUT:
    case METHOD_DELETE: return true;
    default: return false;
    }
}
