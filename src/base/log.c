/* log.c - one ring per thread and one writer thread. The file itself is in log_file.c.
 *
 *   log_write(), log_put_line()
 *     of a thread with a ring -> its ring -> writer thread -> writev(2) -> file
 *     before log_start()      -> writev(2) -> file, under the file's lock
 *
 * A ring has one writer and one reader, so head and tail are plain atomics. After each round, the
 * writer thread pauses for WRITER_PAUSE_US, or less if a ring fills up. Under load it wakes about
 * 50 times per second, regardless of the line rate. */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/json_writer.h"
#include "base/log_internal.h"
#include "base/text.h"

enum {
    RING_SIZE = 1 << 20,
    WRITER_PAUSE_US = 20000,
    WRITER_PAUSE_MIN_US = 1000,
    LOG_DROPPED_US = 1000000,
    LOG_NO_MEMORY_US = 10000000,
    STOP_US = 5000000, /* the time in which the last lines are written */
    STOP_LOOK_US = 1000
};

struct ring {
    _Atomic size_t head; /* written by the owner of the ring */
    _Atomic size_t tail; /* written by the writer thread; head - tail bytes are unread */
    _Atomic uint64_t dropped;
    char bytes[RING_SIZE];
};

_Atomic enum log_level log_threshold = LEVEL_INFO;

static _Atomic enum log_format event_format = LOG_TEXT;

static _Atomic(struct ring *) rings[LOG_THREADS_MAX];
static _Thread_local struct ring *own_ring;
static _Thread_local bool wants_ring, own_wrote;
static _Atomic uint64_t dropped_without_ring;

static struct {
    pthread_t thread;
    pthread_mutex_t lock; /* protects the wait on `wake` */
    pthread_cond_t wake;
    _Atomic bool started, asleep, stop, reopen, check, writes;
    _Atomic(struct log_file *) next; /* to be installed; NULL: none */
    _Atomic uint64_t rounds;
    uint64_t rounds_seen; /* by log_writer_is_alive() */
    uint64_t dropped_logged, dropped_logged_us;
    unsigned pause_us;
} writer = {.lock = PTHREAD_MUTEX_INITIALIZER,
            .wake = PTHREAD_COND_INITIALIZER,
            .pause_us = WRITER_PAUSE_US};

/* Recent events and the threads that logged them. Events are hashed to slots; events that share a
 * slot may be logged twice. */
enum { EVENTS = 64 };

static struct {
    pthread_mutex_t lock;
    struct {
        uint64_t event, at_us;
        unsigned thread;
    } recent[EVENTS];
} events = {.lock = PTHREAD_MUTEX_INITIALIZER};

void log_no_memory(const char *what)
{
    static _Thread_local uint64_t logged_us;
    uint64_t now = clock_us();

    if (logged_us && now - logged_us < LOG_NO_MEMORY_US)
        return;
    logged_us = now;
    log_error("out of memory: %s; give weir more (MemoryMax=), or lower size_limits.memory and "
              "size_limits.connections",
              what);
}

bool log_is_first(struct slice whom, const char *what)
{
    uint64_t event = fnv_text(fnv_text(FNV_START, whom), slice_of(what));
    static _Atomic unsigned threads;
    static _Thread_local unsigned self;

    if (self == 0)
        self = ++threads;
    pthread_mutex_lock(&events.lock);
    uint64_t now = clock_us(); /* read under the lock: never earlier than another thread's entry */
    bool together = events.recent[event % EVENTS].event == event &&
                    events.recent[event % EVENTS].thread != self &&
                    now - events.recent[event % EVENTS].at_us < LOG_TOGETHER_US;
    if (!together) {
        events.recent[event % EVENTS].event = event;
        events.recent[event % EVENTS].at_us = now;
        events.recent[event % EVENTS].thread = self;
    }
    pthread_mutex_unlock(&events.lock);
    return !together;
}

void log_set_level(enum log_level level)
{
    log_threshold = level;
}

void log_set_format(enum log_format format)
{
    event_format = format;
}

/* ---- formatting of events -------------------------------------------------------------------- */

static void put_time(struct text *t)
{
    uint64_t now = clock_wall_us();
    time_t seconds = (time_t)(now / 1000000);
    char bytes[32];
    struct tm tm;

    gmtime_r(&seconds, &tm);
    text_bytes(t, bytes, strftime(bytes, sizeof bytes, "%Y-%m-%dT%H:%M:%S", &tm));
    text_printf(t, ".%03uZ", (unsigned)(now / 1000 % 1000));
}

/* Control characters become "?", so that an event is one line, and commands no terminal, whatever a
 * client sent. */
