/* inquiry.c - an inquiry's life, and what it asks. What the answers mean: inquiry_answers.c. */
#include "limit/inquiry_internal.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/text.h"
#include "limit/compose.h"
#include "limit/grant_calls.h"
#include "limit/key.h"
#include "limit/quotas.h"

/* Before the driver's text: what else inquiries ask. A user who may not publish may still reset. */
static const char preamble[] = "if ARGV[1] == 'scan' then\n"
                               "  return redis.call('SCAN', ARGV[2], 'MATCH', ARGV[3], 'COUNT', '1000')\n"
                               "elseif ARGV[1] == 'forget' then\n"
                               "  local removed = #KEYS > 0 and redis.call('DEL', unpack(KEYS)) or 0\n"
                               "  local told = ARGV[2] and redis.pcall('PUBLISH', ARGV[2], ARGV[3])\n"
                               "  return { removed, type(told) == 'number' and 1 or 0 }\n"
                               "elseif ARGV[1] == 'quota' then\n" /* see quota_lookup.c */
                               "  local time, value = redis.call('TIME'), redis.call('GET', KEYS[1]) or ''\n"
                               "  local tag, till, row = value:match('^(%x+) (%d+) (.*)$')\n"
                               "  if tag ~= ARGV[2] then return { '', 0 } end\n"
                               "  return { row, till - time[1] * 1000 - math.floor(time[2] / 1000) }\n"
                               "end\n";

/* What holds for the client: what it was granted, else what the policy says of it. */
static const struct client_terms *terms_of(const struct inquiry *q)
{
    const struct client_terms *terms = q->granted ? &q->grant_terms : policy_client(q->policy, q->identity);
    return !terms && q->row_cached && q->row.present ? &q->row_terms : terms;
}

/* --- Keys --------------------------------------------------------------------------------------------- */

/* The key of a limit that is counted on nothing else; with "" for a name, what all keys begin with. */
static bool write_key(const struct inquiry *q, const char *name, struct slice *key)
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

/* In a pattern of SCAN these bytes have a meaning. */
static bool write_pattern(struct inquiry *q, struct slice start)
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

struct standing *inquiry_add_row(struct inquiry *q, const struct limit *limit, struct slice key,
                                 struct slice rest)
{
    struct limit_numbers n = client_numbers(terms_of(q), limit);
    struct standing *row = &q->rows[q->row_count++];

    *row = (struct standing){.limit = limit,
                             .key = key,
                             .rest = rest,
                             .quota = n.limit,
                             .capacity = limit->kind == LIMIT_WINDOW ? n.limit : n.burst,
                             .enforced = limit_enforces(limit, q->identity)};
    return row;
}

/* Limits that no rule uses stand in no script; they may be reset all the same. */
static bool add_known_keys(struct inquiry *q)
{
    struct slice key;

    for (unsigned i = 0; i < q->policy->limit_count; i++) {
        const struct limit *limit = &q->policy->limits[i];
        if (!counts_client(limit, q->identity) || is_list(limit) ||
            (q->kind == INQUIRY_LOOK && !compose_uses(q->policy, limit)))
            continue;
        if (!write_key(q, limit->name, &key))
            return false;
        inquiry_add_row(q, limit, key, SLICE_NONE);
    }
    return true;
}

static bool must_scan(const struct inquiry *q)
{
    if (q->kind == INQUIRY_RESET) /* also for keys of limits that the policy no longer has */
        return true;
    for (unsigned i = 0; i < q->policy->limit_count; i++)
        if (is_list(&q->policy->limits[i]) && counts_client(&q->policy->limits[i], q->identity) &&
            compose_uses(q->policy, &q->policy->limits[i]))
            return true;
    return false;
}

/* --- Birth and end ------------------------------------------------------------------------------------ */

char *inquiry_script(const struct policy *policy)
{
    char *script;
    return asprintf(&script, "%s%s%s", grant_preamble, preamble, policy->driver) < 0 ? NULL : script;
}

char *inquiry_channel(const struct policy *policy)
{
    char *channel;
    return asprintf(&channel, "%s:resets", policy->redis.key_prefix) < 0 ? NULL : channel;
}

/* The terms alone decide for those who are prohibited or unlimited: no limit counts them. */
static bool is_counted(const struct inquiry *q)
{
    const struct client_terms *terms = terms_of(q);
    return !terms || terms->quota == QUOTA_AS_WRITTEN;
}

