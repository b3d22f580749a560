/* read_upstreams.c - section upstreams: the servers that weir forwards requests to. */
#include "config/parts.h"
#include "config/types.h"
#include "http/parse.h"

static bool has_port_0(const struct address *address)
{
    /* sin6_port has the same offset */
    return !address_is_unix(address) && address->v4.sin_port == 0;
}

bool destination_read(struct loading *l, const struct node *node, struct address *address)
{
    const char *why;
    bool good = address_parse(node->text, true, address, &why);

    if (good && has_port_0(address)) {
        why = "port 0 is not valid";
        good = false;
    }
    /* may contain a password: do not print it */
    if (!good && memchr(node->text.p, '@', node->text.n))
        mistake(l, node,
                "contains an @; expected host:port; the user and password have their own options");
    else if (!good)
        mistake(l, node, "weir cannot connect to %s: %s", QUOTE(node->text), why);
    return good;
}

/* Stores a host name unresolved; the resolver looks it up at run time. */
static bool read_server(struct loading *l, const struct node *item, struct upstream_server *server)
{
    struct slice host;
    const char *why;
    bool good = address_split(item->text, &server->address, &host, &server->port, &why);

    server->text = keep_text(l, item);
    server->position = item->position;
    if (good && host.n && server->port == 0) {
        why = "port 0 is not valid";
        good = false;
    }
    if (good)
        server->host = host.n ? arena_text(l->arena, host) : NULL;
    else
        mistake(l, item, "weir cannot connect to %s: %s%s", QUOTE(item->text), why,
                slice_starts_with(item->text, SLICE("https://"))
                    ? "; for TLS, add tls: true next to servers"
                    : "");
    return good;
}

static void read_servers(struct loading *l, const struct option *option, const struct node *node,
                         void *field)
{
    struct upstream *upstream = field;
    unsigned count = list_count(node);

    if (!list_fits(option, node)) {
        mistake(l, node, "expected a list of 1 to %d addresses", (int)option->high);
        return;
    }
    upstream->servers = arena_zeroed(l->arena, count, sizeof *upstream->servers);
    for (const struct node *item = list_first(node); item; item = list_next(node, item)) {
        struct upstream_server *server = &upstream->servers[upstream->server_count];
        if (item->broken || !expect_scalar(l, item, "host:port or unix:/path"))
            continue;
        upstream->server_count += read_server(l, item, server);
    }
}

static void print_servers(const struct printer *printer, const struct option *option,
                          const void *field)
{
    const struct upstream *upstream = field;

    (void)option;
    fputs(" [ ", printer->out);
    for (unsigned i = 0; i < upstream->server_count; i++) {
        fputs(i ? ", " : "", printer->out);
        print_scalar(printer->out, slice_of(upstream->servers[i].text));
    }
    fputs(" ]\n", printer->out);
}

const struct option_type type_servers = {"list of addresses", read_servers, print_servers, false};

/* Certificates are for names or addresses, and a unix socket has neither. */
static void check_server_names(struct loading *l, const struct node *node,
                               const struct upstream *upstream)
{
    for (unsigned i = 0; i < upstream->server_count; i++)
        if (!upstream->servers[i].host && upstream->tls.on && upstream->tls.verify &&
            !upstream->tls.server_name) {
            mistake(l, node_find(node, "tls"), "%s has no host name to verify; give a server_name",
                    upstream->servers[i].text);
            return;
        }
}

/* --- health --- */

bool upstream_has_health(const void *upstream)
{
    return ((const struct upstream *)upstream)->health.path != NULL;
}

static void read_health(struct loading *l, const struct option *option, const struct node *node,
                        void *field)
{
    const struct upstream_health *health = field;

    if (node->null || !expect_map(l, node, "a map such as { path: /healthz }"))
        return;
    options_read(l, node, option->path, field);
    if (health->host && !authority_is_valid(slice_of(health->host)))
        mistake(l, node_find(node, "host"),
                "%s is not a valid Host; expected a host name, optionally with a port",
                QUOTE(slice_of(health->host)));
}

static void print_health(const struct printer *printer, const struct option *option,
                         const void *field)
{
    type_section.print(printer, option, field);
}

const struct option_type type_health = {"map", read_health, print_health, true};

/* The path is sent unchanged in the request line. */
static void read_health_path(struct loading *l, const struct option *option,
                             const struct node *node, void *field)
{
    if (!expect_scalar(l, node, "a path such as /healthz") ||
        !text_fits(l, node, (size_t)option->low, (size_t)option->high))
        return;
    bool good = node->text.p[0] == '/';
    for (size_t i = 0; i < node->text.n; i++)
        good &= node->text.p[i] > ' ' && node->text.p[i] <= '~' && node->text.p[i] != '#';
    if (good)
        *(char **)field = keep_text(l, node);
    else
        mistake(l, node, "%s is not a path; expected e.g. /healthz, as written in a request",
                QUOTE(node->text));
}

static void print_health_path(const struct printer *printer, const struct option *option,
                              const void *field)
{
    type_text.print(printer, option, field);
}

const struct option_type type_health_path = {"path", read_health_path, print_health_path, false};

/* --- upstreams --- */

static void read_upstream(struct loading *l, const struct node *node, struct upstream *upstream)
{
    upstream->name = arena_text(l->arena, node->key);
    (void)name_is_good(l, node);
    if (node->broken ||
        !expect_map(l, node, "a map with servers, such as { servers: [ 127.0.0.1:3000 ] }"))
        return;
    options_read(l, node, "upstreams.NAME", upstream);
    check_server_names(l, node, upstream);
}

static void read_upstreams(struct loading *l, const struct option *option, const struct node *node,
                           void *field)
{
    struct policy *policy = field;

    (void)option;
    if (!expect_map(l, node,
                    "a map of upstreams by name, such as api: { servers: [ 127.0.0.1:3000 ] }"))
        return;
    if (node->count < 1 || node->count > UPSTREAMS_MAX) {
        mistake(l, node, "has %u upstreams; expected 1 to %d", node->count, UPSTREAMS_MAX);
        return;
    }
    policy->upstreams = arena_zeroed(l->arena, node->count, sizeof *policy->upstreams);
    for (const struct node *child = node->first; child; child = child->next) {
        struct upstream *upstream = &policy->upstreams[policy->upstream_count];
        upstream->index = policy->upstream_count++;
        read_upstream(l, child, upstream);
    }
}

static void print_upstreams(const struct printer *printer, const struct option *option,
                            const void *field)
{
    const struct policy *policy = field;
    struct printer names = printer_below(printer);

    (void)option;
    fputc('\n', printer->out);
    for (unsigned i = 0; i < policy->upstream_count; i++) {
        print_key(&names, slice_of(policy->upstreams[i].name));
        fputc('\n', printer->out);
        struct printer below = printer_below(&names);
        options_print(&below, "upstreams.NAME", &policy->upstreams[i]);
    }
}

const struct option_type type_upstreams = {"map by name", read_upstreams, print_upstreams, true};
