/* log.c - one ring per worker, one thread that writes.
 *
 *   worker: log_write() -> its ring ---\
 *   worker: log_line()  -> its ring ----+--> writer thread -> write(2) -> file
 *   main:   log_write() --------------------------------------^ (direct, under the file's lock)
 *
 * A ring has one writer and one reader, so head and tail are plain atomics. The writer thread gathers for
 * WRITER_PAUSE_US after each round: a busy weir is woken for 50 times a second at most, whatever the rate of
 * lines. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"

enum { RING_SIZE = 1 << 20, WRITER_PAUSE_US = 20000 };

struct ring {
    _Atomic size_t head; /* written by the thread that owns the ring */
    _Atomic size_t tail; /* written by the writer thread; head - tail bytes wait */
    _Atomic uint64_t dropped;
    char bytes[RING_SIZE];
};

_Atomic enum log_level log_threshold = LEVEL_INFO;

static _Atomic(struct ring *) rings[LOG_THREADS_MAX];
static _Thread_local struct ring *own_ring;
static _Thread_local bool own_wrote;

static struct {
    pthread_t thread;
    pthread_mutex_t lock; /* of asleep's wait */
    pthread_cond_t wake;
    _Atomic bool started, asleep, stop, reopen;
    uint64_t dropped_said;
} writer = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static struct {
    pthread_mutex_t lock;
    int fd;
    char *path;            /* NULL: stderr */
    int trouble;           /* the errno of the last write, where lines were lost */
    bool torn;             /* what was written last is no whole line */
    uint64_t lost_said;    /* of lost */
    _Atomic uint64_t lost; /* lines that could not be written */
} file = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = STDERR_FILENO};

/* What was said last, by whom: a place for each event, and where two share one, some are said twice. */
enum { EVENTS = 64 };

static struct {
    pthread_mutex_t lock;
    struct {
        uint64_t event, at_us;
        unsigned thread;
    } said[EVENTS];
} events = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t fnv(uint64_t hash, struct slice bytes) /* 1a, of 64 bits */
{
    for (size_t i = 0; i < bytes.n; i++)
        hash = (hash ^ (unsigned char)bytes.p[i]) * 1099511628211u;
    return hash;
}

bool log_is_first(struct slice whom, const char *what)
{
    uint64_t event = fnv(fnv(14695981039346656037u, whom), slice_of(what)), now = clock_us();
    static _Atomic unsigned threads;
    static _Thread_local unsigned self;

    if (self == 0)
        self = ++threads;
    pthread_mutex_lock(&events.lock);
    bool together = events.said[event % EVENTS].event == event &&
                    events.said[event % EVENTS].thread != self &&
                    now - events.said[event % EVENTS].at_us < LOG_TOGETHER_US;
    if (!together) {
        events.said[event % EVENTS].event = event;
        events.said[event % EVENTS].at_us = now;
        events.said[event % EVENTS].thread = self;
    }
    pthread_mutex_unlock(&events.lock);
    return !together;
}

void log_set_level(enum log_level level)
{
    log_threshold = level;
}

/* "2026-01-31T12:00:00.123Z warn  "; how long it is. */
static size_t stamp(char *bytes, size_t room, enum log_level level)
{
    static const char *const word[] = {"error ", "warn  ", "info  ", "debug "};
    uint64_t now = clock_wall_us();
    time_t seconds = (time_t)(now / 1000000);
    struct tm tm;

    gmtime_r(&seconds, &tm);
    size_t n = strftime(bytes, room, "%Y-%m-%dT%H:%M:%S", &tm);
    return n + (size_t)snprintf(bytes + n, room - n, ".%03uZ %s", (unsigned)(now / 1000 % 1000), word[level]);
}

/* ---- the file, under its lock ------------------------------------------------------------------------ */

/* How much the file took. */
static size_t write_all(const char *p, size_t n)
{
    size_t done = 0;

    while (done < n) {
        ssize_t more = write(file.fd, p + done, n - done);
        if (more < 0 && errno == EINTR)
            continue;
        if (more <= 0)
            break;
        done += (size_t)more;
    }
    if (done)
        file.torn = p[done - 1] != '\n';
    return done;
}