bool inquiry_begin(struct inquiry *q)
{
    if (q->kind == INQUIRY_LOOK && !is_counted(q)) {
        q->step = STEP_OVER;
        return true;
    }
    if (!add_known_keys(q))
        return false;
    q->step = must_scan(q) ? STEP_SCAN : q->kind == INQUIRY_LOOK && q->row_count == 0 ? STEP_OVER : STEP_LAST;
    return true;
}

static bool prepare(struct inquiry *q)
{
    struct slice start;

    if (!(q->channel = inquiry_channel(q->policy)) || !(q->grants_key = grant_key(q->policy)) ||
        !write_key(q, "", &start))
        return false;
    q->key_start = (char *)start.p;
    struct text quota_key = text_over(q->quota_key, KEY_QUOTA_MAX);
    key_write_quota(&quota_key, q->policy->redis.key_prefix, identity_text(q->identity));
    q->quota_key_size = quota_key.n;
    memcpy(q->quota_key + quota_key.n, ":lock", 5);
    if (!write_pattern(q, start))
        return false;
    q->step = STEP_GRANT;
    bool asks = q->kind == INQUIRY_GRANT || (q->kind == INQUIRY_LOOK && q->policy->limit_count > 0);
    return asks || inquiry_begin(q);
}

static struct inquiry *allocate(const struct policy *policy, const struct identity *identity,
                                enum inquiry_kind kind)
{
    struct inquiry *q = calloc(1, sizeof *q);

    if (!q)
        return NULL;
    q->policy = policy;
    q->identity = identity;
    q->kind = kind;
    return q;
}

struct inquiry *inquiry_new_grant(const struct policy *policy, const struct identity *identity, int64_t quota,
                                  int64_t us)
{
    struct inquiry *q = allocate(policy, identity, INQUIRY_GRANT);

    if (!q)
        return NULL;
    q->quota = quota;
    q->us = us;
    if (prepare(q))
        return q;
    inquiry_free(q);
    return NULL;
}

struct inquiry *inquiry_new(const struct policy *policy, const struct identity *identity,
                            enum inquiry_kind kind, uint64_t patience_us)
{
    struct inquiry *q = allocate(policy, identity, kind);

    if (!q)
        return NULL;
    q->until_us = clock_us() + patience_us;
    q->cursor[0] = '0';
    if (prepare(q))
        return q;
    inquiry_free(q);
    return NULL;
}

void inquiry_drop_found(struct inquiry *q)
{
    while (q->found_count)
        free((char *)q->found[--q->found_count].p);
}

void inquiry_free(struct inquiry *q)
{
    if (!q)
        return;
    inquiry_drop_found(q);
    for (unsigned i = 0; i < q->row_count; i++)
        free((char *)q->rows[i].key.p);
    free(q->channel);
    free(q->grants_key);
    free(q->key_start);
    free(q);
}

/* --- Asking ------------------------------------------------------------------------------------------- */

static void argue(struct inquiry *q, struct slice s)
{
    assert(q->argc < ARGUMENTS_MAX);
    q->argv[q->argc] = s.p;
    q->sizes[q->argc++] = s.n;
}

static void argue_number(struct inquiry *q, int64_t value)
{
    size_t start = q->numbers.n;
    text_i64(&q->numbers, value);
    argue(q, (struct slice){q->numbers.p + start, q->numbers.n - start});
}

static void argue_grant(struct inquiry *q)
{
    argue_number(q, 1);
    argue(q, slice_of(q->grants_key));
    argue(q, q->kind == INQUIRY_GRANT ? SLICE("grant") : SLICE("granted"));
    argue(q, identity_text(q->identity));
    if (q->kind != INQUIRY_GRANT)
        return;
    if (q->quota == GRANT_NONE)
        argue(q, SLICE("none"));
    else
        argue_number(q, q->quota);
    argue_number(q, q->us);
    argue(q, slice_of(q->channel));
    argue_number(q, GRANTS_MAX);
}

static void argue_scan(struct inquiry *q)
{
    argue_number(q, 0);
    argue(q, SLICE("scan"));
    argue(q, slice_of(q->cursor));
    argue(q, (struct slice){q->pattern, q->pattern_size});
}

static void argue_drop(struct inquiry *q)
{
    argue_number(q, q->found_count);
    for (unsigned i = 0; i < q->found_count; i++)
        argue(q, q->found[i]);
    argue(q, SLICE("forget"));
}

