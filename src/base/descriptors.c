#include "base/descriptors.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/event_timer.h"
#include "base/log.h"

enum {
    LOOK_US = 100000,  /* interval between attempts to fill the reserve */
    SPARE = 2,         /* descriptors that must be free beside a full reserve to end the shortage */
    CALM_US = 5000000, /* time without another failure before the log reports the end */
};

static struct {
    pthread_mutex_t lock; /* protects fds, count */
    int fds[DESCRIPTORS_RESERVED];
    unsigned count, size;
    atomic_bool scarce;
    atomic_int cause; /* errno of the last failure */
    _Atomic uint64_t lack_us, shortages;
    int wake_fd; /* eventfd: signals that a shortage has begun */
    struct event *wake, *timer;
    bool logged;       /* the shortage was logged */
    uint64_t since_us, /* start of the shortage */
        over_us;       /* end of the last shortage */
} reserve = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake_fd = -1};

static int placeholder(void)
{
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* Fills the reserve. Returns whether it is full. */
static bool fill_reserve(void)
{
    pthread_mutex_lock(&reserve.lock);
    for (int fd; reserve.count < reserve.size && (fd = placeholder()) >= 0;)
        reserve.fds[reserve.count++] = fd;
    bool full = reserve.count == reserve.size;
    pthread_mutex_unlock(&reserve.lock);
    return full;
}

static bool some_are_free(void)
{
    int fds[SPARE], n = 0;

    while (n < SPARE && (fds[n] = placeholder()) >= 0)
        n++;
    bool free = n == SPARE;
    while (n)
        close(fds[--n]);
    return free;
}

/* ---- the log, on the main thread ------------------------------------------------------------- */

static void report_scarce(void)
{
    struct rlimit limit = {0};

    (void)getrlimit(RLIMIT_NOFILE, &limit);
    reserve.logged = true;
    reserve.since_us = atomic_load(&reserve.lack_us);
    if (atomic_load(&reserve.cause) == ENFILE)
        log_error("descriptors: the system has none left (fs.file-max): no clients are accepted "
                  "until some "
                  "are free; "
                  "find the process that uses them (lsof), or raise fs.file-max");
    else
        log_error("descriptors: all %llu allowed descriptors are in use: no clients are accepted "
                  "until some are free; "
                  "raise LimitNOFILE (ulimit -n), or lower size_limits.connections",
                  (unsigned long long)limit.rlim_cur);
}

/* Repeated shortages in quick succession are logged as one. */
static void report_enough(void)
{
    reserve.logged = false;
    log_info("descriptors: some are free again after %.1f s; clients are accepted",
             (double)(reserve.over_us - reserve.since_us) / 1e6);
}

static void on_reserve_check(evutil_socket_t fd, short what, void *arg)
{
    uint64_t now = clock_us(), count;
    (void)what, (void)arg;

    if (fd >= 0 && read(fd, &count, sizeof count) < 0 && errno != EAGAIN)
        return;
    if (atomic_load(&reserve.scarce) && !reserve.logged)
        report_scarce();
    if (atomic_load(&reserve.scarce) && fill_reserve() && some_are_free()) {
        reserve.over_us = now;
        atomic_store(&reserve.scarce, false);
    }
    if (!atomic_load(&reserve.scarce) && reserve.logged && now >= reserve.over_us + CALM_US &&
        now >= atomic_load(&reserve.lack_us) + CALM_US)
        report_enough();
    if (reserve.logged)
        event_timer_arm(reserve.timer, LOOK_US);
}

/* ---- functions for any thread ---------------------------------------------------------------- */

bool descriptors_are_scarce(void)
{
    return atomic_load_explicit(&reserve.scarce, memory_order_relaxed);
}

void descriptors_note_lack(int error)
{
    atomic_store(&reserve.cause, error);
    atomic_store(&reserve.lack_us, clock_us());
    if (atomic_exchange(&reserve.scarce, true))
        return;
    atomic_fetch_add(&reserve.shortages, 1);
    if (reserve.wake_fd >= 0)
        eventfd_write(reserve.wake_fd, 1);
}

bool descriptors_give(enum descriptor_use use, int error)
{
    int fd = -1;

    descriptors_note_lack(error);
    pthread_mutex_lock(&reserve.lock);
    unsigned kept = use == DESCRIPTOR_FOR_SERVER  ? reserve.size / 2
                    : use == DESCRIPTOR_FOR_REDIS ? reserve.size / 4
                                                  : 0;
    if (reserve.count > kept)
        fd = reserve.fds[--reserve.count];
    pthread_mutex_unlock(&reserve.lock);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

uint64_t descriptors_shortages(void)
{
    return atomic_load(&reserve.shortages);
}

/* ---- start and stop -------------------------------------------------------------------------- */

bool descriptors_start(struct event_base *base)
{
    struct rlimit limit;

    reserve.size = DESCRIPTORS_RESERVED;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / 8 < DESCRIPTORS_RESERVED)
        reserve.size = (unsigned)limit.rlim_cur / 8;
    reserve.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (reserve.wake_fd < 0)
        return false;
    reserve.wake = event_new(base, reserve.wake_fd, EV_READ | EV_PERSIST, on_reserve_check, NULL);
    reserve.timer = evtimer_new(base, on_reserve_check, NULL);
    return reserve.wake && reserve.timer && event_add(reserve.wake, NULL) == 0 && fill_reserve();
}

void descriptors_stop(void)
{
    event_drop(reserve.wake);
    event_drop(reserve.timer);
    if (reserve.wake_fd >= 0)
        close(reserve.wake_fd);
    reserve.wake = reserve.timer = NULL;
    reserve.wake_fd = -1;
    while (reserve.count)
        close(reserve.fds[--reserve.count]);
}
