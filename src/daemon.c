/* daemon.c - the running process: start-up, signals, reload, the end.
 *
 * Start is all or nothing: policy, scripts, Redis settings, every socket and every worker stand before the
 * first connection is taken. The main thread then owns signals, the admin listener, the subscription to
 * resets and the embedded Redis; the workers own everything else. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "admin/admin.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/tally.h"
#include "cli/cli.h"
#include "config.h"
#include "daemon.h"
#include "limit/compose.h"
#include "limit/denials.h"
#include "limit/grant_calls.h"
#include "limit/grant_reader.h"
#include "limit/grants.h"
#include "limit/inquiry.h"
#include "limit/quotas.h"
#include "limit/resets.h"
#include "net/ip_counts.h"
#include "net/listener.h"
#include "proxy/roster.h"
#include "proxy/worker.h"
#include "store/embedded.h"
#include "store/redis_name.h"
#include "store/redis_subscription.h"

#ifdef HAVE_SYSTEMD
#include <systemd/sd-daemon.h>
#endif

enum { EXIT_GOOD = 0, EXIT_BAD_INPUT = 1, FALLBACK_ENTRIES_MAX = 262144, IP_COUNTS_MAX = 65536 };

/* The running process. */
struct weir {
    const char *file, *lua_dir;
    struct event_base *base;
    struct policy
        *first; /* that weir started with: its workers, sockets and embedded Redis stay until the end */
    struct policy *policy; /* in force */
    struct roster *roster; /* of the policy in force */
    struct embedded *embedded;
    struct hearing *resets,
        *resets_before; /* of clients, by any weir; and grants. Until the first is heard, the one before */
    struct grant_reader *grants;
    struct redis_name *redis_name; /* NULL: redis.address is none */
    struct admin *admin;
    struct admin_view view;
    struct tally_names rules, limits;
    struct worker_shared shared;
    struct quotas *quotas;
    struct worker **workers;
    unsigned made, started; /* of first->workers */
    _Atomic unsigned serving, ended;
    struct listen_settings
        *written;    /* first->listen as the file says it: port 0 is not yet what the kernel chose */
    int *listen_fds; /* [worker][address], until the worker takes them */
    unsigned opened; /* addresses that are open */
    int admin_fd;
    int change_fd; /* eventfd: a worker serves, has taken a policy, or has ended */
    struct event *signals[4], *change;
    bool ready, stopping, unlinked;
    bool reloading; /* workers have yet to take the policy in force */
};

/* ---- systemd ----------------------------------------------------------------------------------------- */

/* One line a state, as sd_notify(3) has it. */
static void tell_systemd(const char *state)
{
#ifdef HAVE_SYSTEMD
    (void)sd_notify(0, state);
#else
    (void)state;
#endif
}

/* ---- sockets ----------------------------------------------------------------------------------------- */

static bool open_listeners(struct weir *weir)
{
    struct policy *policy = weir->first;
    unsigned workers = policy->workers, addresses = policy->listen_count;
    char text[ADDRESS_TEXT_MAX];
    const char *why;

    weir->written = xcalloc(addresses, sizeof *weir->written);
    memcpy(weir->written, policy->listen, addresses * sizeof *weir->written);
    weir->listen_fds = xcalloc((size_t)workers * addresses, sizeof *weir->listen_fds);
    int *fds = xcalloc(workers, sizeof *fds);
    bool good = true;
    for (unsigned a = 0; a < addresses && good; a++) {
        good = listener_open(&policy->listen[a].address, workers, fds, &why);
        for (unsigned w = 0; w < workers && good; w++)
            weir->listen_fds[w * addresses + a] = fds[w];
        if (good)
            weir->opened++;
        else
            log_error("cannot listen on %s: %s: %s", address_format(&policy->listen[a].address, text), why,
                      strerror(errno));
    }
    free(fds);
    if (good && policy->admin.length && !listener_open(&policy->admin, 1, &weir->admin_fd, &why)) {
        log_error("cannot listen on %s (admin): %s: %s", address_format(&policy->admin, text), why,
                  strerror(errno));
        return false;
    }
    return good;
}

