/* read_listen.c - sections workers, listen and decisions. */
#include <sched.h>
#include <unistd.h>

#include "config/lint.h"
#include "config/sections.h"
#include "http2/session.h"
#include "net/tls.h"

/* ---- listen ---------------------------------------------------------------------------------- */

/* Returns the number of processors available to this process. */
static unsigned processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return (unsigned)CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (unsigned)online : 1;
}

static void read_workers(struct loading *l, const struct option *option, const struct node *node,
                         void *field)
{
    unsigned *workers = field;

    if (node->kind == NODE_SCALAR && slice_equal(node->text, SLICE("auto"))) {
        unsigned most = (unsigned)option->high;
        *workers = processors() < most ? processors() : most;
    } else {
        type_count.read(l, option, node, field);
    }
}

const struct option_type type_workers = {"number", read_workers, print_count, false,
                                         sizeof(unsigned)};

/* --- listen --- */

/* Reads "host:port", or a map with `address`. */
static void read_listener(struct loading *l, const struct option *option, const struct node *item,
                          struct listen_settings *listen)
{

    if (item->broken)
        return;
    listen->http2 = true;
    if (item->kind == NODE_MAP) {
        options_read(l, item, "listen[]", listen);
    } else if (expect_scalar(l, item, "an address, or a map with one"))
        type_address.read(l, option, item, &listen->address);
    if (listen->tls && listen->http2)
        tls_server_offer_http2(listen->tls->server);
}

bool refuse_conflict(struct loading *l, const struct node *node, const struct address *address,
                     const struct address *other, const char *option)
{
    char text[2][ADDRESS_TEXT_MAX];

    if (!address_conflicts(address, other))
        return false;
    address_format(address, text[0]);
    if (!address_same(address, other))
        mistake(l, node, "weir cannot listen on %s and %s%s%s; use another port, or one of them",
                text[0], address_format(other, text[1]), option ? " of " : "",
                option ? option : "");
    else if (option)
        mistake(l, node, "%s is an address of %s as well; use another one", text[0], option);
    else
        mistake(l, node, "%s is listed twice", text[0]);
    return true;
}

void refuse_same_address(struct loading *l, const struct node *item, const struct address *first,
                         const struct address *last, size_t stride)
{
    for (const char *p = (const char *)first; p < (const char *)last; p += stride)
        if (refuse_conflict(l, item, last, (const struct address *)p, NULL))
            return;
}

void listeners_read(struct loading *l, const struct option *option, const struct node *node,
                    struct listen_settings **listen, unsigned *listen_count)
{
    unsigned count = list_count(node);

    if (count < (unsigned)option->low || count > (unsigned)option->high)
        mistake(l, node, "has %u addresses; expected 1 to %d", count, (int)option->high);
    else
        *listen = arena_zeroed(l->arena, count, sizeof **listen);
    if (!*listen)
        return;
    EACH_ITEM (item, node) {
        read_listener(l, option, item, &(*listen)[*listen_count]);
        refuse_same_address(l, item, &(*listen)->address, &(*listen)[*listen_count].address,
                            sizeof **listen);
        ++*listen_count;
    }
}

static void read_listen(struct loading *l, const struct option *option, const struct node *node,
                        void *field)
{
    struct policy *policy = field;

    listeners_read(l, option, node, &policy->listen, &policy->listen_count);
}

/* Prints a map only if there is more than an address. */
static void print_listener(FILE *out, const void *listeners, unsigned index)
{
    const struct listen_settings *listen = (const struct listen_settings *)listeners + index;
    if (!listen->proxy_protocol && !listen->tls && listen->http2) {
        print_address(out, &listen->address);
        return;
    }
    fputs("{ address: ", out);
    print_address(out, &listen->address);
    if (listen->proxy_protocol)
        fputs(", proxy_protocol: true", out);
    listen_tls_print_inline(out, listen->tls);
    if (!listen->http2)
        fputs(", http2: false", out);
    fputs(" }", out);
}

void listeners_print(const struct printer *printer, const struct listen_settings *listen,
                     unsigned count)
{
    print_items(printer, count, print_listener, listen);
}

static void print_listen(const struct printer *printer, const void *field)
{
    const struct policy *policy = field;
    unsigned count = 0;

    while (count < policy->listen_count && !policy->listen[count].decides &&
           !policy->listen[count].serves_limits)
        count++;
    listeners_print(printer, policy->listen, count);
}

const struct option_type type_listen = {"list of addresses", read_listen, print_listen, false, 0};

/* ---- decisions: completes the section, and adds its listener to those of clients ------------- */

void peers_trust_by_default(const struct policy *policy, struct identity_settings *trusted)
{
    static const char *const loopback[] = {"127.0.0.0/8", "::1"};
    const struct identity_settings *proxies = &policy->identity;
    const char *why;

    if (trusted->trusted_count || trusted->trust_unix)
        return;
    trusted->trusted = arena_zeroed(policy->arena, COUNT_OF(loopback) + proxies->trusted_count,
                                    sizeof *trusted->trusted);
    for (unsigned i = 0; i < COUNT_OF(loopback); i++)
        trusted->trusted_count +=
            ip_range_parse(slice_of(loopback[i]), &trusted->trusted[trusted->trusted_count], &why);
    for (unsigned i = 0; i < proxies->trusted_count; i++)
        trusted->trusted[trusted->trusted_count++] = proxies->trusted[i];
    trusted->trust_unix = true;
}

void listener_add(struct loading *l, const struct node *node,
                  const struct listen_settings *listener)
{
    struct policy *policy = l->policy;
    struct listen_settings *all =
        arena_zeroed(policy->arena, policy->listen_count + 1, sizeof *all);

    for (unsigned i = 0; i < policy->listen_count; i++) {
        all[i] = policy->listen[i];
        if (!listener->serves_limits || !all[i].serves_limits)
            (void)refuse_conflict(l, node, &listener->address, &all[i].address,
                                  listen_option(&all[i]));
    }
    all[policy->listen_count] = *listener;
    policy->listen = all;
    policy->listen_count++;
}

void decisions_finish(struct loading *l)
{
    const struct node *section = node_find(l->root, "decisions");
    const struct node *listen = node_find(section, "listen");

    if (section && section->kind == NODE_MAP && !section->broken && !listen)
        mistake(l, section,
                "listen is missing: the address for other proxies, such as 127.0.0.1:9190");
    if (!l->policy->decisions.address.length)
        return;
    peers_trust_by_default(l->policy, &l->policy->decisions.peers);
    listener_add(
        l, listen,
        &(struct listen_settings){.address = l->policy->decisions.address, .decides = true});
}
