/* read_listen_tls.c - option tls of listeners, with the rows of listen[].tls. */

#include "base/clock.h"
#include "base/memory.h"
#include "config/sections.h"
#include "net/tls.h"

/* ---- certificates ---------------------------------------------------------------------------- */

static void load_certificate(struct loading *l, const struct node *node, struct tls_server *server,
                             const struct listen_tls_entry *entry)
{
    char why[TLS_WHY_MAX];
    const char *path = neighbour_path(l, slice_of(entry->certificate));
    enum tls_fault fault =
        tls_server_add(server, path, neighbour_path(l, slice_of(entry->key)), why);
    bool of_key = fault == TLS_BAD_KEY;
    struct tls_dates dates;

    if (fault == TLS_GOOD && tls_read_dates(path, &dates))
        certificate_check(l, node_find(node, "certificate"), &dates);

    if (fault != TLS_GOOD)
        mistake(l, node_find(node, of_key ? "key" : "certificate"), "%s %s",
                QUOTE(slice_of(of_key ? entry->key : entry->certificate)), why);
}

/* The settings of a listener are in its first entry, so that they stand once. */
static void refuse_settings(struct loading *l, const struct node *node)
{
    static const char *const settings[] = {"client_ca", "client_crl", "client_certificate",
                                           "min_version", "ciphers"};

    for (unsigned i = 0; i < COUNT_OF(settings); i++)
        if (node_find(node, settings[i]))
            mistake(l, node_find(node, settings[i]),
                    "%s applies to all certificates of the listener; move it to the first entry",
                    settings[i]);
}

static void read_entry(struct loading *l, const struct node *node, struct listen_tls *tls)
{
    struct listen_tls_entry *entry = &tls->entries[tls->count++];

    if (!expect_map(l, node, "a map with certificate and key"))
        return;
    options_read(l, node, "listen[].tls", entry);
    if (tls->count > 1)
        refuse_settings(l, node);
    if (entry->certificate && entry->key && !l->unserved)
        load_certificate(l, node, tls->server, entry);
}

/* ---- settings -------------------------------------------------------------------------------- */

static void check_settings(struct loading *l, const struct node *node,
                           const struct listen_tls_entry *entry)
{
    const struct node *certificate = node_find(node, "client_certificate"),
                      *crl = node_find(node, "client_crl"), *ciphers = node_find(node, "ciphers");

    if (certificate && !entry->client_ca)
        mistake(l, certificate,
                "client_certificate requires client_ca, the authorities of the clients' "
                "certificates; add it");
    if (crl && !entry->client_ca)
        mistake(l, crl, "client_crl requires client_ca; add it");
    if (entry->ciphers && entry->min_version == MIN_VERSION_1_3)
        warning(l, ciphers, "has no effect with min_version: 1.3, since it concerns TLS 1.2 alone");
}

/* Files that are valid now, but accept no clients. */
static void warn_of_files(struct loading *l, const struct node *node, const char *client_ca,
                          const struct tls_server *server)
{
    int64_t now_s = (int64_t)(clock_wall_us() / 1000000), until_s;
    struct tls_dates dates;

    if (tls_read_dates(client_ca, &dates) && dates.until_s <= now_s)
        warning(l, node_find(node, "client_ca"),
                "an authority in this file has expired: the clients that it issued certificates "
                "for are refused; remove or replace it");
    if (tls_server_crl(server, &until_s) && until_s <= now_s)
        warning(l, node_find(node, "client_crl"),
                "a revocation list in this file has expired: all clients of its issuer are "
                "refused; replace the file, then reload");
}