static void argue_rows(struct inquiry *q)
{
    argue_number(q, q->row_count);
    for (unsigned i = 0; i < q->row_count; i++)
        argue(q, q->rows[i].key);
}

static void argue_quota(struct inquiry *q)
{
    char tag[16];
    int size = snprintf(tag, sizeof tag, "%08x", q->policy->quotas.tag);

    argue_number(q, 1);
    argue(q, (struct slice){q->quota_key, q->quota_key_size});
    argue(q, SLICE("quota"));
    size_t start = q->numbers.n;
    text_put(&q->numbers, (struct slice){tag, (size_t)size});
    argue(q, (struct slice){q->numbers.p + start, q->numbers.n - start});
}

/* All at once, and each key once: of a key that goes twice, what was admitted in between is admitted twice. What the database
 * said goes as well, and the lock of whoever asks it now: what it said before is not kept. */
static void argue_last_reset(struct inquiry *q)
{
    bool quota = q->policy->quotas.connection && q->identity->from_header;

    argue_number(q, q->row_count + q->found_count + (quota ? 2 : 0));
    for (unsigned i = 0; i < q->row_count; i++)
        argue(q, q->rows[i].key);
    for (unsigned i = 0; i < q->found_count; i++)
        argue(q, q->found[i]);
    if (quota) {
        argue(q, (struct slice){q->quota_key, q->quota_key_size});
        argue(q, (struct slice){q->quota_key, q->quota_key_size + 5});
    }
    argue(q, SLICE("forget"));
    argue(q, slice_of(q->channel));
    argue(q, identity_text(q->identity));
}

/* The driver's protocol, see lua/driver.lua: each key by itself, as a request that costs nothing. */
static void argue_look(struct inquiry *q)
{
    argue_rows(q);
    argue(q, SLICE("")); /* now: the clock of Redis */
    for (unsigned i = 0; i < q->row_count; i++) {
        const struct limit *limit = q->rows[i].limit;
        argue_number(q, RUN_COUNTS + 1);
        argue_number(q, limit->index + 1);
        argue_number(q, i + 1);
        argue_number(q, 0); /* the cost */
        argue_number(q, 0); /* the mode */
        argue_number(q, q->rows[i].quota);
        argue_number(q, client_numbers(terms_of(q), limit).burst);
    }
}

void inquiry_set_parts(struct inquiry *q, unsigned parts)
{
    q->parts = parts;
}

unsigned inquiry_part(const struct inquiry *q)
{
    return q->step == STEP_SCAN ? q->part : 0;
}

bool inquiry_next(struct inquiry *q, int *argc, const char ***argv, const size_t **sizes)
{
    q->argc = 0;
    q->numbers = text_over(q->digits, sizeof q->digits);
    switch (q->step) {
    case STEP_GRANT: argue_grant(q); break;
    case STEP_QUOTA: argue_quota(q); break;
    case STEP_SCAN: argue_scan(q); break;
    case STEP_DROP: argue_drop(q); break;
    case STEP_LAST: q->kind == INQUIRY_LOOK ? argue_look(q) : argue_last_reset(q); break;
    case STEP_OVER: return false;
    }
    *argc = q->argc;
    *argv = q->argv;
    *sizes = q->sizes;
    return true;
}

/* --- Afterwards --------------------------------------------------------------------------------------- */

bool inquiry_complete(const struct inquiry *q)
{
    return !q->cut;
}

unsigned inquiry_rows(const struct inquiry *q, const struct standing **rows)
{
    *rows = q->rows;
    return q->row_count;
}

bool inquiry_granted(const struct inquiry *q, int64_t *quota, int64_t *us)
{
    *quota = q->quota;
    *us = q->us;
    return q->granted;
}

bool inquiry_asks_database(const struct inquiry *q)
{
    return q->policy->quotas.connection && q->identity->from_header && !policy_client(q->policy, q->identity);
}

bool inquiry_row(const struct inquiry *q, struct quota_row *row, int64_t *us)
{
    *row = q->row;
    *us = q->row_us;
    return q->row_cached;
}

const struct client_terms *inquiry_client(const struct inquiry *q)
{
    return terms_of(q);
}

uint64_t inquiry_removed(const struct inquiry *q)
{
    return q->removed;
}

bool inquiry_told(const struct inquiry *q)
{
    return q->told;
}