static void put_text_event(struct text *t, enum log_level level, struct slice message)
{
    static const char *const word[] = {" error ", " warn  ", " info  ", " debug "};

    put_time(t);
    text_put(t, slice_of(word[level]));
    text_clean(t, message);
}

static void put_json_event(struct text *t, enum log_level level, struct slice message)
{
    static const char *const word[] = {"error", "warn", "info", "debug"};
    struct json_writer json = json_writer_over(t);

    json_begin(&json, NULL, '{');
    json_begin_string(&json, "time");
    put_time(t);
    json_end_string(&json);
    json_put_text(&json, "level", word[level]);
    json_put_slice(&json, "message", message);
    json_end(&json, '}');
}

/* Cuts a message that does not fit, never inside a UTF-8 sequence, and appends "...". */
static struct slice shorten(struct slice message, char *room, size_t size)
{
    size_t n = message.n - message.n / 4 < size - 3 ? message.n - message.n / 4 : size - 3;

    while (n && ((unsigned char)message.p[n] & 0xc0) == 0x80)
        n--;
    memmove(room, message.p, n);
    memcpy(room + n, "...", 3);
    return (struct slice){room, n + 3};
}

size_t log_event(char line[static LOG_LINE_MAX], enum log_level level, struct slice message)
{
    char room[LOG_LINE_MAX];
    struct text t;

    for (;;) {
        t = text_over(line, LOG_LINE_MAX - 1);
        if (atomic_load_explicit(&event_format, memory_order_relaxed) == LOG_JSON)
            put_json_event(&t, level, message);
        else
            put_text_event(&t, level, message);
        if (!t.failed)
            break;
        message = shorten(message, room, sizeof room); /* an escape takes up to six bytes */
    }
    line[t.n++] = '\n';
    return t.n;
}

/* ---- logging threads ------------------------------------------------------------------------- */

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

/* Sets own_ring, unless there is no memory or are more threads than rings. */
static void take_ring(void)
{
    struct ring *ring = calloc(1, sizeof *ring);
    for (unsigned i = 0; ring && i < LOG_THREADS_MAX; i++) {
        struct ring *none = NULL;
        if (atomic_compare_exchange_strong(&rings[i], &none, ring)) {
            own_ring = ring;
            return;
        }
    }
    free(ring);
}

void log_put_line(struct slice line)
{
    if (wants_ring && !own_ring)
        take_ring();
    if (own_ring)
        ring_put(own_ring, line);
    else if (wants_ring)
        atomic_fetch_add_explicit(&dropped_without_ring, 1, memory_order_relaxed);
    else
        log_file_write(line, SLICE_NONE);
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
    /* Store the line before checking whether the writer sleeps. */
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load(&writer.asleep))
        wake_writer();
}

void log_write(enum log_level level, const char *format, ...)
{
    char message[LOG_LINE_MAX], line[LOG_LINE_MAX];
    va_list args;

    va_start(args, format);
    int wanted = vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (wanted < 0)
        return;
    if ((size_t)wanted >= sizeof message) {
        wanted = sizeof message - 1;
        memcpy(message + wanted - 3, "...", 3);
    }
    size_t n = log_event(line, level, (struct slice){message, (size_t)wanted});
    log_put_line((struct slice){line, n});
    log_thread_flush();
}

void log_thread_begin(void)
{
    wants_ring = true;
    take_ring();
}

void log_thread_end(void)
{
    log_thread_flush();
    wants_ring = false;
    own_ring = NULL;
}

/* ---- the writer thread ----------------------------------------------------------------------- */

static void install_next(void)
{
    struct log_file *next = atomic_exchange(&writer.next, NULL);

    if (next)
        log_file_install(next);
}

/* Writes out a ring. Returns its number of bytes. */
static size_t ring_drain(struct ring *ring)
{
    size_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    size_t head = atomic_load_explicit(&ring->head, memory_order_acquire);

    install_next(); /* after the head was read: lines after log_open() are for the next file */
    if (head == tail)
        return 0;
    size_t at = tail % RING_SIZE, n = head - tail, first = n < RING_SIZE - at ? n : RING_SIZE - at;
    log_file_write((struct slice){ring->bytes + at, first}, (struct slice){ring->bytes, n - first});
    atomic_store_explicit(&ring->tail, head, memory_order_release);
    return n;
}

/* Writes out all rings. Returns the number of bytes of the fullest one. */
static size_t drain_all(void)
{
    size_t most = 0;
    for (unsigned i = 0; i < LOG_THREADS_MAX; i++) {
        struct ring *ring = atomic_load(&rings[i]);
        if (!ring)
            continue;
        size_t n = ring_drain(ring);
        most = n > most ? n : most;
    }
    return most;
}

