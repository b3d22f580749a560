/* quotas.c - the process' quotas: the fetcher thread and its inbox. See quotas.h. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/event_timer.h"
#include "base/log.h"
#include "quota/quotas_internal.h"

const char *const quota_query_label[QUERY_RESULTS] = {
    [QUERY_FOUND] = "found", [QUERY_ABSENT] = "absent", [QUERY_FAILED] = "failed"};

/* --- Fetcher thread --------------------------------------------------------------------------- */

struct inbox {
    struct quota_requests requested;
    struct forgets forgets;
    struct policy *policy;
    bool stop;
};

static void empty_inbox(struct quotas *q, struct inbox *in)
{
    STAILQ_INIT(&in->requested);
    STAILQ_INIT(&in->forgets);
    pthread_mutex_lock(&q->lock);
    STAILQ_CONCAT(&in->requested, &q->requested);
    STAILQ_CONCAT(&in->forgets, &q->forgets);
    q->forget_count = 0;
    in->policy = q->policy;
    q->policy = NULL;
    in->stop = q->stop;
    pthread_mutex_unlock(&q->lock);
}

static void on_inbox(evutil_socket_t fd, short what, void *arg)
{
    struct quotas *q = arg;
    struct quota_request *request;
    struct forget *forget;
    struct inbox in;
    uint64_t count;
    (void)what;

    if (read(fd, &count, sizeof count) < 0)
        return;
    empty_inbox(q, &in);
    if (in.policy)
        fetcher_apply(q->fetcher, in.policy);
    while ((forget = STAILQ_FIRST(&in.forgets))) {
        STAILQ_REMOVE_HEAD(&in.forgets, entry);
        fetcher_forget(q->fetcher, (struct slice){forget->id, forget->id_size});
        free(forget);
    }
    while ((request = STAILQ_FIRST(&in.requested))) {
        STAILQ_REMOVE_HEAD(&in.requested, entry);
        fetcher_take(q->fetcher, request);
    }
    if (in.stop)
        event_base_loopexit(fetcher_base(q->fetcher), NULL);
}

static void *quota_thread(void *arg)
{
    struct quotas *q = arg;
    struct event_base *base = fetcher_base(q->fetcher);

    pthread_setname_np(pthread_self(), "weir quotas");
    log_thread_begin();
    while (event_base_loop(base, EVLOOP_ONCE) == 0 && !event_base_got_exit(base))
        fetcher_flush(q->fetcher);
    log_thread_end();
    return NULL;
}

static bool make_fetcher(struct quotas *q)
{
    if (!q->fetcher && !(q->fetcher = fetcher_new(q)))
        return false;
    if (!q->inbox)
        q->inbox = event_new(fetcher_base(q->fetcher), q->fd, EV_READ | EV_PERSIST, on_inbox, q);
    return q->inbox && event_add(q->inbox, NULL) == 0;
}

bool quotas_start(struct quotas *q)
{
    sigset_t all, before;

    if (q->running || !q->table)
        return true;
    if (!make_fetcher(q)) {
        log_error("cannot start the quota fetcher: out of memory");
        return false;
    }
    sigfillset(&all); /* only the main thread handles signals */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(&q->thread, NULL, quota_thread, q);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    q->running = failure == 0;
    if (failure)
        log_error("cannot start the quota fetcher: %s", strerror(failure));
    return q->running;
}

void quotas_stop(struct quotas *q)
{
    if (!q)
        return;
    if (q->running) {
        pthread_mutex_lock(&q->lock);
        q->stop = true;
        pthread_mutex_unlock(&q->lock);
        eventfd_write(q->fd, 1);
        pthread_join(q->thread, NULL);
        q->running = false;
    }
    event_drop(q->inbox);
    q->inbox = NULL;
    fetcher_free(q->fetcher);
    q->fetcher = NULL;
}

/* --- Messages to the fetcher ------------------------------------------------------------------ */

bool quotas_prepare(struct quotas *q, const struct policy *policy)
{
    if (policy->quotas.connection && !q->table)
        q->table = quota_cache_new(FOUND_MAX, ABSENT_MAX);
    return q->table || !policy->quotas.connection;
}

void quotas_apply(struct quotas *q, struct policy *policy)
{
    if (!q->table)
        return;
    pthread_mutex_lock(&q->lock);
    struct policy *unread = q->policy;
    q->policy = policy_hold(policy);
    pthread_mutex_unlock(&q->lock);
    policy_drop(unread);
    eventfd_write(q->fd, 1);
}

void quotas_doubt(struct quotas *q)
{
    if (q->table)
        quota_cache_age(q->table, clock_us());
}

/* Tells the fetcher to drop the result of a lookup in flight. If the inbox is full, all entries
 * are aged. */
static void notify_fetcher(struct quotas *q, struct slice id)
{
    struct forget *forget = malloc(sizeof *forget + id.n);

    pthread_mutex_lock(&q->lock);
    bool full = q->forget_count >= FORGETS_MAX;
    if (forget && !full) {
        forget->id_size = id.n;
        memcpy(forget->id, id.p, id.n);
        STAILQ_INSERT_TAIL(&q->forgets, forget, entry);
        q->forget_count++;
    }
    pthread_mutex_unlock(&q->lock);
    if (full)
        free(forget);
    if (full || !forget)
        quotas_doubt(q);
    eventfd_write(q->fd, 1);
}

void quotas_forget(struct quotas *q, struct slice identity)
{
    if (!q->table || !identity_text_is_id(identity) || identity.n > IDENTITY_TEXT_MAX)
        return;
    quota_cache_remove(q->table, identity);
    notify_fetcher(q, identity);
}

const struct quota_stats *quotas_stats(const struct quotas *q)
{
    return q->table ? &q->stats : NULL;
}

struct quota_cache *quotas_cache(const struct quotas *q)
{
    return q->table;
}

/* --- Create and free -------------------------------------------------------------------------- */

struct quotas *quotas_new(void)
{
    struct quotas *q = calloc(1, sizeof *q);

    if (!q)
        return NULL;
    pthread_mutex_init(&q->lock, NULL);
    STAILQ_INIT(&q->requested);
    STAILQ_INIT(&q->forgets);
    q->address_key = hash_key_random();
    q->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (q->fd < 0) {
        log_error("cannot start the quota fetcher: eventfd: %s", strerror(errno));
        free(q);
        return NULL;
    }
    return q;
}

void quotas_free(struct quotas *q)
{
    struct quota_request *request;
    struct forget *forget;

    if (!q)
        return;
    quotas_stop(q);
    while ((request = STAILQ_FIRST(&q->requested))) {
        STAILQ_REMOVE_HEAD(&q->requested, entry);
        free(request);
    }
    while ((forget = STAILQ_FIRST(&q->forgets))) {
        STAILQ_REMOVE_HEAD(&q->forgets, entry);
        free(forget);
    }
    policy_drop(q->policy);
    quota_cache_free(q->table);
    close(q->fd);
    pthread_mutex_destroy(&q->lock);
    free(q);
}
