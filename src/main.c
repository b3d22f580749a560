/* main.c - command line, start-up, signals, the end.
 *
 * Start is all or nothing: policy, scripts, Redis settings, every socket and every worker stand before the
 * first connection is taken. The main thread then owns signals, the admin listener and the embedded Redis;
 * the workers own everything else. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "admin/admin.h"
#include "base/log.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "config.h"
#include "limit/compose.h"
#include "net/ip_counts.h"
#include "net/listener.h"
#include "proxy/worker.h"
#include "store/embedded.h"

#ifdef HAVE_SYSTEMD
#include <systemd/sd-daemon.h>
#endif

enum { EXIT_GOOD = 0, EXIT_BAD_INPUT = 1, EXIT_USAGE = 2, FALLBACK_ENTRIES_MAX = 262144 };

/* The running process. */
struct weir {
    struct event_base *base;
    struct policy *policy;
    char *script;
    struct embedded *embedded;
    struct admin *admin;
    struct worker_shared shared;
    struct worker **workers;
    unsigned made, running; /* of policy->workers */
    int *listen_fds;        /* [worker][address], until the worker takes them */
    unsigned opened;        /* addresses that are open */
    int admin_fd;
    int ended_fd; /* eventfd: a worker has ended */
    struct event *signals[5], *ended;
    bool stopping;
};

static const char usage[] =
    "usage: weir [-c FILE]                run in the foreground (default " WEIR_CONF_FILE ")\n"
    "       weir check [-c FILE]          validate a policy and print what is in effect\n"
    "       weir script NAME|FILE         print a limiter as a plain Redis script\n"
    "       weir --version | --help\n"
    "See weir(8) and weir.yaml(5).\n";

