/* explain_json.c - an explanation as JSON. weir(8) lists the keys. */
#include "base/json_writer.h"
#include "explain/explain_print.h"
#include "policy/identity_source.h"

enum { REASON_SIZE = 4096 };

static void put_line(struct json_writer *json, struct position position)
{
    if (position.line)
        json_put_u64(json, "line", position.line);
    else
        json_put_null(json, "line"); /* built in, or a default */
}

static void put_or_null(struct json_writer *json, const char *key, struct slice value)
{
    if (value.n)
        json_put_slice(json, key, value);
    else
        json_put_null(json, key);
}

static void put_request(struct json_writer *json, const struct explain_request *request,
                        const struct explanation *e)
{
    char bytes[64];
    struct text from = text_over(bytes, sizeof bytes);

    explain_write_peer(&from, &request->from);
    json_begin(json, "request", '{');
    json_put_slice(json, "line", (struct slice){request->head.p, strcspn(request->head.p, "\r\n")});
    json_put_slice(json, "from", text_slice(&from));
    json_put_bool(json, "tls", request->https);
    json_put_bool(json, "certificate", request->certificate && !e->certificate_unasked);
    json_put_u64(json, "content_length", e->content_size);
    if (e->was_parsed) {
        json_put_slice(json, "method", e->head->method_text);
        json_put_slice(json, "host", e->head->host);
        json_put_slice(json, "path", e->head->path);
        put_or_null(json, "normal_path", e->normal);
        json_put_bool(json, "readings_compared", e->readings_compared);
        json_put_bool(json, "readings_too_many", e->too_many_readings);
        json_begin(json, "readings", '[');
        for (unsigned i = 0; i < e->reading_count; i++) {
            json_begin(json, NULL, '{');
            json_put_slice(json, "path", e->readings[i].path);
            json_put_text(json, "rule", e->readings[i].rule ? e->readings[i].rule->name : NULL);
            json_end(json, '}');
        }
        json_end(json, ']');
    }
    json_end(json, '}');
}

static void put_source(struct json_writer *json, const struct tried_source *tried,
                       const struct identity *identity)
{
    static const char *const words[] = {[SOURCE_NOT_TRUSTED] = "not_trusted",
                                        [SOURCE_ABSENT] = "absent",
                                        [SOURCE_BAD] = "refused",
                                        [SOURCE_UNKNOWN] = "unknown",
                                        [SOURCE_NEEDS_CONTENT] = "needs_content",
                                        [SOURCE_USED] = "used"};
    char bytes[512];
    struct text name = text_over(bytes, sizeof bytes);
    bool invalid = tried->result == SOURCE_ABSENT && tried->token == TOKEN_INVALID;

    explain_write_source(&name, tried->from);
    json_begin(json, NULL, '{');
    json_put_slice(json, "source", text_slice(&name));
    put_line(json, tried->from->position);
    json_put_text(json, "result", invalid ? "invalid" : words[tried->result]);
    json_put_text(json, "reason", explain_source_reason(tried, identity));
    json_end(json, '}');
}

static void put_client(struct json_writer *json, const struct explanation *e)
{
    static const char *const lists[] = {
        [LISTED_NOT] = NULL, [LISTED_ALLOWED] = "allow", [LISTED_BLOCKED] = "block"};
    char bytes[64];
    struct text ip = text_over(bytes, sizeof bytes);

    if (e->identity->has_ip)
        ip_format(&e->identity->ip, &ip);
    json_begin(json, "client", '{');
    put_or_null(json, "name", e->has_client ? identity_text(e->identity) : SLICE_NONE);
    put_or_null(json, "address", text_slice(&ip));
    json_put_bool(json, "address_from_header", e->ip_from_header);
    json_put_text(json, "listed", lists[e->identity->listed]);
    json_begin(json, "sources", '[');
    for (unsigned i = 0; i < e->source_count; i++)
        put_source(json, &e->sources[i], e->identity);
    json_end(json, ']');
    json_end(json, '}');
}

static void put_rules(struct json_writer *json, const struct explanation *e)
{
    static const char *const conditions[] = {
        [MISS_METHOD] = "methods", [MISS_PATH] = "path", [MISS_HOST] = "host"};
    char bytes[REASON_SIZE];

    json_begin(json, "rules", '[');
    for (unsigned i = 0; i < e->rule_count; i++) {
        const struct tried_rule *tried = &e->rules[i];
        const struct criterion *criterion = tried->miss.criterion;
        struct text reason = text_over(bytes, sizeof bytes);
        explain_write_miss(&reason, e, tried);
        json_begin(json, NULL, '{');
        json_put_text(json, "name", tried->rule->name);
        put_line(json, tried->rule->position);
        json_put_text(json, "result",
                      tried->rule == e->rule        ? "chosen"
                      : tried->truth == TRUTH_MAYBE ? "uncertain"
                      : tried->truth == TRUTH_YES   ? "matches"
                                                    : "no");
        json_put_text(json, "condition",
                      criterion ? criterion->kind->key : conditions[tried->miss.of]);
        put_or_null(json, "reason", text_slice(&reason));
        json_end(json, '}');
    }
    json_end(json, ']');
}

