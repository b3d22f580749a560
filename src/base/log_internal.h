/* log_internal.h - what log.c (events, rings) and log_file.c (the file) share. Nobody else includes it. */
#ifndef WEIR_BASE_LOG_INTERNAL_H
#define WEIR_BASE_LOG_INTERNAL_H

#include "base/log.h"

/* Writes an event with its newline in the format of log_set_format and returns its size. A message that is
 * too long is cut and ends in "...". */
size_t log_event(char line[static LOG_LINE_MAX], enum log_level level, struct slice message);

/* Writes whole lines, `first` and then `second` (the two parts of a ring that wraps around), with no other
 * thread's line in between. A full disk loses lines: they are counted. */
void log_file_write(struct slice first, struct slice second);

/* Opens the same path again. For the writer thread. */
void log_file_reopen(void);

/* Lines lost so far because the file could not be written. From any thread. */
uint64_t log_file_lost(void);

#endif
