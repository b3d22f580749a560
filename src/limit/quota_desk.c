/* quota_desk.c - a worker's side of the quotas: see quotas.h. */
#include <errno.h>
#include <event2/event_struct.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "limit/quotas_internal.h"

struct quota_desk {
    struct quotas *quotas;
    struct quota_post post;
    struct event event;
    struct deadline_queue waiting;
};

static struct slice id_of(const struct identity *identity)
{
    return (struct slice){identity->text + 3, identity->size - 3}; /* behind "id:" */
}

/* --- What is known ------------------------------------------------------------------------------------ */

bool quota_desk_find(struct quota_desk *desk, const struct identity *identity, enum quota_outcome *outcome,
                     struct quota_row *row)
{
    struct quota_entry entry;
    uint64_t now = clock_turn_us();

    if (!quota_table_find(desk->quotas->table, id_of(identity), now, &entry) || entry.fresh_us <= now)
        return false;
    *outcome = entry.outcome;
    *row = entry.row;
    return true;
}

static const struct plan *plan_named(const struct policy *policy, const char *name)
{
    for (unsigned i = 0; name[0] && i < policy->plan_count; i++)
        if (strcmp(policy->plans[i].name, name) == 0)
            return &policy->plans[i];
    return NULL;
}

struct client_terms quota_terms(const struct policy *policy, const struct quota_row *row)
{
    const struct plan *plan = plan_named(policy, row->plan);
    return (struct client_terms){.quota = row->quota == 0    ? QUOTA_PROHIBITED
                                          : row->quota == -1 ? QUOTA_UNLIMITED
                                                             : QUOTA_AS_WRITTEN,
                                 .plan = plan,
                                 .numbers = plan ? plan->numbers : NULL,
                                 .each = row->quota > 0 ? row->quota : 0};
}

/* --- Asking ------------------------------------------------------------------------------------------- */

/* Cuts the ticket and whoever waits for it apart; both ends. */
static void cut(struct quota_wait *wait)
{
    deadline_cancel(&wait->deadline);
    if (wait->ticket)
        wait->ticket->wait = NULL;
    wait->ticket = NULL;
}

/* The clerk is late; what is known of the id, even past its time, is better than nothing. */
static void on_deadline(struct deadline *deadline)
{
    struct quota_wait *wait = CONTAINER_OF(deadline, struct quota_wait, deadline);
    struct quota_desk *desk = CONTAINER_OF(wait->ticket->post, struct quota_desk, post);
    struct slice id = {wait->ticket->id, wait->ticket->id_size};
    struct quota_entry entry;

    wait->outcome = QUOTA_UNKNOWN;
    if (quota_table_find(desk->quotas->table, id, clock_us(), &entry)) {
        wait->outcome = entry.outcome;
        wait->row = entry.row;
    }
    cut(wait);
    wait->settled(wait);
}

