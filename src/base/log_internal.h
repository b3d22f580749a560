/* log_internal.h - interface between log.c (events, rings) and log_file.c (the file). Private to
 * them. */
#ifndef WEIR_BASE_LOG_INTERNAL_H
#define WEIR_BASE_LOG_INTERNAL_H

#include "base/log.h"

/* Formats an event with its newline, as set by log_set_format(). Returns its size. A message that
 * is too long is cut and ends in "...". */
size_t log_event(char line[static LOG_LINE_MAX], enum log_level level, struct slice message);

/* Writes complete lines, `first` then `second` (the two parts of a ring that wraps around), without
 * lines of other threads in between. Lines that cannot be written, as on a full disk, are counted
 * as lost. */
void log_file_write(struct slice first, struct slice second);

/* An open file. */
struct log_file {
    int fd;
    char path[];
};
/* Same as log_open(), without installing the file. Returns NULL with errno on failure. */
MUST_CHECK struct log_file *log_file_open(const char *path);
/* Closes a file that was not installed, or does nothing if it is NULL. */
void log_file_close(struct log_file *opened);
/* From now on, lines are written to this file. Closes the one before it. Waits for writes in
 * progress. Takes ownership. */
void log_file_install(struct log_file *opened);
/* Reopens the same path. Writer thread only. */
void log_file_reopen(void);

/* Returns the number of lines lost because the file could not be written. Any thread. */
uint64_t log_file_lost(void);

#endif
