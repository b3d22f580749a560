/* sentinel.c - see sentinel.h.
 *
 *   consult() --> the master --> the other sentinels --> subscribed --PING, PONG--.
 *      ^             |                  |                    |   ^                |
 *      |             `--> found()       |        +switch-master  `----------------'
 *      |                                |                    `--> found()
 *      `---- next sentinel: connection lost, timeout, or the master does not work */
#include "redis/sentinel.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/event_timer.h"
#include "base/log.h"
#include "base/magic.h"
#include "redis/redis_connection.h"

enum {
    SENTINEL_MAGIC = 0x53454e54,
    SENTINELS_MAX = 128,
    ANSWER_US = 500000, /* timeout of connect and reply, and of a PING */
    PING_US = 1000000,
    SEEK_US = 200000, /* delay between sentinels while the master does not work */
    RETRY_MIN_US = 20000,
    RETRY_MAX_US = 1000000,
    COMPLAIN_US = 10000000,
};

enum sentinel_step {
    STEP_IDLE,
    STEP_MASTER,
    STEP_OTHERS,
    STEP_SUBSCRIBE,
    STEP_LISTEN,
    STEP_PINGED
};

struct redis_sentinel {
    uint32_t magic;
    struct event_base *base;
    const struct redis_settings *settings;
    void (*found_master)(void *context, const struct address *master);
    void *context;
    struct address known[SENTINELS_MAX]; /* those of the policy first */
    unsigned known_count, next;
    struct address queried; /* the sentinel of `connection` */
    struct address found;   /* the master, from the last reply */
    struct redis_connection *connection;
    enum sentinel_step step;
    struct event *timer;
    bool seeking;    /* the known master does not work */
    unsigned failed; /* consecutive failed sentinels */
    uint64_t retry_us;
};

static void consult(struct redis_sentinel *s);

/* --- State of the process; each thread has its own struct redis_sentinel ---------------------- */

static struct {
    pthread_mutex_t lock;
    char name[256], master[ADDRESS_TEXT_MAX];
    unsigned changes;
    bool away; /* no sentinel answers, and this was logged */
    uint64_t complained_us;
    struct address others[SENTINELS_MAX]; /* other sentinels of this master */
    unsigned other_count;
} received = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Logs a change of the master once, whichever thread finds it first. */
static void announce(const struct redis_sentinel *s)
{
    char text[ADDRESS_TEXT_MAX], before[ADDRESS_TEXT_MAX], by[ADDRESS_TEXT_MAX];

    address_format(&s->found, text);
    pthread_mutex_lock(&received.lock);
    bool change = strcmp(received.master, text) != 0;
    memcpy(before, received.master, sizeof before);
    memcpy(received.master, text, sizeof text);
    received.changes += change && *before;
    pthread_mutex_unlock(&received.lock);
    if (change)
        log_info("redis %s: the master is %s%s%s, according to sentinel %s",
                 s->settings->sentinel.master, text, *before ? " and no more " : "", before,
                 address_format(&s->queried, by));
}

static void report_back(const struct redis_sentinel *s)
{
    char text[ADDRESS_TEXT_MAX];

    pthread_mutex_lock(&received.lock);
    bool back = received.away;
    received.away = false;
    pthread_mutex_unlock(&received.lock);
    if (back)
        log_info("redis %s: sentinel %s names the master again", s->settings->sentinel.master,
                 address_format(&s->queried, text));
}

static void report_away(const struct redis_sentinel *s, const char *why)
{
    char text[ADDRESS_TEXT_MAX];

    pthread_mutex_lock(&received.lock);
    bool was_away = received.away;
    received.away = true;
    pthread_mutex_unlock(&received.lock);
    if (!was_away)
        log_error("redis %s: none of %u sentinels names the master (the last, %s: %s); check "
                  "redis.sentinel.nodes and that they run",
                  s->settings->sentinel.master, s->known_count, address_format(&s->queried, text),
                  why);
}

