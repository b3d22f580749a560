/* embedded.c - see embedded.h.
 *
 *   embedded_start() -> fork -> redis-server on DIRECTORY/redis.sock
 *                               ... SIGCHLD -> back-off -> fork again
 *
 * The child has its own process group, so Ctrl-C reaches only weir, which needs Redis until the
 * last request has finished. The child receives SIGKILL when weir dies. A restart happens while
 * worker threads run: between fork and exec, only async-signal-safe functions are called, and
 * all data that the child needs is prepared before the fork. */
#include "redis/embedded.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/available_memory.h"
#include "base/clock.h"
#include "base/event_timer.h"
#include "base/log.h"
#include "base/magic.h"
#include "base/memory.h"
#include "redis/blocking.h"
#include "redis/embedded_files.h"

enum {
    EMBEDDED_MAGIC = 0x454d4252,
    ARGUMENTS_MAX = 40,
    LOG_TAIL_MAX = 512,
    LINES_MAX = 8192,       /* bytes at the end of the log that are searched */
    TRIAL_MEMORY = 1 << 30, /* address space; Redis takes about 100 MiB of it */
    ANSWER_US = 200000,
};

static const uint64_t start_timeout_us = 5000000, stop_timeout_us = 3000000;
static const uint64_t again_min_us = 100000, again_max_us = 5000000;
static const uint64_t stable_us = 10000000; /* after this uptime, the back-off is reset */

/* USE_TRIAL tests scripts: its memory is bounded, and it reports no missing program. USE_PRIVATE is
 * for one command. Starts and stops of both are not logged, and they are killed on stop. */
enum use { USE_SERVER, USE_TRIAL, USE_PRIVATE };

struct embedded {
    uint32_t magic;
    pid_t pid; /* 0: not running */
    char *program;
    struct embedded_directory directory;
    char log_path[sizeof((struct sockaddr_un *)0)->sun_path + EMBEDDED_NAME_ROOM];
    char memory[32];
    const char *arguments[ARGUMENTS_MAX];
    struct address address;
    struct event *child_event, *again_timer;
    uint64_t started_us, again_us;
    enum use use;
};

/* --- Child process ---------------------------------------------------------------------------- */

/* With noeviction, a full Redis rejects writes instead of evicting counters. The limit is below
 * that of a container, or the kernel would kill Redis first. */
static void choose_memory(struct embedded *e)
{
    uint64_t quarter = available_memory("/proc/self/cgroup", "/sys/fs/cgroup") / 4;
    snprintf(e->memory, sizeof e->memory, "%llu", (unsigned long long)quarter);
}

static void make_arguments(struct embedded *e)
{
    const char *const arguments[] = {e->program,
                                     "--port",
                                     "0",
                                     "--unixsocket",
                                     e->address.local.sun_path,
                                     "--unixsocketperm",
                                     "700",
                                     "--save",
                                     "",
                                     "--appendonly",
                                     "no",
                                     "--maxmemory",
                                     e->memory,
                                     "--maxmemory-policy",
                                     "noeviction",
                                     "--daemonize",
                                     "no",
                                     "--dir",
                                     e->directory.path,
                                     "--logfile",
                                     e->log_path,
                                     "--loglevel",
                                     "warning"};
    _Static_assert(COUNT_OF(arguments) < ARGUMENTS_MAX, "room for the NULL at the end");
    memcpy(e->arguments, arguments, sizeof arguments);
}

/* Only async-signal-safe calls from here to exec. */
static void child_close_files(void)
{
    if (close_range(3, ~0u, 0) == 0)
        return;
    for (int fd = 3; fd < 4096; fd++) /* kernels before 5.9 */
        close(fd);
}