/* Two descriptors a connection, and what the kernel allows without being asked. */
static void raise_descriptor_limit(const struct policy *policy)
{
    struct rlimit limit;
    unsigned wanted = policy->size_limits.connections;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    if (limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
        (void)getrlimit(RLIMIT_NOFILE, &limit);
    }
    if (wanted && limit.rlim_cur < (rlim_t)wanted * 2 + 64)
        log_warn("size_limits.connections is %u, which may need %u descriptors, but only %llu are allowed "
                 "(LimitNOFILE, ulimit -n)",
                 wanted, wanted * 2 + 64, (unsigned long long)limit.rlim_cur);
}

static void say_listening(const struct weir *weir)
{
    char text[ADDRESS_TEXT_MAX];

    for (unsigned a = 0; a < weir->first->listen_count; a++)
        log_info("listening on %s", address_format(&weir->first->listen[a].address, text));
    if (weir->first->admin.length)
        log_info("admin on %s", address_format(&weir->first->admin, text));
}

/* ---- workers ----------------------------------------------------------------------------------------- */

/* From a worker's thread, as all that follow: on_change looks. */
static void worker_reloaded(void *context)
{
    const struct weir *weir = context;
    uint64_t one = 1;

    while (write(weir->change_fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

static void note(struct weir *weir, _Atomic unsigned *counter)
{
    atomic_fetch_add(counter, 1);
    worker_reloaded(weir);
}

static void worker_serving(void *context)
{
    struct weir *weir = context;
    note(weir, &weir->serving);
}

static void worker_ended(void *context)
{
    struct weir *weir = context;
    note(weir, &weir->ended);
}

/* A worker goes on with the policy before until its connection to Redis for the new one stands, for a second at most. */
static void say_reloaded(struct weir *weir)
{
    if (!weir->reloading)
        return;
    for (unsigned i = 0; i < weir->made; i++)
        if (!worker_judges_by(weir->workers[i], weir->roster))
            return;
    weir->reloading = false;
    log_info("reload: %s is in force", weir->file);
}

static void on_change(evutil_socket_t fd, short what, void *arg)
{
    struct weir *weir = arg;
    uint64_t count;
    (void)what;

    if (read(fd, &count, sizeof count) < 0)
        return;
    if (!weir->ready && !weir->stopping && atomic_load(&weir->serving) == weir->made) {
        weir->ready = true;
        say_listening(weir);
        log_info("ready");
        tell_systemd("READY=1");
    }
    say_reloaded(weir);
    if (atomic_load(&weir->ended) == weir->started)
        event_base_loopbreak(weir->base);
}

/* Every rule and limit gets the row of counters that belongs to its name, whatever policy it stands in. */
static bool assign_rows(struct weir *weir, struct policy *policy)
{
    for (unsigned i = 0; i < policy->rule_count; i++)
        policy->rules[i].row = tally_names_row(&weir->rules, policy->rules[i].name);
    for (unsigned i = 0; i < policy->limit_count; i++)
        policy->limits[i].row = tally_names_row(&weir->limits, policy->limits[i].name);
    for (unsigned i = 0; i < weir->made; i++)
        if (!worker_make_rows(weir->workers[i], weir->rules.count, weir->limits.count))
            return false;
    return true;
}

static void share(struct weir *weir)
{
    const struct size_limits *sizes = &weir->first->size_limits;

    weir->shared = (struct worker_shared){.workers = weir->first->workers,
                                          .fallback = fallback_new(FALLBACK_ENTRIES_MAX),
                                          .quotas = weir->quotas,
                                          .serving = worker_serving,
                                          .reloaded = worker_reloaded,
                                          .ended = worker_ended,
                                          .context = weir};
    if (sizes->connections_per_ip)
        weir->shared.ip_counts =
            ip_counts_new(sizes->connections > IP_COUNTS_MAX ? sizes->connections : IP_COUNTS_MAX,
                          weir->first->identity.ipv6_prefix);
}

/* The addresses of upstreams have changed. */
static void on_roster_changed(void *context)
{
    struct weir *weir = context;
    for (unsigned i = 0; i < weir->made; i++)
        if (weir->workers[i]) /* else it could not be made */
            worker_wake(weir->workers[i]);
}

/* A roster for the policy that is to be in force. NULL: no memory. */
static struct roster *make_roster(struct weir *weir, struct policy *policy)
{
    const struct roster_listener listener = {on_roster_changed, weir};
    return roster_new(weir->base, policy, weir->roster, &listener);
}

static void drop_roster(struct roster *roster)
{
    if (roster)
        roster_close(roster);
    roster_drop(roster);
}

static bool make_workers(struct weir *weir)
{
    struct policy *policy = weir->first;

    share(weir);
    if (!(weir->roster = make_roster(weir, policy))) {
        log_error("no memory for the upstreams");
        return false;
    }
    weir->workers = xcalloc(policy->workers, sizeof *weir->workers);
    for (; weir->made < policy->workers; weir->made++) {
        struct worker *worker = worker_new(&weir->shared, weir->roster, weir->made,
                                           weir->listen_fds + (size_t)weir->made * policy->listen_count);
        if (!worker) {
            log_error("cannot make worker %u: %s", weir->made, strerror(errno));
            weir->made++; /* its sockets are closed */
            return false;
        }
        weir->workers[weir->made] = worker;
    }
    return true;
}

/* Signals are the main thread's: a thread starts with all of them blocked. */
static bool start_workers(struct weir *weir)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool good = log_start() == 0;
    if (!good)
        log_error("cannot start the log's thread: %s", strerror(errno));
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

/* ---- resets ------------------------------------------------------------------------------------------ */

struct hearing {
    struct weir *weir;
    struct policy *policy; /* held */
    struct redis_subscription *subscription;
};

static void hearing_end(struct hearing *hearing)
{
    if (!hearing)
        return;
    redis_subscription_free(hearing->subscription);
    policy_drop(hearing->policy);
    free(hearing);
}

/* Whichever client it was: all denials are asked of Redis anew, once. */
static void on_message(struct weir *weir, struct slice message)
{
    const struct slice granted = SLICE(GRANT_MESSAGE);
    bool grant = slice_starts_with(message, granted);

    log_debug("%s%.*s", grant ? "" : "reset of ", (int)message.n, message.p);
    if (grant) { /* ends denials as well, but only once it is known */
        resets_note((struct slice){message.p + granted.n, message.n - granted.n});
        grant_reader_look(weir->grants);
        return;
    }
    resets_note(message);
    denials_forget_all();
    quotas_forget(weir->quotas, message);
}

/* Messages may have been missed; not where a reload has only made the subscription anew, and the one before has heard them. */
static void on_heard(struct hearing *hearing)
{
    struct weir *weir = hearing->weir;
    bool covered = hearing == weir->resets && weir->resets_before &&
                   redis_subscription_covers(weir->resets_before->subscription, hearing->subscription);

    if (hearing == weir->resets) {
        hearing_end(weir->resets_before);
        weir->resets_before = NULL;
    }
    grant_reader_look(weir->grants);
    if (covered)
        return;
    resets_note(SLICE_NONE);
    denials_forget_all();
    quotas_doubt(weir->quotas);
}

static void on_reset(void *context, const char *message, size_t size)
{
    struct hearing *hearing = context;

    if (message)
        on_message(hearing->weir, (struct slice){message, size});
    else
        on_heard(hearing);
}

/* NULL: no memory. */
static struct hearing *hear(struct weir *weir)
{
    struct hearing *hearing = calloc(1, sizeof *hearing);
    char *channel = inquiry_channel(weir->policy);

    if (!hearing) {
        free(channel);
        return NULL;
    }
    hearing->weir = weir;
    hearing->policy = policy_hold(weir->policy);
    if (channel)
        hearing->subscription = redis_subscription_new(weir->base, &weir->policy->redis, channel,
                                                       &(struct redis_listener){on_reset, hearing});
    free(channel);
    if (hearing->subscription)
        return hearing;
    hearing_end(hearing);
    return NULL;
}

/* By the policy in force. Without it a denial is remembered for its second at most, and grants are read now and then. */
static void listen_for_resets(struct weir *weir)
{
    if (weir->resets) { /* else the one before it goes on */
        hearing_end(weir->resets_before);
        weir->resets_before = weir->resets;
    }
    redis_name_free(weir->redis_name);
    weir->redis_name = policy_needs_redis(weir->policy) ? redis_name_follow(weir->base, weir->policy) : NULL;
    grant_reader_free(weir->grants);
    weir->grants = NULL;
    weir->resets = NULL;
    if (policy_needs_redis(weir->policy)) {
        weir->grants = grant_reader_new(weir->base, weir->policy);
        weir->resets = hear(weir);
        return;
    }
    hearing_end(weir->resets_before);
    weir->resets_before = NULL;
}

/* ---- the policy -------------------------------------------------------------------------------------- */

/* Reads, checks and composes the file: everything that can be wrong with what the operator wrote, printed to
 * `report`. */
static struct policy *read_policy(struct weir *weir, FILE *report)
{
    struct policy *policy = policy_load(weir->file, weir->lua_dir, report);

    if (!policy)
        return NULL;
    if ((policy->driver = compose_driver(policy, weir->lua_dir, report)))
        return policy;
    policy_drop(policy);
    return NULL;
}

static bool open_log(const struct policy *policy, FILE *report)
{
    if (log_open(policy->log.file) != 0) {
        fprintf(report, "weir: cannot open the log %s: %s\n", policy->log.file, strerror(errno));
        return false;
    }
    log_set_level((enum log_level)policy->log.level);
    return true;
}

static void warn_of_restart(const struct weir *weir, const struct policy *next)
{
    const struct policy *first = weir->first;
    char text[2][ADDRESS_TEXT_MAX];
    bool listen = next->listen_count != first->listen_count;

    for (unsigned i = 0; i < next->listen_count && !listen; i++)
        listen = !listen_settings_same(&next->listen[i], &weir->written[i]);
    if (listen)
        log_warn("reload: a changed listen takes effect when weir starts again");
    if (next->workers != first->workers)
        log_warn("reload: a changed workers takes effect when weir starts again");
    if (strcmp(address_format(&next->admin, text[0]), address_format(&first->admin, text[1])) != 0 &&
        !(next->admin.length && first->admin.length))
        log_warn("reload: a changed admin takes effect when weir starts again");
    if (next->size_limits.connections_per_ip && !weir->shared.ip_counts)
        log_warn("reload: size_limits.connections_per_ip takes effect when weir starts again");
}

/* An embedded Redis is there from the start or not at all. */
static bool settle_redis(const struct weir *weir, struct policy *next, FILE *report)
{
    if (!next->redis.embedded)
        return true;
    if (!weir->embedded) {
        fputs("redis.address: embedded takes a new start of weir\n", report);
        return false;
    }
    next->redis.address = *embedded_address(weir->embedded);
    return true;
}

/* A new policy, ready for the workers, or NULL. */
static struct policy *next_policy(struct weir *weir, FILE *report)
{
    struct policy *next = read_policy(weir, report);

    if (!next)
        return NULL;
    if (settle_redis(weir, next, report) &&
        (!policy_needs_redis(next) || cli_check_scripts(next, next->driver, weir->lua_dir, report)) &&
        assign_rows(weir, next) &&
        (strcmp(next->log.file, weir->policy->log.file) == 0 || open_log(next, report)))
        return next;
    policy_drop(next);
    return NULL;
}

/* What a reading of the policy had to say, into the log, a line at a time. */
static void log_report(char *text, bool good)
{
    for (char *line, *rest = text; (line = strsep(&rest, "\n"));)
        if (*line)
            log_at(good ? LEVEL_WARN : LEVEL_ERROR, "%s", line);
}

/* Blocks the main thread for as long as reading takes; the workers go on. */
static void reload(struct weir *weir)
{
    char *text = NULL;
    size_t size;
    FILE *report = weir->stopping ? NULL : open_memstream(&text, &size);

    if (!report)
        return;
    tell_systemd("RELOADING=1");
    struct policy *next = next_policy(weir, report);
    fclose(report);
    log_report(text, next != NULL);
    free(text);
    struct roster *roster = next ? make_roster(weir, next) : NULL;
    if (!roster)
        policy_drop(next);
    if (roster) {
        warn_of_restart(weir, next);
        policy_keep_listeners(next, weir->policy, weir->written);
        log_set_level((enum log_level)next->log.level);
        quotas_apply(weir->quotas, next);
        if (!quotas_start(weir->quotas))
            log_error("reload: ids follow quotas.unknown_client");
        for (unsigned i = 0; i < weir->made; i++)
            worker_reload(weir->workers[i], roster);
        drop_roster(weir->roster);
        policy_drop(weir->policy);
        weir->view.roster = weir->roster = roster;
        weir->view.policy = weir->policy = next;
        admin_reload(weir->admin);
        listen_for_resets(weir);
        weir->reloading = true;
        say_reloaded(weir);
    } else
        log_error("reload: %s has mistakes; the policy in force stays", weir->file);
    tell_systemd("READY=1");
}

/* ---- signals ----------------------------------------------------------------------------------------- */

/* Before the listeners close: from then on the path may be a successor's. */
static void unlink_sockets(struct weir *weir)
{
    for (unsigned a = 0; a < weir->opened && !weir->unlinked; a++)
        listener_unlink(&weir->first->listen[a].address);
    if (!weir->unlinked && (weir->admin || weir->admin_fd >= 0))
        listener_unlink(&weir->first->admin);
    weir->unlinked = true;
}

static void stop(struct weir *weir)
{
    unlink_sockets(weir);
    for (unsigned i = 0; i < weir->made; i++)
        if (weir->workers[i]) /* else it could not be made */
            worker_stop(weir->workers[i]);
}

static void on_stop_signal(evutil_socket_t signal, short what, void *arg)
{
    struct weir *weir = arg;
    (void)what;

    if (weir->stopping)
        return;
    weir->stopping = true;
    log_info("%s: finishing what is under way, at most %llu s", signal == SIGTERM ? "SIGTERM" : "SIGINT",
             (unsigned long long)(weir->policy->timeouts.shutdown_us / 1000000));
    tell_systemd("STOPPING=1");
    admin_stopping(weir->admin);
    stop(weir);
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

static bool watch_signals(struct weir *weir)
{
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a log file as large as it may be is a log that cannot be written, no more */
    signal(SIGUSR1,
           SIG_IGN); /* libevent puts this back at the end: they come too late then, and do no harm */
    signal(SIGHUP, SIG_IGN);
    weir->signals[0] = evsignal_new(weir->base, SIGTERM, on_stop_signal, weir);
    weir->signals[1] = evsignal_new(weir->base, SIGINT, on_stop_signal, weir);
    weir->signals[2] = evsignal_new(weir->base, SIGUSR1, on_reopen_signal, weir);
    weir->signals[3] = evsignal_new(weir->base, SIGHUP, on_reload_signal, weir);
    for (unsigned i = 0; i < 4; i++)
        if (!weir->signals[i] || event_add(weir->signals[i], NULL) != 0)
            return false;
    weir->change_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    weir->change = weir->change_fd < 0
                       ? NULL
                       : event_new(weir->base, weir->change_fd, EV_READ | EV_PERSIST, on_change, weir);
    return weir->change && event_add(weir->change, NULL) == 0;
}

/* ---- from start to end ------------------------------------------------------------------------------- */

static bool start_redis(struct weir *weir)
{
    struct policy *policy = weir->first;

    if (policy->redis.embedded) {
        if (!(weir->embedded = embedded_start()))
            return false;
        embedded_watch(weir->embedded, weir->base);
    }
    return settle_redis(weir, policy, stderr) &&
           (!policy_needs_redis(policy) || cli_check_scripts(policy, policy->driver, weir->lua_dir, stderr));
}

static bool make_quotas(struct weir *weir)
{
    if ((weir->quotas = quotas_new()))
        quotas_apply(weir->quotas, weir->first);
    return weir->quotas != NULL;
}

static bool start_admin(struct weir *weir)
{
    if (!weir->first->admin.length)
        return true;
    weir->view = (struct admin_view){.policy = weir->policy,
                                     .roster = weir->roster,
                                     .started_us = clock_us(),
                                     .rules = &weir->rules,
                                     .limits = &weir->limits,
                                     .quotas = weir->quotas,
                                     .workers = weir->workers,
                                     .worker_count = weir->made};
    weir->admin = admin_new(weir->base, weir->admin_fd, &weir->view);
    weir->admin_fd = -1;
    return weir->admin != NULL;
}

/* Until all stands, what goes wrong is said on stderr, where whoever starts weir sees it; then the log is
 * log.file. */
static bool start(struct weir *weir)
{
    if (!(weir->first = read_policy(weir, stderr)))
        return false;
    weir->policy = policy_hold(weir->first);
    log_set_level((enum log_level)weir->first->log.level);
    log_info("weir %s: %s, %u worker%s", PACKAGE_VERSION, weir->file, weir->first->workers,
             weir->first->workers == 1 ? "" : "s");
    raise_descriptor_limit(weir->first);
    if (!(weir->base = event_base_new()) || !watch_signals(weir)) {
        log_error("cannot make an event loop: %s", strerror(errno));
        return false;
    }
    return assign_rows(weir, weir->first) && open_listeners(weir) && start_redis(weir) && make_quotas(weir) &&
           make_workers(weir) && start_admin(weir) && open_log(weir->first, stderr) && start_workers(weir);
}

static void close_unused_listeners(struct weir *weir)
{
    const struct policy *first = weir->first;

    unlink_sockets(weir);
    for (unsigned a = 0; a < weir->opened; a++)
        for (unsigned w = weir->made; w < first->workers; w++)
            close(weir->listen_fds[w * first->listen_count + a]);
    if (weir->admin_fd >= 0)
        close(weir->admin_fd);
}

static void end(struct weir *weir)
{
    close_unused_listeners(weir);
    admin_free(weir->admin);
    hearing_end(weir->resets_before);
    hearing_end(weir->resets);
    grant_reader_free(weir->grants);
    redis_name_free(weir->redis_name);
    grants_publish(NULL);
    quotas_stop(weir->quotas);
    for (unsigned i = 0; i < weir->made; i++)
        worker_free(weir->workers[i]);
    quotas_free(weir->quotas);
    drop_roster(weir->roster);
    log_stop();
    embedded_stop(weir->embedded);
    for (unsigned i = 0; i < COUNT_OF(weir->signals); i++)
        if (weir->signals[i])
            event_free(weir->signals[i]);
    if (weir->change)
        event_free(weir->change);
    if (weir->change_fd >= 0)
        close(weir->change_fd);
    if (weir->base)
        (void)event_base_loop(weir->base, EVLOOP_NONBLOCK); /* lookups that were given up are freed there */
    if (weir->base)
        event_base_free(weir->base);
    fallback_free(weir->shared.fallback);
    ip_counts_free(weir->shared.ip_counts);
    policy_drop(weir->policy);
    policy_drop(weir->first);
    tally_names_clear(&weir->rules);
    tally_names_clear(&weir->limits);
    free(weir->workers);
    free(weir->written);
    free(weir->listen_fds);
}

int daemon_run(const char *policy_file, const char *lua_dir)
{
    struct weir weir = {.file = policy_file, .lua_dir = lua_dir, .admin_fd = -1, .change_fd = -1};
    bool good = start(&weir);

    if (good)
        listen_for_resets(&weir);
    else
        stop(&weir);
    while (atomic_load(&weir.ended) < weir.started && event_base_loop(weir.base, EVLOOP_ONCE) == 0)
        ;
    for (unsigned i = 0; i < weir.started; i++)
        worker_join(weir.workers[i]);
    end(&weir);
    if (good)
        log_info("stopped");
    libevent_global_shutdown();
    return good ? EXIT_GOOD : EXIT_BAD_INPUT;
}
