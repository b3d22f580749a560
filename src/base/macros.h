/* macros.h - macros used in all directories.
 *
 * This directory owns what has nothing to do with HTTP or Redis. In reading order:
 *
 *   macros.h, slice.h, text.h, values.h    text: bytes with a length, bounded buffers, units
 *   clock.h, event_timer.h        time; libevent's timers
 *   deadline.h, timer_heap.h      timers of one length per kind; timers of any length
 *   log.h                         log_file.c writes what log.c gathers
 *   memory.h, arena.h, magic.h    allocation; checked pointers
 *   memory_stream.h               a stream into memory that reports a lack of it
 *   descriptors.h, file.h         lack of descriptors; whole files
 *   histogram.h, counter_table.h, metric.h
 *                                 counters
 *   hash.h, hmac.h, recent.h, text_table.h, top_keys.h     data structures and algorithms
 *   json_read.h, json_writer.h    JSON */
#ifndef WEIR_BASE_MACROS_H
#define WEIR_BASE_MACROS_H

#define MUST_CHECK        __attribute__((warn_unused_result))
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))
#define COUNT_OF(array)   (sizeof(array) / sizeof((array)[0]))

/* Returns the struct that contains `pointer` as its member `member`. */
#define CONTAINER_OF(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

#endif
