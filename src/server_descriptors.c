/* server_descriptors.c - how many clients the limit of file descriptors allows.
 *
 * Each client may need a second descriptor, for its upstream connection. */
#include <limits.h>
#include <sys/resource.h>

#include "admin/connections.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "net/pipe.h"
#include "server_internal.h"

/* Returns `most`, or less if the descriptor limit is low. */
static unsigned share_of(unsigned limit, unsigned most)
{
    return limit / 16 < most ? limit / 16 : most;
}

/* Returns the number of pipes of a worker. */
static unsigned pipes_of(const struct policy *policy, unsigned limit)
{
    return share_of(limit / policy->workers, PIPES_MAX);
}

/* Returns the number of descriptors that weir needs for other things than clients and their
 * servers. During a reload, it has twice as many connections to Redis. */
static unsigned descriptors_of_weir(const struct policy *policy, unsigned limit)
{
    unsigned redis = 1 + policy->redis.cluster.count + (policy->redis.sentinel.master != NULL),
             of_redis = 2 * redis * (policy->redis.tls.on ? 4 : 1),
             of_worker = 10 + of_redis + policy->listen_count + 2 * pipes_of(policy, limit);

    return DESCRIPTORS_RESERVED + 32 + share_of(limit, ADMIN_CONNECTIONS_MAX) +
           policy->workers * of_worker;
}

void raise_descriptor_limit(struct weir *weir)
{
    const struct policy *policy = weir->first;
    struct rlimit limit;
    unsigned wanted = policy->size_limits.connections;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    if (limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
        (void)getrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur > (rlim_t)UINT_MAX)
        return;
    unsigned all = descriptors_of_weir(policy, UINT_MAX),
             of_weir = descriptors_of_weir(policy, (unsigned)limit.rlim_cur),
             most = limit.rlim_cur > of_weir + 2 ? ((unsigned)limit.rlim_cur - of_weir) / 2 : 1;
    weir->connections_max = most;
    pipes_set_max(pipes_of(policy, (unsigned)limit.rlim_cur));
    if (wanted > most)
        log_warn(
            "size_limits.connections is %u, which needs up to %llu descriptors, but only %llu are "
            "allowed: at most %u clients are accepted at a time; raise LimitNOFILE (ulimit -n)",
            wanted, wanted * 2ull + all, (unsigned long long)limit.rlim_cur, most);
}
