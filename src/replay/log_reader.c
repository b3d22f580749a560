#include "replay/log_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "replay/log_line.h"

enum { BUFFER_SIZE = 4 * REPLAY_LINE_MAX };

struct log_reader {
    int source;  /* the file itself; gzip shares its offset */
    int fd;      /* what lines are read from: the file, or a pipe from gzip */
    pid_t gzip;  /* 0: not compressed */
    bool at_end; /* read(2) has returned the end of the file */
    uint64_t line;
    size_t start, filled; /* unread bytes of `buffer` */
    char buffer[BUFFER_SIZE];
};

static bool is_gzip(int fd)
{
    unsigned char signature[2];
    return pread(fd, signature, 2, 0) == 2 && signature[0] == 0x1f && signature[1] == 0x8b;
}

/* Runs gzip(1) on the file. Returns false with errno if it cannot be started. */
static bool start_gzip(struct log_reader *file)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    file->gzip = fork();
    if (file->gzip == 0) {
        signal(SIGPIPE, SIG_DFL); /* ends quietly if nobody reads on */
        dup2(file->source, STDIN_FILENO);
        dup2(ends[1], STDOUT_FILENO);
        execlp("gzip", "gzip", "-dc", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    if (file->gzip < 0) {
        close(ends[0]);
        file->gzip = 0;
        return false;
    }
    file->fd = ends[0];
    return true;
}

struct log_reader *log_reader_open(const char *path, uint64_t *size)
{
    int fd = strcmp(path, "-") == 0 ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                                    : open(path, O_RDONLY | O_CLOEXEC);
    struct log_reader *file;
    struct stat status;

    if (fd < 0)
        return NULL;
    if (fstat(fd, &status) != 0 || S_ISDIR(status.st_mode)) {
        errno = S_ISDIR(status.st_mode) ? EISDIR : errno;
        close(fd);
        return NULL;
    }
    file = xmalloc(sizeof *file);
    file->source = file->fd = fd;
    file->gzip = 0;
    file->at_end = false;
    *size = S_ISREG(status.st_mode) ? (uint64_t)status.st_size : 0;
    file->line = file->start = file->filled = 0;
    if (is_gzip(fd) && !start_gzip(file)) {
        log_reader_close(file);
        return NULL;
    }
    return file;
}

/* Reads more bytes after the unread ones. Returns false on error. */
static bool read_more(struct log_reader *file)
{
    ssize_t n;

    memmove(file->buffer, file->buffer + file->start, file->filled - file->start);
    file->filled -= file->start;
    file->start = 0;
    do
        n = read(file->fd, file->buffer + file->filled, sizeof file->buffer - file->filled);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return false;
    file->at_end = n == 0;
    file->filled += (size_t)n;
    return true;
}

/* Returns whether gzip has decompressed the whole file. If not, it has printed why, and errno is
 * 0. */
static bool gzip_succeeded(struct log_reader *file)
{
    int status = 0;
    pid_t gzip = file->gzip;

    file->gzip = 0;
    if (gzip == 0 ||
        (waitpid(gzip, &status, 0) == gzip && WIFEXITED(status) && WEXITSTATUS(status) == 0))
        return true;
    errno = 0;
    return false;
}

static enum log_read take_line(struct log_reader *file, size_t size, size_t end, char **bytes,
                               size_t *length)
{
    *bytes = file->buffer + file->start;
    *length = size;
    file->start += size + end;
    file->line++;
    return size > REPLAY_LINE_MAX ? LOG_READ_LONG : LOG_READ_LINE;
}

/* Drops bytes up to the end of the line. */
static enum log_read skip_line(struct log_reader *file)
{
    for (char *newline = NULL; !newline;) {
        size_t unread = file->filled - file->start;
        newline = memchr(file->buffer + file->start, '\n', unread);
        file->start = newline ? (size_t)(newline - file->buffer) + 1 : file->filled;
        if (!newline && (file->at_end || !read_more(file)))
            break;
    }
    file->line++;
    return LOG_READ_LONG;
}

enum log_read log_reader_next(struct log_reader *file, char **bytes, size_t *size)
{
    for (;;) {
        char *start = file->buffer + file->start;
        size_t unread = file->filled - file->start;
        char *newline = memchr(start, '\n', unread);

        if (newline)
            return take_line(file, (size_t)(newline - start), 1, bytes, size);
        if (unread > REPLAY_LINE_MAX)
            return skip_line(file);
        if (file->at_end && unread)
            return take_line(file, unread, 0, bytes, size);
        if (file->at_end)
            return gzip_succeeded(file) ? LOG_READ_END : LOG_READ_FAILED;
        if (!read_more(file))
            return LOG_READ_FAILED;
    }
}

uint64_t log_reader_line(const struct log_reader *file)
{
    return file->line;
}

uint64_t log_reader_position(const struct log_reader *file)
{
    off_t position = lseek(file->source, 0, SEEK_CUR);
    return position < 0 ? 0 : (uint64_t)position;
}

void log_reader_close(struct log_reader *file)
{
    if (!file)
        return;
    if (file->fd != file->source)
        close(file->fd); /* gzip ends at its next write */
    (void)gzip_succeeded(file);
    close(file->source);
    free(file);
}
