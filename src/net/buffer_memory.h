/* buffer_memory.h - the memory of all buffers of the process, and its limit (size_limits.memory).
 *
 * Pools report what they take from and return to malloc(3). Buffers that a pool keeps for reuse
 * are counted too, so a pool in steady use reports nothing. Sums below REPORT_BYTES stay with the
 * pool: the total, which workers share, is seldom written.
 *
 *   level   used               effect
 *   LOW     below 90 %         none
 *   HIGH    90 % or more       no content is read from servers for clients that do not take it
 *                              now (proxy/relay_response.c); pools keep no free buffers
 *   FULL    100 % or more      requests that hold much and do not move are reset
 *                              (downstream/shedding.c)
 *           112.5 %            no more buffers: iobuf_get() returns NULL */
#ifndef WEIR_NET_BUFFER_MEMORY_H
#define WEIR_NET_BUFFER_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum memory_level { MEMORY_LOW, MEMORY_HIGH, MEMORY_FULL };

/* The part of one pool; zeroed at first. */
struct buffer_memory {
    int64_t unreported; /* bytes taken (or, below 0, returned) that are not in the total yet */
    uint8_t level;      /* enum memory_level when the pool last looked */
};

/* Sets the limit in bytes. Callable from any thread. */
void memory_set_limit(uint64_t bytes);
uint64_t memory_limit(void);
/* Returns the bytes used by all pools, without what they have not reported. */
uint64_t memory_used(void);
enum memory_level memory_level(void);

/* Returns whether there may be more buffers. */
bool memory_has_room(const struct buffer_memory *memory);
/* Reports that `bytes` were taken from malloc(3), or returned to it. */
void memory_take(struct buffer_memory *memory, size_t bytes);
void memory_give(struct buffer_memory *memory, size_t bytes);

/* Adds what the pool has not reported to the total. */
void memory_report(struct buffer_memory *memory);

/* Logs that the limit is near (HIGH) or reached (FULL), at most once each per 10 s and process.
 * `reset`: number of requests just reset; `client`: the one with the largest part of them. */
void memory_log(enum memory_level level, unsigned reset, const char *client);
/* Logs once that the level is LOW again, after memory_log(). */
void memory_log_relief(void);

#endif
