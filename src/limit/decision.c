/* decision.c - see decision.h. The field names and the parameters of the IETF draft stand here and nowhere
 * else. */
#include "limit/decision.h"

#include "policy/values.h"

/* draft-ietf-httpapi-ratelimit-headers-11, which still moves. */
#define IETF_POLICY_FIELD "RateLimit-Policy"
#define IETF_STATE_FIELD  "RateLimit"
#define IETF_QUOTA        ";q="
#define IETF_WINDOW       ";w="
#define IETF_REMAINING    ";r="
#define IETF_IN_FLIGHT    ";qu=\"concurrent-requests\""
#define IETF_RESET        ";t="
#define PROBLEM_QUOTA     "https://iana.org/assignments/http-problem-types#quota-exceeded"
#define PROBLEM_CAPACITY  "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"

static const int64_t second_us = 1000000;
static const int64_t sf_integer_max = 999999999999999; /* RFC 9651 section 3.3.1 */

const char *const verdict_label[VERDICT_COUNT] = {
#define X(name, label) [name] = label,
    VERDICTS(X)
#undef X
};

static int64_t seconds_up(int64_t us)
{
    return us <= 0 ? 0 : us / second_us + (us % second_us != 0);
}

static int64_t at_least(int64_t value, int64_t floor)
{
    return value > floor ? value : floor;
}

/* --- The limit that the X- fields tell of ------------------------------------------------------------- */

/* Is less of a's capacity left than of b's? a.remaining / a.capacity < b.remaining / b.capacity. */
static bool smaller_share(const struct limit_result *a, const struct limit_result *b)
{
    return (__int128)a->remaining * b->capacity < (__int128)b->remaining * a->capacity;
}

/* Nobody knows when requests in flight will end: such a limit has no window and no reset. */
static bool has_window(const struct limit_result *r)
{
    return r->limit->kind != LIMIT_CONCURRENCY;
}

static bool is_shown(const struct limit_result *r)
{
    return !r->shadow && r->limit->headers;
}

/* NULL: none of the limits is shown. */
static const struct limit_result *most_telling(const struct decision *d)
{
    const struct limit_result *found = NULL;

    if (d->rejected_by >= 0 && is_shown(&d->results[d->rejected_by]))
        return &d->results[d->rejected_by];
    for (unsigned i = 0; i < d->result_count; i++)
        if (is_shown(&d->results[i]) && (!found || smaller_share(&d->results[i], found)))
            found = &d->results[i];
    return found;
}

/* --- Lines -------------------------------------------------------------------------------------------- */

#define NUMBER_LINE(out, name, value)                                                                        \
    do {                                                                                                     \
        text_literal((out), name ": ");                                                                      \
        text_i64((out), (value));                                                                            \
        text_literal((out), "\r\n");                                                                         \
    } while (0)

static void policy_line(struct text *out, const struct limit_result *r)
{
    text_literal(out, "X-Rate-Limit-Policy: ");
    text_put(out, slice_of(r->limit->label ? r->limit->label : r->limit->name));
    text_literal(out, "\r\n");
}

static void x_ratelimit_lines(struct text *out, const struct limit_result *r, bool epoch, uint64_t wall_us)
{
    int64_t from_us = epoch ? (int64_t)wall_us : 0;
    NUMBER_LINE(out, "X-RateLimit-Limit", r->capacity);
    NUMBER_LINE(out, "X-RateLimit-Remaining", r->remaining);
    if (has_window(r))
        NUMBER_LINE(out, "X-RateLimit-Reset", seconds_up(from_us + r->reset_us));
}

static void x_rate_limit_lines(struct text *out, const struct limit_result *r)
{
    policy_line(out, r);
    NUMBER_LINE(out, "X-Rate-Limit-Quota", r->quota);
    if (r->quota < 1)
        return;
    NUMBER_LINE(out, "X-Rate-Limit-Used", at_least(r->capacity - r->remaining, 0));
    if (has_window(r))
        NUMBER_LINE(out, "X-Rate-Limit-Reset", seconds_up(r->reset_us));
}

