#include "policy/remote_keys.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "base/memory.h"

struct remote_keys {
    atomic_uint references;
    int wake_fd; /* -1: nothing fetches */
    pthread_mutex_t lock;
    struct jwt_keys *current; /* under the lock */
    atomic_uint version;      /* 0: no keys yet */
    atomic_bool tried, wanted, fetching;
    _Atomic uint64_t closed_until_us;
    char *url, *ca;
};

struct remote_keys *remote_keys_new(const char *url, const char *ca)
{
    struct remote_keys *remote = calloc(1, sizeof *remote);

    if (remote && (remote->url = strdup(url)) && (!ca || (remote->ca = strdup(ca)))) {
        atomic_init(&remote->references, 1);
        pthread_mutex_init(&remote->lock, NULL);
        remote->wake_fd = -1;
        return remote;
    }
    if (remote)
        free(remote->url);
    free(remote);
    memory_exhausted();
}

struct remote_keys *remote_keys_hold(struct remote_keys *remote)
{
    atomic_fetch_add_explicit(&remote->references, 1, memory_order_relaxed);
    return remote;
}

void remote_keys_drop(struct remote_keys *remote)
{
    if (!remote || atomic_fetch_sub_explicit(&remote->references, 1, memory_order_acq_rel) > 1)
        return;
    jwt_keys_drop(remote->current);
    pthread_mutex_destroy(&remote->lock);
    free(remote->url);
    free(remote->ca);
    free(remote);
}

const char *remote_keys_url(const struct remote_keys *remote)
{
    return remote->url;
}

const char *remote_keys_ca(const struct remote_keys *remote)
{
    return remote->ca;
}

bool remote_keys_same(const struct remote_keys *one, const struct remote_keys *other)
{
    return strcmp(one->url, other->url) == 0 && !one->ca == !other->ca &&
           (!one->ca || strcmp(one->ca, other->ca) == 0);
}

/* --- The thread that fetches ------------------------------------------------------------------ */

void remote_keys_wake_by(struct remote_keys *remote, int fd)
{
    remote->wake_fd = fd;
}

void remote_keys_publish(struct remote_keys *remote, struct jwt_keys *keys)
{
    pthread_mutex_lock(&remote->lock);
    struct jwt_keys *before = remote->current;
    remote->current = keys;
    atomic_fetch_add_explicit(&remote->version, 1, memory_order_release);
    pthread_mutex_unlock(&remote->lock);
    jwt_keys_drop(before);
    atomic_store(&remote->tried, true);
}

void remote_keys_begin(struct remote_keys *remote, uint64_t closed_until_us)
{
    atomic_store(&remote->fetching, true);
    atomic_store(&remote->closed_until_us, closed_until_us);
}

void remote_keys_end_fetch(struct remote_keys *remote)
{
    atomic_store(&remote->fetching, false);
    atomic_store(&remote->wanted, false);
    atomic_store(&remote->tried, true);
}

bool remote_keys_are_wanted(const struct remote_keys *remote)
{
    return atomic_load(&remote->wanted);
}

/* --- Any thread ------------------------------------------------------------------------------- */

bool remote_keys_were_tried(const struct remote_keys *remote)
{
    return atomic_load(&remote->tried);
}

bool remote_keys_may_come(const struct remote_keys *remote)
{
    return atomic_load(&remote->fetching) ||
           (remote->wake_fd >= 0 && atomic_load(&remote->wanted) &&
            clock_us() >= atomic_load(&remote->closed_until_us));
}

void remote_keys_want(struct remote_keys *remote)
{
    if (!atomic_load_explicit(&remote->wanted, memory_order_relaxed) &&
        !atomic_exchange(&remote->wanted, true) && remote->wake_fd >= 0)
        eventfd_write(remote->wake_fd, 1);
}

bool remote_keys_update(struct remote_keys *remote, struct remote_hold *hold)
{
    if (atomic_load_explicit(&remote->version, memory_order_acquire) == hold->version)
        return false;
    pthread_mutex_lock(&remote->lock);
    struct jwt_keys *before = hold->keys;
    hold->keys = jwt_keys_hold(remote->current);
    hold->version = atomic_load(&remote->version);
    pthread_mutex_unlock(&remote->lock);
    jwt_keys_drop(before);
    return true;
}

void remote_keys_let_go(struct remote_hold *hold)
{
    jwt_keys_drop(hold->keys);
    *hold = (struct remote_hold){0};
}