/* Logs an unusable reply of a sentinel, rate-limited. */
static void log_unusable(const struct redis_sentinel *s, const char *what, const char *detail)
{
    uint64_t now = clock_us();
    char text[ADDRESS_TEXT_MAX];

    pthread_mutex_lock(&received.lock);
    bool quiet = received.complained_us && now - received.complained_us < COMPLAIN_US;
    if (!quiet)
        received.complained_us = now;
    pthread_mutex_unlock(&received.lock);
    if (!quiet)
        log_error("redis %s: sentinel %s %s%s", s->settings->sentinel.master,
                  address_format(&s->queried, text), what, detail);
}

void redis_sentinel_master(char text[static ADDRESS_TEXT_MAX])
{
    pthread_mutex_lock(&received.lock);
    memcpy(text, received.master, ADDRESS_TEXT_MAX);
    pthread_mutex_unlock(&received.lock);
}

unsigned redis_sentinel_changes(void)
{
    pthread_mutex_lock(&received.lock);
    unsigned changes = received.changes;
    pthread_mutex_unlock(&received.lock);
    return changes;
}

/* --- Switching sentinels ---------------------------------------------------------------------- */

static void drop_sentinel(struct redis_sentinel *s)
{
    redis_connection_free(s->connection);
    s->connection = NULL;
    s->step = STEP_IDLE;
}

/* The sentinel failed: tries the next one after a back-off. */
static void try_next_sentinel(struct redis_sentinel *s, const char *why)
{
    drop_sentinel(s);
    if (++s->failed >= s->known_count)
        report_away(s, why);
    event_timer_back_off(s->timer, &s->retry_us, RETRY_MAX_US);
}

static bool send_queries(struct redis_sentinel *s)
{
    const char *name = s->settings->sentinel.master;

    return redis_connection_send(s->connection, 3,
                                 (const char *[]){"SENTINEL", "GET-MASTER-ADDR-BY-NAME", name},
                                 NULL) &&
           redis_connection_send(s->connection, 3, (const char *[]){"SENTINEL", "SENTINELS", name},
                                 NULL) &&
           redis_connection_send(s->connection, 2, (const char *[]){"SUBSCRIBE", "+switch-master"},
                                 NULL);
}

/* --- Replies ---------------------------------------------------------------------------------- */

bool redis_sentinel_address(struct slice host, struct slice port, struct address *address)
{
    char bytes[ADDRESS_TEXT_MAX];
    struct text text = text_over(bytes, sizeof bytes);
    bool v6 = host.n && memchr(host.p, ':', host.n);
    const char *why;
    struct ip ip;

    text_put(&text, v6 ? SLICE("[") : SLICE(""));
    text_put(&text, host);
    text_put(&text, v6 ? SLICE("]:") : SLICE(":"));
    text_put(&text, port);
    return ip_parse(host, &ip) && !text.failed &&
           address_parse(text_slice(&text), false, address, &why) && address_port(address) != 0;
}

/* Host names are rejected: connecting to one would need a blocking lookup. */
static void use_reported_master(struct redis_sentinel *s, struct slice host, struct slice port)
{
    struct address master;
    char name[128];

    if (!redis_sentinel_address(host, port, &master)) {
        snprintf(name, sizeof name,
                 "\"%.*s\"; configure it to announce addresses (announce-hostnames no)",
                 (int)(host.n < 64 ? host.n : 64), host.n ? host.p : "");
        log_unusable(s, "gives an invalid address for the master: ", name);
        try_next_sentinel(s, "no address");
        return;
    }
    s->failed = 0;
    s->retry_us = RETRY_MIN_US;
    s->found = master;
    report_back(s);
    s->found_master(s->context, &master);
}

static void take_master(struct redis_sentinel *s, const struct redis_reply *reply)
{
    struct slice host, port;

    if (redis_reply_read(reply, "ss", &host, &port)) {
        s->step = STEP_OTHERS;
        use_reported_master(s, host, port);
    } else if (reply->type == RESP_NIL) {
        log_unusable(s, "has no master of this name: ", "check redis.sentinel.master");
        try_next_sentinel(s, "it has no such master");
    } else {
        const char *error =
            reply->type == RESP_ERROR ? reply->text.p : "a reply in an unexpected format";
        log_unusable(s, "does not name the master: ", error);
        try_next_sentinel(s, error);
    }
}