/* The first time where people look who find nothing in the file. */
static void lose(const char *p, size_t n)
{
    int why = errno;

    if (!file.trouble && file.path)
        dprintf(STDERR_FILENO, "weir: log: %s cannot be written: %s; lines are lost until it can\n",
                file.path, strerror(why));
    file.trouble = why;
    for (size_t i = 0; i < n; i++)
        file.lost += p[i] == '\n';
}

/* Before the next line: what is missing. False: the file still takes nothing. */
static bool say_lost(void)
{
    char bytes[256];
    size_t n = 0;

    if (file.torn)
        bytes[n++] = '\n';
    n += stamp(bytes + n, sizeof bytes - n, LEVEL_WARN);
    n += (size_t)snprintf(bytes + n, sizeof bytes - n, "log: %llu line%s lost: %s\n",
                          (unsigned long long)(file.lost - file.lost_said),
                          file.lost - file.lost_said == 1 ? " was" : "s were", strerror(file.trouble));
    if (write_all(bytes, n) < n)
        return false;
    file.lost_said = file.lost;
    file.trouble = 0;
    return true;
}

/* Writes all, as far as the file takes it; a full disk loses lines, not requests. */
static void file_write(const char *p, size_t n)
{
    pthread_mutex_lock(&file.lock);
    size_t done = !file.trouble || say_lost() ? write_all(p, n) : 0;
    if (done < n)
        lose(p + done, n - done);
    pthread_mutex_unlock(&file.lock);
}

/* ---- a thread's side --------------------------------------------------------------------------------- */

static void ring_put(struct ring *ring, struct slice line)
{
    size_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    size_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);

    if (line.n > RING_SIZE - (head - tail)) {
        atomic_fetch_add_explicit(&ring->dropped, 1, memory_order_relaxed);
        return;
    }
    size_t at = head % RING_SIZE, first = line.n < RING_SIZE - at ? line.n : RING_SIZE - at;
    memcpy(ring->bytes + at, line.p, first);
    memcpy(ring->bytes, line.p + first, line.n - first);
    atomic_store_explicit(&ring->head, head + line.n, memory_order_release);
    own_wrote = true;
}

void log_line(struct slice line)
{
    if (own_ring)
        ring_put(own_ring, line);
    else
        file_write(line.p, line.n);
}

void log_write(enum log_level level, const char *format, ...)
{
    char bytes[LOG_LINE_MAX];
    va_list args;

    size_t n = stamp(bytes, sizeof bytes, level);
    va_start(args, format);
    int wanted = vsnprintf(bytes + n, sizeof bytes - n - 1, format, args);
    va_end(args);
    if (wanted < 0)
        return;
    if ((size_t)wanted >= sizeof bytes - n - 1) {
        n = sizeof bytes - 1;
        memcpy(bytes + n - 3, "...", 3);
    } else
        n += (size_t)wanted;
    for (size_t i = 0; i < n; i++) /* one event, one line, whatever a client sent */
        if ((unsigned char)bytes[i] < 0x20 || bytes[i] == 0x7f)
            bytes[i] = '?';
    bytes[n++] = '\n';
    log_line((struct slice){bytes, n});
}

void log_thread_begin(void)
{
    struct ring *ring = xcalloc(1, sizeof *ring);
    for (unsigned i = 0; i < LOG_THREADS_MAX; i++) {
        struct ring *none = NULL;
        if (atomic_compare_exchange_strong(&rings[i], &none, ring)) {
            own_ring = ring;
            return;
        }
    }
    free(ring); /* more threads than rings: this one writes straight to the file */
}

void log_thread_end(void)
{
    if (!own_ring)
        return;
    log_thread_flush();
    own_ring = NULL;
}

static void wake_writer(void)
{
    pthread_mutex_lock(&writer.lock);
    pthread_cond_signal(&writer.wake);
    pthread_mutex_unlock(&writer.lock);
}

void log_thread_flush(void)
{
    if (!own_wrote)
        return;
    own_wrote = false;
    atomic_thread_fence(
        memory_order_seq_cst); /* the line is in the ring before we ask whether the writer sleeps */
    if (atomic_load(&writer.asleep))
        wake_writer();
}

/* ---- the writer thread ------------------------------------------------------------------------------- */

