/* read_upstreams.c - whom weir itself connects to: Redis and the APIs. */
#include "policy/parts.h"
#include "policy/types.h"

static bool has_port_0(const struct address *address)
{
    return !address_is_unix(address) && address->v4.sin_port == 0; /* at the same place in IPv6's */
}

static bool read_destination(struct loading *l, const struct node *node, struct address *address)
{
    const char *why;
    bool good = address_parse(node->text, true, address, &why);

    if (good && has_port_0(address)) {
        why = "nobody listens on port 0";
        good = false;
    }
    if (!good)
        mistake(l, node, "%s cannot be connected to: %s", QUOTE(node->text), why);
    return good;
}

static void read_redis_address(struct loading *l, const struct option *option, const struct node *node,
                               void *field)
{
    struct redis_settings *redis = field;

    (void)option;
    if (!expect_scalar(l, node, "host:port, unix:/path or embedded"))
        return;
    redis->embedded = slice_equal(node->text, SLICE("embedded"));
    redis->address_text = keep_text(l, node);
    if (!redis->embedded)
        (void)read_destination(l, node, &redis->address);
}

static void print_redis_address(const struct printer *printer, const struct option *option, const void *field)
{
    (void)option;
    const struct redis_settings *redis = field;
    type_text.print(printer, option, &redis->address_text);
}

const struct option_type type_redis_address = {"address", read_redis_address, print_redis_address, false};

/* Braces would move the hash tag of Redis Cluster, blanks and quotes would have to be escaped in every tool.
 */
static void read_key_prefix(struct loading *l, const struct option *option, const struct node *node,
                            void *field)
{
    if (!expect_scalar(l, node, "text") || !text_fits(l, node, (size_t)option->low, (size_t)option->high))
        return;
    for (size_t i = 0; i < node->text.n; i++)
        if (node->text.p[i] <= ' ' || node->text.p[i] > '~' || strchr("{}\"'\\", node->text.p[i])) {
            mistake(l, node, "%s holds more than visible ASCII without braces, quotes and backslashes",
                    QUOTE(node->text));
            return;
        }
    *(char **)field = keep_text(l, node);
}

static void print_key_prefix(const struct printer *printer, const struct option *option, const void *field)
{
    type_text.print(printer, option, field);
}

const struct option_type type_key_prefix = {"text", read_key_prefix, print_key_prefix, false};

static void read_servers(struct loading *l, const struct option *option, const struct node *node, void *field)
{
    struct upstream *upstream = field;
    unsigned count = list_count(node);

    if (node->kind == NODE_MAP || count < (unsigned)option->low || count > (unsigned)option->high) {
        mistake(l, node, "expected a list of 1 to %d addresses", (int)option->high);
        return;
    }
    upstream->servers = pool_zeroed(l->pool, count, sizeof *upstream->servers);
    for (const struct node *item = list_first(node); item; item = list_next(node, item)) {
        struct upstream_server *server = &upstream->servers[upstream->server_count];
        if (item->broken || !expect_scalar(l, item, "host:port or unix:/path"))
            continue;
        server->text = keep_text(l, item);
        upstream->server_count += read_destination(l, item, &server->address);
    }
}

static void print_servers(const struct printer *printer, const struct option *option, const void *field)
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

static void read_upstream(struct loading *l, const struct node *node, struct upstream *upstream)
{
    upstream->name = pool_text(l->pool, node->key);
    (void)name_is_good(l, node);
    if (!node->broken && expect_map(l, node, "a map with servers"))
        options_read(l, node, "upstreams.NAME", upstream);
}

static void read_upstreams(struct loading *l, const struct option *option, const struct node *node,
                           void *field)
{
    struct policy *policy = field;

    (void)option;
    if (!expect_map(l, node, "a map of upstreams by name, such as api: { servers: [ 127.0.0.1:3000 ] }"))
        return;
    if (node->count < 1 || node->count > UPSTREAMS_MAX) {
        mistake(l, node, "has %u upstreams; expected 1 to %d", node->count, UPSTREAMS_MAX);
        return;
    }
    policy->upstreams = pool_zeroed(l->pool, node->count, sizeof *policy->upstreams);
    for (const struct node *child = node->first; child; child = child->next) {
        struct upstream *upstream = &policy->upstreams[policy->upstream_count];
        upstream->index = policy->upstream_count++;
        read_upstream(l, child, upstream);
    }
}

static void print_upstreams(const struct printer *printer, const struct option *option, const void *field)
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
