/* loop_iterations.c - LD_PRELOAD library that records every iteration of a thread's event loop: its start and
 * end, its CPU time and its run delay. The run delay (schedstat) is the time for which the thread
 * was runnable but had no CPU; it depends on the machine. See
 * tests/integration/loop_iterations.py. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

/* The record format; loop_iterations.py reads it. */
struct iteration {
    uint64_t woken_us, end_us; /* wall clock */
    uint32_t cpu_us, delay_us; /* of the iteration */
    uint32_t wake_us;          /* run delay before the iteration, on wake-up */
    uint32_t events;
};

static _Thread_local FILE *out;
static _Thread_local int schedstat = -1;
static _Thread_local struct iteration iteration;
static _Thread_local uint64_t cpu_us, delay_us;
static _Thread_local int loop_fd =
    -1; /* the event loop's epoll instance; pollers call others within an iteration */

static uint64_t clock_of(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static uint64_t run_delay(void)
{
    char text[128], *end;
    ssize_t n = pread(schedstat, text, sizeof text - 1, 0);

    if (n <= 0)
        return 0;
    text[n] = 0;
    (void)strtoull(text, &end, 10); /* skips the CPU time */
    return strtoull(end, NULL, 10) / 1000;
}

static void begin_thread(void)
{
    char name[256];

    snprintf(name, sizeof name, "%s.%d", getenv("LOOP_ITERATIONS"), gettid());
    schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    if ((out = fopen(name, "we")))
        setvbuf(out, NULL, _IOFBF, 1 << 16);
}

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout)
{
    static int (*real)(int, struct epoll_event *, int, int);
    uint64_t before = 0;

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "epoll_wait");
    if (loop_fd < 0)
        loop_fd = fd;
    if (fd != loop_fd) {
        int more = real(fd, events, most, timeout);
        iteration.events += more > 0 ? (uint32_t)more : 0;
        return more;
    }
    if (schedstat < 0)
        begin_thread();
    before = run_delay();
    if (iteration.woken_us && out) {
        iteration.end_us = clock_of(CLOCK_REALTIME);
        iteration.cpu_us = (uint32_t)(clock_of(CLOCK_THREAD_CPUTIME_ID) - cpu_us);
        iteration.delay_us = (uint32_t)(before - delay_us);
        fwrite(&iteration, sizeof iteration, 1, out);
        if (timeout != 0)
            fflush(out);
    }
    int n = real(fd, events, most, timeout);
    delay_us = run_delay();
    cpu_us = clock_of(CLOCK_THREAD_CPUTIME_ID);
    iteration.woken_us = clock_of(CLOCK_REALTIME);
    iteration.wake_us = (uint32_t)(delay_us - before);
    iteration.events = n > 0 ? (uint32_t)n : 0;
    return n;
}
