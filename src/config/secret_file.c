/* secret_file.c - files that hold a secret and nothing else. */
#include <sys/stat.h>

#include "config/types.h"

enum { SECRET_FILE_MAX = 4096 }; /* bytes */

struct slice without_newline(struct slice bytes)
{
    if (bytes.n && bytes.p[bytes.n - 1] == '\n')
        bytes.n--;
    if (bytes.n && bytes.p[bytes.n - 1] == '\r')
        bytes.n--;
    return bytes;
}

void warn_of_file_mode(struct loading *l, const struct node *node, const char *path)
{
    struct stat status;

    if (stat(path, &status) == 0 && (status.st_mode & (S_IROTH | S_IWOTH)))
        warning(l, node, "%s can be %s by all users of this machine; run chmod o= on it", path,
                status.st_mode & S_IWOTH ? "written" : "read");
}

bool secret_file_read(struct loading *l, const struct option *option, const struct node *node,
                      const char *what, struct slice *secret)
{
    const char *path = file_path(l, option, node);

    if (!path || !named_file_read(l, node, &l->scratch, path, SECRET_FILE_MAX, secret))
        return false;
    *secret = without_newline(slice_after_bom(*secret));
    if (secret->n && !slice_has_control_bytes(*secret)) {
        warn_of_file_mode(l, node, path);
        return true;
    }
    mistake(l, node, "%s contains %s; expected only the %s, on one line", path,
            secret->n ? "several lines or control bytes" : "nothing", what);
    return false;
}
