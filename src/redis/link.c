/* link.c - connection life cycle and circuit breaker; see link.h for the states. Calls and
 * replies are in calls.c.
 *
 * A connection goes down in one of two ways, and both pass link_lost(). Either hiredis finds the
 * connection dead: it runs every callback with a NULL reply and frees its context itself. Or
 * weir gives the connection up: redis_link_close() frees the context. From then on link->ac is
 * NULL, so no command can be sent on a dying context, and a reconnect timer is armed. */
#include "redis/link_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/event_timer.h"
#include "base/log.h"
#include "base/magic.h"
#include "base/memory.h"
#include "redis/socket.h"

enum {
    LINK_MAGIC = 0x4c494e4b,
    ANSWER_BYTES_MAX = 1 << 20,
    TIMEOUTS_TO_SUSPECT = 3, /* consecutive */
    /* consecutive LOADING, READONLY, ...: reconnecting may reach a better server */
    UNFIT_TO_CLOSE = 3,
};

static const uint64_t connect_us = 2000000; /* until READY */
static const uint64_t retry_min_us = 50000, retry_max_us = 2000000;
static const uint64_t timeout_min_us = 1000000;
/* READY for this long: a later failure is another outage */
static const uint64_t settle_us = 1000000;

static void link_connect(struct redis_link *link);
static void link_ping(struct redis_link *link);

static struct redis_link *link_of(void *pointer)
{
    struct redis_link *link = pointer;
    MAGIC_CHECK(link, LINK_MAGIC);
    return link;
}

/* --- Log lines -------------------------------------------------------------------------------- */

/* redis.on_failure as written in the policy; limits may override it */
static const char *const on_failure_label[] = {
    [ON_FAILURE_LOCAL] = "local", [ON_FAILURE_ALLOW] = "allow", [ON_FAILURE_DENY] = "deny"};

static void report_down(struct redis_link *link, enum redis_failure cause, const char *detail)
{
    uint64_t us = 0;
    enum outage_news news =
        link->outage ? redis_outage_down(link->outage, &link->in_outage, cause, &us) : OUTAGE_KNOWN;
    char lasts[64] = "";

    if (news == OUTAGE_CHANGES || news == OUTAGE_LASTS)
        snprintf(lasts, sizeof lasts, "still away after %.1f s: ", (double)us / 1e6);
    log_at(news == OUTAGE_BEGINS  ? LEVEL_ERROR
           : news == OUTAGE_KNOWN ? LEVEL_DEBUG
                                  : LEVEL_WARN,
           "redis %s: %s%s%s%s%s; limits follow on_failure (%s) until it answers; %s", link->address_text,
           lasts, redis_failure_text[cause], detail && *detail ? " (" : "", detail && *detail ? detail : "",
           detail && *detail ? ")" : "", on_failure_label[link->settings->on_failure],
           redis_failure_remedy(cause, link->settings));
}

static void report_again(const struct redis_link *link, uint64_t us)
{
    log_info("redis %s: answers again after %.1f s; limits are counted in Redis", link->address_text,
             (double)us / 1e6);
}

/* The link has recovered. */
static void settle(struct redis_link *link)
{
    uint64_t us;

    event_del(link->settle_timer);
    link->relapsed = false;
    link->down_since_us = 0;
    if (link->outage && redis_outage_up(link->outage, &link->in_outage, link->ready_us, &us))
        report_again(link, us);
}

/* A link that is down is freed (for example, after a reload with a corrected password). This may
 * end the outage if all other links are up. */
static void leave_outage(struct redis_link *link)
{
    uint64_t us;

    if (link->outage && redis_outage_leave(link->outage, link->in_outage, &us))
        report_again(link, us);
}

