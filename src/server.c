/* server.c - start-up, signals and shutdown of the process. Reload is in server_policy.c.
 *
 * weir loads the policy, checks the scripts and the Redis settings, opens all sockets and creates
 * all workers before it accepts a connection. If any of these fails, it does not start. After
 * that, the main thread owns signals, the admin listener, the subscription to resets and the
 * embedded Redis. The workers own everything else. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "admin/problems.h"
#include "base/clock.h"
#include "base/descriptors.h"
#include "base/event_timer.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "config.h"
#include "http/via.h"
#include "net/ip_counts.h"
#include "net/ip_rates.h"
#include "redis/embedded.h"
#include "server.h"
#include "server_internal.h"

enum { FALLBACK_ENTRIES_MAX = 262144, IP_COUNTS_MAX = 65536, REQUEST_COUNTS_MAX = 8192 };

/* ---- libevent -------------------------------------------------------------------------------- */

/* Redirects libevent's messages to the log. By default, libevent prints them to stderr. */
static void on_libevent_message(int severity, const char *message)
{
    log_at(severity == EVENT_LOG_ERR    ? LEVEL_ERROR
           : severity == EVENT_LOG_WARN ? LEVEL_WARN
                                        : LEVEL_DEBUG,
           "libevent: %s", message);
}

/* ---- workers --------------------------------------------------------------------------------- */

/* Wakes the main thread, which runs on_change(). Runs in a worker's thread, as do the next three
 * functions. */
static void worker_reloaded(void *context)
{
    const struct weir *weir = context;
    eventfd_write(weir->change_fd, 1);
}

static void count_worker(struct weir *weir, _Atomic unsigned *counter)
{
    atomic_fetch_add(counter, 1);
    worker_reloaded(weir);
}

static void worker_serving(void *context)
{
    struct weir *weir = context;
    count_worker(weir, &weir->serving);
}

static void worker_ended(void *context)
{
    struct weir *weir = context;
    count_worker(weir, &weir->ended);
}

/* Tells the workers whether weir should get traffic, for the health of the rate limit service. */
static void publish_readiness(struct weir *weir)
{
    bool unready = problems_unready(&weir->view);

    if (atomic_exchange(&weir->shared.unready, unready) != unready)
        wake_workers(weir);
}

static void on_change(evutil_socket_t fd, short what, void *arg)
{
    struct weir *weir = arg;
    uint64_t count;
    (void)what;

    if (read(fd, &count, sizeof count) < 0)
        return;
    if (!weir->ready && !weir->stopping && atomic_load(&weir->serving) == weir->made) {
        weir->ready = weir->view.ready = true;
        report_listening(weir);
        log_info("ready");
        publish_readiness(weir);
        systemd_ready(weir);
    }
    report_reloaded(weir);
    if (atomic_load(&weir->ended) == weir->started)
        event_base_loopbreak(weir->base);
}

static void fill_shared(struct weir *weir)
{
    const struct size_limits *sizes = &weir->first->size_limits;

    via_set_pseudonym(hash_key_random().k0);
    weir->shared = (struct worker_shared){.workers = weir->first->workers,
                                          .connections_max = weir->connections_max,
                                          .inherited = weir->inherited,
                                          .fallback = fallback_new(FALLBACK_ENTRIES_MAX),
                                          .quotas = weir->quotas,
                                          .names = weir->names,
                                          .serving = worker_serving,
                                          .reloaded = worker_reloaded,
                                          .ended = worker_ended,
                                          .unready = true,
                                          .context = weir};
    if (sizes->connections_per_ip)
        weir->shared.ip_counts =
            ip_counts_new(sizes->connections > IP_COUNTS_MAX ? sizes->connections : IP_COUNTS_MAX,
                          weir->first->identity.ipv4_prefix, weir->first->identity.ipv6_prefix);
    weir->shared.requests_by_ip = ip_counts_new(REQUEST_COUNTS_MAX, 32, 128);
    weir->shared.handshakes = ip_rates_new();
}

