/* calls.c - script calls on a redis_link, and their replies.
 *
 *   redis_link_call()  -> waiting list, hiredis' output buffer      (no system call)
 *   redis_link_flush() -> one write per loop iteration              (redis_link.c, redis_link_io.c)
 *   on_call()          <- the replies, in list order; NULL for all if the link is closed */
#include "redis/redis_link_internal.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

enum {
    PENDING_MAX = 8192,      /* pending calls; more are refused */
    SPARE_MAX = 128,         /* calls kept for reuse; further ones are freed */
    SPARE_BYTES_MAX = 16384, /* larger command buffers are not reused */
};

static const uint64_t complain_every_us = 10000000;
static const uint64_t refused_every_us =
    100000; /* interval of updates to the outage record, which all links share */

/* A call without a reply, with its command as written: a retry after NOSCRIPT needs the
 * arguments. */
struct sent_call {
    TAILQ_ENTRY(sent_call) entry;
    struct redis_call *call;
    uint64_t written_us;
    char *bytes;
    size_t size, cap;
    size_t tail; /* offset of the arguments after the SHA */
    int argc;    /* number of these arguments */
    bool asking; /* ASKING precedes the command */
};

/* Writes an argument as a bulk string of RESP. Sizes below 10 take a fast path: most arguments are
 * short numbers. */
static inline void write_argument(struct text *t, const char *bytes, size_t size)
{
    if (size < 10) {
        char head[] = {'$', (char)('0' + size), '\r', '\n'};
        text_bytes(t, head, sizeof head);
    } else {
        text_char(t, '$');
        text_u64(t, size);
        text_literal(t, "\r\n");
    }
    text_bytes(t, bytes, size);
    text_literal(t, "\r\n");
}

/* Writes EVALSHA or EVAL and the script (or its SHA). `argc` more arguments follow. */
static inline void write_head(struct text *t, int argc, struct slice command, struct slice script)
{
    text_char(t, '*');
    text_u64(t, (uint64_t)argc + 2);
    text_literal(t, "\r\n");
    write_argument(t, command.p, command.n);
    write_argument(t, script.p, script.n);
}

static bool link_is_up(const struct redis_link *link)
{
    return link->state == LINK_READY || link->state == LINK_SUSPECT;
}

static void sent_free(struct sent_call *sent)
{
    free(sent->bytes);
    free(sent);
}

static void sent_release(struct redis_link *link, struct sent_call *sent)
{
    if (link->spare_count >= SPARE_MAX) {
        sent_free(sent);
        return;
    }
    sent->call = NULL;
    if (sent->cap > SPARE_BYTES_MAX) {
        free(sent->bytes);
        sent->bytes = NULL;
        sent->cap = 0;
    }
    TAILQ_INSERT_HEAD(&link->spare, sent, entry);
    link->spare_count++;
}

static struct sent_call *sent_take(struct redis_link *link, size_t size)
{
    struct sent_call *sent = TAILQ_FIRST(&link->spare);
    if (sent) {
        TAILQ_REMOVE(&link->spare, sent, entry);
        link->spare_count--;
    } else if (!(sent = calloc(1, sizeof *sent)))
        return NULL;
    if (sent->cap < size) {
        char *bytes = realloc(sent->bytes, size);
        if (!bytes) {
            sent_release(link, sent);
            return NULL;
        }
        sent->bytes = bytes;
        sent->cap = size;
    }
    return sent;
}

static void on_script_loaded(redisAsyncContext *ac, void *r, void *arg)
{
    struct redis_link *link = redis_link_answered(ac, r);
    (void)arg;
    link->loading_script = false;
}

static void load_script_again(struct redis_link *link)
{
    const char *argv[] = {"SCRIPT", "LOAD", link->script.p};
    const size_t sizes[] = {6, 4, link->script.n};
    if (!link->loading_script)
        link->loading_script = redis_link_command(link, on_script_loaded, NULL, 3, argv, sizes);
}

static void on_call(redisAsyncContext *ac, void *r, void *arg);

/* The reply is ignored: if ASKING fails, the call after it is redirected. */
static void on_asking(redisAsyncContext *ac, void *r, void *arg)
{
    (void)redis_link_answered(ac, r);
    (void)arg;
}

