/* redis_link.c - connection life cycle and circuit breaker; see redis_link.h for the states. Calls
 * and replies are in calls.c, the connection's events in redis_link_io.c, log lines in
 * redis_link_outage.c.
 *
 * A connection goes down in one of two ways, and both pass link_lost(). Either hiredis finds the
 * connection dead: it runs every callback with a NULL reply and frees its context itself. Or
 * weir gives the connection up: redis_link_close() frees the context. From then on link->ac is
 * NULL, so no command can be sent on a dying context, and a reconnect timer is armed. */
#include "redis/redis_link_internal.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/event_timer.h"
#include "base/log.h"
#include "redis/socket.h"

enum {
    TIMEOUTS_TO_SUSPECT = 3, /* consecutive */
    /* consecutive LOADING, READONLY, ...: reconnecting may reach a better server */
    UNFIT_TO_CLOSE = 3,
};

static const uint64_t connect_min_us = 2000000; /* until READY, or redis.timeout if longer */
static const uint64_t retry_min_us = 50000, retry_max_us = 2000000;
static const uint64_t timeout_min_us = 1000000;
static const uint64_t idle_us = 1000000; /* between two looks at a READY link without calls */

static void link_connect(struct redis_link *link);
static void link_ping(struct redis_link *link);

/* --- State changes ---------------------------------------------------------------------------- */

static void tell_not_ready(struct redis_link *link, enum redis_failure cause)
{
    if (link->down_since_us == 0)
        link->down_since_us = clock_us();
    if (link->watch.not_ready && !link->freeing)
        link->watch.not_ready(link->watch.context, cause);
}

/* Detaches the context: no more commands are sent on it. hiredis or redis_link_close() frees it. */
static void link_lost(struct redis_link *link, enum redis_failure cause, const char *detail)
{
    bool was_ready = link->state == LINK_READY;

    if (link->state == LINK_DOWN)
        return;
    link->relapsed |= was_ready && link->down_since_us;
    link->state = LINK_DOWN;
    link->cause = cause;
    link->ac = NULL;
    link->ping_us = 0;
    event_del(link->connect_timer);
    event_del(link->recovery_timer);
    event_del(link->watchdog);
    event_del(link->idle_timer);
    if (!link->moving && !link->freeing)
        redis_link_report_down(link, cause, detail);
    tls_pump_free(link->tls); /* `detail` may belong to it */
    link->tls = NULL;
    if (link->freeing)
        return;
    event_timer_back_off(link->retry_timer, &link->retry_us, retry_max_us);
    if (was_ready || link->down_since_us == 0)
        tell_not_ready(link, cause);
}

void redis_link_close(struct redis_link *link, enum redis_failure cause, const char *detail)
{
    redisAsyncContext *ac = link->ac;

    link_lost(link, cause, detail);
    if (ac)
        redisAsyncFree(ac);
}

/* An established connection without TLS was closed before the first reply. */
static bool may_require_tls(const struct redis_link *link, const redisAsyncContext *ac)
{
    return !link->tls && !link->replied && ac->c.flags & REDIS_CONNECTED &&
           !address_is_unix(&link->address);
}

/* hiredis found the connection dead and will run all callbacks with NULL. */
static void lost_by_hiredis(struct redis_link *link, const redisAsyncContext *ac)
{
    const char *detail = ac->errstr;
    enum redis_failure cause = redis_secure_failure(link->tls, false, &detail);
    char last_words[128];

    if (cause != REDIS_OK_ANSWER)
        link_lost(link, cause, detail);
    else if (link->state == LINK_CONNECTING &&
             redis_socket_last_words(ac->c.fd, last_words, sizeof last_words))
        link_lost(link, redis_failure_of(last_words), last_words);
    else if (link->reader.unsolicited)
        link_lost(link, REDIS_FAILURE_REPLY, "an unexpected reply");
    else if (ac->err == REDIS_ERR_PROTOCOL || ac->err == REDIS_ERR_OOM)
        link_lost(link, REDIS_FAILURE_REPLY, detail);
    else if (!(ac->c.flags & REDIS_CONNECTED))
        link_lost(link, REDIS_FAILURE_CONNECT, detail);
    else
        link_lost(link,
                  may_require_tls(link, ac) ? REDIS_FAILURE_TLS_REQUIRED : REDIS_FAILURE_CLOSED,
                  detail);
}

