/* field_names.c - recognition of known field names and methods. */
#include "http/parse.h"

enum { NAME_LONGEST = 30, NAMES_PER_LENGTH = 8 };

struct known_name {
    const char *lower;
    uint8_t id;
};

/* Indexed by length. */
static const struct known_name names[NAME_LONGEST + 1][NAMES_PER_LENGTH] = {
    [2] = {{"te", FIELD_TE}},
    [3] = {{"via", FIELD_VIA}},
    [4] = {{"host", FIELD_HOST}, {"date", FIELD_DATE}},
    [5] = {{"proxy", FIELD_NEVER_FORWARDED}},
    [6] = {{"expect", FIELD_EXPECT}, {"x-host", FIELD_PROXY_CLAIM}},
    [7] = {{"referer", FIELD_REFERER}, {"upgrade", FIELD_UPGRADE}, {"trailer", FIELD_TRAILER}},
    [8] = {{"x-scheme", FIELD_PROXY_CLAIM}},
    [9] = {{"forwarded", FIELD_FORWARDED},
           {"ratelimit", FIELD_RATELIMIT},
           {"x-real-ip", FIELD_PROXY_CLAIM},
           {"client-ip", FIELD_PROXY_CLAIM}},
    [10] = {{"connection", FIELD_CONNECTION},
            {"user-agent", FIELD_USER_AGENT},
            {"keep-alive", FIELD_KEEP_ALIVE}},
    [11] = {{"x-client-id", FIELD_X_CLIENT_ID},
            {"retry-after", FIELD_RETRY_AFTER},
            {"x-client-ip", FIELD_PROXY_CLAIM},
            {"x-remote-ip", FIELD_PROXY_CLAIM},
            {"x-forwarded", FIELD_PROXY_CLAIM},
            {"script-name", FIELD_NEVER_FORWARDED},
            {"traceparent", FIELD_TRACEPARENT}},
    [12] = {{"content-type", FIELD_CONTENT_TYPE},
            {"x-request-id", FIELD_X_REQUEST_ID},
            {"max-forwards", FIELD_MAX_FORWARDS},
            {"x-url-scheme", FIELD_PROXY_CLAIM}},
    [13] = {{"x-weir-client", FIELD_X_WEIR_CLIENT},
            {"x-http-method", FIELD_METHOD_OVERRIDE},
            {"x-rewrite-url", FIELD_NEVER_FORWARDED},
            {"x-script-name", FIELD_NEVER_FORWARDED},
            {"x-remote-addr", FIELD_PROXY_CLAIM},
            {"forwarded-for", FIELD_PROXY_CLAIM},
            {"fly-client-ip", FIELD_PROXY_CLAIM}},
    [14] = {{"content-length", FIELD_CONTENT_LENGTH},
            {"x-original-url", FIELD_NEVER_FORWARDED},
            {"x-original-uri", FIELD_PROXY_CLAIM},
            {"true-client-ip", FIELD_PROXY_CLAIM},
            {"x-proxyuser-ip", FIELD_PROXY_CLAIM}},
    [15] = {{"accept-encoding", FIELD_ACCEPT_ENCODING},
            {"x-forwarded-for", FIELD_X_FORWARDED_FOR},
            {"x-original-host", FIELD_PROXY_CLAIM},
            {"front-end-https", FIELD_PROXY_CLAIM},
            {"proxy-client-ip", FIELD_PROXY_CLAIM}},
    [16] = {{"x-forwarded-host", FIELD_X_FORWARDED_HOST},
            {"proxy-connection", FIELD_PROXY_CONNECTION},
            {"ratelimit-policy", FIELD_RATELIMIT},
            {"cf-connecting-ip", FIELD_PROXY_CLAIM},
            {"fastly-client-ip", FIELD_PROXY_CLAIM},
            {"x-azure-clientip", FIELD_PROXY_CLAIM},
            {"x-azure-socketip", FIELD_PROXY_CLAIM},
            {"x-originating-ip", FIELD_PROXY_CLAIM}},
    [17] = {{"transfer-encoding", FIELD_TRANSFER_ENCODING},
            {"x-forwarded-proto", FIELD_X_FORWARDED_PROTO},
            {"x-ratelimit-limit", FIELD_X_RATELIMIT},
            {"x-ratelimit-reset", FIELD_X_RATELIMIT},
            {"x-rate-limit-used", FIELD_X_RATE_LIMIT},
            {"x-method-override", FIELD_METHOD_OVERRIDE},
            {"x-original-method", FIELD_PROXY_CLAIM},
            {"appengine-user-ip", FIELD_PROXY_CLAIM}},
    [18] = {{"proxy-authenticate", FIELD_PROXY_AUTHENTICATE},
            {"x-rate-limit-quota", FIELD_X_RATE_LIMIT},
            {"x-rate-limit-reset", FIELD_X_RATE_LIMIT},
            {"cf-connecting-ipv6", FIELD_PROXY_CLAIM},
            {"wl-proxy-client-ip", FIELD_PROXY_CLAIM}},
    [19] = {{"proxy-authorization", FIELD_PROXY_AUTHORIZATION},
            {"x-rate-limit-policy", FIELD_X_RATE_LIMIT},
            {"x-cluster-client-ip", FIELD_PROXY_CLAIM},
            {"x-appengine-user-ip", FIELD_PROXY_CLAIM}},
    [20] = {{"x-http-host-override", FIELD_PROXY_CLAIM}},
    [21] = {{"x-ratelimit-remaining", FIELD_X_RATELIMIT}},
    [22] = {{"x-http-method-override", FIELD_METHOD_OVERRIDE}},
    [24] = {{"x-ratelimit-limit-tokens", FIELD_X_RATELIMIT_OF},
            {"x-ratelimit-reset-tokens", FIELD_X_RATELIMIT_OF}},
    [26] = {{"x-ratelimit-limit-requests", FIELD_X_RATELIMIT_OF},
            {"x-ratelimit-reset-requests", FIELD_X_RATELIMIT_OF}},
    [28] = {{"x-ratelimit-remaining-tokens", FIELD_X_RATELIMIT_OF}},
    [30] = {{"x-ratelimit-remaining-requests", FIELD_X_RATELIMIT_OF}},
};

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

    if (((token[0] | 0x20) ^ lower[0]) != 0)
        return false;
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

