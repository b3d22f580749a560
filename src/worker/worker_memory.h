/* worker_memory.h - keeps a worker's buffers within size_limits.memory, and returns the memory of
 * what is not used any more. */
#ifndef WEIR_WORKER_WORKER_MEMORY_H
#define WEIR_WORKER_WORKER_MEMORY_H

struct worker;

void worker_memory_init(struct worker *worker);
/* Called once per loop iteration. May reset requests and close connections. */
void worker_memory_check(struct worker *worker);

#endif
