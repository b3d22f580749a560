/* log_merge.h - the requests of several log files in the order of their times.
 *
 * Servers log a request when it ends, so lines are not quite in order, and files of several servers
 * overlap. Each file's lines pass through a window of LOG_WINDOW lines that is sorted by time. A
 * line that comes even later is delivered with the time of its predecessor, and counted. */
#ifndef WEIR_REPLAY_LOG_MERGE_H
#define WEIR_REPLAY_LOG_MERGE_H

#include "replay/log_line.h"

enum { LOG_FILES_MAX = 256, LOG_WINDOW = 2048 /* lines per file */ };

struct log_merge;

struct log_counts {
    uint64_t lines;              /* all lines read */
    uint64_t requests;           /* lines with a request */
    uint64_t other;              /* empty lines, comments, JSON lines without a request */
    uint64_t odd;                /* lines that could not be parsed, or were too long */
    uint64_t out_of_order;       /* requests delivered with a later time than logged */
    uint64_t left_out;           /* requests that weir rejected and did not log (log.sample) */
    uint64_t bytes, bytes_total; /* progress; bytes_total 0: unknown */
    const char *odd_file;        /* position of the first odd line; NULL: none */
    uint64_t odd_line;
    bool failed; /* a file could not be read to its end (printed to standard error) */
};

/* Opens the files. Returns NULL after printing the error to standard error. `paths` must outlive
 * the merge. */
struct log_merge *log_merge_open(char *const *paths, unsigned count);

/* Returns the next request, or NULL at the end. `*file` and `*number` are the position of its line.
 * The slices are valid until the next call. */
const struct log_line *log_merge_next(struct log_merge *merge, const char **file, uint64_t *number);

/* Counts so far. Includes lines in the windows. */
struct log_counts log_merge_counts(const struct log_merge *merge);

void log_merge_close(struct log_merge *merge);

#endif
