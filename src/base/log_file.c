/* log_file.c - the log file, under one lock: opening, writing, and counting of lost lines. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/log_internal.h"
#include "base/memory.h"
#include "base/text.h"

static struct log_file on_stderr = {.fd = STDERR_FILENO};

static struct {
    pthread_mutex_t lock;
    struct log_file *open;
    int trouble;           /* errno of the last failed write; 0: the last write succeeded */
    bool torn;             /* the last line was written only in part */
    uint64_t lost_logged;  /* value of `lost` already logged */
    _Atomic uint64_t lost; /* lines that could not be written */
} file = {.lock = PTHREAD_MUTEX_INITIALIZER, .open = &on_stderr};

/* Lines written before the first log_open(), which are copied to that file. Protected by file.lock.
 * bytes is NULL: none are kept. */
enum { EARLY_MAX = 64 * 1024 };
static struct {
    char *bytes;
    size_t n;
    unsigned missing; /* pieces that did not fit; later lines are not kept either */
} early;

/* Removes the `n` written bytes from the two pieces. */
static void remove_written(struct iovec pieces[2], size_t n)
{
    for (int i = 0; i < 2; i++) {
        size_t of_this = n < pieces[i].iov_len ? n : pieces[i].iov_len;
        if (of_this == 0)
            continue;
        file.torn = ((const char *)pieces[i].iov_base)[of_this - 1] != '\n';
        pieces[i].iov_base = (char *)pieces[i].iov_base + of_this;
        pieces[i].iov_len -= of_this;
        n -= of_this;
    }
}

/* A pipe that another process has made non-blocking is full: waits for its reader. */
static bool is_writable_again(void)
{
    struct pollfd out = {.fd = file.open->fd, .events = POLLOUT};

    return poll(&out, 1, -1) > 0 || errno == EINTR;
}

/* Writes as much as the file accepts and removes it from `pieces`. Returns true if all was
 * written. */

static bool write_all(struct iovec pieces[2])
{
    while (pieces[0].iov_len + pieces[1].iov_len) {
        ssize_t n = writev(file.open->fd, pieces, 2);
        if (n < 0 && (errno == EINTR || (errno == EAGAIN && is_writable_again())))
            continue;
        if (n <= 0)
            return false;
        remove_written(pieces, (size_t)n);
    }
    return true;
}

static bool write_one(const char *bytes, size_t n)
{
    struct iovec pieces[2] = {{(void *)bytes, n}, {NULL, 0}};
    return write_all(pieces);
}

void log_to_stderr(struct slice message)
{
    char line[LOG_LINE_MAX];
    int before = errno;
    size_t size = log_event(line, LEVEL_ERROR, message);
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};

    ssize_t written = poll(&out, 1, 0) > 0 ? write(STDERR_FILENO, line, size) : 0;
    (void)written; /* there is no other place for the message */
    errno = before;
}

/* Counts the lines that were not written. The first time, also reports to stderr, because the file
 * cannot be written. */
static void count_lost(const struct iovec pieces[2])
{
    int why = errno;

    if (!file.trouble && file.open != &on_stderr) {
        char message[LOG_LINE_MAX / 2];
        int n = snprintf(message, sizeof message,
                         "log: %s cannot be written: %s; lines are lost until it can be",
                         file.open->path, strerror(why));
        log_to_stderr(
            (struct slice){message, n < (int)sizeof message ? (size_t)n : sizeof message - 1});
    }
    file.trouble = why;
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < pieces[i].iov_len; k++)
            file.lost += ((const char *)pieces[i].iov_base)[k] == '\n';
}

/* Logs the number of lost lines before the next line. Returns false if the file still cannot be
 * written. */
static bool report_lost(void)
{
    char line[LOG_LINE_MAX + 1] = "\n", message[256];
    int n = snprintf(message, sizeof message, "log: %llu line%s lost: %s",
                     (unsigned long long)(file.lost - file.lost_logged),
                     file.lost - file.lost_logged == 1 ? " was" : "s were", strerror(file.trouble));
    size_t size = log_event(line + 1, LEVEL_WARN, (struct slice){message, (size_t)n});

    if (!(file.torn ? write_one(line, size + 1) : write_one(line + 1, size)))
        return false;
    file.lost_logged = file.lost;
    file.trouble = 0;
    return true;
}

