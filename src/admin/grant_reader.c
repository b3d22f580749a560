#include "admin/grant_reader.h"

#include <stdlib.h>

#include "admin/grant_calls.h"
#include "admin/redis_memory.h"
#include "base/clock.h"
#include "base/event_timer.h"
#include "base/log.h"
#include "base/magic.h"
#include "limit/denials.h"
#include "redis/redis_client.h"

enum {
    READER_MAGIC = 0x47524452,
    VERSION_SIZE = 32,
    READER_TIMEOUT_US = 2000000,
    SUSPENDED_US = 2000000
};

struct grant_reader {
    uint32_t magic;
    struct policy *policy;
    struct redis_client *store;
    struct event *timer;
    struct redis_memory *memory; /* uses the same connection */
    char *key, *script;
    char version[VERSION_SIZE]; /* of the current table */
    int64_t clocks_apart_us;    /* the wall clock less the monotonic clock, at the last look */
    struct redis_call call;
    unsigned noted;        /* grants_noted() when the call was sent */
    unsigned noted_before; /* grants_noted() when the current table was read */
    bool under_way, again; /* a call is in flight; another one must follow */
    bool logged;           /* the failure to read grants was logged */
    bool connected;        /* reconnected since the last timer run */
};

static void request_grants(struct grant_reader *reader)
{
    const char *argv[] = {"1", reader->key, "grants", reader->version};
    size_t sizes[COUNT_OF(argv)];

    if (reader->under_way) {
        reader->again = true;
        return;
    }
    if (!redis_client_is_ready(reader->store))
        return; /* retried by on_grants_readable() */
    reader->again = false;
    reader->noted = grants_noted();
    if (reader->noted != reader->noted_before) /* Redis may have lost what was noted since */
        strcpy(reader->version, "?");
    for (unsigned i = 0; i < COUNT_OF(argv); i++)
        sizes[i] = strlen(argv[i]);
    reader->under_way =
        redis_client_call(reader->store, &reader->call, COUNT_OF(argv), argv, sizes);
    redis_client_flush(reader->store);
}

/* --- Replies ---------------------------------------------------------------------------------- */

/* Names and grants alternate after the two elements that the caller has read. */
static unsigned read_grants(const struct redis_reply *reply, int64_t now, struct grant *all)
{
    int64_t quota, until;
    uint64_t now_us = clock_us();
    unsigned count = 0;

    for (size_t i = 2; i + 1 < reply->count && count < GRANTS_MAX; i += 2) {
        const struct redis_reply *name = &reply->elements[i];
        if (name->type == RESP_STRING && name->text.n > 0 && name->text.n < IDENTITY_TEXT_MAX &&
            grant_parse(&reply->elements[i + 1], &quota, &until) && until > now)
            all[count++] = (struct grant){name->text, quota, now_us + (uint64_t)(until - now)};
    }
    return count;
}

/* Replaces the table. Cached denials are dropped: they were decided with the old grants. */
static void replace_grants(struct grant_reader *reader, const struct redis_reply *reply,
                           int64_t now, struct slice version)
{
    struct grant *all = malloc(GRANTS_MAX * sizeof *all);

    if (!all)
        return; /* retried later */
    unsigned count = read_grants(reply, now, all);
    struct grants *grants = count ? grants_new(all, count) : NULL;
    free(all);
    if (count && !grants)
        return;
    grants_publish(grants);
    denials_forget_all();
    memcpy(reader->version, version.p, version.n + 1);
    reader->noted_before = reader->noted;
}

/* Logs each change of state once. The workers' links report outages of Redis. */
static void report_state(struct grant_reader *reader, enum redis_failure failure, bool good)
{
    bool refused = failure == REDIS_FAILURE_SCRIPT || failure == REDIS_FAILURE_PERMISSION;

    if (!good && refused && !reader->logged)
        log_warn("redis %s: the grants in %s cannot be read: those read before stay in effect, "
                 "changes by other weirs have no effect here; allow this user the commands listed "
                 "in docs/backends.md",
                 reader->policy->redis.address_text, reader->key);
    if (good && reader->logged)
        log_info("redis %s: the grants in %s can be read again", reader->policy->redis.address_text,
                 reader->key);
    reader->logged = good ? false : reader->logged || refused;
}

