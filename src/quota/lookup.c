/* lookup.c - looks up the quota of one id for all requests that wait for it. Runs in the quota
 * fetcher (fetcher.c).
 *
 * fetcher_take() --> REDIS ----------- cached ----------------------------.
 *                    | lock acquired      \ lock held: OTHERS, then again |
 *                    v                                                    v
 *                  QUEUED --> QUERY -- database result --> store_and_send_back(): requests return
 *                    `----------`----- down, or query failed ----> give_up(): expired entry or none
 *
 * - If Redis is down, the database is still queried, and the result is cached in this process
 *   only.
 * - If the database is down, no request waits for it. One lookup at a time, whose requests have
 *   been returned, retries the query.
 *
 * The lock in Redis has two purposes. One weir queries the database while the others poll. A
 * reset removes the lock, so a result from before the reset is not stored afterwards. If a weir
 * dies, its lock expires. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/event_timer.h"
#include "base/log.h"
#include "base/magic.h"
#include "limit/key.h"
#include "quota/lookup.h"

enum { LOOKUP_MAGIC = 0x51554f54, ARGUMENTS_MAX = 9, COMPLAIN_US = 60000000 };

/* KEYS: the quota, its lock. The value is "TAG UNTIL ROW": TAG identifies the query; UNTIL is
 * the expiry of its freshness, in ms since 1970. */
const char lookup_script[] =
    "local call, action = redis.call, ARGV[1]\n"
    /* tag, token, ms of the lock (0: none) -> row, ms of freshness left, lock acquired */
    "if action == 'get' then\n"
    "  local time, value = call('TIME'), call('GET', KEYS[1])\n"
    "  local now, tag, till, row = time[1] * 1000 + math.floor(time[2] / 1000)\n"
    "  if value then tag, till, row = value:match('^(%x+) (%d+) (.*)$') end\n"
    "  if tag ~= ARGV[2] then row, till = '', 0 end\n"
    "  if till - now > 0 then return { row, till - now, 0 } end\n"
    "  local locked = ARGV[4] ~= '0' and call('SET', KEYS[2], ARGV[3], 'NX', 'PX', ARGV[4])\n"
    "  return { row, till - now, locked and 1 or 0 }\n"
    "end\n"
    "if call('GET', KEYS[2]) ~= ARGV[3] then return 0 end\n"
    "if action == 'put' then\n" /* tag, token, ms of freshness, ms until expiry, row -> stored */
    "  local time = call('TIME')\n"
    "  local till = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[4]\n"
    "  call('SET', KEYS[1], ARGV[2] .. ' ' .. string.format('%.0f', till) .. ' ' .. ARGV[6], 'PX', "
    "ARGV[5])\n"
    "end\n" /* free: tag, token */
    "call('DEL', KEYS[2])\n"
    "return 1\n";

static void go_to_database(struct lookup *k);

/* --- Create and free -------------------------------------------------------------------------- */

static struct chain *lookup_chain(struct fetcher *fetcher, struct slice id)
{
    return &fetcher->chains[hash_slice(&fetcher->hash_key, id) % CHAINS];
}

struct lookup *lookup_find(struct fetcher *fetcher, struct slice id)
{
    for (struct lookup *k = LIST_FIRST(lookup_chain(fetcher, id)); k; k = LIST_NEXT(k, chain))
        if (slice_equal(lookup_id(k), id))
            return k;
    return NULL;
}

struct lookup *lookup_new(struct fetcher *fetcher, struct slice id, uint64_t address)
{
    struct lookup *k = calloc(1, sizeof *k + id.n);

    if (!k)
        return NULL;
    MAGIC_SET(k, LOOKUP_MAGIC);
    k->fetcher = fetcher;
    k->address = address % ADDRESSES;
    k->until_us = clock_us() + fetcher_settings(fetcher)->timeout_us;
    STAILQ_INIT(&k->requests);
    snprintf(k->token, sizeof k->token, "%s%llx", fetcher->token_start,
             (unsigned long long)++fetcher->token_count);
    k->id_size = id.n;
    memcpy(k->id, id.p, id.n);
    LIST_INSERT_HEAD(lookup_chain(fetcher, id), k, chain);
    TAILQ_INSERT_TAIL(&fetcher->all, k, of_all);
    fetcher->of_address[k->address]++;
    fetcher->count++;
    return k;
}

