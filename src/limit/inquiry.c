#include "limit/inquiry.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/text.h"
#include "limit/compose.h"
#include "limit/grant_calls.h"
#include "limit/key.h"
#include "limit/quotas.h"

enum {
    ARGUMENTS_PER_LOOK = 7, /* how many limits, then the driver's six for it */
    ANSWERS_PER_LOOK = 5,
    ARGUMENTS_MAX = 2 + INQUIRY_ROWS_MAX * (1 + ARGUMENTS_PER_LOOK),
    NUMBER_SIZE = 20,
    PATTERN_SIZE = 4096,
};

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

enum step { STEP_GRANT, STEP_QUOTA, STEP_SCAN, STEP_DROP, STEP_LAST, STEP_OVER };

struct inquiry {
    const struct policy *policy;
    const struct identity *identity;
    enum inquiry_kind kind;
    enum step step;
    uint64_t until_us;
    bool full;      /* the last answer to SCAN named more keys than there was room for */
    bool cut, told; /* keys may have been passed over; all weirs were told */
    uint64_t removed;
    char cursor[24];
    unsigned parts, part;                   /* of Redis; the one that is looked through */
    char *channel, *grants_key, *key_start; /* the last: "PREFIX:{IDENTITY}:l:" */
    int64_t quota, us; /* to be granted; then, and after a look, what is granted and for how long */
    bool granted;
    struct client_terms grant_terms;
    struct quota_row row; /* of the database, as it is cached */
    int64_t row_us;       /* for how long it is believed */
    bool row_cached;
    struct client_terms row_terms;
    char quota_key[KEY_QUOTA_MAX + 8]; /* with that of its lock behind it */
    size_t quota_key_size;
    char pattern[PATTERN_SIZE];
    size_t pattern_size;
    struct standing rows[INQUIRY_ROWS_MAX];
    unsigned row_count;
    struct slice found[INQUIRY_FOUND_MAX]; /* malloc'ed; not yet among the rows */
    unsigned found_count;
    int argc;
    const char *argv[ARGUMENTS_MAX];
    size_t sizes[ARGUMENTS_MAX];
    struct text numbers; /* the digits that arguments point into */
    char digits[ARGUMENTS_MAX * NUMBER_SIZE];
};

/* --- Who ---------------------------------------------------------------------------------------------- */

static bool read_id(struct slice id, struct identity *identity, const char **why)
{
    struct text text = text_over(identity->text, sizeof identity->text);

    if (id.n == 0 || id.n > CLIENT_ID_MAX) {
        *why = "an id has 1 to 256 bytes";
        return false;
    }
    for (size_t i = 0; i < id.n; i++)
        if ((unsigned char)id.p[i] < 0x20 || id.p[i] == 0x7f) {
            *why = "an id holds no control bytes";
            return false;
        }
    text_literal(&text, "id:");
    text_put(&text, id);
    identity->size = text.n;
    identity->from_header = true;
    return true;
}

/* An address, or its group as identity_of() writes it. */
static bool read_ip(const struct policy *policy, struct slice address, struct identity *identity)
{
    unsigned prefix = policy->identity.ipv6_prefix;
    struct ip_range range;
    const char *why;

    if (ip_parse(address, &identity->ip))
        return true;
    if (!ip_range_parse(address, &range, &why) || range.bits != prefix || ip_is_v4(&range.ip))
        return false;
    identity->ip = range.ip;
    return true;
}

static void write_ip(const struct policy *policy, struct identity *identity)
{
    struct text text = text_over(identity->text, sizeof identity->text);
    unsigned prefix = policy->identity.ipv6_prefix;

    text_literal(&text, "ip:");
    if (!identity->has_ip)
        text_literal(&text, "unix");
    else if (ip_is_v4(&identity->ip))
        ip_format(&identity->ip, &text);
    else {
        struct ip_range group = {ip_masked(&identity->ip, prefix), prefix};
        ip_range_format(&group, &text);
    }
    identity->size = text.n;
}