/* Returns whether the name is an X-Forwarded-* that is not in the table: -Port, -Prefix, -Server,
 * -User and so on. */
static bool is_forwarded_claim(struct slice name)
{
    return name.n > 12 && eight_equal(name.p, "x-forwar") && eight_equal(name.p + 4, "rwarded-");
}

enum field_id field_id_of(struct slice name)
{
    if (name.n <= NAME_LONGEST) {
        const struct known_name *known = names[name.n];
        for (unsigned i = 0; i < NAMES_PER_LENGTH && known[i].lower; i++)
            if (token_equals(name.p, known[i].lower, name.n))
                return known[i].id;
    }
    return is_forwarded_claim(name) ? FIELD_PROXY_CLAIM : FIELD_OTHER;
}

/* Methods are case-sensitive: RFC 9110 section 9.1. */
enum method method_of(struct slice text)
{
    static const struct {
        struct slice text;
        enum method method;
    } methods[] = {
        {{"GET", 3}, METHOD_GET},         {{"POST", 4}, METHOD_POST},
        {{"PUT", 3}, METHOD_PUT},         {{"HEAD", 4}, METHOD_HEAD},
        {{"PATCH", 5}, METHOD_PATCH},     {{"DELETE", 6}, METHOD_DELETE},
        {{"OPTIONS", 7}, METHOD_OPTIONS}, {{"TRACE", 5}, METHOD_TRACE},
        {{"CONNECT", 7}, METHOD_CONNECT},
    };
    for (size_t i = 0; i < COUNT_OF(methods); i++)
        if (slice_equal(text, methods[i].text))
            return methods[i].method;
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
