/* explain_text.c - an explanation for a person. Each section has a label, in the first column. */
#include <libgen.h>
#include <stdarg.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/values.h"
#include "explain/explain_print.h"
#include "http/rewrite.h"
#include "net/tls_certificate.h"
#include "policy/identity_source.h"

enum { LINE_SIZE = 8192, NAME_WIDTH_MAX = 32, READINGS_SHOWN = 8, VALUE_SHOWN = 200 };

struct text_report {
    const char *label; /* of the next line; NULL: none */
    const char *file;  /* of the policy, without directories */
    const struct policy *policy;
    const struct explanation *e;
    int name_width, position_width;
    char bytes[LINE_SIZE];
    struct text line;
};

/* ---- lines ----------------------------------------------------------------------------------- */

static struct text *start_line(struct text_report *r)
{
    r->line = text_over(r->bytes, sizeof r->bytes);
    text_printf(&r->line, "%-10s", r->label ? r->label : "");
    r->label = NULL;
    return &r->line;
}

static void print_line(struct text_report *r)
{
    while (r->line.n && r->line.p[r->line.n - 1] == ' ')
        r->line.n--;
    printf("%.*s\n", SLICE_ARG(text_slice(&r->line)));
}

static void write_line(struct text_report *r, const char *format, ...) PRINTF_LIKE(2, 3);
static void write_line(struct text_report *r, const char *format, ...)
{
    char bytes[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(bytes, sizeof bytes, format, arguments);
    va_end(arguments);
    text_put(start_line(r), slice_of(bytes));
    print_line(r);
}

/* Long values are cut. */
static void put_shortened(struct text *out, struct slice value)
{
    bool cut = value.n > VALUE_SHOWN;

    text_clean(out, cut ? (struct slice){value.p, VALUE_SHOWN} : value);
    if (cut)
        text_printf(out, "... (%zu bytes)", value.n);
}

/* Fills up to column `width` after `start`, with at least two spaces. */
static void pad(struct text *out, size_t start, int width)
{
    do
        text_char(out, ' ');
    while (out->n < start + (size_t)width + 1);
    text_char(out, ' ');
}

static void put_position(struct text_report *r, struct position position)
{
    struct text *out = &r->line;
    size_t start = out->n;

    if (position.line)
        text_printf(out, "%s:%u", r->file, position.line);
    else
        text_literal(out, "built in");
    pad(out, start, r->position_width);
}

static void put_name(struct text_report *r, struct slice name)
{
    size_t start = r->line.n;

    put_shortened(&r->line, name);
    pad(&r->line, start, r->name_width);
}

static void widen(int *width, size_t n)
{
    if ((int)n > *width)
        *width = n > NAME_WIDTH_MAX ? NAME_WIDTH_MAX : (int)n;
}

/* ---- the request ----------------------------------------------------------------------------- */

static void print_path(struct text_report *r)
{
    const struct explanation *e = r->e;

    if (e->head->path_is_plain || e->normal.n == 0)
        return;
    text_literal(start_line(r), "normal form ");
    put_shortened(&r->line, e->normal);
    print_line(r);
    if (!e->readings_compared) {
        write_line(r, "servers may read it in %u ways, which weir does not compare",
                   e->reading_count);
        return;
    }
    write_line(r,
               e->too_many_readings ? "servers may read it in more ways than weir compares"
                                    : "servers may read it in %u way%s:",
               e->reading_count, e->reading_count == 1 ? "" : "s");
    r->name_width = 0;
    for (unsigned i = 0; i < e->reading_count && i < READINGS_SHOWN; i++)
        widen(&r->name_width, e->readings[i].path.n);
    for (unsigned i = 0; i < e->reading_count && i < READINGS_SHOWN; i++) {
        const struct rule *rule = e->readings[i].rule;
        text_literal(start_line(r), "  ");
        put_name(r, e->readings[i].path);
        if (rule)
            text_printf(&r->line, "rule %s", rule->name);
        else
            text_literal(&r->line, "no rule for certain");
        print_line(r);
    }
    if (e->reading_count > READINGS_SHOWN)
        write_line(r, "  and %u more (--json lists them)", e->reading_count - READINGS_SHOWN);
}

static void print_certificate(struct text_report *r, const struct tls_certificate *certificate)
{
    struct text *out = start_line(r);

    text_literal(out, "certificate ");
    put_shortened(out, certificate->subject.n ? certificate->subject : certificate->fingerprint);
    if (r->e->certificate_unasked)
        text_literal(out, ": not read, no listener has client_ca");
    print_line(r);
}

static void print_request(struct text_report *r, const struct explain_request *request)
{
    const struct explanation *e = r->e;
    struct slice line = {request->head.p, strcspn(request->head.p, "\r\n")};

    r->label = "request";
    put_shortened(start_line(r), line);
    print_line(r);
    struct text *out = start_line(r);
    text_literal(out, "from ");
    explain_write_peer(out, &request->from);
    text_put(out, request->https ? SLICE(" over TLS") : SLICE(""));
    if (e->was_parsed && e->head->host.n) {
        text_literal(out, ", host ");
        text_clean(out, e->head->host);
    }
    if (e->content_size)
        text_printf(out, ", content of %zu byte%s", e->content_size,
                    e->content_size == 1 ? "" : "s");
    print_line(r);
    if (request->certificate)
        print_certificate(r, request->certificate);
    if (e->certificate_missing)
        write_line(r,
                   "every listener with TLS requires a client certificate: add --certificate FILE");
    if (e->https_unserved)
        write_line(r, "no listener uses TLS; behind a proxy that does, write http:// and "
                      "-H 'X-Forwarded-Proto: https'");
    if (e->was_parsed)
        print_path(r);
}

/* ---- the client ------------------------------------------------------------------------------ */

static void print_sources(struct text_report *r)
{
    const struct explanation *e = r->e;

    r->name_width = r->position_width = 0;
    for (unsigned i = 0; i < e->source_count; i++) {
        char bytes[512];
        struct text name = text_over(bytes, sizeof bytes);
        explain_write_source(&name, e->sources[i].from);
        widen(&r->name_width, name.n);
        widen(&r->position_width,
              (size_t)snprintf(NULL, 0, "%s:%u", r->file, e->sources[i].from->position.line));
    }
    for (unsigned i = 0; i < e->source_count; i++) {
        const struct tried_source *tried = &e->sources[i];
        start_line(r);
        if (tried->from->position.line)
            put_position(r, tried->from->position);
        else
            text_literal(&r->line, "default  ");
        size_t start = r->line.n;
        explain_write_source(&r->line, tried->from);
        pad(&r->line, start, r->name_width);
        text_put(&r->line, slice_of(explain_source_reason(tried, e->identity)));
        print_line(r);
    }
    if (e->has_client && e->source_count && e->sources[e->source_count - 1].result != SOURCE_USED)
        write_line(r, "no source has a value: the client is counted by its address");
}

static void print_address_source(struct text_report *r)
{
    const struct identity_settings *settings = &r->policy->identity;
    const struct explanation *e = r->e;
    struct text *out = start_line(r);

    text_literal(out, "address ");
    if (e->identity->has_ip)
        ip_format(&e->identity->ip, out);
    else
        text_literal(out, "unknown (a unix socket)");
    if (e->ip_from_header)
        text_printf(out, ", from %s: the peer is in identity.trusted_proxies",
                    settings->client_ip_header);
    else if (e->ip_header_given && !e->identity->peer_trusted)
        text_printf(out,
                    ", that of the peer; %s is not read: the peer is not in "
                    "identity.trusted_proxies",
                    settings->client_ip_header);
    else if (e->ip_header_given)
        text_printf(out, ", that of the peer: the last element of %s is no other address",
                    settings->client_ip_header);
    if (e->identity->listed)
        text_put(out, e->identity->listed == LISTED_BLOCKED
                          ? SLICE("; it is blocked (addresses.block)")
                          : SLICE("; it is never limited (addresses.allow)"));
    print_line(r);
}

static void print_client(struct text_report *r)
{
    r->label = "client";
    if (r->e->has_client)
        put_shortened(start_line(r), identity_text(r->e->identity));
    else
        text_literal(start_line(r), "not determined");
    print_line(r);
    print_sources(r);
    print_address_source(r);
}

/* ---- the rules ------------------------------------------------------------------------------- */

static void print_rules(struct text_report *r)
{
    const struct explanation *e = r->e;

    r->label = "rules";
    r->name_width = r->position_width = 0;
    for (unsigned i = 0; i < e->rule_count; i++) {
        const struct rule *rule = e->rules[i].rule;
        widen(&r->name_width, strlen(rule->name));
        widen(&r->position_width, (size_t)snprintf(NULL, 0, "%s:%u", r->file, rule->position.line));
    }
    for (unsigned i = 0; i < e->rule_count; i++) {
        const struct tried_rule *tried = &e->rules[i];
        start_line(r);
        put_position(r, tried->rule->position);
        put_name(r, slice_of(tried->rule->name));
        explain_write_miss(&r->line, e, tried);
        if (tried->rule == e->rule)
            text_put(&r->line, tried->truth != TRUTH_YES    ? SLICE("; chosen all the same")
                               : tried->rule->position.line ? SLICE("chosen")
                                                            : SLICE("no rule of the policy "
                                                                    "matches"));
        print_line(r);
    }
}

/* ---- the limits ------------------------------------------------------------------------------ */

static void print_client_limits(struct text_report *r)
{
    const struct explanation *e = r->e;
    const struct client_limits *limits = e->client_limits;
    const struct plan *plan = limits ? limits->plan : NULL;

    if (e->limits_of == LIMITS_OF_ALLOW_LIST)
        write_line(r, "none: the address is in addresses.allow");
    if (e->limits_of == LIMITS_OF_GRANT) {
        struct text *out = start_line(r);
        text_literal(out, "a grant (weir grant) applies, for ");
        wait_write(out, e->grant_us);
        text_literal(out, " more");
        print_line(r);
    }
    if (limits && limits->name)
        write_line(r, "%s:%u  clients: %s", r->file, limits->position.line, limits->name);
    if (e->limits_of == LIMITS_OF_DATABASE && !e->quota_unread)
        write_line(r, "the client's row in the database applies (quotas)");
    if (plan)
        write_line(r, "%s:%u  plans: %s", r->file, plan->position.line, plan->name);
    if (e->quota_unread && e->limits_of != LIMITS_OF_GRANT)
        write_line(r, e->state_was_read
                          ? "the client's row in the database is not cached: not read (quotas)"
                          : "the client's row in the database is not read (quotas)");
    if (e->limits_of != LIMITS_OF_ALLOW_LIST && limits && limits->quota == QUOTA_UNLIMITED)
        write_line(r, "unlimited: no limit counts this client");
    if (limits && limits->quota == QUOTA_PROHIBITED)
        write_line(r, "quota 0: every request is rejected");
    if (e->priority)
        write_line(r, "%s:%u  priorities: %s", r->file, e->priority->position.line,
                   e->priority->name);
}

/* When the cost is not final yet. */
static void put_later_adjustment(struct text *out, const struct limit *limit,
                                 const struct rule *rule)
{
    if (limit->own_cost ? limit_cost_is_adjusted(limit->own_cost) : rule->cost_response != NULL)
        text_literal(out, " until the response states it");
    else if (limit->counted)
        text_literal(out, " for some statuses of the response (count)");
}

static void put_numbers(struct text *out, const struct planned_limit *planned,
                        const struct rule *rule)
{
    const struct limit *limit = planned->limit;

    text_printf(out, "%s %lld ", limit->script, (long long)planned->numbers.limit);
    text_put(out, limit->kind == LIMIT_CONCURRENCY ? SLICE("in flight") : SLICE("per "));
    if (limit->kind != LIMIT_CONCURRENCY)
        limit_period_write(out, limit);
    if (limit->kind == LIMIT_BUCKET && planned->numbers.burst != planned->numbers.limit)
        text_printf(out, ", burst %lld", (long long)planned->numbers.burst);
    if (planned->numbers.share)
        text_printf(out, ", up to %lld of it for this priority",
                    (long long)(limit_whole(limit, &planned->numbers) -
                                limit_reserve(limit, &planned->numbers)));
    if (limit->max_delay_us) {
        text_literal(out, ", delays up to ");
        duration_write(out, limit->max_delay_us);
    }
    text_printf(out, ", cost %lld", (long long)planned->cost);
    put_later_adjustment(out, limit, rule);
    if (planned->best_effort)
        text_literal(out, " or what is left");
    if (planned->free)
        text_literal(out, " (never rejects: the request is free)");
    else if (planned->shadow)
        text_literal(out, " (shadow: never rejects this client)");
}

static void print_state(struct text_report *r, const struct explained_limit *limit)
{
    struct text *out = start_line(r);

    text_literal(out, "  ");
    if (limit->state.failed)
        text_literal(out, "its script fails");
    else
        text_printf(out, "%lld of %lld left", (long long)limit->state.remaining,
                    (long long)limit->state.capacity);
    if (limit->planned.limit->kind != LIMIT_CONCURRENCY && limit->state.reset_us > 0) {
        text_literal(out, ", all of it in ");
        wait_write(out, limit->state.reset_us);
    }
    print_line(r);
}

static void print_limit(struct text_report *r, const struct explained_limit *limit)
{
    start_line(r);
    put_position(r, limit->planned.limit->position);
    put_name(r, slice_of(limit->planned.limit->name));
    put_numbers(&r->line, &limit->planned, r->e->rule);
    print_line(r);
    text_literal(start_line(r), "  key ");
    text_clean(&r->line, limit->planned.key);
    print_line(r);
    if (limit->planned.repeat_key.n)
        write_line(r, "  repeats with the same %s are free", limit->planned.limit->dedup.header);
    if (limit->is_known)
        print_state(r, limit);
}

static void print_limits(struct text_report *r)
{
    const struct explanation *e = r->e;

    r->label = "limits";
    if (e->rule->limit_count == 0) {
        write_line(r, "none");
        return;
    }
    if (e->not_charged) {
        write_line(r, "none: a CORS preflight is not charged");
        return;
    }
    print_client_limits(r);
    r->name_width = r->position_width = 0;
    for (unsigned i = 0; i < e->limit_count; i++) {
        const struct limit *limit = e->limits[i].planned.limit;
        widen(&r->name_width, strlen(limit->name));
        widen(&r->position_width,
              (size_t)snprintf(NULL, 0, "%s:%u", r->file, limit->position.line));
    }
    for (unsigned i = 0; i < e->limit_count; i++)
        print_limit(r, &e->limits[i]);
}

/* ---- the server ------------------------------------------------------------------------------ */

static void print_upstream(struct text_report *r)
{
    const struct upstream *upstream = r->e->rule->upstream;
    struct text *out;

    r->label = "upstream";
    out = start_line(r);
    text_printf(out, "%s:%u  %s:", r->file, upstream->servers[0].position.line, upstream->name);
    for (unsigned i = 0; i < upstream->server_count; i++)
        text_printf(out, " %s", upstream->servers[i].text);
    print_line(r);
    if (r->policy->decisions.address.length)
        write_line(r, "decisions.listen decides in the same way, and forwards nothing");
}

static void print_field(struct text_report *r, char sign, const struct changed_field *field)
{
    struct text *out = start_line(r);

    text_printf(out, "%c ", sign);
    text_clean(out, field->name);
    text_literal(out, ": ");
    if (field->generated)
        text_put(out, slice_equal(field->name, SLICE("Via")) ? SLICE("(the name of this weir)")
                                                             : SLICE("(a new id)"));
    else
        put_shortened(out, field->value);
    if (field->why)
        text_printf(out, "  (%s)", field->why);
    print_line(r);
}

static void print_forwarded(struct text_report *r)
{
    const struct explanation *e = r->e;

    r->label = "forwards";
    put_shortened(start_line(r), e->request_line);
    print_line(r);
    for (unsigned i = 0; i < e->removed_count; i++)
        print_field(r, '-', &e->removed[i]);
    for (unsigned i = 0; i < e->added_count; i++)
        print_field(r, '+', &e->added[i]);
    if (e->usage_is_added)
        write_line(r, "+ \"stream_options\": {\"include_usage\": true} in the content");
}

static void print_result(struct text_report *r)
{
    const struct explanation *e = r->e;

    r->label = "result";
    struct text *out = start_line(r);
    if (explanation_forwards(e)) {
        text_printf(out, "forwarded to %s", e->rule->upstream->name);
        if (e->limit_count && !e->state_was_read)
            text_literal(out, " if its limits have room (--state reads what is left)");
    } else {
        text_printf(out, "%s with %u %s: ", e->result.status < 300 ? "answered" : "refused",
                    e->result.status, reason_phrase(e->result.status));
        explain_write_reason(out, e);
    }
    print_line(r);
}

void explain_print_text(const struct policy *policy, const struct explain_request *request,
                        const struct explanation *e)
{
    char *path = xstrdup(policy->file);
    struct text_report r = {.file = basename(path), .policy = policy, .e = e};

    print_request(&r, request);
    if (e->was_parsed)
        print_client(&r);
    if (e->rule_count)
        print_rules(&r);
    if (e->rule)
        print_limits(&r);
    if (explanation_forwards(e)) {
        print_upstream(&r);
        print_forwarded(&r);
    }
    print_result(&r);
    free(path);
}