bool inquiry_identity(const struct policy *policy, struct slice text, struct identity *identity,
                      const char **why)
{
    *identity = (struct identity){0};
    if (slice_starts_with(text, SLICE("id:")))
        return read_id((struct slice){text.p + 3, text.n - 3}, identity, why);
    if (!slice_starts_with(text, SLICE("ip:")))
        return read_id(text, identity, why);
    struct slice address = {text.p + 3, text.n - 3};
    identity->has_ip = !slice_equal(address, SLICE("unix"));
    if (identity->has_ip && !read_ip(policy, address, identity)) {
        *why = memchr(address.p, '/', address.n)
                   ? "a range of addresses is no client; name one address (behind \"ip:\")"
                   : "behind \"ip:\" stands an IPv4 or IPv6 address, or \"unix\"";
        return false;
    }
    write_ip(policy, identity);
    if (identity->has_ip)
        identity->listed = address_table_find(&policy->addresses.table, &identity->ip);
    return true;
}

const char *inquiry_terms(const struct client_terms *terms)
{
    if (!terms)
        return "default";
    switch (terms->quota) {
    case QUOTA_PROHIBITED: return "prohibited";
    case QUOTA_UNLIMITED: return "unlimited";
    case QUOTA_AS_WRITTEN: break;
    }
    return terms->each ? "quota" : terms->plan ? "plan" : terms->numbers ? "quota" : "default";
}

/* What holds for the client: what it was granted, else what the policy says of it. */
static const struct client_terms *terms_of(const struct inquiry *q)
{
    const struct client_terms *terms = q->granted ? &q->grant_terms : policy_client(q->policy, q->identity);
    return !terms && q->row_cached && q->row.present ? &q->row_terms : terms;
}

/* --- Keys --------------------------------------------------------------------------------------------- */

/* Is the limit counted on this client, whatever else it is counted on? */
static bool counts_client(const struct limit *limit, const struct identity *identity)
{
    enum limit_per first = limit->per[0].per;
    return first == PER_CLIENT || (first == PER_IP && !identity->from_header);
}

static bool is_list(const struct limit *limit)
{
    return limit->per_count > 1;
}

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
    key_write(&text, q->policy, &limit, &facts);
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