static void put_client_limits(struct json_writer *json, const struct explanation *e)
{
    static const char *const words[] = {[LIMITS_OF_POLICY] = "policy",
                                        [LIMITS_OF_ALLOW_LIST] = "addresses.allow",
                                        [LIMITS_OF_GRANT] = "grant",
                                        [LIMITS_OF_DATABASE] = "database"};
    const struct client_limits *limits = e->client_limits;
    bool has_plan = limits && limits->plan;

    json_begin(json, "client_limits", '{');
    json_put_text(json, "from", words[e->limits_of]);
    json_put_bool(json, "database_read", !e->quota_unread);
    json_put_text(json, "client", limits ? limits->name : NULL);
    put_line(json, limits && limits->name ? limits->position : (struct position){0, 0});
    json_put_text(json, "plan", has_plan ? limits->plan->name : NULL);
    if (has_plan)
        json_put_u64(json, "plan_line", limits->plan->position.line);
    else
        json_put_null(json, "plan_line");
    json_put_text(json, "priority", e->priority ? e->priority->name : NULL);
    json_put_text(json, "quota",
                  !limits || limits->quota == QUOTA_AS_WRITTEN ? NULL
                  : limits->quota == QUOTA_UNLIMITED           ? "unlimited"
                                                               : "prohibited");
    if (e->limits_of == LIMITS_OF_GRANT)
        json_put_seconds(json, "grant_seconds", e->grant_us);
    json_put_bool(json, "preflight", e->not_charged);
    json_end(json, '}');
}

static void put_explained_limit(struct json_writer *json, const struct explained_limit *limit)
{
    const struct planned_limit *planned = &limit->planned;
    char bytes[64];
    struct text period = text_over(bytes, sizeof bytes);

    limit_period_write(&period, planned->limit);
    json_begin(json, NULL, '{');
    json_put_text(json, "name", planned->limit->name);
    put_line(json, planned->limit->position);
    json_put_text(json, "script", planned->limit->script);
    json_put_i64(json, "limit", planned->numbers.limit);
    json_put_i64(json, "burst", planned->numbers.burst);
    json_put_i64(json, "reserve", limit_reserve(planned->limit, &planned->numbers));
    json_put_slice(json, "period", text_slice(&period));
    json_put_i64(json, "cost", planned->cost);
    json_put_bool(json, "shadow", planned->shadow);
    json_put_bool(json, "free", planned->free);
    json_put_bool(json, "best_effort", planned->best_effort);
    json_put_slice(json, "key", planned->key);
    json_put_bool(json, "has_room", limit->has_room);
    if (limit->is_known && !limit->state.failed) {
        json_put_i64(json, "remaining", limit->state.remaining);
        json_put_seconds(json, "reset", limit->state.reset_us);
    }
    json_end(json, '}');
}

static void put_limits(struct json_writer *json, const struct explanation *e)
{
    json_begin(json, "limits", '[');
    for (unsigned i = 0; i < e->limit_count; i++)
        put_explained_limit(json, &e->limits[i]);
    json_end(json, ']');
}

static void put_upstream(struct json_writer *json, const struct upstream *upstream)
{
    json_begin(json, "upstream", '{');
    json_put_text(json, "name", upstream->name);
    json_begin(json, "servers", '[');
    for (unsigned i = 0; i < upstream->server_count; i++)
        json_put_text(json, NULL, upstream->servers[i].text);
    json_end(json, ']');
    json_end(json, '}');
}

static void put_fields(struct json_writer *json, const char *key,
                       const struct changed_field *fields, unsigned count)
{
    json_begin(json, key, '[');
    for (unsigned i = 0; i < count; i++) {
        json_begin(json, NULL, '{');
        json_put_slice(json, "name", fields[i].name);
        if (fields[i].generated)
            json_put_null(json, "value");
        else
            json_put_slice(json, "value", fields[i].value);
        if (fields[i].why)
            json_put_text(json, "reason", fields[i].why);
        json_end(json, '}');
    }
    json_end(json, ']');
}

static void put_forwarded(struct json_writer *json, const struct explanation *e)
{
    put_upstream(json, e->rule->upstream);
    json_begin(json, "forwarded_request", '{');
    json_put_slice(json, "line", e->request_line);
    put_fields(json, "removed", e->removed, e->removed_count);
    put_fields(json, "added", e->added, e->added_count);
    json_put_bool(json, "include_usage_added", e->usage_is_added);
    json_end(json, '}');
}

static void put_outcome(struct json_writer *json, const struct explanation *e)
{
    char bytes[REASON_SIZE];
    struct text reason = text_over(bytes, sizeof bytes);

    json_put_bool(json, "forwarded", explanation_forwards(e));
    if (explanation_forwards(e)) {
        json_put_null(json, "status");
        json_put_null(json, "reason");
        return;
    }
    explain_write_reason(&reason, e);
    json_put_u64(json, "status", e->result.status);
    json_put_slice(json, "reason", text_slice(&reason));
}

void explain_print_json(const struct policy *policy, const struct explain_request *request,
                        const struct explanation *e)
{
    struct text text;
    struct json_writer json = json_writer_growing(&text);

    json_begin(&json, NULL, '{');
    json_put_text(&json, "policy", policy->file);
    put_outcome(&json, e);
    put_request(&json, request, e);
    if (e->was_parsed)
        put_client(&json, e);
    put_rules(&json, e);
    if (e->rule)
        put_client_limits(&json, e);
    put_limits(&json, e);
    json_put_bool(&json, "state_read", e->state_was_read);
    if (explanation_forwards(e))
        put_forwarded(&json, e);
    json_end(&json, '}');
    json_print(&text);
}
