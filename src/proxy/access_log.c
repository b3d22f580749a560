#include "proxy/access_log.h"

#include <time.h>

#include "base/clock.h"
#include "base/json_writer.h"
#include "base/log.h"
#include "http/traceparent.h"

/* Maximum bytes of request values, as received and as written. Longer ones are cut, so that the
 * begun line of a request, which may last for hours, fits a small buffer. */
enum {
    TEXT_MAX = 1024, /* target, Referer, User-Agent */
    WORD_MAX = 256,  /* method, host */
    OTHER_MAX = 512, /* the rest of a begun line */
    ESCAPED_MAX = 6  /* bytes that one byte becomes at most: \u0080 */
};
_Static_assert(3 * TEXT_MAX + 2 * WORD_MAX + OTHER_MAX <= IOBUF_SMALL, "a begun line fits");

static struct slice shortened(struct slice s, size_t max)
{
    return s.n > max ? (struct slice){s.p, max} : s;
}

typedef void writer(struct text *, struct slice);

/* Writes as much of the beginning of `s` as becomes at most `max` bytes. All of it is more. */
static void put_beginning(struct text *t, struct slice s, size_t max, writer *write)
{
    size_t begin = t->n, fits = max / ESCAPED_MAX, exceeds = s.n;

    while (exceeds - fits > 1) {
        size_t middle = (fits + exceeds) / 2;
        write(t, (struct slice){s.p, middle});
        if (t->n - begin > max)
            exceeds = middle;
        else
            fits = middle;
        t->n = begin;
    }
    write(t, (struct slice){s.p, fits});
}

/* Writes `s` with `write`, cut so that at most `max` bytes are written. */
static inline void put_value(struct text *t, struct slice s, size_t max, writer *write)
{
    size_t begin = t->n;

    s = shortened(s, max);
    write(t, s);
    if (t->n - begin > max) {
        t->n = begin;
        put_beginning(t, s, max, write);
    }
}

static struct slice field_value(const struct request_head *head, enum field_id id)
{
    const struct field *field = head ? fields_find(&head->fields, id) : NULL;
    return field ? shortened(field->value, TEXT_MAX) : SLICE_NONE;
}

/* Values of query parameters that identify clients are credentials: they become "***". */
struct redacted {
    char bytes[TEXT_MAX + 64];
};

static struct slice redact(const struct exchange *x, struct slice text, struct redacted *room)
{
    struct text out = text_over(room->bytes, sizeof room->bytes);
    return identity_redact(x->policy, shortened(text, TEXT_MAX), &out);
}

static struct slice referer(const struct exchange *x, const struct request_head *head,
                            struct redacted *room)
{
    return redact(x, field_value(head, FIELD_REFERER), room);
}

/* Writes quotes, backslashes and unprintable bytes as \xHH, like Apache, so a client cannot
 * forge a line. */
static void quoted(struct text *t, struct slice s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\')
            text_char(t, (char)c);
        else {
            text_literal(t, "\\x");
            text_hex_fixed(t, c, 2);
        }
    }
}

static void quoted_or_dash(struct text *t, struct slice s)
{
    text_literal(t, " \"");
    put_value(t, s.n ? s : SLICE("-"), TEXT_MAX, quoted);
    text_char(t, '"');
}

static struct slice protocol_of(const struct exchange *x, const struct request_head *head)
{
    return http_version_name(x->downstream->origin->version, head->minor);
}

static void peer_text(const struct exchange *x, struct text *t)
{
    const struct client_origin *origin = x->downstream->origin;

    if (origin->peer_ip_size)
        text_bytes(t, origin->peer_ip, origin->peer_ip_size);
    else
        text_literal(t, "unix:");
}

/* The current second in both formats. Formatted once per second: strftime() costs as much as
 * the rest of the line. */
struct second {
    int64_t at;
    size_t iso_size, clf_size;
    char iso[32], clf[32];
};