static struct standing *add_row(struct inquiry *q, const struct limit *limit, struct slice key,
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
        add_row(q, limit, key, SLICE_NONE);
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

/* Whose terms are known: what is there to look at, or to remove? */
static bool begin(struct inquiry *q)
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
    return asks || begin(q);
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

static void drop_found(struct inquiry *q)
{
    while (q->found_count)
        free((char *)q->found[--q->found_count].p);
}

void inquiry_free(struct inquiry *q)
{
    if (!q)
        return;
    drop_found(q);
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

/* What the database said goes as well, and the lock of whoever asks it now: what it said before is not kept. */
static void argue_last_reset(struct inquiry *q)
{
    bool quota = q->policy->quotas.connection && q->identity->from_header;

    argue_number(q, q->row_count + (quota ? 2 : 0));
    for (unsigned i = 0; i < q->row_count; i++)
        argue(q, q->rows[i].key);
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
        argue_number(q, 1);
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

/* --- Answers ------------------------------------------------------------------------------------------ */

static bool is_found(const struct inquiry *q, struct slice key)
{
    for (unsigned i = 0; i < q->found_count; i++)
        if (slice_equal(q->found[i], key))
            return true;
    return false;
}

/* The limit counted per several things whose key this is, with the part behind its name; NULL for others,
 * such as those that remember repeats. */
static const struct limit *limit_of_key(const struct inquiry *q, struct slice key, struct slice *rest)
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
        if (is_list(limit) && counts_client(limit, q->identity) && slice_equal(name, slice_of(limit->name)) &&
            compose_uses(q->policy, limit))
            return limit;
    }
    return NULL;
}

/* SCAN may name a key twice, and a key may go before it is looked at. */
static void note_key(struct inquiry *q, struct slice key)
{
    struct slice rest;

    if (!slice_starts_with(key, slice_of(q->key_start)) || is_found(q, key) ||
        (q->kind == INQUIRY_LOOK && !limit_of_key(q, key, &rest)))
        return;
    if (q->found_count == INQUIRY_FOUND_MAX) {
        q->full = true;
        return;
    }
    char *bytes = malloc(key.n + 1);
    if (!bytes) {
        q->cut = true;
        return;
    }
    memcpy(bytes, key.p, key.n);
    bytes[key.n] = 0;
    q->found[q->found_count++] = (struct slice){bytes, key.n};
    // cppcheck-suppress memleak ; `found` owns it
}

static int by_limit_and_key(const void *a, const void *b)
{
    const struct standing *left = a, *right = b;
    if (left->limit != right->limit)
        return left->limit < right->limit ? -1 : 1;
    return strcmp(left->key.p, right->key.p);
}

/* What SCAN found becomes rows. */
static void settle_found(struct inquiry *q)
{
    for (unsigned i = 0; i < q->found_count; i++) {
        struct slice rest;
        const struct limit *limit = limit_of_key(q, q->found[i], &rest);
        add_row(q, limit, q->found[i], rest);
    }
    q->found_count = 0;
}

/* Limits that are counted per several things, of which this client has none yet, are whole. */
static void add_untouched(struct inquiry *q)
{
    unsigned looked_at = q->row_count;

    for (unsigned i = 0; i < q->policy->limit_count; i++) {
        const struct limit *limit = &q->policy->limits[i];
        bool there = false;
        for (unsigned r = 0; r < looked_at && !there; r++)
            there = q->rows[r].limit == limit;
        if (there || !is_list(limit) || !counts_client(limit, q->identity) || !compose_uses(q->policy, limit))
            continue;
        struct standing *row = add_row(q, limit, SLICE_NONE, SLICE_NONE);
        row->remaining = row->capacity;
        row->admits = row->capacity > 0;
    }
    qsort(q->rows, q->row_count, sizeof q->rows[0], by_limit_and_key);
}

/* After a piece of the key space: on, unless it is all or the time is up. */
static void after_scan(struct inquiry *q)
{
    bool again = q->full && q->kind == INQUIRY_RESET;
    bool all = !again && (q->full || strcmp(q->cursor, "0") == 0);

    if (all && !q->full && q->part + 1 < q->parts) {
        q->part++;
        all = false;
    }
    if (!all && clock_us() >= q->until_us) {
        q->cut = true;
        all = true;
    }
    q->step = all ? STEP_LAST : STEP_SCAN;
    if (all && q->kind == INQUIRY_LOOK)
        settle_found(q);
    if (q->step == STEP_LAST && q->kind == INQUIRY_LOOK && q->row_count == 0) {
        q->step = STEP_OVER; /* nothing to look at */
        add_untouched(q);
    }
}

static bool take_scan(struct inquiry *q, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
        reply->element[0]->type != REDIS_REPLY_STRING || reply->element[1]->type != REDIS_REPLY_ARRAY ||
        (size_t)reply->element[0]->len >= sizeof q->cursor)
        return false;
    const redisReply *keys = reply->element[1];
    q->full = false;
    for (size_t i = 0; i < keys->elements; i++)
        if (keys->element[i]->type == REDIS_REPLY_STRING)
            note_key(q, (struct slice){keys->element[i]->str, (size_t)keys->element[i]->len});
    if (q->full && q->kind == INQUIRY_LOOK)
        q->cut = true;
    if (!q->full || q->kind == INQUIRY_LOOK) /* else the same piece again, once these keys are gone */
        memcpy(q->cursor, reply->element[0]->str, (size_t)reply->element[0]->len + 1);
    if (q->kind == INQUIRY_RESET && q->found_count)
        q->step = STEP_DROP;
    else
        after_scan(q);
    return true;
}