static bool send_asking(struct redis_link *link)
{
    return redis_link_command(link, on_asking, NULL, 1, (const char *[]){"ASKING"}, (size_t[]){6});
}

/* Passes a command to hiredis and appends the call to the waiting list. hiredis looks for the
 * command's name with strchr(), so the command must be followed by a NUL. */
static bool sent_go(struct redis_link *link, struct sent_call *sent, const char *command,
                    size_t size)
{
    link->holds_writes = true;
    bool taken = (!sent->asking || send_asking(link)) &&
                 redis_link_formatted(link, on_call, sent, command, size);
    link->holds_writes = false;
    if (!taken)
        return false;
    sent->written_us = clock_us();
    TAILQ_INSERT_TAIL(&link->waiting, sent, entry);
    link->pending++;
    redis_link_start_watchdog(link);
    return true;
}

/* Redis has lost the script (restart, SCRIPT FLUSH, failover): sends the same arguments with the
 * whole script. */
static bool retry_as_eval(struct redis_link *link, struct sent_call *sent)
{
    size_t rest = sent->size - sent->tail, cap = 128 + link->script.n + rest;
    char *command;

    if (!link->ac || !link_is_up(link))
        return false;
    load_script_again(link);
    if (sent->call->retried || clock_us() - sent->call->sent_us >= link->settings->timeout_us ||
        !(command = malloc(cap)))
        return false;
    sent->call->retried = true;
    struct text t = text_over(command, cap);
    write_head(&t, sent->argc, SLICE("EVAL"), link->script);
    text_bytes(&t, sent->bytes + sent->tail, rest);
    text_char(&t, 0);
    bool gone = !t.failed && sent_go(link, sent, t.p, t.n - 1);
    free(command);
    return gone;
}

static bool was_redirected(struct redis_link *link, struct sent_call *sent, const char *error)
{
    struct slice arguments = {sent->bytes + sent->tail, sent->size - sent->tail};

    if (!link->watch.redirected ||
        !(redis_error_is(error, "MOVED") || redis_error_is(error, "ASK") ||
          redis_error_is(error, "CLUSTERDOWN")) ||
        !link->watch.redirected(link->watch.context, sent->call, error, sent->argc, arguments))
        return false;
    redis_link_note_good(link);
    sent_release(link, sent);
    return true;
}

/* Logs the end of error replies, once there were none for a while. Called only if this link has
 * received one. */
void redis_calls_accepted(struct redis_link *link)
{
    uint64_t us;
    bool over = true;

    if (link->outage && redis_outage_accepted(link->outage, complain_every_us, &us, &over))
        log_info("redis %s: calls succeed again after %.1f s of errors; limits are counted "
                 "in Redis",
                 link->address_text, (double)us / 1e6);
    link->refusing = !over;
}

/* Reports an error reply to the admin listener. */
static void note_refused(struct redis_link *link)
{
    uint64_t now = clock_us();

    if (!link->outage || (link->refusing && now - link->refused_us <= refused_every_us))
        return;
    link->refusing = true;
    link->refused_us = now;
    redis_outage_refused(link->outage, now);
}

/* Handles an error reply after which the link stays up. Every request may receive one, so the
 * log line is rate-limited. */
static void log_error_reply(struct redis_link *link, enum redis_failure cause, const char *message)
{
    uint64_t now = clock_us();

    if (link->complained_us[cause] && now - link->complained_us[cause] < complain_every_us)
        return;
    link->complained_us[cause] = now;
    bool is_logged =
        link->outage && redis_outage_may_complain(link->outage, cause, complain_every_us);
    log_at(is_logged ? LEVEL_ERROR : LEVEL_DEBUG,
           "redis %s: %s: \"%s\"; on_failure applies to such requests; %s", link->address_text,
           redis_failure_text[cause], message, redis_failure_remedy(cause, link->settings));
}

/* Returns whether a call with this error is sent again, if it was not late. */
static bool would_be_sent_again(const struct redis_link *link, const char *error)
{
    return redis_error_is(error, "NOSCRIPT") ||
           (link->settings->cluster.count &&
            (redis_error_is(error, "MOVED") || redis_error_is(error, "ASK")));
}

