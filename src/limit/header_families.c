#include "limit/header_families.h"

#include "base/arena.h"
#include "http/head.h"

/* draft-ietf-httpapi-ratelimit-headers-11; may still change. */
#define IETF_POLICY_FIELD "RateLimit-Policy"
#define IETF_STATE_FIELD  "RateLimit"
#define IETF_QUOTA        ";q="
#define IETF_WINDOW       ";w="
#define IETF_REMAINING    ";r="
#define IETF_IN_FLIGHT    ";qu=\"concurrent-requests\""
#define IETF_NEXT         ";t="

static const int64_t second_us = 1000000;

/* The output, the decision, and where to record the positions of its numbers. */
struct writer {
    struct text *out;
    const struct decision *d;
    uint64_t wall_us;
    struct marks *marks; /* NULL: not recorded */
};

/* --- The table -------------------------------------------------------------------------------- */

/* Appends the fields of a family. The decision is limited (allowed or rejected), prohibited or
 * unlimited. `shown` is its limit for fields that show only one. */
typedef void family_writer(struct writer *w, const struct limit_result *shown);

static family_writer x_ratelimit_lines, x_ratelimit_epoch_lines, x_rate_limit_lines, ietf_lines,
    openai_lines;

/* Whether NUMBER_LINE or put_number() writes all values that differ between rejections by the same
 * limits. They are then overwritten in a cached rejection; see limit/numbers.h. */
enum { NOT_PATCHABLE, PATCHABLE };

/* Name, word in the policy, writer, id of its fields, the families that replace it if both are
 * chosen, and whether cached rejections may have its fields. Fields are sent in this order. */
#define FAMILIES(X)                                                                                \
    X(X_RATELIMIT, "x-ratelimit", x_ratelimit_lines, FIELD_X_RATELIMIT, 1u << X_RATELIMIT_EPOCH,   \
      PATCHABLE)                                                                                   \
    X(X_RATELIMIT_EPOCH, "x-ratelimit-epoch", x_ratelimit_epoch_lines, FIELD_X_RATELIMIT, 0,       \
      PATCHABLE)                                                                                   \
    X(X_RATE_LIMIT, "x-rate-limit", x_rate_limit_lines, FIELD_X_RATE_LIMIT, 0, PATCHABLE)          \
    X(IETF, "ietf", ietf_lines, FIELD_RATELIMIT, 0, PATCHABLE)                                     \
    X(OPENAI, "openai", openai_lines, FIELD_X_RATELIMIT_OF, 0, NOT_PATCHABLE)

#define ENUM(name, word, writer, field, replaced_by, patchable) name,
enum { FAMILIES(ENUM) HEADER_FAMILIES };
#define WORD(name, word, writer, field, replaced_by, patchable) word,
const char *const header_family_words[] = {FAMILIES(WORD) NULL};
#define PATCHABLE_BIT(name, word, writer, field, replaced_by, patchable)                           \
    | (unsigned)(patchable) << name
static const unsigned patchable_families = 0 FAMILIES(PATCHABLE_BIT);
#define ROW(name, word, writer, field, replaced_by, patchable) {writer, field, replaced_by},
static const struct family_row {
    family_writer *write;
    enum field_id field;
    unsigned replaced_by;
} rows[] = {FAMILIES(ROW)};

/* --- The limit shown -------------------------------------------------------------------------- */

/* Returns true if a has a smaller share of its capacity left than b: a.remaining / a.capacity <
 * b.remaining / b.capacity. */
static bool smaller_share(const struct limit_result *a, const struct limit_result *b)
{
    return (__int128)a->remaining * b->capacity < (__int128)b->remaining * a->capacity;
}

/* The end of requests in flight is unknown, and a limit of 0 never has units: no reset. */
static bool has_reset(const struct limit_result *r)
{
    return r->limit->kind != LIMIT_CONCURRENCY && r->capacity > 0;
}

const struct limit_result *decision_shown(const struct decision *d)
{
    const struct limit_result *found = NULL;

    if (d->rejected_by >= 0 && limit_result_is_shown(&d->results[d->rejected_by]))
        return &d->results[d->rejected_by];
    for (unsigned i = 0; i < d->result_count; i++)
        if (limit_result_is_shown(&d->results[i]) &&
            (!found || smaller_share(&d->results[i], found)))
            found = &d->results[i];
    return found;
}

/* --- Lines ------------------------------------------------------------------------------------ */