static bool make_workers(struct weir *weir)
{
    struct policy *policy = weir->first;

    fill_shared(weir);
    if (!weir->shared.requests_by_ip || !weir->shared.handshakes ||
        !(weir->endpoint_set = make_endpoint_set(weir, policy))) {
        log_error("out of memory for the upstreams");
        return false;
    }
    weir->workers = xcalloc(policy->workers, sizeof *weir->workers);
    for (; weir->made < policy->workers; weir->made++) {
        struct worker *worker =
            worker_new(&weir->shared, weir->endpoint_set, weir->made,
                       weir->listen_fds + (size_t)weir->made * policy->listen_count);
        if (!worker) {
            log_error("cannot create worker %u: %s", weir->made, strerror(errno));
            weir->made++; /* worker_new() has closed its sockets */
            return false;
        }
        weir->workers[weir->made] = worker;
    }
    weir->shared.all = weir->workers;
    return true;
}

/* Starts the threads with all signals blocked, so that only the main thread receives them. */
static bool start_workers(struct weir *weir)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool good = log_start() == 0;
    if (good)
        log_thread_begin();
    else
        log_error("cannot start the log writer: %s", strerror(errno));
    good = good && quotas_start(weir->quotas);
    for (unsigned i = 0; i < weir->made && good; i++) {
        good = worker_start(weir->workers[i]) == 0;
        if (good)
            weir->started++;
        else
            log_error("cannot start worker %u: %s", i, strerror(errno));
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return good;
}

/* ---- signals --------------------------------------------------------------------------------- */

static void stop_weir(struct weir *weir)
{
    unlink_sockets(
        weir); /* before the listeners close: then the path may belong to the next weir */
    for (unsigned i = 0; i < weir->made; i++)
        if (weir->workers[i]) /* NULL: worker_new() failed */
            worker_stop(weir->workers[i]);
}

static void on_drain_over(evutil_socket_t fd, short what, void *arg)
{
    struct weir *weir = arg;
    (void)fd, (void)what;

    log_info("finishing requests in progress, at most %.15g s",
             (double)weir->policy->timeouts.shutdown_us / 1e6);
    event_drop(weir->drain);
    weir->drain = NULL;
    stop_weir(weir);
}

/* For timeouts.drain, load balancers read from /readyz that they must send no more traffic, and
 * each response announces the end of its connection. New connections are still accepted. */
static bool drain_workers(struct weir *weir)
{
    uint64_t us = weir->policy->timeouts.drain_us;
    struct timeval time = timeval_of_us(us);

    if (us == 0 || !weir->ready)
        return false;
    weir->drain = evtimer_new(weir->base, on_drain_over, weir);
    if (!weir->drain || evtimer_add(weir->drain, &time) != 0)
        return false;
    for (unsigned i = 0; i < weir->made; i++)
        worker_drain(weir->workers[i]);
    log_info("SIGTERM: draining for %.15g s: /readyz is 503, connections are still accepted",
             (double)us / 1e6);
    return true;
}

/* SIGINT, or a second signal, ends without draining. */
static void on_stop_signal(evutil_socket_t signal, short what, void *arg)
{
    struct weir *weir = arg;
    (void)what;

    if (weir->stopping) {
        if (weir->drain)
            event_active(weir->drain, EV_TIMEOUT, 1);
        return;
    }
    weir->stopping = true;
    systemd_stopping(weir);
    weir->view.stopping = true;
    publish_readiness(weir);
    if (signal != SIGTERM || !drain_workers(weir))
        on_drain_over(-1, 0, weir);
}

static void on_reopen_signal(evutil_socket_t signal, short what, void *arg)
{
    (void)signal, (void)what, (void)arg;
    log_reopen();
}