static const struct second *second_of(uint64_t wall_us)
{
    static _Thread_local struct second now;
    time_t seconds = (time_t)(wall_us / 1000000);
    struct tm tm;

    if (now.at != seconds) {
        now.at = seconds;
        gmtime_r(&seconds, &tm);
        now.iso_size = strftime(now.iso, sizeof now.iso, "%Y-%m-%dT%H:%M:%S.", &tm);
        now.clf_size = strftime(now.clf, sizeof now.clf, "[%d/%b/%Y:%H:%M:%S +0000]", &tm);
    }
    return &now;
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static void json_time(struct text *t, uint64_t wall_us)
{
    const struct second *second = second_of(wall_us);
    uint64_t ms = wall_us / 1000 % 1000;

    text_bytes(t, second->iso, second->iso_size);
    text_char(t, (char)('0' + ms / 100));
    text_char(t, (char)('0' + ms / 10 % 10));
    text_char(t, (char)('0' + ms % 10));
    text_char(t, 'Z');
}

static inline void json_value(struct json_writer *json, const char *key, struct slice s, size_t max)
{
    json_begin_string(json, key);
    put_value(json->out, s, max, text_json);
    json_end_string(json);
}

static void json_line_begin(struct text *t, struct exchange *x, const struct request_line *line,
                            const struct request_head *head)
{
    struct json_writer json = json_writer_over(t);
    struct redacted room;

    json_begin(&json, NULL, '{');
    json_begin_string(&json, "time");
    json_time(t, clock_wall_us());
    json_end_string(&json);
    json_begin_string(&json, "peer");
    peer_text(x, t);
    json_end_string(&json);
    if (line->method.n) {
        json_value(&json, "method", line->method, WORD_MAX);
        json_value(&json, "target", redact(x, line->target, &room), TEXT_MAX);
    }
    if (!head)
        return;
    json_value(&json, "host", head->host, WORD_MAX);
    json_put_slice(&json, "protocol", protocol_of(x, head));
    if (fields_have(&head->fields, FIELD_USER_AGENT))
        json_value(&json, "user_agent", field_value(head, FIELD_USER_AGENT), TEXT_MAX);
    if (fields_have(&head->fields, FIELD_REFERER))
        json_value(&json, "referer", referer(x, head, &room), TEXT_MAX);
    struct slice trace = traceparent_id(field_value(head, FIELD_TRACEPARENT));
    if (trace.n)
        json_put_slice(&json, "trace_id", trace);
}

/* Lists the limits in shadow mode that would have rejected the request. */
static void shadow_member(struct json_writer *json, const struct decision *d)
{
    bool any = false;

    for (unsigned i = 0; i < d->result_count; i++) {
        if (d->results[i].verdict != VERDICT_SHADOW)
            continue;
        if (!any)
            json_begin(json, "shadow", '[');
        any = true;
        json_put_text(json, NULL, d->results[i].limit->name);
    }
    if (any)
        json_end(json, ']');
}

/* Writes a map of the costs in the limits that have costs of their own. */
static void costs_member(struct json_writer *json, const struct exchange *x, const char *name,
                         const int64_t *costs)
{
    const struct rule *rule = x->route.rule;

    json_begin(json, name, '{');
    for (unsigned i = 0; i < rule->limit_count; i++) {
        if (!rule->limits[i]->own_cost)
            continue;
        json_put_key(json, slice_of(rule->limits[i]->name));
        json_put_i64(json, NULL, costs[i]);
    }
    json_end(json, '}');
}

static void json_line_end(struct text *t, const struct exchange *x, struct slice begun,
                          uint64_t duration_us)
{
    const struct decision *d = &x->decision_request.decision;
    struct json_writer json = {.out = t, .comma = true};

    text_put(t, begun);
    if (x->has_client_ip) {
        json_begin_string(&json, "client_ip");
        ip_format(&x->client_ip, t);
        json_end_string(&json);
    }
    if (x->identity_size)
        json_put_slice(&json, "client", (struct slice){x->identity, x->identity_size});
    json_put_slice(&json, "request_id", (struct slice){x->request_id, x->id_size});
    json_put_u64(&json, "status", x->record.status ? x->record.status : 499);
    if (x->grpc && x->record.grpc_status != GRPC_STATUS_NONE)
        json_put_u64(&json, "grpc_status", (uint64_t)x->record.grpc_status);
    json_put_u64(&json, "bytes", x->response.bytes + x->record.reply_bytes);
    json_put_u64(&json, "bytes_in", exchange_received(x));
    json_put_u64(&json, "duration_us", duration_us);
    if (x->limits.decision_us)
        json_put_u64(&json, "decision_us", x->limits.decision_us);
    if (x->record.response_us)
        json_put_u64(&json, "upstream_us", x->record.response_us);
    if (x->record.last_us)
        json_put_u64(&json, "upstream_total_us", x->record.last_us);
    if (x->hold.since_us)
        json_put_u64(&json, "held_us", x->hold.held_us);
    if (x->route.rule)
        json_put_text(&json, "rule", x->route.rule->name);
    if (x->route.rule && x->record.server) {
        json_put_text(&json, "upstream", x->route.rule->upstream->name);
        json_put_text(&json, "server", x->record.server->text);
    }
    if (x->limits.progress == LIMITS_DECIDED)
        json_put_text(&json, "decision", verdict_label[d->verdict]);
    if (x->limits.progress == LIMITS_DECIDED && d->priority)
        json_put_text(&json, "priority", d->priority->name);
    if (x->limits.progress == LIMITS_DECIDED && x->route.rule && x->route.rule->has_own_costs &&
        d->verdict == VERDICT_ALLOWED) {
        costs_member(&json, x, "reserve", x->reserves);
        costs_member(&json, x, "cost", x->charged);
    }
    if (d->rejected_by >= 0)
        json_put_text(&json, "limit", d->results[d->rejected_by].limit->name);
    if (x->worker->sample.left_out && x->limits.progress == LIMITS_DECIDED && !decision_admits(d)) {
        json_put_u64(&json, "left_out", x->worker->sample.left_out);
        x->worker->sample.left_out = 0;
    }
    shadow_member(&json, d);
    if (x->record.cause != CAUSE_NONE)
        json_put_text(&json, "error", cause_label[x->record.cause]);
    if (x->record.why)
        json_put_text(&json, "detail", x->record.why);
    json_end(&json, '}');
    text_char(t, '\n');
}

/* ---- combined ------------------------------------------------------------------------------- */

static void combined_begin(struct text *t, struct exchange *x, const struct request_line *line,
                           const struct request_head *head)
{
    const struct second *second = second_of(clock_wall_us());
    struct redacted room;

    peer_text(x, t);
    text_literal(t, " - ");
    text_bytes(t, second->clf, second->clf_size);
    text_literal(t, " \"");
    if (line->method.n) {
        put_value(t, line->method, WORD_MAX, quoted);
        text_char(t, ' ');
        put_value(t, redact(x, line->target, &room), TEXT_MAX, quoted);
    } else
        text_char(t, '-');
    if (head) {
        text_char(t, ' ');
        text_put(t, protocol_of(x, head));
    }
    text_char(t, '"');
    x->record.log_split = (uint32_t)t->n;
    quoted_or_dash(t, referer(x, head, &room));
    quoted_or_dash(t, field_value(head, FIELD_USER_AGENT));
}

/* Writes the user of the common log format as one word. */
static void combined_user(struct text *t, struct slice identity)
{
    for (size_t i = 0; i < identity.n; i++)
        if (identity.p[i] == ' ')
            text_literal(t, "\\x20");
        else
            quoted(t, (struct slice){identity.p + i, 1});
    if (identity.n == 0)
        text_char(t, '-');
}

static void combined_end(struct text *t, const struct exchange *x, struct slice begun,
                         uint64_t duration_us)
{
    /* `PEER - [TIME] "REQUEST"` was written before the client's id was known. The id goes
     * before the bracket. */
    const char *bracket = memchr(begun.p, '[', begun.n);
    size_t before = (size_t)(bracket - begun.p);

    (void)duration_us;
    text_bytes(t, begun.p, before);
    combined_user(t, (struct slice){x->identity, x->identity_size});
    text_char(t, ' ');
    text_bytes(t, begun.p + before, x->record.log_split - before);
    text_char(t, ' ');
    text_u64(t, x->record.status ? x->record.status : 499);
    text_char(t, ' ');
    text_u64(t, x->response.bytes + x->record.reply_bytes);
    text_bytes(t, begun.p + x->record.log_split, begun.n - x->record.log_split);
    text_char(t, '\n');
}

/* ---- all formats ---------------------------------------------------------------------------- */

static const struct {
    /* Writes what is known when the request begins. `head` is NULL if it was refused. */
    void (*begin)(struct text *t, struct exchange *x, const struct request_line *line,
                  const struct request_head *head);
    /* Writes the line. `begun` is what begin_line() wrote. */
    void (*end)(struct text *t, const struct exchange *x, struct slice begun, uint64_t duration_us);
} formats[] = {[ACCESS_JSON] = {json_line_begin, json_line_end},
               [ACCESS_COMBINED] = {combined_begin, combined_end}};

static void begin_line(struct exchange *x, const struct request_line *line,
                       const struct request_head *head)
{
    struct worker *w = x->worker;
    struct text t = text_over(w->send, sizeof w->send);

    formats[x->policy->log.access].begin(&t, x, line, head);
    if (t.failed || !(x->record.log = iobuf_get(&w->buffers, t.n)))
        return;
    iobuf_append(x->record.log, text_slice(&t));
}

void access_log_begin(struct exchange *x, const struct request_head *head)
{
    begin_line(x, &(struct request_line){head->method_text, head->target}, head);
}

void access_log_begin_refused(struct exchange *x, const struct request_line *line)
{
    begin_line(x, line, NULL);
}

/* Returns whether log.sample leaves out the line. */
static bool is_left_out(const struct exchange *x)
{
    struct worker *w = x->worker;
    uint64_t second = clock_cached_us() / 1000000;

    if (!x->policy->log.sample || x->limits.progress != LIMITS_DECIDED ||
        decision_admits(&x->decision_request.decision))
        return false;
    if (w->sample.second != second)
        w->sample.written = 0;
    w->sample.second = second;
    if (w->sample.written++ < x->policy->log.sample)
        return false;
    w->sample.left_out++;
    counter_add(&w->stats.lines_left_out, 1);
    return true;
}

void access_log_end(struct exchange *x, uint64_t duration_us)
{
    if (is_left_out(x))
        return;
    struct text t = text_over(x->worker->send, sizeof x->worker->send);

    formats[x->policy->log.access].end(&t, x, iobuf_slice(x->record.log), duration_us);
    if (!t.failed)
        log_put_line(text_slice(&t));
}
