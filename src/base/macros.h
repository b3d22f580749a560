/* macros.h - macros used in all directories. */
#ifndef WEIR_BASE_MACROS_H
#define WEIR_BASE_MACROS_H

#define MUST_CHECK        __attribute__((warn_unused_result))
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))
#define COUNT_OF(array)   (sizeof(array) / sizeof((array)[0]))
#define likely(x)         __builtin_expect(!!(x), 1)
#define unlikely(x)       __builtin_expect(!!(x), 0)

/* Returns the struct that contains `pointer` as its member `member`. */
#define CONTAINER_OF(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

#endif