static void on_reload_signal(evutil_socket_t signal, short what, void *arg)
{
    (void)signal, (void)what;
    reload(arg);
}

/* Blocks signals that would end weir, or unblocks them: it may read the policy for long. Threads
 * and child processes, which would inherit the mask, start later. */
static void hold_signals(bool hold)
{
    sigset_t held;

    sigemptyset(&held);
    sigaddset(&held, SIGHUP);
    sigaddset(&held, SIGUSR1);
    pthread_sigmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &held, NULL);
}

static void ignore_signal(int number)
{
    (void)number;
}

static bool watch_signals(struct weir *weir)
{
    signal(SIGXFSZ,
           SIG_IGN); /* at the file size limit, writes to the log fail with EFBIG instead */
    /* libevent restores these two dispositions at the end. SIG_IGN would drop held signals. */
    signal(SIGUSR1, ignore_signal);
    signal(SIGHUP, ignore_signal);
    weir->signals[0] = evsignal_new(weir->base, SIGTERM, on_stop_signal, weir);
    weir->signals[1] = evsignal_new(weir->base, SIGINT, on_stop_signal, weir);
    weir->signals[2] = evsignal_new(weir->base, SIGUSR1, on_reopen_signal, weir);
    weir->signals[3] = evsignal_new(weir->base, SIGHUP, on_reload_signal, weir);
    for (unsigned i = 0; i < 4; i++)
        if (!weir->signals[i] || event_add(weir->signals[i], NULL) != 0)
            return false;
    hold_signals(false);
    weir->change_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    weir->change = weir->change_fd < 0 ? NULL
                                       : event_new(weir->base, weir->change_fd,
                                                   EV_READ | EV_PERSIST, on_change, weir);
    return weir->change && event_add(weir->change, NULL) == 0;
}

static void on_watch(evutil_socket_t fd, short what, void *arg)
{
    struct weir *weir = arg;
    (void)fd, (void)what;

    recent_counts_update(weir->recent, &weir->view);
    problems_watch(&weir->view);
    publish_readiness(weir);
    policy_wipe_old_keys(weir->policy);
}

/* What no event reports, every second. */
static bool watch_problems(struct weir *weir)
{
    static const struct timeval every = {1, 0};

    weir->view.recent = weir->recent = recent_counts_new(&weir->view);
    if (!weir->recent)
        return false;
    problems_watch(&weir->view);
    weir->watch = event_new(weir->base, -1, EV_PERSIST, on_watch, weir);
    return weir->watch && event_add(weir->watch, &every) == 0;
}

/* ---- start and shutdown ---------------------------------------------------------------------- */

static bool start_redis(struct weir *weir, FILE *report)
{
    struct policy *policy = weir->first;

    if (policy->redis.embedded) {
        if (!(weir->embedded = embedded_start()))
            return false;
        embedded_watch(weir->embedded, weir->base);
    }
    return adjust_redis(weir, policy, report) &&
           (!policy_needs_redis(policy) ||
            cli_check_scripts(policy, policy->driver, weir->lua_dir, report));
}

static bool make_quotas(struct weir *weir)
{
    if (!(weir->quotas = quotas_new()) || !quotas_prepare(weir->quotas, weir->first))
        return false;
    quotas_apply(weir->quotas, weir->first);
    return true;
}

/* The loop fetches keys while the workers wait for the first ones. */
static bool make_key_fetcher(struct weir *weir)
{
    weir->keys = key_fetcher_new(weir->base, wake_workers, weir);
    if (!weir->keys)
        return false;
    key_fetcher_apply(weir->keys, weir->first);
    return true;
}

/* Starts everything except the log file and the threads. Prints configuration errors to `report`
 * and logs other errors. */