static void lookup_free(struct lookup *k)
{
    TAILQ_REMOVE(&k->fetcher->all, k, of_all);
    MAGIC_WIPE(k);
    free(k);
}

/* The quota requests have been returned. The lookup is freed once Redis has completed its call. */
void lookup_end(struct lookup *k)
{
    struct fetcher *fetcher = k->fetcher;

    if (k->stage != STAGE_OVER) {
        k->stage = STAGE_OVER;
        deadline_cancel(&k->deadline);
        LIST_REMOVE(k, chain);
        fetcher->of_address[k->address]--;
        fetcher->count--;
    }
    if (!k->calling)
        lookup_free(k);
}

void lookup_send_back(struct lookup *k, enum quota_outcome outcome, const struct quota_row *row)
{
    struct quota_request *request;

    while ((request = STAILQ_FIRST(&k->requests))) {
        STAILQ_REMOVE_HEAD(&k->requests, entry);
        quota_post_back(request, outcome, row);
    }
}

/* --- Redis calls ------------------------------------------------------------------------------ */

static void on_script_reply(struct redis_call *call, const struct redis_reply *reply,
                            enum redis_failure failure);

/* Calls the script: `word` ("get", ...), TAG, TOKEN and up to three more. Returns false if the
 * call is refused. */
static bool call_redis(struct lookup *k, enum lookup_call lookup_call, const char *word,
                       unsigned count, const struct slice *more)
{
    struct fetcher *fetcher = k->fetcher;
    char keys[KEY_QUOTA_MAX * 2], tag[16];
    struct text key = text_over(keys, sizeof keys);
    const char *argv[ARGUMENTS_MAX] = {"2", keys, NULL, word, tag, k->token};
    size_t sizes[ARGUMENTS_MAX] = {1, 0, 0, strlen(word), 0, strlen(k->token)};

    if (k->calling || !fetcher->redis)
        return false;
    key_write_quota(&key, fetcher->policy->redis.key_prefix, lookup_id(k));
    sizes[1] = key.n;
    argv[2] = keys + key.n;
    key_write_quota(&key, fetcher->policy->redis.key_prefix, lookup_id(k));
    text_literal(&key, ":lock");
    sizes[2] = key.n - sizes[1];
    sizes[4] = (size_t)snprintf(tag, sizeof tag, "%08x", fetcher_settings(fetcher)->tag);
    for (unsigned i = 0; i < count; i++)
        argv[6 + i] = more[i].p, sizes[6 + i] = more[i].n;
    k->lookup_call = lookup_call;
    k->call = (struct redis_call){.done = on_script_reply};
    k->calling =
        !key.failed && redis_client_call(fetcher->redis, &k->call, (int)(6 + count), argv, sizes);
    return k->calling;
}

static struct slice decimal(struct text *digits, uint64_t value)
{
    size_t start = digits->n;
    text_u64(digits, value);
    return (struct slice){digits->p + start, digits->n - start};
}

/* A lookup that will not query the database must not take the lock. */
static bool wants_lock(const struct fetcher *fetcher)
{
    return !postgres_link_is_down(fetcher->postgres) || postgres_link_is_idle(fetcher->postgres);
}

static void pass_redis(struct lookup *k)
{
    k->passed = true;
    deadline_cancel(&k->deadline);
    go_to_database(k);
}

void lookup_query_redis(struct lookup *k)
{
    struct fetcher *fetcher = k->fetcher;
    char bytes[24];
    struct text digits = text_over(bytes, sizeof bytes);
    uint64_t lock_ms = wants_lock(fetcher) ? fetcher_settings(fetcher)->timeout_us / 500 + 1000 : 0;
    struct slice more = decimal(&digits, lock_ms);

    k->stage = STAGE_REDIS;
    deadline_arm(&fetcher->redis_wait, &k->deadline, clock_us(), fetcher->policy->redis.timeout_us);
    bool ready = fetcher->redis && redis_client_is_ready(fetcher->redis);
    if (ready ? !call_redis(k, LOOKUP_CALL_GET, "get", 1, &more) : fetcher->redis_down)
        pass_redis(k); /* else Redis is connecting: wait until it is ready, or for the deadline */
}

