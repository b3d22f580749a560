/* quota_client.c - a worker's side of the quotas: see quotas.h. */
#include <event2/event_struct.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "quota/quotas_internal.h"

struct quota_client {
    struct quotas *quotas;
    struct quota_post post;
    struct event event;
    struct deadline_queue waiting;
};

/* --- Cache ------------------------------------------------------------------------------------ */

bool quota_client_find(struct quota_client *quota_client, const struct identity *identity,
                       enum quota_outcome *outcome, struct quota_row *row)
{
    struct quota_entry entry;
    uint64_t now = clock_cached_us();

    if (!quota_cache_find(quota_client->quotas->table, identity_text(identity), now, &entry))
        return false;
    *outcome = entry.outcome;
    *row = entry.row;
    return entry.fresh_us > now;
}

static const struct plan *plan_named(const struct policy *policy, const char *name)
{
    for (unsigned i = 0; name[0] && i < policy->plan_count; i++)
        if (strcmp(policy->plans[i].name, name) == 0)
            return &policy->plans[i];
    return NULL;
}

struct client_limits quota_client_limits(const struct policy *policy, const struct quota_row *row)
{
    const struct plan *plan = plan_named(policy, row->plan);
    return (struct client_limits){.quota = row->quota == 0    ? QUOTA_PROHIBITED
                                           : row->quota == -1 ? QUOTA_UNLIMITED
                                                              : QUOTA_AS_WRITTEN,
                                  .plan = plan,
                                  .numbers = plan ? plan->numbers : NULL,
                                  .each = row->quota > 0 ? row->quota : 0};
}

/* --- Requests --------------------------------------------------------------------------------- */

/* Detaches the quota request from its wait, and cancels the deadline. */
static void detach(struct quota_wait *wait)
{
    deadline_cancel(&wait->deadline);
    if (wait->request)
        wait->request->wait = NULL;
    wait->request = NULL;
}

/* The quota fetcher is late: uses the cached entry, even if it is expired. */
static void wait_timed_out(struct deadline *deadline)
{
    struct quota_wait *wait = CONTAINER_OF(deadline, struct quota_wait, deadline);
    struct quota_client *quota_client =
        CONTAINER_OF(wait->request->post, struct quota_client, post);
    struct slice id = {wait->request->id, wait->request->id_size};
    struct quota_entry entry;

    wait->outcome = QUOTA_UNKNOWN;
    if (quota_cache_find(quota_client->quotas->table, id, clock_us(), &entry)) {
        wait->outcome = entry.outcome;
        wait->row = entry.row;
    }
    detach(wait);
    wait->completed(wait);
}

/* Returns a hash of the client's address, grouped as for limits. */
static uint64_t address_of(const struct quotas *quotas, const struct policy *policy,
                           const struct identity *identity)
{
    struct ip ip = identity->has_ip ? identity->ip : (struct ip){{0}};

    ip = identity_group(&policy->identity, &ip).ip;
    return hash_slice(&quotas->address_key,
                      (struct slice){(const char *)ip.bytes, sizeof ip.bytes});
}

bool quota_client_request(struct quota_client *quota_client, const struct policy *policy,
                          const struct identity *identity, struct quota_wait *wait)
{
    struct quotas *q = quota_client->quotas;
    struct slice id = identity_text(identity);
    struct quota_request *request = NULL;

    if (atomic_fetch_add_explicit(&q->requests, 1, memory_order_relaxed) >= QUOTA_REQUESTS_MAX ||
        !(request = malloc(sizeof *request + id.n))) {
        atomic_fetch_sub_explicit(&q->requests, 1, memory_order_relaxed);
        return false;
    }
    *request = (struct quota_request){.post = &quota_client->post, .wait = wait, .id_size = id.n};
    request->address = address_of(q, policy, identity);
    memcpy(request->id, id.p, id.n);
    wait->request = request;
    wait->row = (struct quota_row){.present = false};
    deadline_arm(&quota_client->waiting, &wait->deadline, clock_us(), policy->quotas.timeout_us);
    pthread_mutex_lock(&q->lock);
    bool first = STAILQ_EMPTY(&q->requested);
    STAILQ_INSERT_TAIL(&q->requested, request, entry);
    pthread_mutex_unlock(&q->lock);
    if (first)
        eventfd_write(q->fd, 1);
    return true;
}

void quota_client_abandon(struct quota_wait *wait)
{
    if (wait->request)
        detach(wait);
}

/* --- Completed requests ----------------------------------------------------------------------- */

void quota_post_back(struct quota_request *request, enum quota_outcome outcome,
                     const struct quota_row *row)
{
    struct quota_post *post = request->post;

    request->outcome = outcome;
    request->row = row ? *row : (struct quota_row){.present = false};
    pthread_mutex_lock(&post->lock);
    bool first = STAILQ_EMPTY(&post->back);
    STAILQ_INSERT_TAIL(&post->back, request, entry);
    pthread_mutex_unlock(&post->lock);
    if (first)
        eventfd_write(post->fd, 1);
}

static void take_outcome(struct quota_client *quota_client, struct quota_request *request)
{
    struct quota_wait *wait = request->wait;

    if (wait) {
        wait->outcome = request->outcome;
        wait->row = request->row;
        detach(wait);
    }
    free(request);
    atomic_fetch_sub_explicit(&quota_client->quotas->requests, 1, memory_order_relaxed);
    if (wait)
        wait->completed(wait);
}

static void on_post(evutil_socket_t fd, short what, void *arg)
{
    struct quota_client *quota_client = arg;
    struct quota_requests back = STAILQ_HEAD_INITIALIZER(back);
    struct quota_request *request;
    uint64_t count;
    (void)what;

    if (read(fd, &count, sizeof count) < 0)
        return;
    pthread_mutex_lock(&quota_client->post.lock);
    STAILQ_CONCAT(&back, &quota_client->post.back);
    pthread_mutex_unlock(&quota_client->post.lock);
    while ((request = STAILQ_FIRST(&back))) {
        STAILQ_REMOVE_HEAD(&back, entry);
        take_outcome(quota_client, request);
    }
}

/* --- Create and free -------------------------------------------------------------------------- */

struct quota_client *quota_client_new(struct quotas *quotas, struct event_base *base,
                                      struct deadlines *deadlines)
{
    struct quota_client *quota_client = calloc(1, sizeof *quota_client);

    if (!quota_client)
        return NULL;
    quota_client->quotas = quotas;
    pthread_mutex_init(&quota_client->post.lock, NULL);
    STAILQ_INIT(&quota_client->post.back);
    deadline_queue_init(deadlines, &quota_client->waiting, wait_timed_out);
    quota_client->post.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (quota_client->post.fd < 0 ||
        event_assign(&quota_client->event, base, quota_client->post.fd, EV_READ | EV_PERSIST,
                     on_post, quota_client) != 0 ||
        event_add(&quota_client->event, NULL) != 0) {
        quota_client_free(quota_client);
        return NULL;
    }
    return quota_client;
}

void quota_client_free(struct quota_client *quota_client)
{
    struct quota_request *request;

    if (!quota_client)
        return;
    if (quota_client->post.fd >= 0) {
        event_del(&quota_client->event);
        close(quota_client->post.fd);
    }
    while ((request = STAILQ_FIRST(&quota_client->post.back))) {
        STAILQ_REMOVE_HEAD(&quota_client->post.back, entry);
        free(request);
    }
    pthread_mutex_destroy(&quota_client->post.lock);
    free(quota_client);
}