/* ---- systemd ----------------------------------------------------------------------------------------- */

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
    struct policy *policy = weir->policy;
    unsigned workers = policy->workers, addresses = policy->listen_count;
    char text[ADDRESS_TEXT_MAX];
    const char *why;

    weir->listen_fds = xcalloc((size_t)workers * addresses, sizeof *weir->listen_fds);
    int *fds = xcalloc(workers, sizeof *fds);
    bool good = true;
    for (unsigned a = 0; a < addresses && good; a++) {
        good = listener_open(&policy->listen[a], workers, fds, &why);
        for (unsigned w = 0; w < workers && good; w++)
            weir->listen_fds[w * addresses + a] = fds[w];
        if (good)
            weir->opened++;
        else
            log_error("cannot listen on %s: %s: %s", address_format(&policy->listen[a], text), why,
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

    for (unsigned a = 0; a < weir->policy->listen_count; a++)
        log_info("listening on %s", address_format(&weir->policy->listen[a], text));
    if (weir->policy->admin.length)
        log_info("admin on %s", address_format(&weir->policy->admin, text));
}

/* ---- workers ----------------------------------------------------------------------------------------- */

static void worker_ended(void *context)
{
    struct weir *weir = context;
    uint64_t one = 1;
    while (write(weir->ended_fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

static void on_worker_ended(evutil_socket_t fd, short what, void *arg)
{
    struct weir *weir = arg;
    uint64_t count;
    (void)what;

    if (read(fd, &count, sizeof count) < 0)
        return;
    weir->running -= (unsigned)count;
    if (weir->running == 0)
        event_base_loopbreak(weir->base);
}

static bool make_workers(struct weir *weir)
{
    struct policy *policy = weir->policy;

    weir->shared = (struct worker_shared){.policy = policy,
                                          .fallback = fallback_new(FALLBACK_ENTRIES_MAX),
                                          .script = slice_of(weir->script),
                                          .ended = worker_ended,
                                          .context = weir};
    if (policy->size_limits.connections_per_ip)
        weir->shared.ip_counts =
            ip_counts_new(policy->size_limits.connections ? policy->size_limits.connections : 65536,
                          policy->identity.ipv6_prefix);
    weir->workers = xcalloc(policy->workers, sizeof *weir->workers);
    for (; weir->made < policy->workers; weir->made++) {
        struct worker *worker = worker_new(&weir->shared, weir->made,
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
    for (unsigned i = 0; i < weir->made && good; i++) {
        good = worker_start(weir->workers[i]) == 0;
        if (good)
            weir->running++;
        else
            log_error("cannot start worker %u: %s", i, strerror(errno));
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return good;
}

/* ---- signals ----------------------------------------------------------------------------------------- */

static void stop(struct weir *weir)
{
    for (unsigned i = 0; i < weir->made; i++)
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
    (void)signal, (void)what, (void)arg;
    log_warn("SIGHUP: reloading is not supported yet; the policy in force stays; restart weir for a new one");
}

static bool watch_signals(struct weir *weir)
{
    signal(SIGPIPE, SIG_IGN);
    weir->signals[0] = evsignal_new(weir->base, SIGTERM, on_stop_signal, weir);
    weir->signals[1] = evsignal_new(weir->base, SIGINT, on_stop_signal, weir);
    weir->signals[2] = evsignal_new(weir->base, SIGUSR1, on_reopen_signal, weir);
    weir->signals[3] = evsignal_new(weir->base, SIGHUP, on_reload_signal, weir);
    for (unsigned i = 0; i < 4; i++)
        if (!weir->signals[i] || event_add(weir->signals[i], NULL) != 0)
            return false;
    weir->ended_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    weir->ended = weir->ended_fd < 0
                      ? NULL
                      : event_new(weir->base, weir->ended_fd, EV_READ | EV_PERSIST, on_worker_ended, weir);
    return weir->ended && event_add(weir->ended, NULL) == 0;
}

/* ---- from start to end ------------------------------------------------------------------------------- */

/* Everything that can be wrong with what the operator wrote. */
static bool read_policy(struct weir *weir, const char *file, const char *lua_dir)
{
    if (!(weir->policy = policy_load(file, lua_dir, stderr)))
        return false;
    if (log_open(weir->policy->log.file) != 0) {
        fprintf(stderr, "weir: cannot open the log %s: %s\n", weir->policy->log.file, strerror(errno));
        return false;
    }
    log_set_level((enum log_level)weir->policy->log.level);
    return (weir->script = compose_driver(weir->policy, lua_dir, stderr)) != NULL;
}

static bool start_redis(struct weir *weir)
{
    if (weir->policy->redis.embedded) {
        if (!(weir->embedded = embedded_start()))
            return false;
        /* The one change to a policy after it was loaded, before anybody else has it. */
        weir->policy->redis.address = *embedded_address(weir->embedded);
        embedded_watch(weir->embedded, weir->base);
    }
    return weir->policy->limit_count == 0 || cli_check_scripts(weir->policy, weir->script);
}

static bool start(struct weir *weir, const char *file, const char *lua_dir)
{
    if (!read_policy(weir, file, lua_dir))
        return false;
    log_info("weir %s: %s, %u worker%s", PACKAGE_VERSION, file, weir->policy->workers,
             weir->policy->workers == 1 ? "" : "s");
    raise_descriptor_limit(weir->policy);
    if (!(weir->base = event_base_new()) || !watch_signals(weir)) {
        log_error("cannot make an event loop: %s", strerror(errno));
        return false;
    }
    if (!open_listeners(weir) || !start_redis(weir) || !make_workers(weir))
        return false;
    if (weir->policy->admin.length) {
        weir->admin = admin_new(weir->base, weir->admin_fd, weir->policy, weir->workers, weir->made);
        weir->admin_fd = -1;
        if (!weir->admin)
            return false;
    }
    return start_workers(weir);
}

static void close_unused_listeners(struct weir *weir)
{
    unsigned addresses = weir->policy ? weir->policy->listen_count : 0;

    for (unsigned a = 0; a < weir->opened; a++) {
        for (unsigned w = weir->made; w < weir->policy->workers; w++)
            close(weir->listen_fds[w * addresses + a]);
        listener_unlink(&weir->policy->listen[a]);
    }
    if (weir->admin_fd >= 0)
        close(weir->admin_fd);
    if (weir->policy && (weir->admin || weir->admin_fd >= 0))
        listener_unlink(&weir->policy->admin);
}

static void end(struct weir *weir)
{
    close_unused_listeners(weir);
    admin_free(weir->admin);
    for (unsigned i = 0; i < weir->made; i++)
        worker_free(weir->workers[i]);
    log_stop();
    embedded_stop(weir->embedded);
    for (unsigned i = 0; i < COUNT_OF(weir->signals); i++)
        if (weir->signals[i])
            event_free(weir->signals[i]);
    if (weir->ended)
        event_free(weir->ended);
    if (weir->ended_fd >= 0)
        close(weir->ended_fd);
    if (weir->base)
        event_base_free(weir->base);
    fallback_free(weir->shared.fallback);
    ip_counts_free(weir->shared.ip_counts);
    if (weir->policy)
        policy_drop(weir->policy);
    free(weir->workers);
    free(weir->listen_fds);
    free(weir->script);
}

static int run(const char *file, const char *lua_dir)
{
    struct weir weir = {.admin_fd = -1, .ended_fd = -1};
    unsigned started;
    bool good = start(&weir, file, lua_dir);

    started = weir.running;
    if (good) {
        say_listening(&weir);
        log_info("ready");
        tell_systemd("READY=1");
    } else
        stop(&weir);
    while (weir.running && event_base_loop(weir.base, EVLOOP_ONCE) == 0)
        ;
    for (unsigned i = 0; i < started; i++)
        worker_join(weir.workers[i]);
    end(&weir);
    if (good)
        log_info("stopped");
    libevent_global_shutdown();
    return good ? EXIT_GOOD : EXIT_BAD_INPUT;
}

/* ---- command line ------------------------------------------------------------------------------------ */

static int bad_usage(const char *why, const char *what)
{
    fprintf(stderr, "weir: %s%s%s\n%s", why, what ? ": " : "", what ? what : "", usage);
    return EXIT_USAGE;
}

/* A command of its own, or NULL for running; it is taken off the arguments. */
static const char *take_command(int *argc, char **argv)
{
    if (*argc < 2 || argv[1][0] == '-')
        return NULL;
    const char *command = argv[1];
    for (int i = 1; i < *argc; i++)
        argv[i] = argv[i + 1];
    --*argc;
    return command;
}

static int dispatch(const char *command, const char *file, const char *lua_dir, int argc, char **argv)
{
    if (command && strcmp(command, "script") == 0)
        return argc == 1 ? cli_script(argv[0], lua_dir) : bad_usage("script takes one NAME or FILE", NULL);
    if (argc > 0)
        return bad_usage("unexpected argument", argv[0]);
    if (!command)
        return run(file, lua_dir);
    if (strcmp(command, "check") == 0)
        return cli_check(file, lua_dir);
    return bad_usage("unknown command", command);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"config", required_argument, NULL, 'c'},
                                            {"version", no_argument, NULL, 'V'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    const char *file = WEIR_CONF_FILE, *lua_dir = getenv("WEIR_LUA_DIR");
    const char *command = take_command(&argc, argv);

    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, "c:Vh", options, NULL)) != -1;)
        switch (c) {
        case 'c': file = optarg; break;
        case 'V': puts("weir " PACKAGE_VERSION); return EXIT_GOOD;
        case 'h': fputs(usage, stdout); return EXIT_GOOD;
        default: return bad_usage("unknown option, or one that lacks its value", argv[optind - 1]);
        }
    return dispatch(command, file, lua_dir && *lua_dir ? lua_dir : WEIR_LUA_DIR, argc - optind,
                    argv + optind);
}