static void set(struct loading *l, const struct node *node, struct tls_server *server,
                const struct listen_tls_entry *entry)
{
    static const char *const keys[] = {[TLS_BAD_CERTIFICATE] = "certificate",
                                       [TLS_BAD_KEY] = "key",
                                       [TLS_BAD_CA] = "client_ca",
                                       [TLS_BAD_CRL] = "client_crl",
                                       [TLS_BAD_CIPHERS] = "ciphers"};
    struct tls_server_settings settings = {.client_optional = entry->client_certificate ==
                                                              CLIENT_CERTIFICATE_OPTIONAL,
                                           .min_1_3 = entry->min_version == MIN_VERSION_1_3,
                                           .ciphers = entry->ciphers};
    char why[TLS_WHY_MAX];

    if (entry->client_ca)
        settings.client_ca = neighbour_path(l, slice_of(entry->client_ca));
    if (entry->client_crl)
        settings.client_crl = neighbour_path(l, slice_of(entry->client_crl));
    enum tls_fault fault = tls_server_set(server, &settings, why);
    const struct node *at = fault == TLS_GOOD ? NULL : node_find(node, keys[fault]);
    if (fault == TLS_BAD_CIPHERS)
        mistake(l, at, "%s", why);
    else if (fault != TLS_GOOD)
        mistake(l, at ? at : node, "%s %s", QUOTE(at ? at->text : SLICE("tls")), why);
    else if (settings.client_ca)
        warn_of_files(l, node, settings.client_ca, server);
    const char *prohibited =
        fault == TLS_GOOD && entry->ciphers ? tls_prohibited_by_http2(server) : NULL;
    if (prohibited)
        warning(l, node_find(node, "ciphers"),
                "%s has no ephemeral key or no AEAD: HTTP/2 clients close connections that use it",
                prohibited);
}

/* ---- the option ------------------------------------------------------------------------------ */

static void read_listen_tls(struct loading *l, const struct option *option, const struct node *node,
                            void *field)
{
    unsigned count = node->kind == NODE_MAP ? 1 : list_count(node);
    unsigned before = l->report->mistakes;

    if (node->null)
        return;
    if (node->kind == NODE_SCALAR || count < 1 || count > (unsigned)option->high) {
        mistake(l, node, "expected a map with certificate and key, or a list of 1 to %d of them",
                (int)option->high);
        return;
    }
    struct listen_tls *tls = arena_zeroed(l->arena, 1, sizeof *tls);
    tls->entries = arena_zeroed(l->arena, count, sizeof *tls->entries);
    if (!(tls->server = tls_server_new()))
        memory_exhausted();
    *(struct listen_tls **)field = tls;
    const struct node *first = node->kind == NODE_MAP ? node : list_first(node);
    for (const struct node *item = first; item;
         item = node->kind == NODE_MAP ? NULL : list_next(node, item))
        read_entry(l, item, tls);
    if (!first || first->kind != NODE_MAP)
        return;
    check_settings(l, first, &tls->entries[0]);
    if (l->report->mistakes == before && !l->unserved)
        set(l, first, tls->server, &tls->entries[0]);
}

bool listeners_verify_clients(const struct policy *policy)
{
    for (unsigned i = 0; i < policy->listen_count; i++)
        if (policy->listen[i].tls && policy->listen[i].tls->entries[0].client_ca)
            return true;
    return false;
}

static void print_member(FILE *out, const char *key, const char *value)
{
    if (!value)
        return;
    fprintf(out, ", %s: ", key);
    print_scalar(out, slice_of(value));
}

static void print_entry_inline(FILE *out, const void *field, unsigned index)
{
    const struct listen_tls_entry *entry = &((const struct listen_tls *)field)->entries[index];

    fputs("{ certificate: ", out);
    print_scalar(out, slice_of(entry->certificate));
    print_member(out, "key", entry->key);
    print_member(out, "client_ca", entry->client_ca);
    if (entry->client_ca)
        print_member(out, "client_certificate",
                     entry->client_certificate == CLIENT_CERTIFICATE_OPTIONAL ? "optional"
                                                                              : "required");
    print_member(out, "client_crl", entry->client_crl);
    if (entry->min_version == MIN_VERSION_1_3)
        print_member(out, "min_version", "1.3");
    print_member(out, "ciphers", entry->ciphers);
    fputs(" }", out);
}

void listen_tls_print_inline(FILE *out, const struct listen_tls *tls)
{
    if (!tls)
        return;
    fputs(", tls: ", out);
    print_list(out, tls->count, print_entry_inline, tls);
}

const struct option_type type_listen_tls = {"map, or list of maps", read_listen_tls, NULL, true,
                                            sizeof(struct listen_tls *)};
