/* client_query.c - life cycle and calls of a client query. query_replies.c decodes the replies. */
#include "admin/client_query_internal.h"

#include <assert.h>
#include <stdlib.h>

#include "admin/grant_calls.h"
#include "base/clock.h"
#include "base/text.h"
#include "limit/compose.h"
#include "limit/key.h"
#include "limit/limiter.h"
#include "policy/shipped_limiter.h"
#include "quota/quotas.h"

/* Commands of client queries, placed before the driver's text. PUBLISH may fail: a user without
 * that permission may still reset. */
static const char preamble[] =
    "if ARGV[1] == 'scan' then\n"
    "  return redis.call('SCAN', ARGV[2], 'MATCH', ARGV[3], 'COUNT', '1000')\n"
    "elseif ARGV[1] == 'forget' then\n"
    "  local removed = #KEYS > 0 and redis.call('DEL', unpack(KEYS)) or 0\n"
    "  local notified = ARGV[2] and redis.pcall('PUBLISH', ARGV[2], ARGV[3])\n"
    "  return { removed, type(notified) == 'number' and 1 or 0 }\n"
    "elseif ARGV[1] == 'quota' then\n" /* see lookup.c */
    "  local time, value = redis.call('TIME'), redis.call('GET', KEYS[1]) or ''\n"
    "  local tag, till, row = value:match('^(%x+) (%d+) (.*)$')\n"
    "  if tag ~= ARGV[2] then return { '', 0 } end\n"
    "  return { row, till - time[1] * 1000 - math.floor(time[2] / 1000) }\n"
    "end\n";

const struct client_limits *client_query_limits(const struct client_query *q)
{
    const struct client_limits *client_limits =
        q->match ? NULL : policy_client(q->policy, q->identity);

    if (q->result.granted && !(client_limits && client_limits->blocked))
        client_limits = &q->grant_client_limits;
    return !client_limits && q->result.row_cached && q->result.row.present ? &q->row_client_limits
                                                                           : client_limits;
}

/* --- Keys ------------------------------------------------------------------------------------- */

/* Writes the key of a limit whose only `per` key is the client. An empty name gives the prefix
 * of all keys of the client. */
static bool write_key(const struct client_query *q, const char *name, struct slice *key)
{
    struct limit limit = {.name = (char *)name, .per = {{.per = PER_CLIENT}}, .per_count = 1};
    struct limit_facts facts = {.identity = q->identity};
    size_t size = key_size_max(q->policy, &limit);
    char *bytes = malloc(size + 1);

    if (!bytes)
        return false;
    struct text text = text_over(bytes, size);
    struct slice client = SLICE_NONE;
    key_write(&text, q->policy, &limit, &facts, &client);
    bytes[text.n] = 0;
    *key = text_slice(&text);
    return true;
}

/* Escapes the special characters of SCAN patterns. */
static bool write_pattern(struct client_query *q, struct slice start)
{
    struct text pattern = text_over(q->pattern, sizeof q->pattern);

    for (size_t i = 0; i < start.n; i++) {
        if (strchr("\\*?[]", start.p[i]))
            text_char(&pattern, '\\');
        text_char(&pattern, start.p[i]);
    }
    text_char(&pattern, '*');
    q->pattern_size = pattern.n;
    return !pattern.failed;
}

/* A grant replaces the numbers of all limits of a descriptor. */
static struct limit_numbers descriptor_numbers(const struct client_query *q,
                                               const struct limit *limit)
{
    int64_t number = q->result.granted ? limit_bounded(limit, q->result.quota) : 0;

    return q->result.granted ? (struct limit_numbers){.limit = number, .burst = number}
                             : (struct limit_numbers){.limit = limit->limit, .burst = limit->burst};
}