static enum redis_failure failure_of_reply(struct redis_link *link, const struct redis_call *call,
                                           const struct redis_reply *reply)
{
    bool late = clock_us() - call->sent_us > link->settings->timeout_us;

    if (reply->type != RESP_ERROR) {
        if (!late)
            redis_link_note_good(link);
        return REDIS_OK_ANSWER;
    }
    if (late && would_be_sent_again(link, reply->text.p))
        return REDIS_FAILURE_TIMEOUT;
    enum redis_failure failure = redis_failure_of(reply->text.p);
    if (failure == REDIS_FAILURE_MOVING && !link->settings->cluster.count)
        failure = REDIS_FAILURE_CLUSTER;
    if (failure == REDIS_FAILURE_MOVING) /* the caller retries */
        return failure;
    note_refused(link);
    if (!redis_failure_may_pass(failure) || !redis_link_note_unfit(link, failure, reply->text.p))
        log_error_reply(link, failure, reply->text.p);
    return failure;
}

static void on_call(redisAsyncContext *ac, void *r, void *arg)
{
    struct redis_link *link = redis_link_answered(ac, r);
    const struct redis_reply *reply = r;
    struct sent_call *sent = arg;

    TAILQ_REMOVE(&link->waiting, sent, entry);
    link->pending--;
    if (reply && reply->type == RESP_ERROR && redis_error_is(reply->text.p, "NOSCRIPT") &&
        retry_as_eval(link, sent))
        return;
    if (reply && reply->type == RESP_ERROR && was_redirected(link, sent, reply->text.p))
        return;
    enum redis_failure failure = reply ? failure_of_reply(link, sent->call, reply) : link->cause;
    struct redis_call *call = sent->call;
    sent_release(link, sent);
    call->done(call, failure == REDIS_OK_ANSWER ? reply : NULL, failure);
}

/* `t` is the whole command, in the buffer of `sent`. */
static bool sent_start(struct redis_link *link, struct sent_call *sent, struct redis_call *call,
                       struct text *t)
{
    sent->size = t->n;
    text_char(t, 0);
    sent->call = call;
    call->link = link;
    call->retried = false;
    if (!t->failed && sent_go(link, sent, t->p, sent->size))
        return true;
    sent_release(link, sent);
    return false;
}

bool redis_link_call(struct redis_link *link, struct redis_call *call, int argc, const char **argv,
                     const size_t *argv_sizes)
{
    size_t size = 128;
    struct sent_call *sent;

    if (link->state != LINK_READY || link->pending >= PENDING_MAX)
        return false;
    for (int i = 0; i < argc; i++)
        size += argv_sizes[i] + 32;
    if (!(sent = sent_take(link, size)))
        return false;
    struct text t = text_over(sent->bytes, sent->cap);
    write_head(&t, argc, SLICE("EVALSHA"), (struct slice){link->sha, SHA_SIZE});
    sent->tail = t.n;
    sent->argc = argc;
    sent->asking = false;
    for (int i = 0; i < argc; i++)
        write_argument(&t, argv[i], argv_sizes[i]);
    if (!sent_start(link, sent, call, &t))
        return false;
    call->sent_us = sent->written_us;
    return true;
}

bool redis_link_pass(struct redis_link *link, struct redis_call *call, int argc,
                     struct slice arguments, bool asking)
{
    struct sent_call *sent;

    if (link->state != LINK_READY || link->pending >= PENDING_MAX ||
        !(sent = sent_take(link, arguments.n + 128)))
        return false;
    struct text t = text_over(sent->bytes, sent->cap);
    write_head(&t, argc, SLICE("EVALSHA"), (struct slice){link->sha, SHA_SIZE});
    sent->tail = t.n;
    sent->argc = argc;
    sent->asking = asking;
    text_put(&t, arguments);
    return sent_start(link, sent, call, &t);
}

uint64_t redis_calls_oldest(const struct redis_link *link)
{
    const struct sent_call *first = TAILQ_FIRST(&link->waiting);
    return first ? first->written_us : 0;
}

void redis_calls_init(struct redis_link *link)
{
    TAILQ_INIT(&link->waiting);
    TAILQ_INIT(&link->spare);
}

void redis_calls_free(struct redis_link *link)
{
    struct sent_call *sent;

    while ((sent = TAILQ_FIRST(&link->spare))) {
        TAILQ_REMOVE(&link->spare, sent, entry);
        sent_free(sent);
    }
}
