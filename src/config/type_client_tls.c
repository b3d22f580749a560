/* type_client_tls.c - TLS from weir to a server: upstreams.NAME.tls and redis.tls. */
#include "config/types.h"
#include "net/tls.h"

void client_tls_load(struct loading *l, const struct node *node, struct client_tls *tls)
{
    struct tls_client_settings settings = {.verify = tls->verify, .no_alpn = tls->no_alpn};
    char why[TLS_WHY_MAX];

    settings.ca = tls->ca ? neighbour_path(l, slice_of(tls->ca)) : NULL;
    if (tls->certificate && tls->key) {
        settings.certificate = neighbour_path(l, slice_of(tls->certificate));
        settings.key = neighbour_path(l, slice_of(tls->key));
    }
    enum tls_fault fault = tls_client_new(&settings, &tls->client, why);
    struct tls_dates dates;
    if (fault == TLS_GOOD && settings.certificate && tls_read_dates(settings.certificate, &dates)) {
        tls->expires_s = dates.until_s;
        tls->certificate_path = arena_text(l->arena, slice_of(settings.certificate));
        certificate_check(l, node_find(node, "certificate"), &dates);
    }
    if (fault == TLS_BAD_CA && !tls->ca)
        mistake(l, node, "%s", why);
    else if (fault != TLS_GOOD) {
        const char *key = fault == TLS_BAD_CA ? "ca" : fault == TLS_BAD_KEY ? "key" : "certificate";
        const struct node *file = node_find(node, key);
        mistake(l, file, "%s %s", QUOTE(file->text), why);
    }
}

static void check_tls(struct loading *l, const struct node *node, const struct client_tls *tls)
{
    if (tls->certificate && !tls->key)
        mistake(l, node_find(node, "certificate"), "certificate requires key; add it");
    if (tls->key && !tls->certificate)
        mistake(l, node_find(node, "key"), "key requires certificate; add it");
    if (tls->ca && !tls->verify)
        mistake(l, node_find(node, "ca"),
                "has no effect with verify: false; remove one of the two");
    struct ip ip;
    struct slice name = slice_of(tls->server_name ? tls->server_name : "");
    if (name.n && !host_name_is_valid(name) && !ip_parse(name, &ip))
        mistake(l, node_find(node, "server_name"), "%s is neither a host name nor an IP address",
                QUOTE(name));
}

static void read_client_tls(struct loading *l, const struct option *option, const struct node *node,
                            void *field)
{
    struct client_tls *tls = field;
    unsigned before = l->report->mistakes;
    bool is_true = node->kind == NODE_SCALAR && slice_equal(node->text, SLICE("true"));

    if (node->null || (node->kind == NODE_SCALAR && slice_equal(node->text, SLICE("false"))))
        return;
    if (!is_true && node->kind != NODE_MAP) {
        mistake(l, node, "expected true, false, or a map such as { ca: FILE }");
        return;
    }
    tls->on = true;
    tls->no_alpn = option->low == CLIENT_TLS_NO_ALPN;
    options_read(l, node, option->path, tls);
    check_tls(l, node, tls);
    if (l->report->mistakes == before)
        client_tls_load(l, node, tls);
}

static void print_client_tls(const struct printer *printer, const struct option *option,
                             const void *field)
{
    const struct client_tls *tls = field;

    if (tls->on)
        type_section.print(printer, option, field);
    else
        fputs(" false\n", printer->out);
}

const struct option_type type_client_tls = {"true, false or map", read_client_tls, print_client_tls,
                                            true, 0};
