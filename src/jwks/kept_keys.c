/* kept_keys.c - the first line of a file is "weir-keys SECONDS URL": the time of the fetch (Unix
 * time), and the URL; the rest is the document. The name has a hash of the URL. */
#include "jwks/kept_keys.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "jwks/https_get.h"
#include "jwks/key_url.h"

enum { NAME_BYTES = 16, FILE_MAX = HTTPS_CONTENT_MAX + KEY_URL_MAX + 64 };

static const char mark[] = "weir-keys ";

const char *kept_keys_directory(const char *set)
{
    static char first[4096];
    const char *of_systemd = getenv("STATE_DIRECTORY");

    if (set || !of_systemd || of_systemd[0] != '/')
        return set;
    snprintf(first, sizeof first, "%.*s", (int)strcspn(of_systemd, ":"), of_systemd);
    return first;
}

/* Opens the directory and writes the name of the file. Returns -1 with errno. */
static int open_directory(const char *directory, const char *url, char name[static 64])
{
    unsigned char digest[SHA256_DIGEST_LENGTH];
    char hex[2 * NAME_BYTES + 1];

    SHA256((const unsigned char *)url, strlen(url), digest);
    for (unsigned i = 0; i < NAME_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    snprintf(name, 64, "keys-%s", hex);
    return open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void give_reason(char why[static KEPT_WHY_MAX], const char *directory, const char *name,
                        const char *reason)
{
    struct text text = text_over(why, KEPT_WHY_MAX - 1);

    text_printf(&text, "%.170s/%s: %s", directory, name, reason);
    why[text.n] = 0;
}

static bool write_all(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t written = write(fd, p, n);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        p += written;
        n -= (size_t)written;
    }
    return true;
}

/* Not synchronised to the disk, which could stall the main thread: a file that a power failure
 * leaves incomplete is refused when it is read. */
static bool write_file(int in, const char *name, const char *head, struct slice content)
{
    char draft[72];

    snprintf(draft, sizeof draft, "%s.new", name);
    (void)unlinkat(in, draft, 0); /* of a weir that was killed */
    int fd = openat(in, draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    bool good = write_all(fd, head, strlen(head)) && write_all(fd, content.p, content.n);
    good = close(fd) == 0 && good && renameat(in, draft, in, name) == 0;
    int error = errno;
    if (!good)
        (void)unlinkat(in, draft, 0);
    errno = error;
    return good;
}

bool kept_keys_write(const char *directory, const char *url, uint64_t fetched_wall_us,
                     struct slice content, char why[static KEPT_WHY_MAX])
{
    char name[64], head[KEY_URL_MAX + 64];
    int in = open_directory(directory, url, name);

    snprintf(head, sizeof head, "%s%llu %s\n", mark, (unsigned long long)fetched_wall_us / 1000000,
             url);
    bool good = in >= 0 && write_file(in, name, head, content);
    if (!good)
        give_reason(why, directory, name, strerror(errno));
    if (in >= 0)
        close(in);
    return good;
}

/* Returns why the file must not be used, or NULL. */
static const char *distrust(int fd, size_t *size)
{
    struct stat status;

    if (fstat(fd, &status) != 0)
        return strerror(errno);
    if (!S_ISREG(status.st_mode))
        return "it is no file";
    if (status.st_uid != geteuid() && status.st_uid != 0)
        return "it belongs to another user";
    if (status.st_mode & (S_IWGRP | S_IWOTH))
        return "others may write to it";
    if (status.st_size > FILE_MAX)
        return "it is too large";
    *size = (size_t)status.st_size;
    return NULL;
}

static const char *read_kept(int fd, size_t size, char **bytes, size_t *n)
{
    ssize_t got = 1;

    if (!(*bytes = malloc(size + 1)))
        return "out of memory";
    for (*n = 0; *n < size && got > 0; *n += got > 0 ? (size_t)got : 0)
        got = read(fd, *bytes + *n, size - *n);
    (*bytes)[*n] = 0;
    return got < 0 ? strerror(errno) : NULL;
}

/* Reads the first line. */
static const char *read_head(const char *bytes, size_t n, const char *url, struct slice *content,
                             uint64_t *fetched_wall_us)
{
    const char *newline = memchr(bytes, '\n', n), *blank;
    struct slice head = {bytes, newline ? (size_t)(newline - bytes) : 0};
    uint64_t seconds;

    if (!slice_starts_with(head, slice_of(mark)))
        return "it is not one that weir has written";
    head = (struct slice){head.p + strlen(mark), head.n - strlen(mark)};
    blank = memchr(head.p, ' ', head.n);
    if (!blank ||
        !slice_to_u64((struct slice){head.p, (size_t)(blank - head.p)}, UINT32_MAX, &seconds) ||
        !slice_equal((struct slice){blank + 1, (size_t)(newline - blank - 1)}, slice_of(url)))
        return "it is not the one of this URL";
    *content = (struct slice){newline + 1, n - (size_t)(newline + 1 - bytes)};
    *fetched_wall_us = seconds * 1000000;
    return NULL;
}

bool kept_keys_read(const char *directory, const char *url, char **bytes, struct slice *content,
                    uint64_t *fetched_wall_us, char why[static KEPT_WHY_MAX])
{
    char name[64];
    int in = open_directory(directory, url, name), fd = -1;
    const char *reason = NULL;
    size_t size = 0, n = 0;

    *bytes = NULL;
    why[0] = 0;
    if (in >= 0)
        fd = openat(in, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno != ENOENT)
        reason = strerror(errno);
    if (fd >= 0 && !(reason = distrust(fd, &size)) && !(reason = read_kept(fd, size, bytes, &n)))
        reason = read_head(*bytes, n, url, content, fetched_wall_us);
    if (reason)
        give_reason(why, directory, name, reason);
    bool good = fd >= 0 && !reason;
    if (fd >= 0)
        close(fd);
    if (in >= 0)
        close(in);
    if (!good)
        free(*bytes);
    return good;
}
