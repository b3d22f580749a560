/* available_memory.h - how much memory the process may use. */
#ifndef WEIR_BASE_AVAILABLE_MEMORY_H
#define WEIR_BASE_AVAILABLE_MEMORY_H

#include <stdint.h>

/* Returns the machine's memory in bytes, or less if a cgroup of the process has a lower limit:
 * memory.max (version 2) or memory.limit_in_bytes (version 1), here or in a parent. `groups`:
 * normally "/proc/self/cgroup"; `mount`: normally "/sys/fs/cgroup". Files that cannot be read are
 * ignored. Source: cgroups(7), the kernel's cgroup-v2.rst and cgroup-v1/memory.rst. */
uint64_t available_memory(const char *groups, const char *mount);

#endif
