/* embedded_files.c - the program of the embedded Redis, and the directory of its socket and log. */
#include "redis/embedded_files.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/slice.h"

enum {
    LEFT_S = 60, /* younger directories may still be in creation */
    GUARD_TRIES = 200
};

/* --- Program ---------------------------------------------------------------------------------- */

static char *program_in(struct slice directory, const char *name)
{
    char *path = NULL;

    if (directory.n == 0 || asprintf(&path, "%.*s/%s", SLICE_ARG(directory), name) < 0)
        return NULL;
    if (access(path, X_OK) == 0)
        return path;
    free(path);
    return NULL;
}

static char *find_in(const char *directories, const char *name)
{
    for (;;) {
        size_t n = strcspn(directories, ":");
        char *path = program_in((struct slice){directories, n}, name);
        if (path || directories[n] == 0)
            return path;
        directories += n + 1;
    }
}

char *embedded_find_program(void)
{
    static const char *const names[] = {"redis-server", "valkey-server"};
    const char *path = getenv("PATH");

    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char *found = path ? find_in(path, names[i]) : NULL;
        if (!found)
            found = find_in("/usr/bin:/usr/local/bin:/usr/sbin:/usr/local/sbin", names[i]);
        if (found)
            return found;
    }
    return NULL;
}

void embedded_report_no_program(const char *needed_by, bool may_be_set)
{
    log_error("%s, but there is neither redis-server nor valkey-server; install the Debian package "
              "redis-server (apt-get install redis-server)%s",
              needed_by, may_be_set ? ", or set redis.address to a Redis that runs" : "");
}

static const char *const directory_files[] = {EMBEDDED_SOCKET, EMBEDDED_LOG};

/* --- Directory -------------------------------------------------------------------------------- */

/* A weir process owns a directory while it holds the directory's lock. Returns -1 if another
 * process holds it or on error. */
static int lock_directory(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static void remove_files(const char *path)
{
    char name[PATH_MAX];

    for (size_t i = 0; i < COUNT_OF(directory_files); i++)
        if ((size_t)snprintf(name, sizeof name, "%s/%s", path, directory_files[i]) < sizeof name)
            unlink(name);
}

static void remove_if_left(const char *path)
{
    struct stat st;
    int fd;

    if (lstat(path, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() ||
        time(NULL) - st.st_mtime < LEFT_S || (fd = lock_directory(path)) < 0)
        return;
    remove_files(path);
    rmdir(path);
    close(fd);
}

/* Removes directories of killed weir processes: unlocked ones that are old enough not to be in
 * creation. */
static void remove_stale(struct slice parent)
{
    char pattern[PATH_MAX];
    glob_t found;

    if ((size_t)snprintf(pattern, sizeof pattern, "%.*s/weir-redis-??????", SLICE_ARG(parent)) >=
            sizeof pattern ||
        glob(pattern, GLOB_NOSORT, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        remove_if_left(found.gl_pathv[i]);
    globfree(&found);
}

static bool make_directory_in(struct embedded_directory *d, struct slice parent)
{
    if (parent.n == 0 || parent.p[0] != '/')
        return false;
    int n = snprintf(d->path, sizeof d->path, "%.*s/weir-redis-XXXXXX", SLICE_ARG(parent));
    if (n < 0 || (size_t)n + EMBEDDED_NAME_ROOM >= sizeof d->path)
        return false;
    remove_stale((struct slice){d->path, parent.n});
    return mkdtemp(d->path) != NULL && (d->fd = lock_directory(d->path)) >= 0;
}

bool embedded_make_directory(struct embedded_directory *d)
{
    static const char *const variables[] = {"RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR", "TMPDIR"};

    for (size_t i = 0; i < COUNT_OF(variables); i++) {
        /* systemd may list several, separated by colons */
        const char *value = getenv(variables[i]);
        if (value && *value == '/' &&
            make_directory_in(d, (struct slice){value, strcspn(value, ":")}))
            return true;
    }
    if (make_directory_in(d, SLICE("/tmp")))
        return true;
    d->path[0] = 0;
    log_error("redis.address is embedded, but no directory for its socket can be made in /tmp: %s",
              strerror(errno));
    return false;
}

/* --- A directory that vanishes with the process ----------------------------------------------- */

/* The guard: makes the directory, sends its path, and removes it when the other end of `alive` is
 * closed. Redis may still end then, and write to its log. */
static _Noreturn void guard(struct embedded_directory *d, int alive, int made)
{
    const struct timespec moment = {0, 10000000};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    char byte;

    setsid(); /* signals from a terminal are for the process that is guarded */
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN); /* the process may have been killed already */
    if (embedded_make_directory(d))
        (void)!write(made, d->path, sizeof d->path);
    for (int fd = 0; fd <= 2; fd++)
        dup2(null, fd);
    close(made);
    while (read(alive, &byte, 1) < 0 && errno == EINTR)
        ;
    for (unsigned i = 0; d->path[0] && i < GUARD_TRIES; i++) {
        remove_files(d->path);
        if (rmdir(d->path) == 0 || errno == ENOENT)
            break;
        nanosleep(&moment, NULL);
    }
    _exit(0);
}

bool embedded_make_guarded_directory(struct embedded_directory *d)
{
    int ends[4] = {-1, -1, -1, -1}, *alive = ends, *made = ends + 2;

    if (pipe2(alive, O_CLOEXEC) != 0 || pipe2(made, O_CLOEXEC) != 0 || (d->guard = fork()) < 0) {
        log_error("embedded Redis: cannot start a process for its directory: %s; check the "
                  "memory, the limit of descriptors (LimitNOFILE=) and of processes (TasksMax=)",
                  strerror(errno));
        for (int i = 0; i < 4; i++)
            close(ends[i]);
        return false;
    }
    if (d->guard == 0) {
        close(alive[1]);
        close(made[0]);
        guard(d, alive[0], made[1]);
    }
    close(alive[0]);
    close(made[1]);
    d->alive = alive[1];
    ssize_t size = read(made[0], d->path, sizeof d->path);
    close(made[0]);
    if (size != sizeof d->path)
        d->path[0] = 0; /* the guard has logged the error */
    return d->path[0] != 0;
}

static void end_guard(struct embedded_directory *d)
{
    close(d->alive);
    while (waitpid(d->guard, NULL, 0) < 0 && errno == EINTR)
        ;
}

void embedded_remove_directory(struct embedded_directory *d)
{
    if (d->guard > 0) {
        end_guard(d);
        return;
    }
    if (!d->path[0])
        return;
    remove_files(d->path);
    if (d->fd >= 0)
        close(d->fd);
    if (rmdir(d->path) != 0)
        log_warn("embedded Redis: %s cannot be removed: %s; remove it", d->path, strerror(errno));
}