static void number_line(struct text *out, struct slice name, int64_t value)
{
    text_put(out, name);
    text_i64(out, value);
    text_literal(out, "\r\n");
}

#define NUMBER_LINE(w, name, number, result)                                                       \
    do {                                                                                           \
        text_literal((w)->out, name ": ");                                                         \
        put_number(w, number, result);                                                             \
        text_literal((w)->out, "\r\n");                                                            \
    } while (0)

static void put_number(struct writer *w, enum decision_number number, const struct limit_result *r)
{
    decision_put_number(w->out, w->d, number, r, w->wall_us, w->marks);
}

/* Parts of the fields that depend only on the limit, quota and capacity of a result. */
typedef void part_writer(struct text *out, const struct limit_result *r);

static part_writer x_ratelimit_limit, x_rate_limit_policy, ietf_name, ietf_policy;

enum { PART_X_RATELIMIT_LIMIT, PART_X_RATE_LIMIT_POLICY, PART_IETF_NAME, PART_IETF_POLICY, PARTS };
_Static_assert((int)PARTS == (int)LIMIT_FIELD_PARTS, "struct limit has room for all parts");

static part_writer *const part_writers[PARTS] = {[PART_X_RATELIMIT_LIMIT] = x_ratelimit_limit,
                                                 [PART_X_RATE_LIMIT_POLICY] = x_rate_limit_policy,
                                                 [PART_IETF_NAME] = ietf_name,
                                                 [PART_IETF_POLICY] = ietf_policy};

/* Appends a part: as header_families_prepare() has written it, if the result has the limit's own
 * numbers. */
static void put_part(struct text *out, unsigned part, const struct limit_result *r)
{
    const struct limit_fields *own = &r->limit->fields;

    if (r->quota == own->quota && r->capacity == own->capacity && own->parts[part].n)
        text_put(out, own->parts[part]);
    else
        part_writers[part](out, r);
}

static void prepare(struct arena *arena, struct limit *limit)
{
    struct limit_numbers own = limit_numbers_of(limit);
    struct limit_result r = {
        .limit = limit, .quota = own.limit, .capacity = limit_whole(limit, &own)};
    char bytes[1024];

    limit->fields.quota = r.quota;
    limit->fields.capacity = r.capacity;
    for (unsigned i = 0; i < PARTS; i++) {
        struct text out = text_over(bytes, sizeof bytes);
        part_writers[i](&out, &r);
        if (!out.failed)
            limit->fields.parts[i] = (struct slice){arena_text(arena, text_slice(&out)), out.n};
    }
}

void header_families_prepare(struct policy *policy)
{
    for (unsigned i = 0; i < policy->limit_count; i++)
        prepare(policy->arena, &policy->limits[i]);
    for (unsigned i = 0; i < policy->variant_count; i++)
        prepare(policy->arena, policy->variants[i]);
}

/* --- X-RateLimit-* ---------------------------------------------------------------------------- */

static void x_ratelimit_limit(struct text *out, const struct limit_result *r)
{
    number_line(out, SLICE("X-RateLimit-Limit: "), r->capacity);
}

static void x_ratelimit(struct writer *w, const struct limit_result *r, enum decision_number reset)
{
    if (w->d->verdict == VERDICT_PROHIBITED)
        text_literal(w->out, "X-RateLimit-Limit: 0\r\nX-RateLimit-Remaining: 0\r\n");
    if (w->d->verdict == VERDICT_PROHIBITED || w->d->verdict == VERDICT_UNLIMITED)
        return;
    put_part(w->out, PART_X_RATELIMIT_LIMIT, r);
    NUMBER_LINE(w, "X-RateLimit-Remaining", NUMBER_REMAINING, r);
    if (has_reset(r))
        NUMBER_LINE(w, "X-RateLimit-Reset", reset, r);
}

static void x_ratelimit_lines(struct writer *w, const struct limit_result *r)
{
    x_ratelimit(w, r, NUMBER_RESET);
}

static void x_ratelimit_epoch_lines(struct writer *w, const struct limit_result *r)
{
    x_ratelimit(w, r, NUMBER_RESET_AT);
}

/* --- X-Rate-Limit-* --------------------------------------------------------------------------- */

static void policy_and_quota(struct text *out, const struct limit *limit, int64_t quota)
{
    text_literal(out, "X-Rate-Limit-Policy: ");
    text_put(out, slice_of(limit->label ? limit->label : limit->name));
    number_line(out, SLICE("\r\nX-Rate-Limit-Quota: "), quota);
}