struct redis_link *redis_link_answered(redisAsyncContext *ac, const struct redis_reply *reply)
{
    struct redis_link *link = redis_link_of(ac->data);
    link->unanswered--;
    link->replied |= reply != NULL;
    if (!reply && link->ac == ac)
        lost_by_hiredis(link, ac);
    return link;
}

void redis_link_ready(struct redis_link *link)
{
    link->state = LINK_READY;
    link->timeouts = 0;
    event_del(link->connect_timer);
    link->answered = false;
    link->ready_us = clock_us();
    if (link->down_since_us)
        redis_slow_start_begin(&link->slow_start);
    redis_link_watch_recovery(link);
    event_timer_arm(link->idle_timer, idle_us);
    log_debug("redis %s: connected", link->address_text);
    if (link->watch.ready)
        link->watch.ready(link->watch.context);
}

/* A worker without traffic notices a server that is gone: the watchdog waits for the PONG. */
static void on_idle(evutil_socket_t fd, short what, void *arg)
{
    struct redis_link *link = redis_link_of(arg);
    (void)fd, (void)what;

    if (link->state != LINK_READY)
        return;
    event_timer_arm(link->idle_timer, idle_us);
    if (link->unanswered == 0)
        link_ping(link);
}

/* If PINGs are answered in time but calls are not, the delays between attempts back off as for
 * reconnects. */
static void link_suspect(struct redis_link *link)
{
    link->state = LINK_SUSPECT;
    link->relapsed |= link->down_since_us != 0;
    event_del(link->recovery_timer);
    link->cause = REDIS_FAILURE_TIMEOUT;
    redis_link_report_down(link, REDIS_FAILURE_TIMEOUT, "several in a row");
    tell_not_ready(link, REDIS_FAILURE_TIMEOUT);
    if (link->relapsed)
        event_timer_back_off(link->retry_timer, &link->retry_us, retry_max_us);
    else
        link_ping(link);
}

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
    struct redis_link *link = redis_link_of(arg);
    (void)fd, (void)what;
    if (link->state == LINK_DOWN)
        link_connect(link);
    else if (link->state == LINK_SUSPECT)
        link_ping(link);
}

static void on_connect_timeout(evutil_socket_t fd, short what, void *arg)
{
    struct redis_link *link = redis_link_of(arg);
    (void)fd, (void)what;
    const char *detail = "no reply during connection setup and login";
    enum redis_failure cause = redis_secure_failure(link->tls, true, &detail);
    redis_link_close(link, cause == REDIS_OK_ANSWER ? REDIS_FAILURE_CONNECT : cause, detail);
}

/* --- Watchdog: closes the connection if a command has waited too long ------------------------- */

static uint64_t answer_timeout(const struct redis_link *link)
{
    uint64_t four = link->settings->timeout_us * 4;
    return four > timeout_min_us ? four : timeout_min_us;
}

static uint64_t oldest_unanswered(const struct redis_link *link)
{
    uint64_t call_us = redis_calls_oldest(link);
    return call_us ? call_us : link->ping_us;
}

void redis_link_start_watchdog(struct redis_link *link)
{
    if (!evtimer_pending(link->watchdog, NULL))
        event_timer_arm(link->watchdog, answer_timeout(link));
}

static void on_watchdog(evutil_socket_t fd, short what, void *arg)
{
    struct redis_link *link = redis_link_of(arg);
    uint64_t oldest = oldest_unanswered(link), age = clock_us() - oldest;
    (void)fd, (void)what;

    if (!link->ac || oldest == 0)
        return;
    if (age >= answer_timeout(link))
        redis_link_close(link, REDIS_FAILURE_TIMEOUT,
                         redis_calls_oldest(link) ? "a call timed out" : "no reply to PING");
    else
        event_timer_arm(link->watchdog, answer_timeout(link) - age);
}

