/* read_resolver.c - resolver.nameservers. */
#include "config/sections.h"

enum { DNS_PORT = 53 };

static bool read_nameserver(const struct node *item, struct address *address)
{
    const char *why;
    struct ip ip;

    if (!ip_parse(item->text, &ip))
        return address_parse(item->text, false, address, &why) && !address_is_unix(address) &&
               address->v4.sin_port != 0; /* sin6_port has the same offset */
    address_of_ip(&ip, DNS_PORT, address);
    return true;
}

static void read_nameservers(struct loading *l, const struct option *option,
                             const struct node *node, void *field)
{
    struct resolver_settings *resolver = field;

    if (!expect_items(l, option, node, "addresses"))
        return;
    for (const struct node *item = list_first(node); item; item = list_next(node, item)) {
        if (item->broken ||
            !expect_scalar(l, item, "an address such as 10.0.0.2 or 127.0.0.1:5353"))
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

static void print_nameservers(const struct printer *printer, const struct option *option,
                              const void *field)
{
    const struct resolver_settings *resolver = field;

    (void)option;
    print_items(printer, resolver->nameserver_count, print_nameserver, resolver);
}

const struct option_type type_nameservers = {"list of addresses", read_nameservers,
                                             print_nameservers, true, 0};
