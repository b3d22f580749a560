/* names.c - which of the well-known fields and methods a token is. */
#include "http/parse.h"

enum { NAME_LONGEST = 21, NAMES_PER_LENGTH = 5 };

static const struct known_name {
    const char *lower;
    uint8_t id;
} names[NAME_LONGEST + 1][NAMES_PER_LENGTH] = {
    [2] = {{"te", FIELD_TE}},
    [3] = {{"via", FIELD_VIA}},
    [4] = {{"host", FIELD_HOST}, {"date", FIELD_DATE}},
    [6] = {{"expect", FIELD_EXPECT}},
    [7] = {{"referer", FIELD_REFERER}, {"upgrade", FIELD_UPGRADE}, {"trailer", FIELD_TRAILER}},
    [9] = {{"forwarded", FIELD_FORWARDED}, {"ratelimit", FIELD_RATELIMIT}},
    [10] = {{"connection", FIELD_CONNECTION},
            {"user-agent", FIELD_USER_AGENT},
            {"keep-alive", FIELD_KEEP_ALIVE}},
    [11] = {{"x-client-id", FIELD_X_CLIENT_ID}, {"retry-after", FIELD_RETRY_AFTER}},
    [12] = {{"content-type", FIELD_CONTENT_TYPE},
            {"x-request-id", FIELD_X_REQUEST_ID},
            {"max-forwards", FIELD_MAX_FORWARDS}},
    [13] = {{"x-weir-client", FIELD_X_WEIR_CLIENT}},
    [14] = {{"content-length", FIELD_CONTENT_LENGTH}},
    [15] = {{"x-forwarded-for", FIELD_X_FORWARDED_FOR}},
    [16] = {{"x-forwarded-host", FIELD_X_FORWARDED_HOST},
            {"proxy-connection", FIELD_PROXY_CONNECTION},
            {"ratelimit-policy", FIELD_RATELIMIT_POLICY}},
    [17] = {{"transfer-encoding", FIELD_TRANSFER_ENCODING},
            {"x-forwarded-proto", FIELD_X_FORWARDED_PROTO},
            {"x-ratelimit-limit", FIELD_X_RATELIMIT},
            {"x-ratelimit-reset", FIELD_X_RATELIMIT},
            {"x-rate-limit-used", FIELD_X_RATE_LIMIT}},
    [18] = {{"proxy-authenticate", FIELD_PROXY_AUTHENTICATE},
            {"x-rate-limit-quota", FIELD_X_RATE_LIMIT},
            {"x-rate-limit-reset", FIELD_X_RATE_LIMIT}},
    [19] = {{"proxy-authorization", FIELD_PROXY_AUTHORIZATION}, {"x-rate-limit-policy", FIELD_X_RATE_LIMIT}},
    [21] = {{"x-ratelimit-remaining", FIELD_X_RATELIMIT}},
};

static inline bool eight_equal(const char *token, const char *lower)
{
    uint64_t a, b;

    memcpy(&a, token, sizeof a);
    memcpy(&b, lower, sizeof b);
    return (a | UINT64_C(0x2020202020202020)) == b;
}

/* Bit 0x20 makes an upper-case letter lower and no other tchar a letter, a digit or "-". */
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
    for (; i < n; i++)
        if ((token[i] | 0x20) != lower[i])
            return false;
    return true;
}

enum field_id field_id_of(struct slice name)
{
    if (name.n > NAME_LONGEST)
        return FIELD_OTHER;
    const struct known_name *known = names[name.n];
    for (unsigned i = 0; i < NAMES_PER_LENGTH && known[i].lower; i++)
        if (token_equals(name.p, known[i].lower, name.n))
            return known[i].id;
    return FIELD_OTHER;
}

/* Methods are case-sensitive: RFC 9110 section 9.1. */
enum method method_of(struct slice text)
{
    static const struct {
        struct slice text;
        enum method method;
    } methods[] = {
        {{"GET", 3}, METHOD_GET},         {{"POST", 4}, METHOD_POST},   {{"PUT", 3}, METHOD_PUT},
        {{"HEAD", 4}, METHOD_HEAD},       {{"PATCH", 5}, METHOD_PATCH}, {{"DELETE", 6}, METHOD_DELETE},
        {{"OPTIONS", 7}, METHOD_OPTIONS}, {{"TRACE", 5}, METHOD_TRACE}, {{"CONNECT", 7}, METHOD_CONNECT},
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
