/* read_upstreams.c - sections upstreams and resolver. */
#include "config/sections.h"
#include "http2/session.h"

/* ---- resolver.nameservers -------------------------------------------------------------------- */

enum { DNS_PORT = 53 };

static bool read_nameserver(const struct node *item, struct address *address)
{
    const char *why;
    struct ip ip;

    if (!ip_parse(item->text, &ip))
        return address_parse(item->text, false, address, &why) && !address_is_unix(address) &&
               address_port(address) != 0;
    address_of_ip(&ip, DNS_PORT, address);
    return true;
}

static void read_nameservers(struct loading *l, const struct option *option,
                             const struct node *node, void *field)
{
    struct resolver_settings *resolver = field;

    if (!expect_items(l, option, node, "addresses"))
        return;
    EACH_ITEM (item, node) {
        if (!expect_scalar(l, item, "an address such as 10.0.0.2 or 127.0.0.1:5353"))
            continue;
        if (read_nameserver(item, &resolver->nameservers[resolver->nameserver_count]))
            resolver->nameserver_count++;
        else
            mistake(l, item,
                    "%s is not an address; expected e.g. 10.0.0.2, 127.0.0.1:5353 or [fd00::2]:53",
                    QUOTE(item->text));
    }
}

static void print_nameserver(FILE *out, const void *resolver, unsigned index)
{
    print_address(out, &((const struct resolver_settings *)resolver)->nameservers[index]);
}

PRINT_ITEMS(print_nameservers, resolver_settings, nameserver_count, print_nameserver)

const struct option_type type_nameservers = {"list of addresses", read_nameservers,
                                             print_nameservers, true, 0};

/* ---- upstreams ------------------------------------------------------------------------------- */

/* Stores a host name unresolved; the resolver looks it up at run time. */
static bool read_upstream_server(struct loading *l, const struct node *item,
                                 struct upstream_server *server)
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

    if (!expect_items(l, option, node, "addresses"))
        return;
    upstream->servers = arena_zeroed(l->arena, count, sizeof *upstream->servers);
    EACH_ITEM (item, node) {
        struct upstream_server *server = &upstream->servers[upstream->server_count];
        if (!expect_scalar(l, item, "host:port or unix:/path"))
            continue;
        upstream->server_count += read_upstream_server(l, item, server);
    }
}

static void print_server(FILE *out, const void *upstream, unsigned index)
{
    print_scalar(out, slice_of(((const struct upstream *)upstream)->servers[index].text));
}

PRINT_ITEMS(print_servers, upstream, server_count, print_server)

const struct option_type type_servers = {"list of addresses", read_servers, print_servers, false,
                                         0};

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

static void check_protocol(struct loading *l, const struct node *node,
                           const struct upstream *upstream)
{
    const struct node *protocol = node_find(node, "protocol");

    if (upstream->protocol == UPSTREAM_HTTP1)
        return;
    if (upstream->protocol == UPSTREAM_AUTO && !upstream->tls.on)
        mistake(l, protocol, "auto requires tls; without it, give http1 or http2");
}

static void check_health(struct loading *l, const struct node *node,
                         const struct upstream *upstream)
{
    if (upstream->health.grpc && upstream->protocol != UPSTREAM_HTTP2)
        mistake(l, node_find(node, "health"), "gRPC health checks require protocol: http2");
}

/* --- health --- */

bool upstream_has_health(const void *upstream)
{
    return health_is_on(&((const struct upstream *)upstream)->health);
}

static bool has_path(const struct node *health)
{
    const struct node *path = node_find(health, "path");
    return path && !path->null;
}

static void read_health(struct loading *l, const struct option *option, const struct node *node,
                        void *field)
{
    const struct upstream_health *health = field;

    if (node->null || !expect_map(l, node, "a map such as { path: /healthz }"))
        return;
    options_read(l, node, option->path, field);
    if (health->grpc ? health->path != NULL : !has_path(node)) /* an invalid path is reported */
        mistake(l, node, "a health check needs either path or grpc");
    if (health->host && !authority_is_valid(slice_of(health->host)))
        mistake(l, node_find(node, "host"),
                "%s is not a valid Host; expected a host name, optionally with a port",
                QUOTE(slice_of(health->host)));
}

const struct option_type type_health = {"map", read_health, print_section, true, 0};

/* The path is sent unchanged in the request line. */
static void read_health_path(struct loading *l, const struct option *option,
                             const struct node *node, void *field)
{
    if (node->null || !expect_text(l, option, node, "a path such as /healthz"))
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

const struct option_type type_health_path = {"path", read_health_path, print_text, true,
                                             sizeof(char *)};

/* --- upstreams --- */

static void read_upstream(struct loading *l, const struct node *node, struct upstream *upstream)
{
    upstream->name = arena_text(l->arena, node->key);
    (void)name_is_good(l, node);
    if (!expect_map(l, node, "a map with servers, such as { servers: [ 127.0.0.1:3000 ] }"))
        return;
    options_read(l, node, "upstreams.NAME", upstream);
    check_server_names(l, node, upstream);
    check_protocol(l, node, upstream);
    check_health(l, node, upstream);
}

static void read_upstreams(struct loading *l, const struct option *option, const struct node *node,
                           void *field)
{
    struct policy *policy = field;

    if (!expect_entries(l, option, node,
                        "a map of upstreams by name, such as api: { servers: [ 127.0.0.1:3000 ] }",
                        "upstreams"))
        return;
    policy->upstreams = arena_zeroed(l->arena, node->count, sizeof *policy->upstreams);
    for (const struct node *child = node->first; child; child = child->next) {
        struct upstream *upstream = &policy->upstreams[policy->upstream_count];
        upstream->index = policy->upstream_count++;
        read_upstream(l, child, upstream);
    }
}

PRINT_MAP(print_upstreams, policy, upstreams, upstream_count, "upstreams.NAME")

const struct option_type type_upstreams = {"map by name", read_upstreams, print_upstreams, true, 0};
