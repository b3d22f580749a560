/* server_systemd.c - what weir reports to systemd (sd_notify(3)): readiness, reloads, stopping, a
 * status line, and the watchdog (WatchdogSec=).
 *
 * The main thread checks that every worker completes loop iterations and the log writer is alive,
 * and pings the watchdog only then. An idle worker sleeps, so each check wakes it; the next check
 * compares its count of iterations. It is a quarter of the watchdog's interval later, or
 * CHECK_US without a watchdog. Then the log and the problem worker_stuck report it. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/event_timer.h"
#include "base/log.h"
#include "base/memory.h"
#include "config.h"
#include "server_internal.h"

#ifdef HAVE_SYSTEMD
#include <systemd/sd-daemon.h>
#endif

/* A reload reads files and resolves names on the main thread, which pings no watchdog meanwhile. */
enum { RELOAD_US = 300000000, STOP_MARGIN_US = 10000000, CHECK_US = 5000000 };

struct watchdog {
    struct weir *weir;
    uint64_t interval_us; /* UINT64_MAX: systemd has set none */
    uint64_t check_us;
    struct event *check;
    uint64_t *iterations; /* [worker] at the last check */
    bool *stuck;          /* [worker] reported as stuck */
    bool log_stuck;
};

#ifdef HAVE_SYSTEMD

static void notify_systemd(const char *format, ...) PRINTF_LIKE(1, 2);
static void notify_systemd(const char *format, ...)
{
    char state[512];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(state, sizeof state, format, args);
    va_end(args);
    (void)sd_notify(0, state);
}

static uint64_t watchdog_interval_us(void)
{
    uint64_t us = 0;
    return sd_watchdog_enabled(0, &us) > 0 ? us : 0;
}

#else

static void notify_systemd(const char *format, ...) PRINTF_LIKE(1, 2);
static void notify_systemd(const char *format, ...)
{
    (void)format;
}

static uint64_t watchdog_interval_us(void)
{
    return 0;
}

#endif

/* ---- states ---------------------------------------------------------------------------------- */

void systemd_ready(const struct weir *weir)
{
    if (!weir->ready)
        return; /* sent when it is */
    if (weir->view.last_reload_failed) {
        notify_systemd(
            "READY=1\nSTATUS=the last reload failed, the previous policy stays in effect; "
            "weir check -c %s prints the errors",
            weir->file);
        return;
    }
    notify_systemd("READY=1\nSTATUS=%s: %u listening address%s, %u worker%s", weir->file,
                   weir->first->listen_count, weir->first->listen_count == 1 ? "" : "es",
                   weir->made, weir->made == 1 ? "" : "s");
}

void systemd_reloading(const struct weir *weir)
{
    const struct watchdog *watchdog = weir->watchdog;

    notify_systemd("RELOADING=1\nMONOTONIC_USEC=%" PRIu64 "\nSTATUS=reading %s", clock_us(),
                   weir->file);
    if (watchdog && watchdog->interval_us < RELOAD_US)
        notify_systemd("WATCHDOG=1\nWATCHDOG_USEC=%" PRIu64, (uint64_t)RELOAD_US);
}

/* Restores the watchdog's interval after the blocking part of a reload. */
void systemd_reload_read(const struct weir *weir)
{
    const struct watchdog *watchdog = weir->watchdog;

    if (watchdog && watchdog->interval_us < RELOAD_US)
        notify_systemd("WATCHDOG_USEC=%" PRIu64 "\nWATCHDOG=1", watchdog->interval_us);
}

void systemd_stopping(const struct weir *weir)
{
    const struct timeouts *timeouts = &weir->policy->timeouts;

    notify_systemd("STOPPING=1\nEXTEND_TIMEOUT_USEC=%" PRIu64
                   "\nSTATUS=finishing requests in progress",
                   timeouts->drain_us + timeouts->shutdown_us + STOP_MARGIN_US);
}

/* ---- watchdog -------------------------------------------------------------------------------- */

static double seconds_between_checks(const struct watchdog *watchdog)
{
    return (double)watchdog->check_us / 1e6;
}

static const char *what_follows(const struct watchdog *watchdog)
{
    return watchdog->interval_us == UINT64_MAX ? "restart weir"
                                               : "systemd's watchdog restarts weir";
}

/* Returns whether the worker has completed an iteration since the last check. Wakes it, so that it
 * completes one before the next. */
static bool iterates(struct watchdog *watchdog, unsigned number)
{
    struct worker *worker = watchdog->weir->workers[number];
    uint64_t now = worker_iterations(worker);
    bool stuck = now == watchdog->iterations[number];

    if (stuck && !watchdog->stuck[number])
        log_error("worker %u has not completed a loop iteration for %.1f s; if this continues, %s",
                  number, seconds_between_checks(watchdog), what_follows(watchdog));
    if (!stuck && watchdog->stuck[number])
        log_warn("worker %u completes loop iterations again", number);
    watchdog->stuck[number] = stuck;
    watchdog->iterations[number] = now;
    worker_wake(worker);
    return !stuck;
}

static bool log_writer_is_well(struct watchdog *watchdog)
{
    bool stuck = !log_writer_is_alive();

    if (stuck && !watchdog->log_stuck) {
        char message[256];
        snprintf(message, sizeof message,
                 "the log writer has not responded for %.1f s; if this continues, %s",
                 seconds_between_checks(watchdog), what_follows(watchdog));
        log_to_stderr(slice_of(message));
    }
    watchdog->log_stuck = stuck;
    return !stuck;
}

/* While weir stops, workers end one by one; timeouts.shutdown bounds that. */
static void on_watchdog(evutil_socket_t fd, short what, void *arg)
{
    struct watchdog *watchdog = arg;
    struct weir *weir = watchdog->weir;
    bool well = true;
    (void)fd, (void)what;

    if (!weir->stopping) {
        for (unsigned i = 0; i < weir->started; i++)
            well &= iterates(watchdog, i);
        weir->view.worker_stuck = !well;
        well &= log_writer_is_well(watchdog);
    }
    if (well && watchdog->interval_us != UINT64_MAX)
        notify_systemd("WATCHDOG=1");
}

bool watchdog_start(struct weir *weir)
{
    uint64_t us = watchdog_interval_us();
    struct watchdog *watchdog = weir->watchdog = xcalloc(1, sizeof *watchdog);

    watchdog->weir = weir;
    watchdog->interval_us = us ? us : UINT64_MAX;
    watchdog->check_us = us ? us / 4 : CHECK_US;
    watchdog->iterations = xcalloc(weir->made, sizeof *watchdog->iterations);
    watchdog->stuck = xcalloc(weir->made, sizeof *watchdog->stuck);
    for (unsigned i = 0; i < weir->made; i++)
        watchdog->iterations[i] = UINT64_MAX;
    struct timeval interval = timeval_of_us(watchdog->check_us);
    watchdog->check = event_new(weir->base, -1, EV_PERSIST, on_watchdog, watchdog);
    return watchdog->check && event_add(watchdog->check, &interval) == 0;
}

void watchdog_stop(struct weir *weir)
{
    struct watchdog *watchdog = weir->watchdog;

    if (!watchdog)
        return;
    event_drop(watchdog->check);
    free(watchdog->iterations);
    free(watchdog->stuck);
    free(watchdog);
    weir->watchdog = NULL;
}
