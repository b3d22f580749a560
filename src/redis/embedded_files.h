/* embedded_files.h - the files of the embedded Redis; see embedded.h. */
#ifndef WEIR_REDIS_EMBEDDED_FILES_H
#define WEIR_REDIS_EMBEDDED_FILES_H

#include <stdbool.h>
#include <sys/types.h>
#include <sys/un.h>

#include "base/macros.h"

#define EMBEDDED_SOCKET "redis.sock"
#define EMBEDDED_LOG    "redis.log"

enum { EMBEDDED_NAME_ROOM = 16 /* bytes for "/redis.sock" after the directory */ };

/* A directory of mode 0700. */
struct embedded_directory {
    char path[sizeof((struct sockaddr_un *)0)->sun_path]; /* empty: none */
    int fd;                                               /* holds the directory's lock; -1: none */
    pid_t guard; /* removes the directory when this process ends; 0: none */
    int alive;   /* the guard waits for its end */
};

/* Returns the path of redis-server or valkey-server (malloc'ed), or NULL if there is neither. */
char *embedded_find_program(void);
/* Logs that there is neither, and what to install. */
void embedded_report_no_program(const char *needed_by, bool may_be_set);

/* Makes a directory, and removes those of killed weir processes beside it. Returns false after
 * logging the error. */
MUST_CHECK bool embedded_make_directory(struct embedded_directory *directory);
/* The same, with a process that removes the directory when this one ends, also by SIGKILL. Call
 * with one thread only. */
MUST_CHECK bool embedded_make_guarded_directory(struct embedded_directory *directory);
/* Removes the directory with the socket and the log. */
void embedded_remove_directory(struct embedded_directory *directory);

#endif
