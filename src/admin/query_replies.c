/* query_replies.c - decodes Redis' replies to a client query and chooses the next step. */
#include "admin/client_query_internal.h"

#include <stdlib.h>

#include "admin/grant_calls.h"
#include "base/clock.h"
#include "limit/compose.h"
#include "limit/limit_reply.h"
#include "quota/quotas.h"

static bool is_found(const struct client_query *q, struct slice key)
{
    for (unsigned i = 0; i < q->result.status_count; i++)
        if (slice_equal(q->result.status[i].key, key))
            return true;
    for (unsigned i = 0; i < q->found_count; i++)
        if (slice_equal(q->found[i], key))
            return true;
    return false;
}

/* Returns the limit with several `per` keys that `key` belongs to, and the part after its name.
 * NULL for other keys, such as those of `dedup`. */
static const struct limit *limit_of_key(const struct client_query *q, struct slice key,
                                        struct slice *rest)
{
    size_t start = strlen(q->key_start);
    struct slice name = {key.p + start, key.n - start};
    const char *colon = memchr(name.p, ':', name.n);

    if (!colon || colon[1] != '{' || name.p[name.n - 1] != '}')
        return NULL;
    *rest = (struct slice){colon + 1, (size_t)(name.p + name.n - colon) - 1};
    name.n = (size_t)(colon - name.p);
    for (unsigned i = 0; i < q->policy->limit_count; i++) {
        const struct limit *limit = &q->policy->limits[i];
        if (is_list(limit) && counts_client(q, limit) && slice_equal(name, slice_of(limit->name)) &&
            compose_uses(q->policy, limit))
            return limit;
    }
    return NULL;
}

/* Stores a key found by SCAN, unless it is a duplicate. The key may expire before it is read. A
 * INSPECT has its own rows for the known keys. */
static void note_key(struct client_query *q, struct slice key)
{
    struct slice rest;

    if (!slice_starts_with(key, slice_of(q->key_start)) ||
        (q->kind == CLIENT_QUERY_INSPECT && !limit_of_key(q, key, &rest)) || is_found(q, key))
        return;
    if (q->found_count == CLIENT_QUERY_FOUND_MAX) {
        q->full = true;
        return;
    }
    char *bytes = malloc(key.n + 1);
    if (!bytes) {
        q->result.cut = true;
        return;
    }
    memcpy(bytes, key.p, key.n);
    bytes[key.n] = 0;
    q->found[q->found_count++] = (struct slice){bytes, key.n};
    // cppcheck-suppress memleak ; `found` owns it
}

static int by_limit_and_key(const void *a, const void *b)
{
    const struct limit_status *left = a, *right = b;
    if (left->limit->base != right->limit->base)
        return left->limit->base < right->limit->base ? -1 : 1;
    return strcmp(left->key.p, right->key.p);
}

/* Turns the found keys into rows. */
static void adjust_found(struct client_query *q)
{
    for (unsigned i = 0; i < q->found_count; i++) {
        struct slice rest = SLICE_NONE;
        const struct limit *limit = limit_of_key(q, q->found[i], &rest);
        client_query_add_row(q, limit, q->found[i], rest);
    }
    q->found_count = 0;
}

/* Adds rows for limits with several `per` keys of which this client has no key yet: their full
 * capacity is available. */
static void add_untouched(struct client_query *q)
{
    unsigned looked_at = q->result.status_count;

    for (unsigned i = 0; i < q->policy->limit_count; i++) {
        const struct limit *limit = &q->policy->limits[i];
        bool there = false;
        for (unsigned r = 0; r < looked_at && !there; r++)
            there = q->result.status[r].limit->base == limit->index;
        if (there || !is_list(limit) || !counts_client(q, limit) || !compose_uses(q->policy, limit))
            continue;
        struct limit_status *row = client_query_add_row(q, limit, SLICE_NONE, SLICE_NONE);
        row->remaining = row->capacity;
        row->admits = row->capacity > 0;
    }
    qsort(q->result.status, q->result.status_count, sizeof q->result.status[0], by_limit_and_key);
}

/* After a SCAN step: continues, unless all keys were read or the time is up. */
static void after_scan(struct client_query *q)
{
    bool again = q->full && q->kind == CLIENT_QUERY_RESET;
    bool all = !again && (q->full || strcmp(q->cursor, "0") == 0);

    if (all && !q->full && q->part + 1 < q->parts) {
        q->part++;
        all = false;
    }
    if (!all && clock_us() >= q->until_us) {
        q->result.cut = true;
        all = true;
    }
    q->step = all ? STEP_LAST : STEP_SCAN;
    if (all && q->kind == CLIENT_QUERY_INSPECT)
        adjust_found(q);
    if (q->step == STEP_LAST && q->kind == CLIENT_QUERY_INSPECT && q->result.status_count == 0) {
        q->step = STEP_OVER; /* no keys to read */
        add_untouched(q);
    }
}

