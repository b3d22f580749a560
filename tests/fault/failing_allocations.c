/* failing_allocations.c - makes chosen allocations of a program fail; for tests/fault/allocations.
 *
 * Loaded by LD_PRELOAD, so that it covers libraries too. The test and the program share the file
 * named by FAILING_ALLOCATIONS: two counters of 8 bytes. The test writes both at a moment of its
 * choice. Every allocation then adds 1 to `calls`; those from number `first` to `last` return
 * NULL. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* glibc's own functions, under the names that do not lead back to this file. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static struct shared {
    _Atomic uint64_t calls, first, last;
} none, *shared = &none;

__attribute__((constructor)) static void open_shared(void)
{
    const char *path = getenv("FAILING_ALLOCATIONS");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *map =
        fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (map != MAP_FAILED)
        shared = map;
    if (fd >= 0)
        close(fd);
    unsetenv("LD_PRELOAD"); /* not for programs that this one starts */
}

static bool fails(void)
{
    uint64_t number = atomic_fetch_add(&shared->calls, 1) + 1;

    if (number < atomic_load(&shared->first) || number > atomic_load(&shared->last))
        return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t size)
{
    return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return fails() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    return fails() ? NULL : __libc_realloc(old, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : __libc_memalign(alignment, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size)
{
    return fails() || !(*memory = __libc_memalign(alignment, size)) ? ENOMEM : 0;
}
