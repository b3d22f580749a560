/* log_reader.h - reads a log file line by line: plain, compressed with gzip, or standard input.
 * Blocks; for the command line only. */
#ifndef WEIR_REPLAY_LOG_READER_H
#define WEIR_REPLAY_LOG_READER_H

#include "base/slice.h"

struct log_reader;

/* Opens `path`; "-" is standard input. A file with the signature of gzip (RFC 1952) is read through
 * gzip(1), whatever its name. `*size`: of the file; 0: unknown. Returns NULL if it cannot be
 * opened; errno has the cause. */
struct log_reader *log_reader_open(const char *path, uint64_t *size);

enum log_read {
    LOG_READ_LINE,
    LOG_READ_LONG, /* a line of more than REPLAY_LINE_MAX bytes, which was skipped */
    LOG_READ_END,
    LOG_READ_FAILED /* the file could not be read to its end; see log_reader_close() */
};

/* Reads the next line, without its end. `*bytes` is valid, and may be changed, until the next
 * call. */
enum log_read log_reader_next(struct log_reader *file, char **bytes, size_t *size);

uint64_t log_reader_line(const struct log_reader *file); /* number of the last line read, from 1 */
/* Bytes of the file read so far (compressed ones for gzip); 0: unknown. */
uint64_t log_reader_position(const struct log_reader *file);

void log_reader_close(struct log_reader *file);

#endif
