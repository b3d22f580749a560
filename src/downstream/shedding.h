/* shedding.h - frees memory when buffers reach size_limits.memory (net/buffer_memory.h).
 *
 * A connection is judged by the memory of its buffers, times the longest time for which one of its
 * requests has not moved. So a client with a hundred stalled streams goes before one with one slow
 * download, and that one before clients that read. */
#ifndef WEIR_DOWNSTREAM_SHEDDING_H
#define WEIR_DOWNSTREAM_SHEDDING_H

struct worker;

/* Resets requests of the worker's connections with the highest products, until the buffers of the
 * process use less than 95 % of the limit or none of this worker's is left. Logs what it did. */
void clients_shed(struct worker *worker);
/* Frees the memory of closed connections that was not needed since the last call. */
void clients_trim(struct worker *worker);

#endif