static void on_grants(struct redis_call *call, const struct redis_reply *reply,
                      enum redis_failure failure)
{
    struct grant_reader *reader = CONTAINER_OF(call, struct grant_reader, call);
    struct slice version;
    int64_t now;

    MAGIC_CHECK(reader, READER_MAGIC);
    reader->under_way = false;
    report_state(reader, failure, reply != NULL);
    bool outdated = reader->noted != grants_noted();
    reader->again |= outdated;
    if (reply && !outdated && redis_reply_read(reply, "is+", &now, &version) && now >= 0 &&
        version.n < VERSION_SIZE && strcmp(version.p, reader->version) != 0)
        replace_grants(reader, reply, now, version);
    if (reader->again)
        event_active(reader->timer, EV_TIMEOUT, 1);
}

static void on_grants_readable(void *context)
{
    struct grant_reader *reader = context;
    reader->connected = true;
    if (reader->store) /* NULL inside redis_client_new() */
        event_active(reader->timer, EV_TIMEOUT, 1);
}

/* The monotonic clock stands still while the machine is suspended: the expiry times of the table
 * are then too late. */
static void forget_if_suspended(struct grant_reader *reader)
{
    int64_t apart_us = (int64_t)(clock_wall_us() - clock_us());

    if (llabs(apart_us - reader->clocks_apart_us) > SUSPENDED_US)
        strcpy(reader->version, "?");
    reader->clocks_apart_us = apart_us;
}

static void on_read_period(evutil_socket_t fd, short what, void *arg)
{
    struct grant_reader *reader = arg;
    (void)fd, (void)what;

    MAGIC_CHECK(reader, READER_MAGIC);
    event_timer_arm(reader->timer, GRANTS_EVERY_US);
    if (reader->under_way && clock_us() - reader->call.sent_us > READER_TIMEOUT_US)
        redis_client_note_timeout(&reader->call);
    forget_if_suspended(reader);
    request_grants(reader);
    if (!reader->memory)
        return;
    if (reader->connected)
        redis_memory_reconnected(reader->memory);
    else
        redis_memory_look(reader->memory);
    reader->connected = false;
}

/* --- Create and free -------------------------------------------------------------------------- */

void grant_reader_look(struct grant_reader *reader)
{
    if (reader)
        request_grants(reader);
}

struct grant_reader *grant_reader_new(struct event_base *base, struct policy *policy)
{
    struct grant_reader *reader = calloc(1, sizeof *reader);
    const struct redis_link_watch watch = {
        .ready = on_grants_readable, .context = reader, .quiet = true};

    if (!reader)
        return NULL;
    MAGIC_SET(reader, READER_MAGIC);
    reader->policy = policy_hold(policy);
    reader->call = (struct redis_call){.done = on_grants};
    reader->version[0] = '?'; /* differs from every version, including "" */
    reader->key = grant_key(policy);
    reader->timer = evtimer_new(base, on_read_period, reader);
    if (!reader->key || !reader->timer ||
        asprintf(&reader->script, "%s%s", grant_preamble, redis_memory_script) < 0) {
        reader->script = NULL;
        grant_reader_free(reader);
        return NULL;
    }
    reader->store = redis_client_new(base, &policy->redis, slice_of(reader->script), &watch);
    if (!reader->store) {
        grant_reader_free(reader);
        return NULL;
    }
    reader->memory = redis_memory_new(base, reader->store);
    on_read_period(-1, 0, reader);
    return reader;
}

void grant_reader_free(struct grant_reader *reader)
{
    if (!reader)
        return;
    if (reader->store)
        redis_client_free(reader->store); /* ends pending calls */
    redis_memory_free(reader->memory);
    event_drop(reader->timer);
    free(reader->key);
    free(reader->script);
    policy_drop(reader->policy);
    MAGIC_WIPE(reader);
    free(reader);
}
