#include "admin/certificates.h"

#include "net/tls.h"

/* A file that several listeners use is listed once. */
static void list_certificate(struct certificate *found, unsigned *count, const char *path,
                             int64_t until_s, bool is_crl)
{
    for (unsigned i = 0; i < *count; i++)
        if (strcmp(found[i].path, path) == 0)
            return;
    if (*count < CERTIFICATES_LISTED_MAX && until_s != INT64_MAX)
        found[(*count)++] = (struct certificate){path, until_s, is_crl};
}

static void add_listener(struct certificate *found, unsigned *count, const struct listen_tls *tls)
{
    const struct tls_server *server = listen_tls_server(tls);
    struct tls_dates dates;
    const char *path;
    int64_t until_s;

    for (unsigned i = 0; tls_server_certificate(server, i, &path, &dates); i++)
        list_certificate(found, count, path, dates.until_s, false);
    if ((path = tls_server_crl(server, &until_s)))
        list_certificate(found, count, path, until_s, true);
}

unsigned certificates_list(const struct policy *policy,
                           struct certificate found[static CERTIFICATES_LISTED_MAX])
{
    unsigned count = 0;

    for (unsigned l = 0; l < policy->listen_count; l++)
        add_listener(found, &count, policy->listen[l].tls);
    for (unsigned a = 0; a < policy->admin_count; a++)
        add_listener(found, &count, policy->admin[a].tls);
    if (policy->redis.tls.expires_s)
        list_certificate(found, &count, policy->redis.tls.certificate_path,
                         policy->redis.tls.expires_s, false);
    for (unsigned u = 0; u < policy->upstream_count; u++) {
        const struct client_tls *tls = &policy->upstreams[u].tls;
        if (tls->expires_s)
            list_certificate(found, &count, tls->certificate_path, tls->expires_s, false);
    }
    return count;
}
