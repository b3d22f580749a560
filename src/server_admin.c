/* server_admin.c - the sockets of the admin listeners, and what they show. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "net/inherited.h"
#include "net/listener.h"
#include "server_internal.h"

/* A Unix socket gets its permissions from the umask at bind(2), so it is never open to others for a
 * moment. Only the main thread runs yet. */
static bool open_admin_socket(struct admin_listener *listener, int *fd, const char **why)
{
    bool is_unix = address_is_unix(&listener->address);
    mode_t before = is_unix ? umask(0777 & ~(mode_t)listener->mode) : 0;
    bool good = listener_open(&listener->address, 1, fd, why);

    if (is_unix)
        umask(before);
    return good;
}

static bool find_or_open(struct weir *weir, struct inherited *inherited, unsigned i,
                         const char **why)
{
    struct admin_listener *listener = &weir->first->admin[i];
    char name[32];

    snprintf(name, sizeof name, "admin-%u", i + 1);
    weir->admin_fds[i] = inherited_take(inherited, name, &listener->address);
    weir->admin_inherited[i] = weir->admin_fds[i] >= 0;
    return weir->admin_inherited[i] || open_admin_socket(listener, &weir->admin_fds[i], why);
}

bool open_admin(struct weir *weir, struct inherited *inherited)
{
    struct policy *policy = weir->first;
    char text[ADDRESS_TEXT_MAX];
    const char *why;

    weir->written_admin = xcalloc(policy->admin_count, sizeof *weir->written_admin);
    weir->admin_fds = xcalloc(policy->admin_count, sizeof *weir->admin_fds);
    weir->admin_inherited = xcalloc(policy->admin_count, sizeof *weir->admin_inherited);
    for (unsigned i = 0; i < policy->admin_count; i++) {
        weir->written_admin[i] = policy->admin[i].address;
        if (!find_or_open(weir, inherited, i, &why)) {
            log_error("cannot listen on %s (admin): %s: %s%s",
                      address_format(&policy->admin[i].address, text), why, strerror(errno),
                      listener_remedy(errno));
            return false;
        }
        weir->admin_opened++;
    }
    return true;
}

bool start_admin(struct weir *weir)
{
    weir->view = (struct admin_view){.policy = weir->policy,
                                     .endpoint_set = weir->endpoint_set,
                                     .started_us = clock_us(),
                                     .started_wall_us = weir->started_wall_us,
                                     .policy_loaded_wall_us = weir->started_wall_us,
                                     .names = weir->names,
                                     .quotas = weir->quotas,
                                     .keys = weir->keys,
                                     .workers = weir->workers,
                                     .worker_count = weir->made};
    if (!weir->first->admin_count)
        return true;
    weir->admin = admin_new(weir->base, weir->admin_fds, &weir->view);
    return weir->admin != NULL;
}

unsigned report_admin(const struct weir *weir)
{
    char text[ADDRESS_TEXT_MAX];
    unsigned inherited = 0;

    for (unsigned i = 0; i < weir->first->admin_count; i++) {
        log_info("admin on %s", address_format(&weir->first->admin[i].address, text));
        inherited += weir->admin_inherited[i];
    }
    return inherited;
}

void unlink_admin(const struct weir *weir)
{
    for (unsigned i = 0; i < weir->admin_opened; i++)
        if (!weir->admin_inherited[i])
            listener_unlink(&weir->first->admin[i].address);
}

void close_admin(struct weir *weir)
{
    for (unsigned i = 0; i < weir->admin_opened; i++)
        if (weir->admin_fds[i] >= 0)
            close(weir->admin_fds[i]);
    free(weir->admin_inherited);
    free(weir->admin_fds);
    free(weir->written_admin);
}