static void wake(int fd)
{
    uint64_t one = 1;
    while (write(fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

/* The clients of one address, as limits count them. */
static uint64_t address_of(const struct quotas *quotas, const struct policy *policy,
                           const struct identity *identity)
{
    struct ip ip = identity->has_ip ? identity->ip : (struct ip){{0}};

    if (!ip_is_v4(&ip))
        ip = ip_masked(&ip, policy->identity.ipv6_prefix);
    return hash_slice(&quotas->address_key, (struct slice){(const char *)ip.bytes, sizeof ip.bytes});
}

bool quota_desk_ask(struct quota_desk *desk, const struct policy *policy, const struct identity *identity,
                    struct quota_wait *wait)
{
    struct quotas *q = desk->quotas;
    struct slice id = id_of(identity);
    struct quota_ticket *ticket = NULL;

    if (atomic_fetch_add_explicit(&q->tickets, 1, memory_order_relaxed) >= TICKETS_MAX ||
        !(ticket = malloc(sizeof *ticket + id.n))) {
        atomic_fetch_sub_explicit(&q->tickets, 1, memory_order_relaxed);
        return false;
    }
    *ticket = (struct quota_ticket){.post = &desk->post, .wait = wait, .id_size = id.n};
    ticket->address = address_of(q, policy, identity);
    memcpy(ticket->id, id.p, id.n);
    wait->ticket = ticket;
    wait->row = (struct quota_row){.present = false};
    deadline_arm(&desk->waiting, &wait->deadline, clock_us(), policy->quotas.timeout_us);
    pthread_mutex_lock(&q->lock);
    bool first = STAILQ_EMPTY(&q->asked);
    STAILQ_INSERT_TAIL(&q->asked, ticket, entry);
    pthread_mutex_unlock(&q->lock);
    if (first)
        wake(q->fd);
    return true;
}

void quota_desk_abandon(struct quota_wait *wait)
{
    if (wait->ticket)
        cut(wait);
}

/* --- The post ----------------------------------------------------------------------------------------- */

void quota_post_back(struct quotas *q, struct quota_ticket *ticket, enum quota_outcome outcome,
                     const struct quota_row *row)
{
    struct quota_post *post = ticket->post;

    (void)q;
    ticket->outcome = outcome;
    ticket->row = row ? *row : (struct quota_row){.present = false};
    pthread_mutex_lock(&post->lock);
    bool first = STAILQ_EMPTY(&post->back);
    STAILQ_INSERT_TAIL(&post->back, ticket, entry);
    pthread_mutex_unlock(&post->lock);
    if (first)
        wake(post->fd);
}

static void take_back(struct quota_desk *desk, struct quota_ticket *ticket)
{
    struct quota_wait *wait = ticket->wait;

    if (wait) {
        wait->outcome = ticket->outcome;
        wait->row = ticket->row;
        cut(wait);
    }
    free(ticket);
    atomic_fetch_sub_explicit(&desk->quotas->tickets, 1, memory_order_relaxed);
    if (wait)
        wait->settled(wait);
}

static void on_post(evutil_socket_t fd, short what, void *arg)
{
    struct quota_desk *desk = arg;
    struct quota_tickets back = STAILQ_HEAD_INITIALIZER(back);
    struct quota_ticket *ticket;
    uint64_t count;
    (void)what;

    if (read(fd, &count, sizeof count) < 0)
        return;
    pthread_mutex_lock(&desk->post.lock);
    STAILQ_CONCAT(&back, &desk->post.back);
    pthread_mutex_unlock(&desk->post.lock);
    while ((ticket = STAILQ_FIRST(&back))) {
        STAILQ_REMOVE_HEAD(&back, entry);
        take_back(desk, ticket);
    }
}

/* --- Birth and end ------------------------------------------------------------------------------------ */

struct quota_desk *quota_desk_new(struct quotas *quotas, struct event_base *base, struct deadlines *deadlines)
{
    struct quota_desk *desk = calloc(1, sizeof *desk);

    if (!desk)
        return NULL;
    desk->quotas = quotas;
    pthread_mutex_init(&desk->post.lock, NULL);
    STAILQ_INIT(&desk->post.back);
    deadline_queue_init(deadlines, &desk->waiting, on_deadline);
    desk->post.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (desk->post.fd < 0 ||
        event_assign(&desk->event, base, desk->post.fd, EV_READ | EV_PERSIST, on_post, desk) != 0 ||
        event_add(&desk->event, NULL) != 0) {
        quota_desk_free(desk);
        return NULL;
    }
    return desk;
}

void quota_desk_free(struct quota_desk *desk)
{
    struct quota_ticket *ticket;

    if (!desk)
        return;
    if (desk->post.fd >= 0) {
        event_del(&desk->event);
        close(desk->post.fd);
    }
    while ((ticket = STAILQ_FIRST(&desk->post.back))) {
        STAILQ_REMOVE_HEAD(&desk->post.back, entry);
        free(ticket);
    }
    pthread_mutex_destroy(&desk->post.lock);
    free(desk);
}
