/* log.h - what weir says to its operator: one line an event, and one line a request in the access log.
 *
 * A thread that has called log_thread_begin() writes into a ring of its own and never waits: a writer thread
 * carries the lines to the file. When the disk cannot keep up, lines are dropped, counted and the count is
 * logged; requests go on. Threads without a ring, and everybody before log_start(), write straight to the
 * file. */
#ifndef WEIR_BASE_LOG_H
#define WEIR_BASE_LOG_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/slice.h"

enum log_level { LEVEL_ERROR, LEVEL_WARN, LEVEL_INFO, LEVEL_DEBUG };

extern _Atomic enum log_level log_threshold; /* log_set_level */

void log_set_level(enum log_level level);

/* The longest line; what is longer is cut and ends in "...". */
enum { LOG_LINE_MAX = 8192 };

enum log_format { LOG_TEXT, LOG_JSON };

/* How events are written from now on: as text (the default), or each as a JSON object. */
void log_set_format(enum log_format format);

/* "2026-01-31T12:00:00.123Z warn  MESSAGE", or in JSON
 * {"time":"2026-01-31T12:00:00.123Z","level":"warn","message":"MESSAGE"}.
 * Use the macros: they cost nothing when the level is off. */
void log_write(enum log_level level, const char *format, ...) PRINTF_LIKE(2, 3);
#define log_at(level, ...)                                                                                   \
    do {                                                                                                     \
        if (unlikely((level) <= atomic_load_explicit(&log_threshold, memory_order_relaxed)))                 \
            log_write((level), __VA_ARGS__);                                                                 \
    } while (0)
#define log_error(...) log_at(LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)  log_at(LEVEL_WARN, __VA_ARGS__)
#define log_info(...)  log_at(LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LEVEL_DEBUG, __VA_ARGS__)

/* Threads that meet one event together say it once: false where another thread has asked the same less than
 * LOG_TOGETHER_US ago and was told true. A thread by itself is never silenced. `whom` are any bytes. */
enum { LOG_TOGETHER_US = 2500000 };
bool log_is_first(struct slice whom, const char *what);

/* A finished line (with its newline) of the access log. */
void log_line(struct slice line);

/* Opens `file` ("stderr" or a path, opened for appending). -1 with errno when it cannot be opened: the file
 * in use stays. */
MUST_CHECK int log_open(const char *file);
/* Opens the same path again, after logrotate has moved it. Safe from any thread; the writer thread does the
 * work. */
void log_reopen(void);

/* The writer thread: start once; stop writes what is left. */
MUST_CHECK int log_start(void);
void log_stop(void);

/* Gives the calling thread a ring; ends its use. Rings are freed by log_stop, after all threads have ended. At most LOG_THREADS_MAX. */
enum { LOG_THREADS_MAX = 260 };
void log_thread_begin(void);
void log_thread_end(void);
/* Call once per loop iteration: wakes the writer when this thread has written since the last call. */
void log_thread_flush(void);

/* Lines dropped so far because a ring was full or the file could not be written. */
uint64_t log_dropped(void);

#endif