void lookup_on_redis_deadline(struct deadline *deadline)
{
    struct lookup *k = CONTAINER_OF(deadline, struct lookup, deadline);
    bool tell = k->calling;

    MAGIC_CHECK(k, LOOKUP_MAGIC);
    pass_redis(k);
    if (tell)
        redis_client_note_timeout(&k->call);
}

void lookup_on_look_again(struct deadline *deadline)
{
    struct lookup *k = CONTAINER_OF(deadline, struct lookup, deadline);
    MAGIC_CHECK(k, LOOKUP_MAGIC);
    lookup_query_redis(k);
}

/* Releases the lock early; otherwise it expires. */
static void free_lock(struct lookup *k)
{
    if (k->locked)
        (void)call_redis(k, LOOKUP_CALL_FREE, "free", 0, NULL);
    k->locked = false;
}

static void keep_in_redis(struct lookup *k, const struct quota_row *row, uint64_t fresh_for_us)
{
    char bytes[48], text[QUOTA_TEXT_MAX];
    struct text digits = text_over(bytes, sizeof bytes), value = text_over(text, sizeof text);
    uint64_t kept_for_us = row->present ? fresh_for_us + QUOTA_STALE_US : fresh_for_us;
    struct slice more[3] = {decimal(&digits, fresh_for_us / 1000),
                            decimal(&digits, kept_for_us / 1000)};

    quota_row_write(&value, row);
    more[2] = text_slice(&value);
    if (!value.failed && call_redis(k, LOOKUP_CALL_PUT, "put", 3, more))
        k->locked = false;
}

/* --- Results ---------------------------------------------------------------------------------- */

/* Stores the entry and returns it to all requests. */
static void store_and_send_back(struct lookup *k, const struct quota_entry *entry)
{
    if (!k->dropped)
        quota_cache_put(k->fetcher->quotas->table, lookup_id(k), entry);
    lookup_send_back(k, entry->outcome, &entry->row);
}

/* No newer result is available: returns the expired entry, or none. */
static void send_back_what_is_known(struct lookup *k, bool database_is_down)
{
    uint64_t now = clock_us();
    struct quota_entry entry = k->before;

    if (entry.usable_us > now) {
        entry.got_us = now;
        entry.fresh_us = now + AGAIN_US < entry.usable_us ? now + AGAIN_US : entry.usable_us;
        counter_add(&k->fetcher->quotas->stats.expired, 1);
        store_and_send_back(k, &entry);
        return;
    }
    entry = (struct quota_entry){.outcome = QUOTA_UNKNOWN,
                                 .got_us = now,
                                 .fresh_us = now + UNKNOWN_US,
                                 .usable_us = now + UNKNOWN_US};
    if (database_is_down)
        store_and_send_back(k, &entry);
    else
        lookup_send_back(k, QUOTA_UNKNOWN, NULL);
}

static void give_up(struct lookup *k, bool database_is_down)
{
    send_back_what_is_known(k, database_is_down);
    free_lock(k);
    lookup_end(k);
}

/* --- Redis replies ---------------------------------------------------------------------------- */

/* Reads the cached row, fresh or expired: left_us > 0 is the time for which it stays fresh. */
static bool read_cached(struct slice text, int64_t left_us, struct quota_entry *entry)
{
    uint64_t now = clock_us();

    *entry = (struct quota_entry){.got_us = now};
    if (text.n == 0 || !quota_row_parse(text, &entry->row))
        return false;
    entry->outcome = entry->row.present ? QUOTA_FOUND : QUOTA_ABSENT;
    int64_t usable_us = left_us + (entry->row.present ? (int64_t)QUOTA_STALE_US : 0);
    entry->fresh_us = left_us > 0 ? now + (uint64_t)left_us : 0;
    entry->usable_us = usable_us > 0 ? now + (uint64_t)usable_us : 0;
    return true;
}

