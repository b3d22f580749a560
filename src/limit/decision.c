/* decision.c - see decision.h. Only this file has the names of the fields and the parameters of
 * the IETF draft. */
#include "limit/decision.h"

#include "base/values.h"

/* draft-ietf-httpapi-ratelimit-headers-11; may still change. */
#define IETF_POLICY_FIELD "RateLimit-Policy"
#define IETF_STATE_FIELD  "RateLimit"
#define IETF_QUOTA        ";q="
#define IETF_WINDOW       ";w="
#define IETF_REMAINING    ";r="
#define IETF_IN_FLIGHT    ";qu=\"concurrent-requests\""
#define IETF_RESET        ";t="
#define PROBLEM_QUOTA     "https://iana.org/assignments/http-problem-types#quota-exceeded"
#define PROBLEM_CAPACITY                                                                           \
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"

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

static int64_t at_most(int64_t value, int64_t ceiling)
{
    return value < ceiling ? value : ceiling;
}

/* --- The limit shown in the X- fields --------------------------------------------------------- */

/* Returns true if a has a smaller share of its capacity left than b: a.remaining / a.capacity <
 * b.remaining / b.capacity. */
static bool smaller_share(const struct limit_result *a, const struct limit_result *b)
{
    return (__int128)a->remaining * b->capacity < (__int128)b->remaining * a->capacity;
}

/* The end of requests in flight is unknown: concurrency limits have no window and no reset. */
static bool has_window(const struct limit_result *r)
{
    return r->limit->kind != LIMIT_CONCURRENCY;
}

static bool is_shown(const struct limit_result *r)
{
    return !r->shadow && r->limit->headers;
}

/* Returns the limit to show: the one that rejected, else the one with the smallest share left.
 * NULL: no limit may be shown. */
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

/* --- Numbers and lines ------------------------------------------------------------------------ */

/* The output, the decision, and where to record the positions of its numbers. */
struct writer {
    struct text *out;
    const struct decision *d;
    uint64_t wall_us;
    struct marks *marks; /* NULL: not recorded */
};

int64_t decision_number(const struct decision *d, enum decision_number number, unsigned result,
                        uint64_t wall_us)
{
    const struct limit_result *r = &d->results[result];

    switch (number) {
    case NUMBER_REMAINING: return r->remaining;
    case NUMBER_USED: return at_least(r->capacity - r->remaining, 0);
    case NUMBER_RESET: return seconds_up(r->reset_us);
    case NUMBER_RESET_AT: return seconds_up((int64_t)wall_us + r->reset_us);
    case NUMBER_SF_REMAINING: return at_most(r->remaining, sf_integer_max);
    case NUMBER_SF_RESET: return at_most(seconds_up(r->reset_us), sf_integer_max);
    case NUMBER_WAIT:
    case NUMBER_COUNT: break;
    }
    return decision_retry_after(d);
}

void marks_add(struct marks *marks, const struct text *out, size_t at, unsigned number,
               unsigned result)
{
    size_t size = out->n - at;

    if (!marks)
        return;
    if (marks->count == MARKS_MAX || out->n > UINT16_MAX || size > UINT8_MAX) {
        marks->too_many = true;
        return;
    }
    marks->mark[marks->count++] =
        (struct mark){(uint16_t)at, (uint8_t)size, (uint8_t)number, (uint8_t)result};
}

static void put_number(struct writer *w, enum decision_number number, unsigned result)
{
    size_t at = w->out->n;

    text_i64(w->out, decision_number(w->d, number, result, w->wall_us));
    marks_add(w->marks, w->out, at, number, result);
}

static void number_line(struct writer *w, struct slice name, enum decision_number number,
                        const struct limit_result *r)
{
    text_put(w->out, name);
    put_number(w, number, (unsigned)(r - w->d->results));
    text_literal(w->out, "\r\n");
}

#define NUMBER_LINE(out, name, value)                                                              \
    do {                                                                                           \
        text_literal((out), name ": ");                                                            \
        text_i64((out), (value));                                                                  \
        text_literal((out), "\r\n");                                                               \
    } while (0)

static void policy_line(struct text *out, const struct limit_result *r)
{
    text_literal(out, "X-Rate-Limit-Policy: ");
    text_put(out, slice_of(r->limit->label ? r->limit->label : r->limit->name));
    text_literal(out, "\r\n");
}

static void x_ratelimit_lines(struct writer *w, const struct limit_result *r, bool epoch)
{
    NUMBER_LINE(w->out, "X-RateLimit-Limit", r->capacity);
    number_line(w, SLICE("X-RateLimit-Remaining: "), NUMBER_REMAINING, r);
    if (has_window(r))
        number_line(w, SLICE("X-RateLimit-Reset: "), epoch ? NUMBER_RESET_AT : NUMBER_RESET, r);
}

static void x_rate_limit_lines(struct writer *w, const struct limit_result *r)
{
    policy_line(w->out, r);
    NUMBER_LINE(w->out, "X-Rate-Limit-Quota", r->quota);
    if (r->quota < 1)
        return;
    number_line(w, SLICE("X-Rate-Limit-Used: "), NUMBER_USED, r);
    if (has_window(r))
        number_line(w, SLICE("X-Rate-Limit-Reset: "), NUMBER_RESET, r);
}