void log_keep_early_lines(void)
{
    pthread_mutex_lock(&file.lock);
    if (!early.bytes)
        early.bytes = xcalloc(1, EARLY_MAX);
    pthread_mutex_unlock(&file.lock);
}

static void keep_early(struct slice lines)
{
    if (!early.bytes || lines.n == 0)
        return;
    if (early.missing || lines.n > EARLY_MAX - early.n) {
        early.missing++;
        return;
    }
    memcpy(early.bytes + early.n, lines.p, lines.n);
    early.n += lines.n;
}

/* Writes the kept lines to the file, unless it is stderr, which has them. */
static void write_early(void)
{
    static const struct slice missing = SLICE("log: further lines before this file was opened are "
                                              "on stderr only");
    char line[LOG_LINE_MAX];

    if (early.bytes && file.open != &on_stderr) {
        struct iovec pieces[2] = {{early.bytes, early.n}, {NULL, 0}};
        if (early.missing)
            pieces[1] = (struct iovec){line, log_event(line, LEVEL_WARN, missing)};
        if (!write_all(pieces))
            count_lost(pieces);
    }
    free(early.bytes);
    early.bytes = NULL;
}

void log_file_write(struct slice first, struct slice second)
{
    struct iovec pieces[2] = {{(void *)first.p, first.n}, {(void *)second.p, second.n}};

    pthread_mutex_lock(&file.lock);
    keep_early(first);
    keep_early(second);
    if ((file.trouble && !report_lost()) || !write_all(pieces))
        count_lost(pieces);
    pthread_mutex_unlock(&file.lock);
}

/* open(2) of a FIFO that no process reads would wait for a reader. With O_NONBLOCK it fails with
 * ENXIO; writes then wait as usual. */
static int open_for_appending(const char *path)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0640);

    if (fd >= 0)
        (void)fcntl(fd, F_SETFL, O_APPEND);
    return fd;
}

static bool is_stderr(const char *path)
{
    return strcmp(path, "stderr") == 0;
}

struct log_file *log_file_open(const char *path)
{
    size_t size = strlen(path) + 1;

    if (is_stderr(path))
        return &on_stderr;
    int fd = open_for_appending(path);
    if (fd < 0 && descriptors_lack(errno) && descriptors_give(DESCRIPTOR_FOR_MAIN, errno))
        fd = open_for_appending(path);
    struct log_file *opened = fd < 0 ? NULL : malloc(sizeof *opened + size);
    if (!opened) {
        int error = errno;
        if (fd >= 0)
            close(fd);
        errno = error;
        return NULL;
    }
    opened->fd = fd;
    memcpy(opened->path, path, size);
    return opened;
}

void log_file_close(struct log_file *opened)
{
    if (!opened || opened == &on_stderr)
        return;
    close(opened->fd);
    free(opened);
}

void log_file_install(struct log_file *opened)
{
    pthread_mutex_lock(&file.lock);
    log_file_close(file.open);
    file.open = opened;
    file.torn = false;
    write_early();
    pthread_mutex_unlock(&file.lock);
}

bool log_may_open(const char *path)
{
    const char *slash = strrchr(path, '/');
    char directory[PATH_MAX] = ".";
    struct stat status;

    if (is_stderr(path))
        return true;
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode)) {
        errno = EISDIR;
        return false;
    }
    if (access(path, F_OK) == 0)
        return access(path, W_OK) == 0;
    if (slash)
        snprintf(directory, sizeof directory, "%.*s", (int)(slash - path + 1), path);
    return access(directory, W_OK | X_OK) == 0;
}

/* The old file may have been deleted: stderr gets the message too. */
static void report_not_reopened(const char *path, const char *why)
{
    char message[LOG_LINE_MAX / 2];

    snprintf(message, sizeof message, "log: cannot reopen %s: %s; still writing to the old file",
             path, why);
    log_to_stderr(slice_of(message));
    log_error("%s", message);
}

void log_file_reopen(void)
{
    struct log_file *again; /* no other thread replaces file.open once the writer runs */

    if (file.open == &on_stderr)
        return;
    if ((again = log_file_open(file.open->path))) {
        log_file_install(again);
        log_info("log: %s reopened", again->path);
    } else
        report_not_reopened(file.open->path, strerror(errno));
}

uint64_t log_file_lost(void)
{
    return file.lost;
}
