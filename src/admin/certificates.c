#include "admin/certificates.h"

#include "net/tls.h"

/* A file that several listeners use is listed once. */
static void add(struct certificate *found, unsigned *count, const char *path, int64_t until_s)
{
    for (unsigned i = 0; i < *count; i++)
        if (strcmp(found[i].path, path) == 0)
            return;
    if (*count < CERTIFICATES_LISTED_MAX && until_s != INT64_MAX)
        found[(*count)++] = (struct certificate){path, until_s};
}

unsigned certificates_list(const struct policy *policy,
                           struct certificate found[static CERTIFICATES_LISTED_MAX])
{
    struct tls_dates dates;
    const char *path;
    unsigned count = 0;

    for (unsigned l = 0; l < policy->listen_count; l++)
        for (unsigned i = 0; tls_server_certificate(policy->listen[l].tls, i, &path, &dates); i++)
            add(found, &count, path, dates.until_s);
    if (policy->redis.tls.expires_s)
        add(found, &count, policy->redis.tls.certificate_path, policy->redis.tls.expires_s);
    for (unsigned u = 0; u < policy->upstream_count; u++) {
        const struct client_tls *tls = &policy->upstreams[u].tls;
        if (tls->expires_s)
            add(found, &count, tls->certificate_path, tls->expires_s);
    }
    return count;
}