static bool take_forget(struct inquiry *q, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
        reply->element[0]->type != REDIS_REPLY_INTEGER || reply->element[1]->type != REDIS_REPLY_INTEGER)
        return false;
    q->removed += (uint64_t)reply->element[0]->integer;
    q->told = reply->element[1]->integer == 1;
    if (q->step == STEP_DROP) {
        drop_found(q);
        after_scan(q);
    } else
        q->step = STEP_OVER;
    return true;
}

static bool take_grant(struct inquiry *q, const redisReply *reply)
{
    int64_t until_us;

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
        reply->element[0]->type != REDIS_REPLY_INTEGER)
        return false;
    if (q->kind == INQUIRY_GRANT) {
        q->step = STEP_OVER;
        q->granted = reply->element[0]->integer == 1;
        q->told = reply->element[1]->integer == 1;
        return true;
    }
    q->granted =
        grant_parse(reply->element[1], &q->quota, &until_us) && until_us > reply->element[0]->integer;
    if (q->granted) {
        q->us = until_us - reply->element[0]->integer;
        q->grant_terms = grant_terms(q->quota);
    }
    if (!inquiry_asks_database(q))
        return begin(q);
    q->step = STEP_QUOTA;
    return true;
}

static bool take_quota(struct inquiry *q, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
        reply->element[0]->type != REDIS_REPLY_STRING || reply->element[1]->type != REDIS_REPLY_INTEGER)
        return false;
    struct slice row = {reply->element[0]->str, (size_t)reply->element[0]->len};
    q->row_cached = row.n && quota_row_parse(row, &q->row);
    q->row_us = reply->element[1]->integer * 1000;
    q->row_terms = quota_terms(q->policy, &q->row);
    return begin(q);
}

/* In place of a delay stands why a script of one's own has failed, see lua/guard.lua. */
static bool is_failure(const struct inquiry *q, const redisReply *reply, size_t i)
{
    size_t row = i / ANSWERS_PER_LOOK;
    return i % ANSWERS_PER_LOOK == 4 && row < q->row_count && q->rows[row].limit->kind == LIMIT_CUSTOM &&
           reply->element[i]->type == REDIS_REPLY_STRING;
}

static bool take_look(struct inquiry *q, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != q->row_count * ANSWERS_PER_LOOK + 1)
        return false;
    for (size_t i = 0; i < reply->elements; i++)
        if (reply->element[i]->type != REDIS_REPLY_INTEGER && !is_failure(q, reply, i))
            return false;
    for (unsigned i = 0; i < q->row_count; i++) { /* behind them stands the time */
        redisReply *const *values = &reply->element[i * ANSWERS_PER_LOOK];
        struct standing *row = &q->rows[i];
        row->failed = values[4]->type != REDIS_REPLY_INTEGER;
        row->admits = values[0]->integer > 0;
        row->remaining = values[1]->integer > 0 ? values[1]->integer : 0;
        row->retry_after_us = row->admits ? 0 : values[2]->integer;
        row->reset_us = values[3]->integer > 0 ? values[3]->integer : 0;
    }
    q->step = STEP_OVER;
    add_untouched(q);
    return true;
}

bool inquiry_take(struct inquiry *q, const redisReply *reply)
{
    bool good = q->step == STEP_GRANT                             ? take_grant(q, reply)
                : q->step == STEP_QUOTA                           ? take_quota(q, reply)
                : q->step == STEP_SCAN                            ? take_scan(q, reply)
                : q->step == STEP_LAST && q->kind == INQUIRY_LOOK ? take_look(q, reply)
                                                                  : take_forget(q, reply);
    if (!good)
        q->step = STEP_OVER;
    return good;
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