static uint64_t rings_dropped(void)
{
    uint64_t sum = atomic_load_explicit(&dropped_without_ring, memory_order_relaxed);
    for (unsigned i = 0; i < LOG_THREADS_MAX; i++) {
        struct ring *ring = atomic_load(&rings[i]);
        if (ring)
            sum += atomic_load_explicit(&ring->dropped, memory_order_relaxed);
    }
    return sum;
}

/* Logs at most once per second, unless `now`. */
static void report_dropped(bool now)
{
    uint64_t dropped = rings_dropped(), us = clock_us();

    if (dropped == writer.dropped_logged ||
        (!now && us - writer.dropped_logged_us < LOG_DROPPED_US))
        return;
    writer.dropped_logged_us = us;
    log_warn("log: %llu lines were dropped because the log file cannot keep up; use a faster disk, "
             "or log less (log.access, log.sample)",
             (unsigned long long)(dropped - writer.dropped_logged));
    writer.dropped_logged = dropped;
}

/* Pauses so that no ring fills up. Halves the pause if the fullest ring (`most` bytes) is at least
 * 1/4 full; doubles it below 1/16. */
static void pause_for(size_t most)
{
    if (most >= RING_SIZE / 4 && writer.pause_us > WRITER_PAUSE_MIN_US)
        writer.pause_us /= 2;
    else if (most < RING_SIZE / 16 && writer.pause_us < WRITER_PAUSE_US)
        writer.pause_us *= 2;
    usleep(writer.pause_us);
}

static void wait_for_lines(void)
{
    pthread_mutex_lock(&writer.lock);
    atomic_store(&writer.asleep, true);
    /* Checked again after setting `asleep`: a line written before is seen here, a later one wakes
     * the writer. */
    bool any = false;
    for (unsigned i = 0; i < LOG_THREADS_MAX && !any; i++) {
        struct ring *ring = atomic_load(&rings[i]);
        any = ring && atomic_load(&ring->head) != atomic_load(&ring->tail);
    }
    if (!any && !atomic_load(&writer.stop) && !atomic_load(&writer.reopen) &&
        !atomic_load(&writer.check) && !atomic_load(&writer.next))
        pthread_cond_wait(&writer.wake, &writer.lock);
    atomic_store(&writer.asleep, false);
    pthread_mutex_unlock(&writer.lock);
}

static void *writer_main(void *unused)
{
    (void)unused;
    pthread_setname_np(pthread_self(), "weir log");
    while (!atomic_load(&writer.stop)) {
        atomic_store(&writer.check, false);
        atomic_fetch_add(&writer.rounds, 1);
        atomic_store(&writer.writes, true);
        if (atomic_exchange(&writer.reopen, false))
            log_file_reopen();
        size_t most = drain_all();
        report_dropped(most == 0);
        atomic_store(&writer.writes, false);
        if (most)
            pause_for(most);
        else
            wait_for_lines();
    }
    drain_all();
    report_dropped(true);
    return NULL;
}

int log_open(const char *path)
{
    struct log_file *opened = log_file_open(path);

    if (!opened)
        return -1;
    if (!wants_ring) {
        log_file_install(opened);
        return 0;
    }
    log_file_close(atomic_exchange(&writer.next, opened));
    wake_writer();
    return 0;
}

void log_reopen(void)
{
    atomic_store(&writer.reopen, true);
    wake_writer();
}

bool log_writer_is_alive(void)
{
    uint64_t rounds = atomic_load(&writer.rounds);
    bool alive = !atomic_load(&writer.started) || rounds != writer.rounds_seen ||
                 atomic_load(&writer.writes);

    writer.rounds_seen = rounds;
    atomic_store(&writer.check, true);
    if (atomic_load(&writer.asleep))
        wake_writer();
    return alive;
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

/* Called only at the end: any thread may read the rings through log_dropped(). */
static void free_rings(void)
{
    for (unsigned i = 0; i < LOG_THREADS_MAX; i++)
        free(atomic_exchange(&rings[i], NULL));
}

void log_stop(void)
{
    uint64_t until_us = clock_us() + STOP_US;

    if (!atomic_exchange(&writer.started, false))
        return;
    atomic_store(&writer.stop, true);
    wake_writer();
    for (; pthread_tryjoin_np(writer.thread, NULL) != 0; usleep(STOP_LOOK_US))
        if (clock_us() >= until_us)
            return; /* the file blocks: thread, rings and the last lines end with the process */
    atomic_store(&writer.stop, false);
    log_thread_end();
    free_rings();
}

uint64_t log_dropped(void)
{
    return rings_dropped() + log_file_lost();
}