static bool start_all(struct weir *weir, FILE *report)
{
    raise_descriptor_limit(weir);
    if (!(weir->base = event_base_new()) || !watch_signals(weir) ||
        !descriptors_start(weir->base)) {
        log_error("cannot create an event loop: %s", strerror(errno));
        return false;
    }
    return memory_start(weir) && assign_rows(weir, weir->first) && open_listeners(weir) &&
           start_redis(weir, report) && make_quotas(weir) && make_key_fetcher(weir) &&
           make_workers(weir) && start_admin(weir) && watch_problems(weir) && watchdog_start(weir);
}

/* Loads the policy and starts. Log lines go to stderr until everything except the threads has
 * started, then to log.file, which gets the earlier ones too. */
static bool start_weir(struct weir *weir)
{
    struct report_lines report;
    bool json = policy_wants_json_log(weir->file), good;

    log_set_format(json ? LOG_JSON : LOG_TEXT);
    log_keep_early_lines();
    event_set_log_callback(on_libevent_message);
    report_begin(&report);
    if (!(weir->first = read_policy(weir, report.stream))) {
        report_end(&report, json);
        return false;
    }
    weir->policy = policy_hold(weir->first);
    apply_log_settings(weir->first);
    log_info("weir %s: %s, %u worker%s", PACKAGE_VERSION, weir->file, weir->first->workers,
             weir->first->workers == 1 ? "" : "s");
    report_log(&report, false);
    report_begin(&report);
    good = start_all(weir, report.stream) && open_log(weir->first, report.stream);
    if (good)
        report_log(&report, false);
    else
        report_end(&report, json);
    return good && start_workers(weir);
}

static void free_weir(struct weir *weir)
{
    close_unused_listeners(weir);
    admin_free(weir->admin);
    close_admin(weir);
    stop_listening_for_resets(weir);
    quotas_stop(weir->quotas);
    for (unsigned i = 0; i < weir->made; i++)
        worker_free(weir->workers[i]);
    quotas_free(weir->quotas);
    key_fetcher_free(weir->keys);
    drop_endpoint_set(weir->endpoint_set);
    log_stop();
    embedded_stop(weir->embedded);
    for (unsigned i = 0; i < COUNT_OF(weir->signals); i++)
        event_drop(weir->signals[i]);
    event_drop(weir->drain);
    watchdog_stop(weir);
    memory_stop(weir);
    descriptors_stop();
    event_drop(weir->watch);
    recent_counts_free(weir->recent);
    event_drop(weir->change);
    if (weir->change_fd >= 0)
        close(weir->change_fd);
    if (weir->base)
        (void)event_base_loop(weir->base, EVLOOP_NONBLOCK); /* frees cancelled DNS lookups */
    if (weir->base)
        event_base_free(weir->base);
    fallback_free(weir->shared.fallback);
    ip_counts_free(weir->shared.ip_counts);
    ip_counts_free(weir->shared.requests_by_ip);
    ip_rates_free(weir->shared.handshakes);
    policy_drop(weir->policy);
    policy_drop(weir->first);
    for (unsigned i = 0; i < NAMES_COUNT; i++)
        counter_names_clear(&weir->names[i]);
    free(weir->workers);
    free(weir->written);
    free(weir->inherited);
    free(weir->listen_fds);
}

int server_run(const char *policy_file, const char *lua_dir)
{
    static struct weir weir; /* 2 MiB: too much for a small stack */

    weir.file = policy_file;
    weir.lua_dir = lua_dir;
    weir.change_fd = -1;
    weir.started_wall_us = clock_wall_us();
    hold_signals(true);
    bool good = start_weir(&weir);

    if (good)
        listen_for_resets(&weir);
    else
        stop_weir(&weir);
    while (atomic_load(&weir.ended) < weir.started && event_base_loop(weir.base, EVLOOP_ONCE) == 0)
        ;
    for (unsigned i = 0; i < weir.started; i++)
        worker_join(weir.workers[i]);
    free_weir(&weir);
    if (good)
        log_info("stopped");
    libevent_global_shutdown();
    return good ? CLI_GOOD : CLI_FAILED;
}