/* RFC 9651 section 3.3.3: printable ASCII, quotes and backslashes escaped. */
static void sf_string(struct text *out, const char *value)
{
    static const bool as_it_is[256] = {[' ' ... '!'] = true, ['#' ... '['] = true, [']' ... '~'] = true};
    size_t plain = 0;

    text_char(out, '"');
    while (as_it_is[(unsigned char)value[plain]])
        plain++;
    text_bytes(out, value, plain);
    for (value += plain; *value; value++) {
        if (*value == '"' || *value == '\\')
            text_char(out, '\\');
        text_char(out, *value >= 0x20 && *value < 0x7f ? *value : '?');
    }
    text_char(out, '"');
}

static void sf_parameter(struct text *out, struct slice key, int64_t value)
{
    text_put(out, key);
    text_i64(out, value < sf_integer_max ? value : sf_integer_max);
}

/* In how many seconds the whole capacity comes back. */
static int64_t window_seconds(const struct limit_result *r)
{
    __int128 whole = (__int128)r->capacity * r->limit->period_us;
    __int128 unit = (__int128)at_least(r->quota, 1) * second_us;
    __int128 seconds = (whole + unit - 1) / unit;
    return seconds > sf_integer_max ? sf_integer_max : at_least((int64_t)seconds, 1);
}

static void ietf_policy_item(struct text *out, const struct limit_result *r)
{
    sf_string(out, r->limit->name);
    sf_parameter(out, SLICE(IETF_QUOTA), r->capacity);
    if (has_window(r))
        sf_parameter(out, SLICE(IETF_WINDOW), window_seconds(r));
    else
        text_literal(out, IETF_IN_FLIGHT);
}

static void ietf_state_item(struct text *out, const struct limit_result *r)
{
    sf_string(out, r->limit->name);
    sf_parameter(out, SLICE(IETF_REMAINING), r->remaining);
    if (has_window(r))
        sf_parameter(out, SLICE(IETF_RESET), seconds_up(r->reset_us));
}

static void ietf_line(struct text *out, struct slice name, const struct decision *d,
                      void (*item)(struct text *, const struct limit_result *))
{
    bool first = true;

    text_put(out, name);
    for (unsigned i = 0; i < d->result_count; i++) {
        if (!is_shown(&d->results[i]))
            continue;
        if (!first)
            text_literal(out, ", ");
        first = false;
        item(out, &d->results[i]);
    }
    text_literal(out, "\r\n");
}

/* --- The fields of each verdict ----------------------------------------------------------------------- */

static void limited_lines(struct text *out, const struct decision *d, const struct limit_result *r,
                          unsigned headers, uint64_t wall_us)
{
    if (headers & (HEADERS_X_RATELIMIT | HEADERS_X_RATELIMIT_EPOCH))
        x_ratelimit_lines(out, r, headers & HEADERS_X_RATELIMIT_EPOCH, wall_us);
    if (headers & HEADERS_X_RATE_LIMIT)
        x_rate_limit_lines(out, r);
    if (headers & HEADERS_IETF) {
        ietf_line(out, SLICE(IETF_POLICY_FIELD ": "), d, ietf_policy_item);
        ietf_line(out, SLICE(IETF_STATE_FIELD ": "), d, ietf_state_item);
    }
}

static void prohibited_lines(struct text *out, const struct limit_result *r, unsigned headers)
{
    if (headers & (HEADERS_X_RATELIMIT | HEADERS_X_RATELIMIT_EPOCH)) {
        NUMBER_LINE(out, "X-RateLimit-Limit", 0);
        NUMBER_LINE(out, "X-RateLimit-Remaining", 0);
    }
    if (headers & HEADERS_X_RATE_LIMIT) {
        policy_line(out, r);
        NUMBER_LINE(out, "X-Rate-Limit-Quota", 0);
    }
}