/* Adds the address, unless present. If the list is full, drops the oldest entry after the first
 * `kept`. */
static void add_address(struct address *known, unsigned *count, unsigned kept,
                        const struct address *address)
{
    for (unsigned i = 0; i < *count; i++)
        if (address_same(&known[i], address))
            return;
    if (*count == SENTINELS_MAX)
        memmove(&known[kept], &known[kept + 1], (--*count - kept) * sizeof known[0]);
    known[(*count)++] = *address;
}

static void add_sentinel(struct redis_sentinel *s, const struct address *address)
{
    add_address(s->known, &s->known_count, s->settings->sentinel.nodes.count, address);
    pthread_mutex_lock(&received.lock);
    add_address(received.others, &received.other_count, 0, address);
    pthread_mutex_unlock(&received.lock);
}

/* Includes sentinels that other threads have found: those of the policy may be gone. */
static void add_known_sentinels(struct redis_sentinel *s)
{
    const struct redis_nodes *nodes = &s->settings->sentinel.nodes;
    const char *name = s->settings->sentinel.master;

    for (unsigned i = 0; i < nodes->count; i++)
        add_address(s->known, &s->known_count, nodes->count, &nodes->node[i].address);
    pthread_mutex_lock(&received.lock);
    /* a reload has changed the master's name */
    if (strncmp(received.name, name, sizeof received.name - 1) != 0) {
        snprintf(received.name, sizeof received.name, "%s", name);
        received.master[0] = 0;
        received.other_count = 0;
    }
    for (unsigned i = 0; i < received.other_count; i++)
        add_address(s->known, &s->known_count, nodes->count, &received.others[i]);
    pthread_mutex_unlock(&received.lock);
}

/* Each sentinel is a list of names and values, including "ip" and "port". */
static void take_others(struct redis_sentinel *s, const struct redis_reply *reply)
{
    for (size_t i = 0; reply->type == RESP_ARRAY && i < reply->count; i++) {
        const struct redis_reply *one = &reply->elements[i];
        struct slice host = SLICE_NONE, port = SLICE_NONE;
        struct address address;
        for (size_t k = 0; one->type == RESP_ARRAY && k + 1 < one->count; k += 2) {
            if (slice_equal(one->elements[k].text, SLICE("ip")))
                host = one->elements[k + 1].text;
            if (slice_equal(one->elements[k].text, SLICE("port")))
                port = one->elements[k + 1].text;
        }
        if (redis_sentinel_address(host, port, &address))
            add_sentinel(s, &address);
    }
    s->step = STEP_SUBSCRIBE;
}

/* "NAME OLD-IP OLD-PORT NEW-IP NEW-PORT" */
static void take_switch(struct redis_sentinel *s, struct slice message)
{
    struct slice words[5];
    unsigned count = 0;

    for (size_t i = 0, start = 0; i <= message.n && count < COUNT_OF(words); i++)
        if (i == message.n || message.p[i] == ' ') {
            words[count++] = (struct slice){message.p + start, i - start};
            start = i + 1;
        }
    if (count == COUNT_OF(words) && slice_equal(words[0], slice_of(s->settings->sentinel.master)))
        use_reported_master(s, words[3], words[4]);
}

static void take_pushed(struct redis_sentinel *s, const struct redis_reply *reply)
{
    struct slice kind, channel, message;

    if (reply->type == RESP_ERROR) { /* the user may not subscribe: poll instead */
        log_unusable(s, "rejects the subscription to +switch-master: ", reply->text.p);
        drop_sentinel(s);
        event_timer_arm(s->timer, PING_US);
    } else if (redis_reply_read(reply, "sss", &kind, &channel, &message) &&
               slice_equal(kind, SLICE("message")))
        take_switch(s, message);
    else { /* subscribe reply or PONG */
        s->step = STEP_LISTEN;
        event_timer_arm(s->timer, s->seeking ? SEEK_US : PING_US);
    }
}