/* RFC 9651 section 3.3.3: printable ASCII, quotes and backslashes escaped. */
static void sf_string(struct text *out, const char *value)
{
    static const bool as_it_is[256] = {
        [' ' ... '!'] = true, ['#' ... '['] = true, [']' ... '~'] = true};
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

/* Seconds until the whole capacity is available again. */
static int64_t window_seconds(const struct limit_result *r)
{
    __int128 parent = (__int128)r->capacity * r->limit->period_us;
    __int128 unit = (__int128)at_least(r->quota, 1) * second_us;
    __int128 seconds = (parent + unit - 1) / unit;
    return seconds > sf_integer_max ? sf_integer_max : at_least((int64_t)seconds, 1);
}

static void ietf_policy_item(struct writer *w, const struct limit_result *r)
{
    struct text *out = w->out;

    sf_string(out, r->limit->name);
    sf_parameter(out, SLICE(IETF_QUOTA), r->capacity);
    if (has_window(r))
        sf_parameter(out, SLICE(IETF_WINDOW), window_seconds(r));
    else
        text_literal(out, IETF_IN_FLIGHT);
}

static void ietf_state_item(struct writer *w, const struct limit_result *r)
{
    unsigned result = (unsigned)(r - w->d->results);

    sf_string(w->out, r->limit->name);
    text_literal(w->out, IETF_REMAINING);
    put_number(w, NUMBER_SF_REMAINING, result);
    if (!has_window(r))
        return;
    text_literal(w->out, IETF_RESET);
    put_number(w, NUMBER_SF_RESET, result);
}

static void ietf_line(struct writer *w, struct slice name,
                      void (*item)(struct writer *, const struct limit_result *))
{
    bool first = true;

    text_put(w->out, name);
    for (unsigned i = 0; i < w->d->result_count; i++) {
        if (!is_shown(&w->d->results[i]))
            continue;
        if (!first)
            text_literal(w->out, ", ");
        first = false;
        item(w, &w->d->results[i]);
    }
    text_literal(w->out, "\r\n");
}

/* --- Fields per verdict ----------------------------------------------------------------------- */

static void limited_lines(struct writer *w, const struct limit_result *r, unsigned headers)
{
    if (headers & (HEADERS_X_RATELIMIT | HEADERS_X_RATELIMIT_EPOCH))
        x_ratelimit_lines(w, r, headers & HEADERS_X_RATELIMIT_EPOCH);
    if (headers & HEADERS_X_RATE_LIMIT)
        x_rate_limit_lines(w, r);
    if (headers & HEADERS_IETF) {
        ietf_line(w, SLICE(IETF_POLICY_FIELD ": "), ietf_policy_item);
        ietf_line(w, SLICE(IETF_STATE_FIELD ": "), ietf_state_item);
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
    int64_t us = d->verdict == VERDICT_LIMITED && d->rejected_by >= 0
                     ? d->results[d->rejected_by].retry_after_us
                     : 0;
    __int128 most = us > 0 ? (__int128)us * share / SHARE_WHOLE : 0;

    d->jitter_us = (int64_t)(most * (int64_t)(random >> 32) >> 32);
}

void decision_fields_write_marked(struct text *out, const struct decision *d, unsigned headers,
                                  uint64_t wall_us, struct marks *marks)
{
    struct writer w = {out, d, wall_us, marks};
    const struct limit_result *r = most_telling(d);

    if (r) {
        if (d->verdict == VERDICT_PROHIBITED)
            prohibited_lines(out, r, headers);
        else if (d->verdict == VERDICT_UNLIMITED)
            unlimited_lines(out, r, headers);
        else if (d->verdict == VERDICT_ALLOWED || d->verdict == VERDICT_LIMITED)
            limited_lines(&w, r, headers);
    }
    if (decision_retry_after(d) < 0)
        return;
    text_literal(out, "Retry-After: ");
    put_number(&w, NUMBER_WAIT, 0);
    text_literal(out, "\r\n");
}

void decision_fields_write(struct text *out, const struct decision *d, unsigned headers,
                           uint64_t wall_us)
{
    decision_fields_write_marked(out, d, headers, wall_us, NULL);
}

/* --- The problem document --------------------------------------------------------------------- */

static void detail_member(struct text *out, const struct decision *d, struct marks *marks)
{
    struct writer w = {out, d, 0, marks};
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
        put_number(&w, NUMBER_WAIT, 0);
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

/* Kept short: no "title", since "type" and "detail" cover it. */
void decision_problem_write_marked(struct text *out, const struct decision *d, unsigned status,
                                   struct marks *marks)
{
    bool quota = d->verdict != VERDICT_FAILED_CLOSED;

    text_put(out, quota ? SLICE("{\"type\":\"" PROBLEM_QUOTA "\",\"status\":")
                        : SLICE("{\"type\":\"" PROBLEM_CAPACITY "\",\"status\":"));
    text_u64(out, status);
    text_char(out, ',');
    detail_member(out, d, marks);
    if (quota)
        violated_member(out, d);
    text_literal(out, "}\n");
}

void decision_problem_write(struct text *out, const struct decision *d, unsigned status)
{
    decision_problem_write_marked(out, d, status, NULL);
}

/* --- Comparing two rejections ----------------------------------------------------------------- */

/* Compares everything that the text depends on, except the recorded numbers. The rejecting limit
 * must be shown: otherwise the numbers determine which limit the X- fields show. */
bool decision_reads_like(const struct decision *d, const struct decision *other)
{
    if (d->verdict != VERDICT_LIMITED || other->verdict != VERDICT_LIMITED || d->rejected_by < 0 ||
        d->rejected_by != other->rejected_by || d->result_count != other->result_count ||
        !is_shown(&d->results[d->rejected_by]))
        return false;
    for (unsigned i = 0; i < d->result_count; i++) {
        const struct limit_result *a = &d->results[i], *b = &other->results[i];
        if (a->limit != b->limit || a->verdict != b->verdict || a->shadow != b->shadow ||
            a->quota != b->quota || a->capacity != b->capacity)
            return false;
    }
    int64_t wait = decision_retry_after(d), other_wait = decision_retry_after(other);
    return wait > 0 && other_wait > 0 && (wait == 1) == (other_wait == 1);
}
