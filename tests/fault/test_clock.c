#include "fault/test_clock.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static _Atomic uint64_t ahead_us;     /* ahead of the machine's clocks */
static _Atomic uint64_t wall_us;      /* 0: not set */
static _Atomic uint64_t stands_at_ns; /* the monotonic clock; 0: it runs */
static atomic_bool skips_waits;

void test_clock_advance_us(uint64_t us)
{
    atomic_fetch_add(&ahead_us, us);
}

void test_clock_stand(bool on)
{
    struct timespec t = {0, 0};

    if (on)
        syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
    atomic_store(&stands_at_ns, (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec);
}

void test_clock_set_wall_us(uint64_t us)
{
    atomic_store(&wall_us, us);
}

void test_clock_skip_waits(bool on)
{
    atomic_store(&skips_waits, on);
}

int clock_gettime(clockid_t id, struct timespec *t)
{
    uint64_t set_us = id == CLOCK_REALTIME ? atomic_load(&wall_us) : 0;

    if (set_us) {
        *t = (struct timespec){(time_t)(set_us / 1000000), (long)(set_us % 1000000 * 1000)};
        return 0;
    }
    if (syscall(SYS_clock_gettime, id, t) < 0)
        return -1;
    uint64_t stands_ns = atomic_load(&stands_at_ns);
    if (stands_ns && (id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_COARSE))
        *t = (struct timespec){(time_t)(stands_ns / 1000000000), (long)(stands_ns % 1000000000)};
    uint64_t ns = (uint64_t)t->tv_nsec + atomic_load(&ahead_us) % 1000000 * 1000;
    t->tv_sec += (time_t)(atomic_load(&ahead_us) / 1000000 + ns / 1000000000);
    t->tv_nsec = (long)(ns % 1000000000);
    return 0;
}

int epoll_wait(int fd, struct epoll_event *events, int size, int timeout_ms)
{
    bool skips = atomic_load(&skips_waits) && timeout_ms > 0;
    int found = (int)syscall(SYS_epoll_pwait, fd, events, size, skips ? 0 : timeout_ms, NULL, 0);

    if (found == 0 && skips)
        test_clock_advance_us((uint64_t)timeout_ms * 1000);
    return found;
}

/* The kernel's timers follow the machine's clock; without them weir uses those of libevent. */
int timerfd_create(int clock, int flags)
{
    if (!atomic_load(&skips_waits))
        return (int)syscall(SYS_timerfd_create, clock, flags);
    errno = EMFILE;
    return -1;
}