/* --- Circuit breaker -------------------------------------------------------------------------- */

void redis_link_note_good(struct redis_link *link)
{
    link->timeouts = link->unfit = 0;
    link->answered = true;
    if (link->refusing)
        redis_calls_accepted(link);
    if (redis_slow_start_advance(&link->slow_start) && evtimer_pending(link->recovery_timer, NULL))
        redis_link_recovered(link);
    if (!redis_slow_start_is_on(&link->slow_start))
        link->retry_us = retry_min_us;
}

/* A demoted master stays a replica: close at once. In a cluster, other nodes know the new one. */
bool redis_link_note_unfit(struct redis_link *link, enum redis_failure failure, const char *message)
{
    bool replica = failure == REDIS_FAILURE_READONLY || failure == REDIS_FAILURE_MASTERDOWN;

    if (++link->unfit < UNFIT_TO_CLOSE && (!replica || link->settings->cluster.count))
        return false;
    redis_link_close(link, failure, message);
    return true;
}

static void on_pong(redisAsyncContext *ac, void *r, void *arg)
{
    struct redis_link *link = redis_link_answered(ac, r);
    const struct redis_reply *reply = r;
    (void)arg;

    uint64_t took = clock_us() - link->ping_us;
    link->ping_us = 0;
    /* one from before a relapse is too early: the retry timer sends the next PING */
    if (!reply || link->state != LINK_SUSPECT || evtimer_pending(link->retry_timer, NULL))
        return;
    if (reply->type == RESP_ERROR)
        redis_link_close(link, redis_failure_of(reply->text.p), reply->text.p);
    else if (took > link->settings->timeout_us)
        link_ping(link); /* a PONG, but too late */
    else
        redis_link_ready(link);
}

/* Sends a PING, unless one has no reply yet: each PONG is measured against its own PING. */
static void link_ping(struct redis_link *link)
{
    if (link->ping_us)
        return;
    if (!redis_link_command(link, on_pong, NULL, 1, (const char *[]){"PING"}, (size_t[]){4})) {
        redis_link_close(link, REDIS_FAILURE_CLOSED, "PING was refused");
        return;
    }
    link->ping_us = clock_us();
    redis_link_start_watchdog(link);
}

void redis_link_note_timeout(struct redis_link *link)
{
    unsigned enough = redis_slow_start_is_on(&link->slow_start) ? 1 : TIMEOUTS_TO_SUSPECT;

    if (link->state == LINK_READY && ++link->timeouts >= enough)
        link_suspect(link);
}

/* --- Connecting ------------------------------------------------------------------------------- */

static void on_connected(const redisAsyncContext *ac, int status)
{
    struct redis_link *link = redis_link_of(ac->data);
    if (status != REDIS_OK && link->ac == ac)
        link_lost(link, REDIS_FAILURE_CONNECT, ac->c.errstr);
}

static void on_disconnected(const redisAsyncContext *ac, int status)
{
    struct redis_link *link = redis_link_of(ac->data);
    (void)status;
    if (link->ac == ac)
        lost_by_hiredis(link, ac);
}

static void link_connect(struct redis_link *link)
{
    if (link->address.length == 0) /* no address yet */
        return;
    char why[REDIS_LINK_WHY_MAX];

    link->state = LINK_CONNECTING;
    link->unanswered = link->unfit = link->timeouts = 0;
    link->loading_script = link->replied = false;
    if (!redis_link_open(link, why)) {
        if (link->ac)
            redisAsyncFree(link->ac); /* no callbacks are set yet */
        link_lost(link, REDIS_FAILURE_CONNECT, why);
        return;
    }
    redisAsyncSetConnectCallback(link->ac, on_connected);
    redisAsyncSetDisconnectCallback(link->ac, on_disconnected);
    event_timer_arm(link->connect_timer, link->settings->timeout_us > connect_min_us
                                             ? link->settings->timeout_us
                                             : connect_min_us);
    if (!redis_link_attach(link) || !redis_link_set_up(link))
        redis_link_close(link, REDIS_FAILURE_CONNECT, "no memory");
}