struct limit_status *client_query_add_row(struct client_query *q, const struct limit *limit,
                                          struct slice key, struct slice rest)
{
    struct limit_numbers n =
        q->match ? descriptor_numbers(q, limit) : client_numbers(client_query_limits(q), limit);
    struct limit_status *row = &q->result.status[q->result.status_count++];
    struct slice name = identity_text(q->identity);

    *row = (struct limit_status){.limit = n.variant ? n.variant : limit,
                                 .key = key,
                                 .rest = rest,
                                 .quota = n.limit,
                                 .burst = n.burst,
                                 .capacity = limit->kind == LIMIT_WINDOW ? n.limit : n.burst,
                                 .enforced = q->match ? descriptor_enforces(q->match, limit, name)
                                                      : limit_enforces(limit, q->identity),
                                 .is_of_descriptor = q->match != NULL};
    return row;
}

static bool add_descriptor_keys(struct client_query *q)
{
    struct slice key;

    for (unsigned i = 0; i < descriptor_limit_count(q->match); i++) {
        const struct limit *limit = descriptor_limit(q->match, i);
        if (!write_key(q, limit_key_name(limit), &key))
            return false;
        client_query_add_row(q, limit, key, SLICE_NONE);
    }
    return true;
}

/* Limits that no rule uses are in no script and not shown, but they are reset. */
static bool add_known_keys(struct client_query *q)
{
    struct slice key;

    for (unsigned i = 0; i < q->policy->limit_count; i++) {
        const struct limit *limit = &q->policy->limits[i];
        if (!counts_client(q, limit) || is_list(limit) ||
            (q->kind == CLIENT_QUERY_INSPECT && !compose_uses(q->policy, limit)))
            continue;
        if (!write_key(q, limit->name, &key))
            return false;
        client_query_add_row(q, limit, key, SLICE_NONE);
    }
    return true;
}

static bool must_scan(const struct client_query *q)
{
    /* also finds keys of limits that were removed from the policy */
    if (q->kind == CLIENT_QUERY_RESET)
        return true;
    for (unsigned i = 0; i < q->policy->limit_count; i++)
        if (is_list(&q->policy->limits[i]) && counts_client(q, &q->policy->limits[i]) &&
            compose_uses(q->policy, &q->policy->limits[i]))
            return true;
    return false;
}

/* --- Create and free -------------------------------------------------------------------------- */

char *client_query_script(const struct policy *policy)
{
    char *script;
    return asprintf(&script, "%s%s%s", grant_preamble, preamble, policy->driver) < 0 ? NULL
                                                                                     : script;
}

char *client_query_channel(const struct policy *policy)
{
    char *channel;
    return asprintf(&channel, "%s:resets", policy->redis.key_prefix) < 0 ? NULL : channel;
}

/* Returns false if the client is prohibited or unlimited: no limit counts it. */
static bool is_counted(const struct client_query *q)
{
    const struct client_limits *client_limits = client_query_limits(q);
    return !client_limits || client_limits->quota == QUOTA_AS_WRITTEN;
}

bool client_query_begin(struct client_query *q)
{
    if (q->kind == CLIENT_QUERY_CLIENT || (q->kind == CLIENT_QUERY_INSPECT && !is_counted(q))) {
        q->step = STEP_OVER;
        return true;
    }
    if (!(q->match ? add_descriptor_keys(q) : add_known_keys(q)))
        return false;
    q->step = must_scan(q)                                                     ? STEP_SCAN
              : q->kind == CLIENT_QUERY_INSPECT && q->result.status_count == 0 ? STEP_OVER
                                                                               : STEP_LAST;
    return true;
}

