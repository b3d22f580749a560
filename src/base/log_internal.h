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

/* Reopens the same path. Writer thread only. */
void log_file_reopen(void);

/* Returns the number of lines lost because the file could not be written. Any thread. */
uint64_t log_file_lost(void);

#endif