/* The link has been READY for settle_us. If calls failed or got no reply since, wait longer. */
static void on_settle(evutil_socket_t fd, short what, void *arg)
{
    struct redis_link *link = link_of(arg);
    bool doubtful = link->timeouts || link->unfit || (link->pending && !link->answered);
    (void)fd, (void)what;

    if (doubtful)
        event_timer_arm(link->settle_timer, settle_us);
    else
        settle(link);
}

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
    event_del(link->settle_timer);
    event_del(link->watchdog);
    if (link->freeing)
        return;
    if (!link->moving)
        report_down(link, cause, detail);
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

/* hiredis found the connection dead and will run all callbacks with NULL. */
static void lost_by_hiredis(struct redis_link *link, const redisAsyncContext *ac)
{
    enum redis_failure cause = REDIS_FAILURE_CLOSED;
    const char *detail = ac->errstr;
    char last_words[128];

    if (link->state == LINK_CONNECTING && redis_socket_last_words(ac->c.fd, last_words, sizeof last_words))
        cause = redis_failure_of(last_words), detail = last_words;
    else if (link->guard.extra_answer)
        cause = REDIS_FAILURE_REPLY, detail = "an answer that nobody asked for";
    else if (ac->err == REDIS_ERR_PROTOCOL || ac->err == REDIS_ERR_OOM)
        cause = REDIS_FAILURE_REPLY;
    else if (!(ac->c.flags & REDIS_CONNECTED))
        cause = REDIS_FAILURE_CONNECT;
    link_lost(link, cause, detail);
}

struct redis_link *redis_link_answered(redisAsyncContext *ac, const redisReply *reply)
{
    struct redis_link *link = link_of(ac->data);
    link->unanswered--;
    if (!reply && link->ac == ac)
        lost_by_hiredis(link, ac);
    return link;
}

void redis_link_ready(struct redis_link *link)
{
    link->state = LINK_READY;
    link->timeouts = 0;
    link->ping_us = 0;
    event_del(link->connect_timer);
    link->answered = false;
    link->ready_us = clock_us();
    if (link->down_since_us)
        redis_slow_start_begin(&link->slow_start);
    event_timer_arm(link->settle_timer, settle_us);
    log_debug("redis %s: connected", link->address_text);
    if (link->watch.ready)
        link->watch.ready(link->watch.context);
}

/* If PINGs are answered in time but calls are not, the delays between attempts back off as for
 * reconnects. */
static void link_suspect(struct redis_link *link)
{
    link->state = LINK_SUSPECT;
    link->relapsed |= link->down_since_us != 0;
    event_del(link->settle_timer);
    link->cause = REDIS_FAILURE_TIMEOUT;
    report_down(link, REDIS_FAILURE_TIMEOUT, "several in a row");
    tell_not_ready(link, REDIS_FAILURE_TIMEOUT);
    if (link->relapsed)
        event_timer_back_off(link->retry_timer, &link->retry_us, retry_max_us);
    else
        link_ping(link);
}

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
    struct redis_link *link = link_of(arg);
    (void)fd, (void)what;
    if (link->state == LINK_SUSPECT)
        link_ping(link);
    else
        link_connect(link);
}

static void on_connect_timeout(evutil_socket_t fd, short what, void *arg)
{
    struct redis_link *link = link_of(arg);
    (void)fd, (void)what;
    redis_link_close(link, REDIS_FAILURE_CONNECT, "no answer to connect and log in");
}

/* --- Watchdog: closes the connection if a command has waited too long ------------------------- */

static uint64_t patience(const struct redis_link *link)
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
        event_timer_arm(link->watchdog, patience(link));
}

static void on_watchdog(evutil_socket_t fd, short what, void *arg)
{
    struct redis_link *link = link_of(arg);
    uint64_t oldest = oldest_unanswered(link), age = clock_us() - oldest;
    (void)fd, (void)what;

    if (!link->ac || oldest == 0)
        return;
    if (age >= patience(link))
        redis_link_close(link, REDIS_FAILURE_TIMEOUT, "a call has waited for too long");
    else
        event_timer_arm(link->watchdog, patience(link) - age);
}

/* --- hiredis' event hooks: reading is always on; writing waits for redis_link_flush() --------- */