static void unlimited_lines(struct text *out, const struct limit_result *r, unsigned headers)
{
    if (headers & HEADERS_X_RATE_LIMIT) {
        policy_line(out, r);
        NUMBER_LINE(out, "X-Rate-Limit-Quota", -1);
    }
}

int64_t decision_retry_after(const struct decision *d)
{
    if (d->verdict == VERDICT_FAILED_CLOSED)
        return 1;
    if (d->verdict != VERDICT_LIMITED || d->rejected_by < 0)
        return -1;
    int64_t us = d->results[d->rejected_by].retry_after_us;
    return us < 0 ? -1 : at_least(seconds_up(us + d->jitter_us), 1);
}

void decision_spread(struct decision *d, int64_t share, uint64_t random)
{
    int64_t us =
        d->verdict == VERDICT_LIMITED && d->rejected_by >= 0 ? d->results[d->rejected_by].retry_after_us : 0;
    __int128 most = us > 0 ? (__int128)us * share / SHARE_WHOLE : 0;

    d->jitter_us = (int64_t)(most * (int64_t)(random >> 32) >> 32);
}

void decision_fields_write(struct text *out, const struct decision *d, unsigned headers, uint64_t wall_us)
{
    int64_t retry_after = decision_retry_after(d);
    const struct limit_result *r = most_telling(d);

    if (r) {
        if (d->verdict == VERDICT_PROHIBITED)
            prohibited_lines(out, r, headers);
        else if (d->verdict == VERDICT_UNLIMITED)
            unlimited_lines(out, r, headers);
        else if (d->verdict == VERDICT_ALLOWED || d->verdict == VERDICT_LIMITED)
            limited_lines(out, d, r, headers, wall_us);
    }
    if (retry_after >= 0)
        NUMBER_LINE(out, "Retry-After", retry_after);
}

/* --- The problem document ----------------------------------------------------------------------------- */

static void detail_member(struct text *out, const struct decision *d)
{
    int64_t wait = decision_retry_after(d);

    text_literal(out, "\"detail\":\"");
    if (d->verdict == VERDICT_FAILED_CLOSED)
        text_literal(out, "The rate limit cannot be checked at the moment.");
    else if (d->verdict == VERDICT_PROHIBITED)
        text_literal(out, "This client may not use this resource.");
    else if (wait < 0)
        text_literal(out, "The request costs more than its rate limit ever allows.");
    else {
        text_literal(out, "Try again in ");
        text_i64(out, wait);
        text_put(out, wait == 1 ? SLICE(" second.") : SLICE(" seconds."));
    }
    text_literal(out, "\"");
}

static void violated_member(struct text *out, const struct decision *d)
{
    bool first = true;

    text_literal(out, ",\"violated-policies\":[");
    for (unsigned i = 0; i < d->result_count; i++) {
        const struct limit_result *r = &d->results[i];
        if (r->verdict != VERDICT_LIMITED && r->verdict != VERDICT_PROHIBITED)
            continue;
        if (!first)
            text_char(out, ',');
        first = false;
        text_char(out, '"');
        text_json(out, slice_of(r->limit->name));
        text_char(out, '"');
    }
    text_char(out, ']');
}

void decision_problem_write(struct text *out, const struct decision *d, unsigned status)
{
    bool quota = d->verdict != VERDICT_FAILED_CLOSED;

    if (quota)
        text_literal(out, "{\"type\":\"" PROBLEM_QUOTA
                          "\",\"title\":\"Request cannot be satisfied as assigned quota has "
                          "been exceeded\",\"status\":");
    else
        text_literal(out, "{\"type\":\"" PROBLEM_CAPACITY
                          "\",\"title\":\"Request cannot be satisfied due to temporary "
                          "server capacity constraints\",\"status\":");
    text_u64(out, status);
    text_char(out, ',');
    detail_member(out, d);
    if (quota)
        violated_member(out, d);
    text_literal(out, "}\n");
}