static void child_reset_signals(void)
{
    struct sigaction plain = {.sa_handler = SIG_DFL};
    sigset_t none;

    sigemptyset(&none);
    for (int number = 1; number < NSIG; number++)
        sigaction(number, &plain, NULL);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void child_run(const struct embedded *e, pid_t parent)
{
    int null = open("/dev/null", O_RDWR);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* weir died between fork and prctl: no signal will come */
        _exit(127);
    setpgid(0, 0);
    child_reset_signals();
    dup2(null, 0);
    dup2(null, 1);
    dup2(null, 2);
    child_close_files();
    if (e->use == USE_TRIAL)
        setrlimit(RLIMIT_AS, &(struct rlimit){TRIAL_MEMORY, TRIAL_MEMORY});
    execv(e->program, (char *const *)(uintptr_t)e->arguments);
    _exit(127);
}

/* Blocks all signals during the fork: weir's handlers must not run in the child. */
static bool spawn(struct embedded *e)
{
    pid_t parent = getpid(), pid;
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid = fork();
    if (pid == 0)
        child_run(e, parent);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pid < 0) {
        log_error("embedded Redis: cannot start a process: %s; check the memory and the limit of "
                  "processes (TasksMax=)",
                  strerror(errno));
        return false;
    }
    e->pid = pid;
    e->started_us = clock_us();
    return true;
}

/* --- Blocking waits at start and stop --------------------------------------------------------- */

static void nap(void)
{
    const struct timespec moment = {0, 5000000};
    nanosleep(&moment, NULL);
}

/* Returns true if the child has exited; it is reaped. */
static bool reap(struct embedded *e, int *status)
{
    pid_t gone = e->pid ? waitpid(e->pid, status, WNOHANG) : -1;
    if (gone == 0)
        return false;
    e->pid = 0;
    return true;
}

static bool answers(const struct embedded *e)
{
    struct redis_settings settings = {.address = e->address};
    char why[REDIS_WHY_MAX];
    struct redis_blocking *redis = redis_dial(&settings, ANSWER_US, why);
    const struct redis_reply *reply =
        redis ? redis_command(redis, 1, (const char *[]){"PING"}, NULL) : NULL;
    bool fine = reply && reply->type == RESP_STATUS;

    redis_blocking_free(redis);
    return fine;
}

/* Reads the end of Redis' log, which contains the reason of a failed start. */
static void read_log_end(const struct embedded *e, char *tail, size_t room)
{
    FILE *log = fopen(e->log_path, "re");
    size_t n = 0;

    if (log) {
        if (fseek(log, 1 - (long)room, SEEK_END) != 0)
            rewind(log);
        n = fread(tail, 1, room - 1, log);
        fclose(log);
    }
    while (n && tail[n - 1] == '\n')
        n--;
    tail[n] = 0;
}

static void report_not_started(const struct embedded *e, const char *what)
{
    char tail[LOG_TAIL_MAX];
    read_log_end(e, tail, sizeof tail);
    log_error("embedded Redis: %s %s%s%s", e->program, what, *tail ? "; its log ends: " : "", tail);
}

static bool wait_until_it_answers(struct embedded *e)
{
    int status;

    while (!answers(e)) {
        if (reap(e, &status)) {
            report_not_started(e, "ended at once");
            return false;
        }
        if (clock_us() - e->started_us > start_timeout_us) {
            report_not_started(e, "did not respond within 5 s");
            return false;
        }
        nap();
    }
    return true;
}

static void end_child(struct embedded *e)
{
    uint64_t since = clock_us();
    int status;

    if (!e->pid)
        return;
    kill(e->pid, SIGTERM);
    kill(e->pid, SIGCONT);
    while (!reap(e, &status)) {
        if (e->use != USE_SERVER || clock_us() - since > stop_timeout_us)
            kill(e->pid, SIGKILL);
        nap();
    }
}

/* --- Supervision ------------------------------------------------------------------------------ */

static void arm_again(struct embedded *e)
{
    event_timer_arm(e->again_timer, e->again_us);
    e->again_us = e->again_us * 2 < again_max_us ? e->again_us * 2 : again_max_us;
}

static void start_again(evutil_socket_t fd, short what, void *arg)
{
    struct embedded *e = arg;
    (void)fd, (void)what;

    MAGIC_CHECK(e, EMBEDDED_MAGIC);
    if (!spawn(e))
        arm_again(e);
}