static void hook_add_read(void *data)
{
    struct redis_link *link = link_of(data);
    if (link->read_event && !event_pending(link->read_event, EV_READ, NULL))
        event_add(link->read_event, NULL);
}

static void hook_nothing(void *data)
{
    (void)data;
}

static void hook_add_write(void *data)
{
    link_of(data)->wants_write = true;
}

static void hook_del_write(void *data)
{
    link_of(data)->wants_write = false;
}

static void hook_cleanup(void *data)
{
    struct redis_link *link = link_of(data);
    if (link->read_event)
        event_free(link->read_event);
    if (link->write_event)
        event_free(link->write_event);
    link->read_event = link->write_event = NULL;
}

static void read_in(struct redis_link *link)
{
    redisAsyncHandleRead(link->ac);
    if (link->ac && link->ac->c.reader->len - link->ac->c.reader->pos > ANSWER_BYTES_MAX)
        redis_link_close(link, REDIS_FAILURE_REPLY, "an answer of more than a megabyte");
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct redis_link *link = link_of(arg);
    (void)fd, (void)what;
    if (link->ac)
        read_in(link);
}

void redis_link_read(struct redis_link *link)
{
    if (link->pending && link->state == LINK_READY)
        read_in(link);
}

/* Writes hiredis' output buffer; the rest is written when the socket is writable. */
static void write_out(struct redis_link *link)
{
    link->wants_write = false;
    redisAsyncHandleWrite(link->ac);
    if (link->ac && (link->wants_write || !(link->ac->c.flags & REDIS_CONNECTED)))
        event_add(link->write_event, NULL);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    struct redis_link *link = link_of(arg);
    (void)fd, (void)what;
    if (link->ac)
        write_out(link);
}

void redis_link_flush(struct redis_link *link)
{
    /* While connecting, the write event (which reports the connect's result) writes. */
    if (link->ac && link->wants_write && (link->ac->c.flags & REDIS_CONNECTED) &&
        !event_pending(link->write_event, EV_WRITE, NULL))
        write_out(link);
}

/* --- Circuit breaker -------------------------------------------------------------------------- */

void redis_link_note_good(struct redis_link *link)
{
    link->timeouts = link->unfit = 0;
    link->answered = true;
    if (unlikely(link->refusing))
        redis_calls_accepted(link);
    if (redis_slow_start_advance(&link->slow_start) && evtimer_pending(link->settle_timer, NULL))
        settle(link);
    if (!redis_slow_start_is_on(&link->slow_start))
        link->retry_us = retry_min_us;
}

/* A demoted master stays a replica. With sentinels, which know the new master, close at once. */
void redis_link_note_unfit(struct redis_link *link, enum redis_failure failure, const char *message)
{
    bool moved = link->settings->sentinel.master &&
                 (failure == REDIS_FAILURE_READONLY || failure == REDIS_FAILURE_MASTERDOWN);

    if (++link->unfit < UNFIT_TO_CLOSE && !moved)
        return;
    redis_link_close(link, failure, message);
}

static void on_pong(redisAsyncContext *ac, void *r, void *arg)
{
    struct redis_link *link = redis_link_answered(ac, r);
    const redisReply *reply = r;
    (void)arg;

    if (!reply || link->state != LINK_SUSPECT)
        return;
    uint64_t took = clock_us() - link->ping_us;
    link->ping_us = 0;
    if (reply->type == REDIS_REPLY_ERROR)
        redis_link_close(link, redis_failure_of(reply->str), reply->str);
    else if (took > link->settings->timeout_us)
        link_ping(link); /* a PONG, but too late */
    else
        redis_link_ready(link);
}

static void link_ping(struct redis_link *link)
{
    if (redisAsyncCommand(link->ac, on_pong, NULL, "PING") != REDIS_OK) {
        redis_link_close(link, REDIS_FAILURE_CLOSED, "PING was refused");
        return;
    }
    link->unanswered++;
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
    struct redis_link *link = link_of(ac->data);
    if (status != REDIS_OK && link->ac == ac)
        link_lost(link, REDIS_FAILURE_CONNECT, ac->c.errstr);
}

