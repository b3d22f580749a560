#include "admin/clients_api.h"

#include <time.h>

#include "base/clock.h"
#include "base/json_writer.h"

static void write_per(struct json_writer *json, const struct limit_status *row)
{
    json_begin(json, "per", '[');
    if (row->is_of_descriptor)
        json_put_text(json, NULL, "descriptor");
    for (unsigned i = 0; i < row->limit->per_count && !row->is_of_descriptor; i++)
        json_put_text(json, NULL, row->limit->per[i].written);
    json_end(json, ']');
}

static void write_row(struct json_writer *json, const struct limit_status *row)
{
    json_begin(json, NULL, '{');
    json_put_text(json, "limit", row->limit->name);
    write_per(json, row);
    json_put_text(json, "key", row->key.p);
    json_put_text(json, "rest", row->rest.n ? row->rest.p : NULL); /* the end of the key */
    json_put_i64(json, "quota", row->quota);
    json_put_i64(json, "capacity", row->capacity);
    json_put_i64(json, "remaining", row->remaining);
    if (row->limit->kind ==
        LIMIT_CONCURRENCY) { /* its period is a lease, which clients do not see */
        json_put_null(json, "period_seconds");
        json_put_null(json, "resets_in_seconds");
    } else {
        json_put_seconds(json, "period_seconds", row->limit->period_us);
        json_put_seconds(json, "resets_in_seconds", row->reset_us);
    }
    if (row->failed)
        json_put_bool(json, "script_fails", true);
    json_put_bool(json, "admits", row->admits);
    if (row->retry_after_us < 0)
        json_put_null(json, "retry_after_seconds");
    else
        json_put_seconds(json, "retry_after_seconds", row->retry_after_us);
    json_put_bool(json, "enforced", row->enforced);
    json_end(json, '}');
}

/* Writes the client's active grant; quota -1: unlimited. */
static void write_grant(struct json_writer *json, const struct client_result *result)
{
    char text[32];

    if (!result->granted || result->quota == GRANT_NONE) {
        json_put_null(json, "grant");
        return;
    }
    time_t until = (time_t)((clock_wall_us() + (uint64_t)result->us + 999999) / 1000000);
    struct tm tm;
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&until, &tm));
    json_begin(json, "grant", '{');
    json_put_i64(json, "quota", result->quota);
    json_put_text(json, "until", text);
    json_put_seconds(json, "ends_in_seconds", result->us);
    json_end(json, '}');
}

/* Writes "database": the database's reply, or null if it is not queried for this client. */
static void write_database(struct json_writer *json, const struct client_result *result)
{
    const struct quota_row *row = &result->row;

    if (!result->needs_database) {
        json_put_null(json, "database");
        return;
    }
    json_begin(json, "database", '{');
    json_put_bool(json, "cached", result->row_cached);
    if (result->row_cached) {
        json_put_bool(json, "known", row->present);
        if (row->present && row->quota != QUOTA_OF_ITS_OWN)
            json_put_i64(json, "quota", row->quota);
        else
            json_put_null(json, "quota");
        json_put_text(json, "plan", row->present && row->plan[0] ? row->plan : NULL);
        json_put_seconds(json, "expires_in_seconds", result->row_us);
    }
    json_end(json, '}');
}

static void write_look(struct json_writer *json, const struct client_query *query)
{
    const struct client_limits *client_limits = client_query_limits(query);
    const struct client_result *result = client_query_result(query);

    json_put_text(json, "client_limits", client_query_limits_text(client_limits));
    json_put_text(json, "plan",
                  client_limits && client_limits->plan ? client_limits->plan->name : NULL);
    json_put_text(json, "entry", client_limits ? client_limits->name : NULL);
    write_grant(json, result);
    write_database(json, result);
    json_begin(json, "limits", '[');
    for (unsigned i = 0; i < result->status_count; i++)
        write_row(json, &result->status[i]);
    json_end(json, ']');
}

void client_body_write(struct text *out, const struct client_query *query,
                       enum client_query_kind kind, const struct identity *identity,
                       const struct query_descriptor *descriptor)
{
    struct json_writer json = json_writer_growing(out);
    const struct client_result *result = client_query_result(query);
    const char *warnings[CLIENT_QUERY_WARNINGS_MAX];
    unsigned count = client_query_warnings(query, descriptor, warnings);

    json_begin(&json, NULL, '{');
    json_put_slice(&json, "client", identity_text(identity));
    if (kind == CLIENT_QUERY_INSPECT)
        write_look(&json, query);
    if (kind == CLIENT_QUERY_RESET)
        json_put_u64(&json, "removed", result->removed);
    if (kind != CLIENT_QUERY_INSPECT)
        json_put_bool(&json, "published", result->notified);
    if (kind == CLIENT_QUERY_GRANT)
        write_grant(&json, result);
    else
        json_put_bool(&json, "complete", !result->cut);
    json_begin(&json, "warnings", '[');
    for (unsigned i = 0; i < count; i++)
        json_put_text(&json, NULL, warnings[i]);
    json_end(&json, ']');
    json_end(&json, '}');
}