static void report_ended(pid_t pid, int status)
{
    if (WIFSIGNALED(status))
        log_error("embedded Redis: process %d was ended by signal %d (%s); it is restarted, and "
                  "all counts start from zero; see the system log (out of memory?)",
                  (int)pid, WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        log_error("embedded Redis: process %d ended with status %d; it is restarted, and all "
                  "counts start from zero",
                  (int)pid, WEXITSTATUS(status));
}

static void on_child(evutil_socket_t fd, short what, void *arg)
{
    struct embedded *e = arg;
    pid_t pid = e->pid;
    int status = 0;
    (void)fd, (void)what;

    MAGIC_CHECK(e, EMBEDDED_MAGIC);
    if (!e->pid || !reap(e, &status))
        return;
    report_ended(pid, status);
    if (clock_us() - e->started_us > stable_us)
        e->again_us = again_min_us;
    arm_again(e);
}

void embedded_watch(struct embedded *e, struct event_base *base)
{
    e->again_timer = evtimer_new(base, start_again, e);
    e->child_event = evsignal_new(base, SIGCHLD, on_child, e);
    if (!e->again_timer || !e->child_event || event_add(e->child_event, NULL) != 0)
        log_error("embedded Redis: no memory to monitor the process; it is not restarted if it "
                  "ends: restart "
                  "weir");
    else
        event_active(e->child_event, EV_SIGNAL, 1); /* it may have exited before the watch began */
}

/* --- Start and stop --------------------------------------------------------------------------- */

static bool make_address(struct embedded *e)
{
    char text[sizeof e->directory.path + EMBEDDED_NAME_ROOM];
    const char *why;

    snprintf(e->log_path, sizeof e->log_path, "%s/" EMBEDDED_LOG, e->directory.path);
    snprintf(text, sizeof text, "unix:%s/" EMBEDDED_SOCKET, e->directory.path);
    if (address_parse(slice_of(text), false, &e->address, &why))
        return true;
    log_error("embedded Redis: %s: %s", text, why);
    return false;
}

/* `needed_by`: in the error if there is no program; NULL: that is not an error. */
static struct embedded *start_own_redis(enum use use, const char *needed_by)
{
    struct embedded *e = xcalloc(1, sizeof *e);
    e->directory = (struct embedded_directory){.fd = -1, .alive = -1};
    e->use = use;

    MAGIC_SET(e, EMBEDDED_MAGIC);
    e->again_us = again_min_us;
    choose_memory(e);
    e->program = embedded_find_program();
    if (!e->program && needed_by)
        embedded_report_no_program(needed_by, use == USE_SERVER);
    if (e->program &&
        (use == USE_PRIVATE ? embedded_make_guarded_directory(&e->directory)
                            : embedded_make_directory(&e->directory)) &&
        make_address(e)) {
        make_arguments(e);
        if (spawn(e) && wait_until_it_answers(e)) {
            if (use == USE_SERVER)
                log_info("embedded Redis: %s runs as process %d in %s", e->program, (int)e->pid,
                         e->directory.path);
            return e;
        }
    }
    embedded_stop(e);
    return NULL;
}

struct embedded *embedded_start(void)
{
    return start_own_redis(USE_SERVER, "redis.address is embedded");
}

struct embedded *embedded_start_trial(void)
{
    return start_own_redis(USE_TRIAL, NULL);
}

struct embedded *embedded_start_private(const char *needed_by)
{
    return start_own_redis(USE_PRIVATE, needed_by);
}

uint64_t embedded_cpu_us(const struct embedded *e)
{
    struct timespec used;
    clockid_t clock;

    if (!e->pid || clock_getcpuclockid(e->pid, &clock) != 0 || clock_gettime(clock, &used) != 0)
        return 0;
    return (uint64_t)used.tv_sec * 1000000 + (uint64_t)used.tv_nsec / 1000;
}

bool embedded_last_line(const struct embedded *e, const char *mark, char *line, size_t room)
{
    char tail[LINES_MAX + 1];
    const char *found = NULL;

    read_log_end(e, tail, sizeof tail);
    for (const char *at = tail; (at = strstr(at, mark)); at += strlen(mark))
        found = at + strlen(mark);
    if (found)
        snprintf(line, room, "%.*s", (int)strcspn(found, "\n"), found);
    return found != NULL;
}

const struct address *embedded_address(const struct embedded *e)
{
    return &e->address;
}

void embedded_stop(struct embedded *e)
{
    if (!e)
        return;
    event_drop(e->child_event);
    event_drop(e->again_timer);
    end_child(e);
    embedded_remove_directory(&e->directory);
    free(e->program);
    MAGIC_WIPE(e);
    free(e);
}