static bool prepare_query(struct client_query *q)
{
    struct slice start;

    if (!(q->channel = client_query_channel(q->policy)) ||
        !(q->grants_key = grant_key(q->policy)) || !write_key(q, "", &start))
        return false;
    q->key_start = (char *)start.p;
    struct text quota_key = text_over(q->quota_key, KEY_QUOTA_MAX);
    key_write_quota(&quota_key, q->policy->redis.key_prefix, identity_text(q->identity));
    q->quota_key_size = quota_key.n;
    memcpy(q->quota_key + quota_key.n, ":lock", 5);
    if (!write_pattern(q, start))
        return false;
    q->step = STEP_GRANT;
    bool asks = q->kind == CLIENT_QUERY_GRANT ||
                (q->kind != CLIENT_QUERY_RESET && policy_needs_redis(q->policy));
    return asks || client_query_begin(q);
}

/* Adds the row of a KEY. */
static bool add_key(struct client_query *q, const struct planned_limit *planned)
{
    char *bytes = malloc(planned->key.n);

    if (!bytes)
        return false;
    memcpy(bytes, planned->key.p, planned->key.n);
    struct limit_status *row =
        client_query_add_row(q, planned->limit, (struct slice){bytes, planned->key.n}, SLICE_NONE);
    row->limit = planned->limit;
    row->quota = planned->numbers.limit;
    row->burst = planned->numbers.burst;
    row->capacity =
        planned->limit->kind == LIMIT_WINDOW ? planned->numbers.limit : planned->numbers.burst;
    q->step = STEP_LAST;
    // cppcheck-suppress memleak ; the row owns it
    return true;
}

struct client_query *client_query_new(const struct policy *policy, const struct identity *identity,
                                      const struct query_descriptor *descriptor,
                                      const struct client_order *order)
{
    struct client_query *q = calloc(1, sizeof *q);

    if (!q)
        return NULL;
    q->policy = policy;
    q->identity = identity;
    q->match = descriptor && descriptor->is_one ? &descriptor->match : NULL;
    q->kind = order->kind;
    q->result.quota = order->quota;
    q->result.us = order->us;
    q->result.needs_database =
        policy->quotas.connection && identity->is_id && !policy_client(policy, identity);
    q->until_us = clock_us() + order->timeout_us;
    q->cursor[0] = '0';
    if (q->kind == CLIENT_QUERY_KEY ? add_key(q, order->key) : prepare_query(q))
        return q;
    client_query_free(q);
    return NULL;
}

void client_query_drop_found(struct client_query *q)
{
    while (q->found_count)
        free((char *)q->found[--q->found_count].p);
}

void client_query_free(struct client_query *q)
{
    if (!q)
        return;
    client_query_drop_found(q);
    for (unsigned i = 0; i < q->result.status_count; i++)
        free((char *)q->result.status[i].key.p);
    free(q->channel);
    free(q->grants_key);
    free(q->key_start);
    free(q);
}

/* --- Calls ------------------------------------------------------------------------------------ */

static void append_argument(struct client_query *q, struct slice s)
{
    assert(q->argc < ARGUMENTS_MAX);
    q->argv[q->argc] = s.p;
    q->sizes[q->argc++] = s.n;
}

static void append_number_argument(struct client_query *q, int64_t value)
{
    size_t start = q->numbers.n;
    text_i64(&q->numbers, value);
    append_argument(q, (struct slice){q->numbers.p + start, q->numbers.n - start});
}

static void append_grant_arguments(struct client_query *q)
{
    append_number_argument(q, 1);
    append_argument(q, slice_of(q->grants_key));
    append_argument(q, q->kind == CLIENT_QUERY_GRANT ? SLICE("grant") : SLICE("granted"));
    append_argument(q, identity_text(q->identity));
    if (q->kind != CLIENT_QUERY_GRANT)
        return;
    if (q->result.quota == GRANT_NONE)
        append_argument(q, SLICE("none"));
    else
        append_number_argument(q, q->result.quota);
    append_number_argument(q, q->result.us);
    append_argument(q, slice_of(q->channel));
    append_number_argument(q, GRANTS_MAX);
}

static void append_scan_arguments(struct client_query *q)
{
    append_number_argument(q, 0);
    append_argument(q, SLICE("scan"));
    append_argument(q, slice_of(q->cursor));
    append_argument(q, (struct slice){q->pattern, q->pattern_size});
}