static void on_received(void *context, struct redis_reply *reply)
{
    struct redis_sentinel *s = context;

    MAGIC_CHECK(s, SENTINEL_MAGIC);
    switch (s->step) {
    case STEP_IDLE: break; /* abandoned while more of its replies were buffered */
    case STEP_MASTER: take_master(s, reply); break;
    case STEP_OTHERS: take_others(s, reply); break;
    case STEP_SUBSCRIBE:
    case STEP_LISTEN:
    case STEP_PINGED: take_pushed(s, reply); break;
    }
}

static void on_lost(void *context, const char *why)
{
    struct redis_sentinel *s = context;

    MAGIC_CHECK(s, SENTINEL_MAGIC);
    try_next_sentinel(s, why);
}

/* --- Queries ---------------------------------------------------------------------------------- */

static void consult(struct redis_sentinel *s)
{
    const struct redis_connection_callbacks callbacks = {on_received, on_lost, s};
    const struct redis_sentinel_settings *settings = &s->settings->sentinel;

    drop_sentinel(s);
    s->next %= s->known_count;
    s->queried = s->known[s->next++];
    s->connection = redis_connection_new(s->base, s->settings, &s->queried, settings->username,
                                         settings->password, &callbacks);
    if (!s->connection || !send_queries(s)) {
        try_next_sentinel(s, "the connection failed");
        return;
    }
    s->step = STEP_MASTER;
    event_timer_arm(s->timer, ANSWER_US);
}

static void on_query_or_ping(evutil_socket_t fd, short what, void *arg)
{
    struct redis_sentinel *s = arg;
    (void)fd, (void)what;

    MAGIC_CHECK(s, SENTINEL_MAGIC);
    if (s->step == STEP_IDLE || (s->step == STEP_LISTEN && s->seeking))
        consult(s);
    else if (s->step == STEP_LISTEN &&
             redis_connection_send(s->connection, 1, (const char *[]){"PING"}, NULL)) {
        s->step = STEP_PINGED;
        event_timer_arm(s->timer, ANSWER_US);
    } else
        try_next_sentinel(s, s->connection ? redis_connection_timeout(s->connection) : "no answer");
}

void redis_sentinel_query(struct redis_sentinel *s)
{
    if (s->seeking)
        return;
    s->seeking = true;
    if (s->step == STEP_LISTEN || s->step == STEP_PINGED)
        event_timer_arm(s->timer, 0), s->step = STEP_LISTEN;
}

void redis_sentinel_content(struct redis_sentinel *s)
{
    s->seeking = false;
}

void redis_sentinel_verified(struct redis_sentinel *s)
{
    s->seeking = false;
    announce(s);
}

/* --- Create and free -------------------------------------------------------------------------- */

struct redis_sentinel *
redis_sentinel_new(struct event_base *base, const struct redis_settings *settings,
                   void (*found)(void *context, const struct address *master), void *context)
{
    struct redis_sentinel *s = calloc(1, sizeof *s);
    uint64_t first = 0;

    if (!s)
        return NULL;
    MAGIC_SET(s, SENTINEL_MAGIC);
    s->base = base;
    s->settings = settings;
    s->found_master = found;
    s->context = context;
    s->retry_us = RETRY_MIN_US;
    s->seeking = true;
    add_known_sentinels(s);
    /* random start: spreads threads and weir processes over the sentinels */
    (void)!getrandom(&first, sizeof first, 0);
    assert(s->known_count > 0); /* the policy names at least one */
    s->next = (unsigned)(first % s->known_count);
    if (!(s->timer = evtimer_new(base, on_query_or_ping, s))) {
        redis_sentinel_free(s);
        return NULL;
    }
    event_timer_arm(s->timer, 0);
    return s;
}

void redis_sentinel_free(struct redis_sentinel *s)
{
    if (!s)
        return;
    drop_sentinel(s);
    event_drop(s->timer);
    MAGIC_WIPE(s);
    free(s);
}