static bool take_scan(struct client_query *q, const struct redis_reply *reply)
{
    struct slice cursor;
    const struct redis_reply *keys;

    if (!redis_reply_read(reply, "sa", &cursor, &keys) || cursor.n >= sizeof q->cursor)
        return false;
    q->full = false;
    for (size_t i = 0; i < keys->count; i++)
        if (keys->elements[i].type == RESP_STRING)
            note_key(q, keys->elements[i].text);
    if (q->full && q->kind == CLIENT_QUERY_INSPECT)
        q->result.cut = true;
    /* else repeat this step after these keys are deleted */
    if (!q->full || q->kind == CLIENT_QUERY_INSPECT)
        memcpy(q->cursor, cursor.p, cursor.n + 1);
    if (q->kind == CLIENT_QUERY_RESET && q->full)
        q->step = STEP_DROP;
    else
        after_scan(q);
    return true;
}

static bool take_forget(struct client_query *q, const struct redis_reply *reply)
{
    int64_t removed, notified;

    if (!redis_reply_read(reply, "ii", &removed, &notified))
        return false;
    q->result.removed += (uint64_t)removed;
    q->result.notified = notified == 1;
    if (q->step == STEP_DROP) {
        client_query_drop_found(q);
        after_scan(q);
    } else
        q->step = STEP_OVER;
    return true;
}

static bool take_granted(struct client_query *q, const struct redis_reply *reply)
{
    int64_t granted, notified;

    if (!redis_reply_read(reply, "ii", &granted, &notified))
        return false;
    q->step = STEP_OVER;
    q->result.granted = granted == 1;
    q->result.notified = notified == 1;
    return true;
}

static bool take_grant(struct client_query *q, const struct redis_reply *reply)
{
    const struct redis_reply *grant;
    int64_t now_us, until_us;

    if (!redis_reply_read(reply, "i*", &now_us, &grant))
        return false;
    q->result.grant_unread = grant->type == RESP_INTEGER;
    q->result.granted = grant_parse(grant, &q->result.quota, &until_us) && until_us > now_us;
    if (q->result.granted) {
        q->result.us = until_us - now_us;
        q->grant_client_limits = grant_client_limits(q->result.quota);
    }
    if (!q->result.needs_database)
        return client_query_begin(q);
    q->step = STEP_QUOTA;
    return true;
}

static bool take_quota(struct client_query *q, const struct redis_reply *reply)
{
    struct slice row;
    int64_t left_ms;

    if (!redis_reply_read(reply, "si", &row, &left_ms))
        return false;
    q->result.row_cached = row.n && quota_row_parse(row, &q->result.row);
    q->result.row_us = left_ms * 1000;
    q->row_client_limits = quota_client_limits(q->policy, &q->result.row);
    return client_query_begin(q);
}

static void set_status(struct limit_status *row, const struct limit_reply *reply)
{
    row->failed = reply->failure != NULL;
    row->admits = reply->granted > 0;
    row->remaining = reply->remaining > 0 ? reply->remaining : 0;
    row->retry_after_us = row->admits ? 0 : reply->retry_after_us;
    row->reset_us = reply->reset_us > 0 ? reply->reset_us : 0;
}

/* The time of the reply follows the rows. */
static bool take_look(struct client_query *q, const struct redis_reply *reply)
{
    struct limit_replies from;
    struct limit_reply of_row;

    if (reply->type != RESP_ARRAY || !limit_replies_begin(&from, reply, NULL))
        return false;
    for (unsigned i = 0; i < q->result.status_count; i++) {
        struct limit_status *row = &q->result.status[i];
        struct limit_numbers numbers = {.limit = row->quota, .burst = row->capacity};
        if (!limit_reply_read(&from, row->limit, &numbers, false, &of_row))
            return false;
        set_status(row, &of_row);
    }
    if (from.end - from.next != 1 || !limit_reply_is_number(from.next))
        return false;
    q->step = STEP_OVER;
    if (q->kind == CLIENT_QUERY_INSPECT)
        add_untouched(q);
    return true;
}

bool client_query_take(struct client_query *q, const struct redis_reply *reply)
{
    bool good = q->step == STEP_GRANT && q->kind == CLIENT_QUERY_GRANT  ? take_granted(q, reply)
                : q->step == STEP_GRANT                                 ? take_grant(q, reply)
                : q->step == STEP_QUOTA                                 ? take_quota(q, reply)
                : q->step == STEP_SCAN                                  ? take_scan(q, reply)
                : q->step == STEP_LAST && q->kind != CLIENT_QUERY_RESET ? take_look(q, reply)
                                                                        : take_forget(q, reply);
    if (!good)
        q->step = STEP_OVER;
    return good;
}