static void x_rate_limit_policy(struct text *out, const struct limit_result *r)
{
    policy_and_quota(out, r->limit, r->capacity);
}

static void x_rate_limit_lines(struct writer *w, const struct limit_result *r)
{
    if (w->d->verdict == VERDICT_PROHIBITED || w->d->verdict == VERDICT_UNLIMITED) {
        policy_and_quota(w->out, r->limit, w->d->verdict == VERDICT_PROHIBITED ? 0 : -1);
        return;
    }
    put_part(w->out, PART_X_RATE_LIMIT_POLICY, r);
    if (r->capacity == 0)
        return;
    NUMBER_LINE(w, "X-Rate-Limit-Used", NUMBER_USED, r);
    if (has_reset(r))
        NUMBER_LINE(w, "X-Rate-Limit-Reset", NUMBER_RESET, r);
}

/* --- RateLimit, RateLimit-Policy -------------------------------------------------------------- */

/* RFC 9651 section 3.3.3: printable ASCII, quotes and backslashes escaped. */
static void sf_string(struct text *out, const char *value)
{
    static const bool plain[256] = {
        [' ' ... '!'] = true, ['#' ... '['] = true, [']' ... '~'] = true};

    text_char(out, '"');
    do {
        const char *start = value;
        while (plain[(unsigned char)*value])
            value++;
        text_bytes(out, start, (size_t)(value - start));
        if (*value == '"' || *value == '\\')
            text_char(out, '\\'), text_char(out, *value);
        else if (*value)
            text_char(out, '?');
    } while (*value++);
    text_char(out, '"');
}

static void sf_parameter(struct text *out, struct slice key, int64_t value)
{
    text_put(out, key);
    text_i64(out, value < SF_INTEGER_MAX ? value : SF_INTEGER_MAX);
}

/* Seconds until the whole capacity is available again. Of a window, that is its period, also if its
 * limit is 0. */
static int64_t window_seconds(const struct limit_result *r)
{
    __int128 whole = (__int128)(r->capacity ? r->capacity : 1) * r->limit->period_us;
    __int128 unit = (__int128)(r->quota > 1 ? r->quota : 1) * second_us;
    __int128 seconds = (whole + unit - 1) / unit;
    return seconds > SF_INTEGER_MAX ? SF_INTEGER_MAX : seconds > 1 ? (int64_t)seconds : 1;
}

static void ietf_name(struct text *out, const struct limit_result *r)
{
    sf_string(out, r->limit->name);
}

static void ietf_policy(struct text *out, const struct limit_result *r)
{
    ietf_name(out, r);
    sf_parameter(out, SLICE(IETF_QUOTA), r->capacity);
    if (r->limit->kind == LIMIT_CONCURRENCY)
        text_literal(out, IETF_IN_FLIGHT);
    else if (r->capacity || r->quota == 0) /* no bucket that a priority may not use */
        sf_parameter(out, SLICE(IETF_WINDOW), window_seconds(r));
}

static void ietf_policy_item(struct writer *w, const struct limit_result *r)
{
    put_part(w->out, PART_IETF_POLICY, r);
}

static void ietf_state_item(struct writer *w, const struct limit_result *r)
{
    put_part(w->out, PART_IETF_NAME, r);
    text_literal(w->out, IETF_REMAINING);
    put_number(w, NUMBER_SF_REMAINING, r);
    if (!has_reset(r))
        return;
    text_literal(w->out, IETF_NEXT);
    put_number(w, NUMBER_SF_NEXT, r);
}

static void ietf_line(struct writer *w, struct slice name,
                      void (*item)(struct writer *, const struct limit_result *))
{
    bool first = true;

    text_put(w->out, name);
    for (unsigned i = 0; i < w->d->result_count; i++) {
        if (!limit_result_is_shown(&w->d->results[i]))
            continue;
        if (!first)
            text_literal(w->out, ", ");
        first = false;
        item(w, &w->d->results[i]);
    }
    text_literal(w->out, "\r\n");
}

/* Has no form for prohibited and unlimited clients. */
static void ietf_lines(struct writer *w, const struct limit_result *r)
{
    (void)r;
    if (w->d->verdict != VERDICT_ALLOWED && w->d->verdict != VERDICT_LIMITED)
        return;
    ietf_line(w, SLICE(IETF_POLICY_FIELD ": "), ietf_policy_item);
    ietf_line(w, SLICE(IETF_STATE_FIELD ": "), ietf_state_item);
}