static void on_disconnected(const redisAsyncContext *ac, int status)
{
    struct redis_link *link = link_of(ac->data);
    (void)status;
    if (link->ac == ac)
        lost_by_hiredis(link, ac);
}

static bool attach(struct redis_link *link, redisAsyncContext *ac)
{
    int fd = (int)ac->c.fd;

    link->read_event = event_new(link->base, fd, EV_READ | EV_PERSIST, on_readable, link);
    link->write_event = event_new(link->base, fd, EV_WRITE, on_writable, link);
    ac->data = ac->ev.data = link;
    ac->ev.addRead = hook_add_read;
    ac->ev.delRead = hook_nothing; /* always read: replies and closes may arrive at any time */
    ac->ev.addWrite = hook_add_write;
    ac->ev.delWrite = hook_del_write;
    ac->ev.cleanup = hook_cleanup;
    redis_guard(&link->guard, ac->c.reader, &link->unanswered);
    redis_guard_keep(&link->guard);
    redis_socket_options(fd, &link->address);
    redisAsyncSetConnectCallback(ac, on_connected);
    redisAsyncSetDisconnectCallback(ac, on_disconnected);
    return link->read_event && link->write_event && event_add(link->write_event, NULL) == 0;
}

static void link_connect(struct redis_link *link)
{
    if (link->address.length == 0) /* no address yet */
        return;
    redisAsyncContext *ac = redis_socket_dial(&link->address);

    link->state = LINK_CONNECTING;
    link->unanswered = link->unfit = link->timeouts = 0;
    link->loading_script = false;
    if (!ac || ac->err) {
        char why[128];
        snprintf(why, sizeof why, "%s", ac ? ac->errstr : "no memory");
        if (ac)
            redisAsyncFree(ac); /* no callbacks are set yet */
        link_lost(link, REDIS_FAILURE_CONNECT, why);
        return;
    }
    link->ac = ac;
    event_timer_arm(link->connect_timer, connect_us);
    if (!attach(link, ac) || !redis_link_set_up(link))
        redis_link_close(link, REDIS_FAILURE_CONNECT, "no memory");
}

/* --- Create and free -------------------------------------------------------------------------- */

/* Returns a name that stays the same if the master or a host name's address changes; in a
 * cluster, the node's address. */
static const char *outage_name(const struct redis_link *link)
{
    return link->settings->cluster.count || !link->settings->address_text ? link->address_text
                                                                          : link->settings->address_text;
}

struct redis_link *redis_link_new(struct event_base *base, const struct redis_settings *settings,
                                  const struct address *address, struct slice script,
                                  const struct redis_link_watch *watch)
{
    struct redis_link *link = xcalloc(1, sizeof *link);

    MAGIC_SET(link, LINK_MAGIC);
    link->base = base;
    link->settings = settings;
    link->script = script;
    if (watch)
        link->watch = *watch;
    link->retry_us = retry_min_us;
    link->cause = REDIS_FAILURE_DOWN;
    redis_calls_init(link);
    link->retry_timer = evtimer_new(base, on_retry, link);
    link->connect_timer = evtimer_new(base, on_connect_timeout, link);
    link->watchdog = evtimer_new(base, on_watchdog, link);
    link->settle_timer = evtimer_new(base, on_settle, link);
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
    return redis_slow_start_is_on(&link->slow_start) ? REDIS_BREAKER_HALF_OPEN : REDIS_BREAKER_CLOSED;
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
    event_free(link->retry_timer);
    event_free(link->connect_timer);
    event_free(link->watchdog);
    event_free(link->settle_timer);
    leave_outage(link);
    redis_calls_free(link);
    redis_guard_free(&link->guard);
    MAGIC_WIPE(link);
    free(link);
}
