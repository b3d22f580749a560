/* log.h - the event log (one line per event) and the access log (one line per request).
 *
 * A thread that called log_thread_begin() writes into its own ring and never blocks; a writer
 * thread copies the lines to the file. If the disk is too slow, lines are dropped and counted, and
 * the count is logged. Before log_start(), and on the command line, threads write directly to the
 * file. */
#ifndef WEIR_BASE_LOG_H
#define WEIR_BASE_LOG_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/slice.h"

enum log_level { LEVEL_ERROR, LEVEL_WARN, LEVEL_INFO, LEVEL_DEBUG };

extern _Atomic enum log_level log_threshold; /* set by log_set_level() */

void log_set_level(enum log_level level);

/* Maximum line length in bytes. A longer line is cut and ends in "...". */
enum { LOG_LINE_MAX = 8192 };

enum log_format { LOG_TEXT, LOG_JSON };

/* Sets the format of events: text (default) or one JSON object per line. */
void log_set_format(enum log_format format);

/* Writes "2026-01-31T12:00:00.123Z warn MESSAGE", or as JSON:
 * {"time":"2026-01-31T12:00:00.123Z","level":"warn","message":"MESSAGE"}. Use the macros: they cost
 * nothing if the level is off. The writer thread is woken at once. */
void log_write(enum log_level level, const char *format, ...) PRINTF_LIKE(2, 3);
#define log_at(level, ...)                                                                         \
    do {                                                                                           \
        if ((level) <= atomic_load_explicit(&log_threshold, memory_order_relaxed))                 \
            log_write((level), __VA_ARGS__);                                                       \
    } while (0)
#define log_error(...) log_at(LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)  log_at(LEVEL_WARN, __VA_ARGS__)
#define log_info(...)  log_at(LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LEVEL_DEBUG, __VA_ARGS__)

/* Logs that malloc(3) has failed, and what fails for it; at most one line per thread and 10 s. */
void log_no_memory(const char *what);

/* Deduplicates an event that several threads see. Returns false if another thread got true for the
 * same event less than LOG_TOGETHER_US ago. The same thread is never suppressed. `whom` may be any
 * bytes. */
enum { LOG_TOGETHER_US = 2500000 };
bool log_is_first(struct slice whom, const char *what);

/* Writes an error about the log itself to stderr, unless that would wait. Keeps errno. */
void log_to_stderr(struct slice message);

/* Writes a complete line, of an access or of an event, including its newline. */
void log_put_line(struct slice line);

/* Keeps a copy of at most 64 KiB of the lines from now on, until log_open() writes them to its
 * file. Without a call, lines before log_open() are on stderr only. Exits the process if out of
 * memory. */
void log_keep_early_lines(void);

/* Opens `file` ("stderr", or a path to append to). Returns -1 with errno on failure; the current
 * file then stays open. ENXIO: a FIFO that no process reads. A thread with a ring does not wait for
 * writes to the current file: the writer thread replaces it after them. */
MUST_CHECK int log_open(const char *file);
/* Returns whether log_open() may open the file; else sets errno. Does not open it: that would
 * create it, possibly owned by the wrong user. */
bool log_may_open(const char *file);
/* Reopens the same path, after logrotate has moved the file. Safe from any thread; the writer
 * thread does the work. */
void log_reopen(void);

/* Returns whether the writer thread has worked since the last call, and wakes it for the next. A
 * thread that waits for a slow disk is alive: its lines are dropped, and requests go on. True if
 * there is no writer thread. */
bool log_writer_is_alive(void);

/* Starts the writer thread, once. log_stop() writes the remaining lines, and then stops using the
 * calling thread's ring. If the file blocks for 5 s, they are lost. */
MUST_CHECK int log_start(void);
void log_stop(void);

/* Gives the calling thread a ring, or stops using it. log_stop() frees the rings, after all other
 * threads have ended. At most LOG_THREADS_MAX rings. Without memory for a ring, lines are dropped
 * and counted until there is. */
enum { LOG_THREADS_MAX = 260 };
void log_thread_begin(void);
void log_thread_end(void);
/* Wakes the writer thread if this thread has called log_put_line() since the last call. Call once
 * per loop iteration. */
void log_thread_flush(void);

/* Returns the number of lines dropped so far, because a ring was full or the file could not be
 * written. */
uint64_t log_dropped(void);

#endif