static bool ring_drain(struct ring *ring)
{
    size_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    size_t head = atomic_load_explicit(&ring->head, memory_order_acquire);

    if (head == tail)
        return false;
    size_t at = tail % RING_SIZE, n = head - tail, first = n < RING_SIZE - at ? n : RING_SIZE - at;
    file_write(ring->bytes + at, first);
    file_write(ring->bytes, n - first);
    atomic_store_explicit(&ring->tail, head, memory_order_release);
    return true;
}

static bool drain_all(void)
{
    bool any = false;
    for (unsigned i = 0; i < LOG_THREADS_MAX; i++) {
        struct ring *ring = atomic_load(&rings[i]);
        if (!ring)
            continue;
        any |= ring_drain(ring);
    }
    return any;
}

static uint64_t rings_dropped(void)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < LOG_THREADS_MAX; i++) {
        struct ring *ring = atomic_load(&rings[i]);
        if (ring)
            sum += atomic_load_explicit(&ring->dropped, memory_order_relaxed);
    }
    return sum;
}

static void say_dropped(void)
{
    uint64_t dropped = rings_dropped();
    if (dropped == writer.dropped_said)
        return;
    log_warn("log: %llu lines were dropped because the log file cannot keep up",
             (unsigned long long)(dropped - writer.dropped_said));
    writer.dropped_said = dropped;
}

/* The path may be changed by a reload meanwhile, so it is copied. */
static char *file_path(void)
{
    pthread_mutex_lock(&file.lock);
    char *path = file.path ? xstrdup(file.path) : NULL;
    pthread_mutex_unlock(&file.lock);
    return path;
}

static void reopen_file(void)
{
    char *path = file_path();

    if (!path)
        return;
    if (log_open(path) == 0)
        log_info("log: %s opened again", path);
    else
        log_error("log: cannot open %s again: %s; writing on to the old file", path, strerror(errno));
    free(path);
}

static void wait_for_lines(void)
{
    pthread_mutex_lock(&writer.lock);
    atomic_store(&writer.asleep, true);
    /* Looked at again after saying so: a line put before is seen here, a later one wakes us. */
    bool any = false;
    for (unsigned i = 0; i < LOG_THREADS_MAX && !any; i++) {
        struct ring *ring = atomic_load(&rings[i]);
        any = ring && atomic_load(&ring->head) != atomic_load(&ring->tail);
    }
    if (!any && !atomic_load(&writer.stop) && !atomic_load(&writer.reopen))
        pthread_cond_wait(&writer.wake, &writer.lock);
    atomic_store(&writer.asleep, false);
    pthread_mutex_unlock(&writer.lock);
}

static void *writer_main(void *unused)
{
    (void)unused;
    while (!atomic_load(&writer.stop)) {
        if (atomic_exchange(&writer.reopen, false))
            reopen_file();
        if (drain_all()) {
            say_dropped();
            usleep(WRITER_PAUSE_US);
        } else
            wait_for_lines();
    }
    drain_all();
    say_dropped();
    return NULL;
}

int log_open(const char *path)
{
    int fd = STDERR_FILENO;
    bool is_stderr = strcmp(path, "stderr") == 0;

    if (!is_stderr && (fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640)) < 0)
        return -1;
    pthread_mutex_lock(&file.lock);
    if (file.fd != STDERR_FILENO)
        close(file.fd);
    free(file.path);
    file.fd = fd;
    file.path = is_stderr ? NULL : xstrdup(path);
    file.torn = false;
    pthread_mutex_unlock(&file.lock);
    return 0;
}

void log_reopen(void)
{
    atomic_store(&writer.reopen, true);
    wake_writer();
}

int log_start(void)
{
    int failure = pthread_create(&writer.thread, NULL, writer_main, NULL);
    if (failure) {
        errno = failure;
        return -1;
    }
    atomic_store(&writer.started, true);
    return 0;
}

/* Not before the end: log_dropped() reads them from any thread. */
static void free_rings(void)
{
    for (unsigned i = 0; i < LOG_THREADS_MAX; i++)
        free(atomic_exchange(&rings[i], NULL));
}

void log_stop(void)
{
    if (!atomic_exchange(&writer.started, false))
        return;
    atomic_store(&writer.stop, true);
    wake_writer();
    pthread_join(writer.thread, NULL);
    atomic_store(&writer.stop, false);
    free_rings();
}

uint64_t log_dropped(void)
{
    return rings_dropped() + file.lost;
}
