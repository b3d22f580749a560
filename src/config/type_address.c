/* type_address.c - addresses to listen on and to connect to. */
#include "config/types.h"

void print_address(FILE *out, const struct address *address)
{
    char text[ADDRESS_TEXT_MAX];
    print_scalar(out, slice_of(address_format(address, text)));
}

static void read_address(struct loading *l, const struct option *option, const struct node *node,
                         void *field)
{
    const char *why;

    (void)option;
    if (node->null || !expect_scalar(l, node, "host:port, [ipv6]:port or unix:/path"))
        return;
    if (!address_parse(node->text, true, field, &why))
        mistake(l, node, "weir cannot listen on %s: %s", QUOTE(node->text), why);
}

static void print_whole_address(const struct printer *printer, const struct option *option,
                                const void *field)
{
    (void)option;
    fputc(' ', printer->out);
    print_address(printer->out, field);
    fputc('\n', printer->out);
}

const struct option_type type_address = {"address", read_address, print_whole_address, true,
                                         sizeof(struct address)};

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
