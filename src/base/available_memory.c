#include "base/available_memory.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static uint64_t lower(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Returns the number in the file; UINT64_MAX if there is none, as "max" in version 2. */
static uint64_t limit_in(const char *directory, const char *name)
{
    char path[PATH_MAX];
    unsigned long long limit;
    int n = snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = n > 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;

    if (!file)
        return UINT64_MAX;
    if (fscanf(file, "%llu", &limit) != 1)
        limit = UINT64_MAX;
    fclose(file);
    return limit;
}

/* Returns the lowest limit of a group and its parents. In a container, `group` may be the path on
 * the host while `root` is the container's group: its parents lead to `root` in any case. */
static uint64_t limit_of_group(const char *root, const char *group, const char *name)
{
    char path[PATH_MAX];
    size_t root_size = strlen(root);
    uint64_t limit = UINT64_MAX;
    int n = snprintf(path, sizeof path, "%s%s", root, group);

    if (n < 0 || (size_t)n >= sizeof path)
        return limit_in(root, name);
    for (char *end = path + n; end; end = strrchr(path + root_size, '/')) {
        *end = '\0';
        limit = lower(limit, limit_in(path, name));
    }
    return limit;
}

/* Returns whether the comma-separated list has the element. */
static bool names(const char *list, const char *element)
{
    size_t n = strlen(element);

    for (const char *p = list; (p = strstr(p, element)); p += n)
        if ((p == list || p[-1] == ',') && (p[n] == '\0' || p[n] == ','))
            return true;
    return false;
}

/* `line`: "ID:CONTROLLERS:PATH"; version 2 has no controllers. */
static uint64_t limit_of_line(char *line, const char *mount)
{
    char *controllers = strchr(line, ':'),
         *group = controllers ? strchr(controllers + 1, ':') : NULL;
    char root[PATH_MAX];

    if (!group)
        return UINT64_MAX;
    *group++ = '\0';
    group[strcspn(group, "\n")] = '\0';
    if (*++controllers == '\0')
        return limit_of_group(mount, group, "memory.max");
    int n = snprintf(root, sizeof root, "%s/memory", mount);
    if (!names(controllers, "memory") || n < 0 || (size_t)n >= sizeof root)
        return UINT64_MAX;
    return limit_of_group(root, group, "memory.limit_in_bytes");
}

uint64_t available_memory(const char *groups, const char *mount)
{
    long pages = sysconf(_SC_PHYS_PAGES), page_size = sysconf(_SC_PAGESIZE);
    uint64_t limit = pages > 0 ? (uint64_t)pages * (uint64_t)page_size : UINT64_MAX;
    FILE *file = fopen(groups, "re");
    char line[PATH_MAX];

    while (file && fgets(line, sizeof line, file))
        limit = lower(limit, limit_of_line(line, mount));
    if (file)
        fclose(file);
    return limit;
}