/* --- openai ----------------------------------------------------------------------------------- */

/* Writes a duration as "1h0m5s", below a second as "20ms"; rounded up. */
static void short_duration(struct text *out, int64_t us)
{
    int64_t s = (us + second_us - 1) / second_us;

    if (us > 0 && us <= second_us - 1000) {
        text_i64(out, (us + 999) / 1000);
        text_literal(out, "ms");
        return;
    }
    if (s >= 3600) {
        text_i64(out, s / 3600);
        text_char(out, 'h');
    }
    if (s >= 60) {
        text_i64(out, s / 60 % 60);
        text_char(out, 'm');
    }
    text_i64(out, s % 60);
    text_char(out, 's');
}

/* Writes one field: its name, what it counts, and `value`. */
static void openai_line(struct writer *w, struct slice name, struct slice of, int64_t value)
{
    text_put(w->out, name);
    text_put(w->out, of);
    text_literal(w->out, ": ");
    text_i64(w->out, value);
    text_literal(w->out, "\r\n");
}

/* The limit of requests, or of tokens, with the smallest share left; the one that rejects first. */
static const struct limit_result *most_telling_of(const struct decision *d, bool usage)
{
    const struct limit_result *found = NULL;

    for (unsigned i = 0; i < d->result_count; i++) {
        const struct limit_result *r = &d->results[i];
        if (!limit_result_is_shown(r) || limit_is_of_usage(r->limit) != usage)
            continue;
        if ((int)i == d->rejected_by)
            return r;
        if (!found || smaller_share(r, found))
            found = r;
    }
    return found;
}

static void openai_lines_of(struct writer *w, bool usage, struct slice of)
{
    const struct limit_result *r = most_telling_of(w->d, usage);
    bool prohibited = w->d->verdict == VERDICT_PROHIBITED;

    if (!r)
        return;
    openai_line(w, SLICE("x-ratelimit-limit-"), of, prohibited ? 0 : r->capacity);
    openai_line(w, SLICE("x-ratelimit-remaining-"), of, prohibited ? 0 : r->remaining);
    if (prohibited || !has_reset(r))
        return;
    text_literal(w->out, "x-ratelimit-reset-");
    text_put(w->out, of);
    text_literal(w->out, ": ");
    short_duration(w->out, r->reset_us);
    text_literal(w->out, "\r\n");
}

/* https://platform.openai.com/docs/guides/rate-limits, section "Rate limits in headers". */
static void openai_lines(struct writer *w, const struct limit_result *shown)
{
    (void)shown;
    if (w->d->verdict == VERDICT_UNLIMITED)
        return;
    openai_lines_of(w, false, SLICE("requests"));
    openai_lines_of(w, true, SLICE("tokens"));
}

bool header_families_patchable(unsigned headers)
{
    return !(headers & ~patchable_families);
}

/* --- All families ----------------------------------------------------------------------------- */

static bool shows_limits(enum verdict verdict)
{
    return verdict == VERDICT_ALLOWED || verdict == VERDICT_LIMITED ||
           verdict == VERDICT_PROHIBITED || verdict == VERDICT_UNLIMITED;
}

/* Returns the FIELD_BIT of the family if it has fields for this decision. */
static uint64_t write_family(struct writer *w, const struct family_row *family,
                             const struct limit_result *shown)
{
    size_t start = w->out->n;

    family->write(w, shown);
    return w->out->n > start ? FIELD_BIT(family->field) : 0;
}

uint64_t decision_fields_write(struct text *out, const struct decision *d, unsigned headers,
                               uint64_t wall_us, struct marks *marks)
{
    struct writer w = {out, d, wall_us, marks};
    const struct limit_result *shown = shows_limits(d->verdict) ? decision_shown(d) : NULL;
    uint64_t written = 0;

    for (unsigned i = 0; shown && i < HEADER_FAMILIES; i++)
        if (headers >> i & 1 && !(headers & rows[i].replaced_by))
            written |= write_family(&w, &rows[i], shown);
    if (decision_retry_after(d) < 0)
        return written;
    text_literal(out, "Retry-After: ");
    decision_put_number(out, d, NUMBER_WAIT, d->results, wall_us, marks);
    text_literal(out, "\r\n");
    return written;
}