static void append_drop_arguments(struct client_query *q)
{
    append_number_argument(q, q->found_count);
    for (unsigned i = 0; i < q->found_count; i++)
        append_argument(q, q->found[i]);
    append_argument(q, SLICE("forget"));
}

static void append_rows_arguments(struct client_query *q)
{
    append_number_argument(q, q->result.status_count);
    for (unsigned i = 0; i < q->result.status_count; i++)
        append_argument(q, q->result.status[i].key);
}

static void append_quota_arguments(struct client_query *q)
{
    char tag[16];
    int size = snprintf(tag, sizeof tag, "%08x", q->policy->quotas.tag);

    append_number_argument(q, 1);
    append_argument(q, (struct slice){q->quota_key, q->quota_key_size});
    append_argument(q, SLICE("quota"));
    size_t start = q->numbers.n;
    text_put(&q->numbers, (struct slice){tag, (size_t)size});
    append_argument(q, (struct slice){q->numbers.p + start, q->numbers.n - start});
}

/* Deletes all keys in one call, each key once. If a key were deleted twice, requests admitted in
 * between would not be counted. The cached database row is deleted, too, and its lock, so the
 * result of a query in flight is not stored. */
static void append_last_reset_arguments(struct client_query *q)
{
    bool quota = q->policy->quotas.connection && q->identity->is_id;

    append_number_argument(q, q->result.status_count + q->found_count + (quota ? 2 : 0));
    for (unsigned i = 0; i < q->result.status_count; i++)
        append_argument(q, q->result.status[i].key);
    for (unsigned i = 0; i < q->found_count; i++)
        append_argument(q, q->found[i]);
    if (quota) {
        append_argument(q, (struct slice){q->quota_key, q->quota_key_size});
        append_argument(q, (struct slice){q->quota_key, q->quota_key_size + 5});
    }
    append_argument(q, SLICE("forget"));
    append_argument(q, slice_of(q->channel));
    append_argument(q, identity_text(q->identity));
}

/* The driver's protocol (lua/driver.lua): each key is one request of cost 0. */
static void append_look_arguments(struct client_query *q)
{
    append_rows_arguments(q);
    append_argument(q, SLICE("")); /* now: use Redis' clock */
    for (unsigned i = 0; i < q->result.status_count; i++) {
        append_number_argument(q, RUN_COUNTS + 1);
        append_number_argument(q, q->result.status[i].limit->index + 1);
        append_number_argument(q, i + 1);
        append_number_argument(q, 0); /* cost */
        append_number_argument(q, 0); /* mode */
        append_number_argument(q, q->result.status[i].quota);
        append_number_argument(q, q->result.status[i].burst);
    }
}

void client_query_set_shards(struct client_query *q, unsigned parts)
{
    q->parts = parts;
}

unsigned client_query_shard(const struct client_query *q)
{
    return q->step == STEP_SCAN ? q->part : 0;
}

bool client_query_next(struct client_query *q, int *argc, const char ***argv, const size_t **sizes)
{
    q->argc = 0;
    q->numbers = text_over(q->digits, sizeof q->digits);
    switch (q->step) {
    case STEP_GRANT: append_grant_arguments(q); break;
    case STEP_QUOTA: append_quota_arguments(q); break;
    case STEP_SCAN: append_scan_arguments(q); break;
    case STEP_DROP: append_drop_arguments(q); break;
    case STEP_LAST:
        q->kind == CLIENT_QUERY_RESET ? append_last_reset_arguments(q) : append_look_arguments(q);
        break;
    case STEP_OVER: return false;
    }
    *argc = q->argc;
    *argv = q->argv;
    *sizes = q->sizes;
    return true;
}

const struct client_result *client_query_result(const struct client_query *q)
{
    return &q->result;
}