static void take_get(struct lookup *k, struct slice row, int64_t left_us)
{
    struct fetcher *fetcher = k->fetcher;
    struct quota_entry cached;

    deadline_cancel(&k->deadline);
    if (read_cached(row, left_us, &cached) && cached.fresh_us) {
        counter_add(&fetcher->quotas->stats.redis_hits, 1);
        store_and_send_back(k, &cached);
        lookup_end(k);
        return;
    }
    if (cached.usable_us)
        k->before = cached;
    if (k->locked || postgres_link_is_down(fetcher->postgres))
        go_to_database(k);
    else if (clock_us() >= k->until_us)
        give_up(k, false);
    else { /* another weir queries the database */
        k->stage = STAGE_OTHERS;
        deadline_arm(&fetcher->look_again, &k->deadline, clock_us(), LOOK_AGAIN_US);
    }
}

static void on_script_reply(struct redis_call *call, const struct redis_reply *reply,
                            enum redis_failure failure)
{
    struct lookup *k = CONTAINER_OF(call, struct lookup, call);
    int64_t left_ms, locked;
    struct slice row;
    bool good = k->lookup_call == LOOKUP_CALL_GET &&
                redis_reply_read(reply, "sii", &row, &left_ms, &locked);
    (void)failure;

    MAGIC_CHECK(k, LOOKUP_MAGIC);
    k->calling = false;
    if (k->lookup_call == LOOKUP_CALL_PUT && reply && reply->type == RESP_INTEGER &&
        reply->integer == 0)
        /* the lock was removed: the client was reset */
        quota_cache_remove(k->fetcher->quotas->table, lookup_id(k));
    k->locked |= good && locked == 1;
    if (k->stage == STAGE_OVER) {
        free_lock(k);
        lookup_end(k);
    } else if (good && !k->passed)
        take_get(k, row, left_ms * 1000);
    else if (!k->passed && !k->fetcher->changing)
        pass_redis(k);
}

/* --- Database --------------------------------------------------------------------------------- */

/* In the database, clients have the names that `clients` has for them. */
static void query(struct lookup *k)
{
    char bytes[IDENTITY_TEXT_MAX];
    struct text name = text_over(bytes, sizeof bytes);

    k->stage = STAGE_QUERY;
    k->tries++;
    k->fetcher->querying = k;
    identity_write_name(&name, lookup_id(k));
    postgres_link_query(k->fetcher->postgres, text_slice(&name));
}

/* Redis has no fresh row, or cannot be used. */
static void go_to_database(struct lookup *k)
{
    struct fetcher *fetcher = k->fetcher;
    enum queue queue = k->before.usable_us ? QUEUE_KNOWN : QUEUE_FIRST;

    if (!postgres_link_is_down(fetcher->postgres)) {
        k->stage = STAGE_QUEUED;
        TAILQ_INSERT_TAIL(&fetcher->queues[queue], k, entry);
        /* deferred: pump() ends lookups, and the caller may iterate over them */
        event_active(fetcher->pace, EV_TIMEOUT, 1);
    } else if (!postgres_link_is_idle(fetcher->postgres))
        give_up(k, true);
    else { /* connected again after the query had failed */
        send_back_what_is_known(k, true);
        k->trying = true;
        query(k);
    }
}

static struct lookup *queue_take(struct fetcher *fetcher, enum queue queue)
{
    struct lookup *k = TAILQ_FIRST(&fetcher->queues[queue]);
    if (k)
        TAILQ_REMOVE(&fetcher->queues[queue], k, entry);
    return k;
}

/* Rate limit for unknown ids, which anybody can make up: a burst of one second's worth, then
 * evenly spaced. Returns false if it is not yet time. */
static bool may_query_first(struct fetcher *fetcher)
{
    const uint64_t second = 1000000, each = second / FIRST_QUERIES_MAX;
    uint64_t now = clock_us();

    if (fetcher->paced_us + second < now)
        fetcher->paced_us = now - second;
    if (fetcher->paced_us <= now) {
        fetcher->paced_us += each;
        return true;
    }
    event_timer_arm(fetcher->pace, fetcher->paced_us - now);
    return false;
}