void redis_link_flush(struct redis_link *link)
{
    if (link->ac)
        redis_link_write_held(link);
}

/* --- Create and free -------------------------------------------------------------------------- */

/* Returns a name that stays the same if the master or a host name's address changes; in a
 * cluster, the node's address. */
static const char *outage_name(const struct redis_link *link)
{
    return link->settings->cluster.count || !link->settings->address_text
               ? link->address_text
               : link->settings->address_text;
}

static bool make_timers(struct redis_link *link)
{
    link->retry_timer = evtimer_new(link->base, on_retry, link);
    link->connect_timer = evtimer_new(link->base, on_connect_timeout, link);
    link->watchdog = evtimer_new(link->base, on_watchdog, link);
    link->recovery_timer = evtimer_new(link->base, redis_link_on_recovery_timer, link);
    link->idle_timer = evtimer_new(link->base, on_idle, link);
    return link->retry_timer && link->connect_timer && link->watchdog && link->recovery_timer &&
           link->idle_timer;
}

/* Frees a link that is closed. */
static void dispose(struct redis_link *link)
{
    event_drop(link->retry_timer);
    event_drop(link->connect_timer);
    event_drop(link->watchdog);
    event_drop(link->recovery_timer);
    event_drop(link->idle_timer);
    redis_link_leave_outage(link);
    redis_calls_free(link);
    redis_reply_reader_free(&link->reader);
    MAGIC_WIPE(link);
    free(link);
}

struct redis_link *redis_link_new(struct event_base *base, const struct redis_settings *settings,
                                  const struct address *address, struct slice script,
                                  const struct redis_link_watch *watch)
{
    struct redis_link *link = calloc(1, sizeof *link);

    if (!link)
        return NULL;
    MAGIC_SET(link, REDIS_LINK_MAGIC);
    link->base = base;
    link->settings = settings;
    link->script = script;
    if (watch)
        link->watch = *watch;
    link->retry_us = retry_min_us;
    link->cause = REDIS_FAILURE_DOWN;
    redis_calls_init(link);
    if (!make_timers(link)) {
        dispose(link);
        return NULL;
    }
    link->address = *address;
    address_format(&link->address, link->address_text);
    if (!link->watch.quiet)
        link->outage = redis_outage_join(outage_name(link));
    link_connect(link);
    return link;
}

bool redis_link_set_address(struct redis_link *link, const struct address *address)
{
    char text[ADDRESS_TEXT_MAX];

    if (strcmp(address_format(address, text), link->address_text) == 0 && link->address.length)
        return false;
    link->moving = true;
    redis_link_close(link, REDIS_FAILURE_CLOSED, NULL);
    link->moving = false;
    link->cause = REDIS_FAILURE_DOWN;
    link->address = *address;
    memcpy(link->address_text, text, sizeof text);
    link->retry_us = retry_min_us;
    event_timer_arm(link->retry_timer, 0);
    return true;
}

bool redis_link_is_ready(const struct redis_link *link)
{
    return link->state == LINK_READY;
}

const char *redis_link_address(const struct redis_link *link)
{
    return link->address_text;
}

bool redis_link_has_room(const struct redis_link *link)
{
    return link->state != LINK_READY || redis_slow_start_has_room(&link->slow_start, link->pending);
}

enum redis_failure redis_link_cause(const struct redis_link *link)
{
    return link->cause;
}

enum redis_breaker redis_link_breaker(const struct redis_link *link)
{
    if (link->state != LINK_READY)
        return REDIS_BREAKER_OPEN;
    return redis_slow_start_is_on(&link->slow_start) ? REDIS_BREAKER_HALF_OPEN
                                                     : REDIS_BREAKER_CLOSED;
}

unsigned redis_link_pending(const struct redis_link *link)
{
    return link->pending;
}

void redis_link_free(struct redis_link *link)
{
    if (!link)
        return;
    link->freeing = true;
    redis_link_close(link, REDIS_FAILURE_DOWN, NULL);
    dispose(link);
}