static void pump(struct fetcher *fetcher)
{
    struct lookup *k;

    while (postgres_link_is_idle(fetcher->postgres) && !fetcher->querying) {
        if (!(k = queue_take(fetcher, QUEUE_KNOWN)) &&
            (TAILQ_EMPTY(&fetcher->queues[QUEUE_FIRST]) || !may_query_first(fetcher) ||
             !(k = queue_take(fetcher, QUEUE_FIRST))))
            return;
        if (clock_us() < k->until_us)
            query(k);
        else
            give_up(k, false);
    }
}

void lookups_on_pace(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    pump(arg);
}

void lookups_on_idle(void *context)
{
    struct fetcher *fetcher = context;
    atomic_store_explicit(&fetcher->quotas->stats.database_up,
                          !postgres_link_is_down(fetcher->postgres), memory_order_relaxed);
    pump(fetcher);
}

void lookups_on_down(void *context)
{
    struct fetcher *fetcher = context;
    struct lookup *k;

    atomic_store_explicit(&fetcher->quotas->stats.database_up, false, memory_order_relaxed);
    while ((k = queue_take(fetcher, QUEUE_KNOWN)) || (k = queue_take(fetcher, QUEUE_FIRST)))
        give_up(k, true);
}

/* Returns false after a log line if the row names a plan that the policy does not have. */
static bool plan_is_known(struct lookup *k, const struct quota_row *row)
{
    struct fetcher *fetcher = k->fetcher;
    uint64_t now = clock_us();

    if (!row->plan[0] || quota_client_limits(fetcher->policy, row).plan)
        return true;
    if (fetcher->complained_us && now - fetcher->complained_us < COMPLAIN_US)
        return false;
    fetcher->complained_us = now;
    log_warn("postgres %s: for \"%.*s\", the query returns the plan \"%s\", which is not in plans; "
             "no plan applies to such clients; add it to plans, or correct the row",
             fetcher_settings(fetcher)->server_text, (int)k->id_size, k->id, row->plan);
    return false;
}

static void take_row(struct lookup *k, const struct quota_row *row)
{
    struct fetcher *fetcher = k->fetcher;
    uint64_t now = clock_us(), fresh_for = fetcher_settings(fetcher)->cache_us;

    counter_add(&fetcher->quotas->stats.queries[row->present ? QUERY_FOUND : QUERY_ABSENT], 1);
    if (!row->present && fresh_for > ABSENT_US)
        fresh_for = ABSENT_US;
    if (!plan_is_known(k, row) || row->unusable)
        counter_add(&fetcher->quotas->stats.unusable, 1);
    struct quota_entry entry = {.outcome = row->present ? QUOTA_FOUND : QUOTA_ABSENT,
                                .row = *row,
                                .got_us = now,
                                .fresh_us = now + fresh_for,
                                .usable_us = now + fresh_for + (row->present ? QUOTA_STALE_US : 0)};
    store_and_send_back(k, &entry);
    if (k->locked && !k->dropped)
        keep_in_redis(k, row, fresh_for);
    free_lock(k);
    lookup_end(k);
}

void lookups_on_done(void *context, enum postgres_result result, const struct quota_row *row)
{
    struct fetcher *fetcher = context;
    struct lookup *k = fetcher->querying;

    MAGIC_CHECK(k, LOOKUP_MAGIC);
    fetcher->querying = NULL;
    if (result == POSTGRES_ROW) {
        take_row(k, row);
        return;
    }
    if (result == POSTGRES_LOST && k->tries == 1 && !k->trying &&
        !postgres_link_is_down(fetcher->postgres)) {
        k->stage = STAGE_QUEUED;
        TAILQ_INSERT_HEAD(&fetcher->queues[QUEUE_KNOWN], k, entry);
        return;
    }
    counter_add(&fetcher->quotas->stats.queries[QUERY_FAILED], 1);
    give_up(k, postgres_link_is_down(fetcher->postgres));
}
