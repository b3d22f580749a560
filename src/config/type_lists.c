/* type_lists.c - types of options: addresses, and lists of response statuses. */
#include "config/types.h"
#include "policy/limit.h"

/* ---- addresses ------------------------------------------------------------------------------- */

void print_address(FILE *out, const struct address *address)
{
    char text[ADDRESS_TEXT_MAX];
    print_scalar(out, slice_of(address_format(address, text)));
}

static void read_listen_address(struct loading *l, const struct option *option,
                                const struct node *node, void *field)
{
    const char *why;

    (void)option;
    if (node->null || !expect_scalar(l, node, "host:port, [ipv6]:port or unix:/path"))
        return;
    if (!address_parse(node->text, true, field, &why))
        mistake(l, node, "weir cannot listen on %s: %s", QUOTE(node->text), why);
}

static void print_whole_address(const struct printer *printer, const void *field)
{
    fputc(' ', printer->out);
    print_address(printer->out, field);
    fputc('\n', printer->out);
}

const struct option_type type_address = {"address", read_listen_address, print_whole_address, true,
                                         sizeof(struct address)};

bool destination_read(struct loading *l, const struct node *node, struct address *address)
{
    const char *why;
    bool good = address_parse(node->text, true, address, &why);

    if (good && !address_is_unix(address) && address_port(address) == 0) {
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

/* ---- statuses -------------------------------------------------------------------------------- */

enum { STATUS_WORDS = STATUS_MAX / 64 + 1 };

static void add_statuses(uint64_t *counted, unsigned first, unsigned last)
{
    for (; first <= last; first++)
        counted[first / 64] |= (uint64_t)1 << first % 64;
}

/* Reads a status such as 401, or a class such as 5xx. */
static bool read_status(struct loading *l, const struct node *item, uint64_t *counted)
{
    struct slice text = item->text;
    uint64_t status;

    if (!expect_scalar(l, item, "a status such as 401 or 5xx"))
        return false;
    if (text.n == 3 && text.p[0] >= '1' && text.p[0] <= '5' && text.p[1] == 'x' && text.p[2] == 'x')
        add_statuses(counted, (unsigned)(text.p[0] - '0') * 100,
                     (unsigned)(text.p[0] - '0') * 100 + 99);
    else if (slice_to_u64(text, STATUS_MAX, &status) && status >= STATUS_MIN)
        add_statuses(counted, (unsigned)status, (unsigned)status);
    else {
        mistake(l, item, "%s is not a status; expected 100 to 599, or 1xx to 5xx", QUOTE(text));
        return false;
    }
    return true;
}

static void read_statuses(struct loading *l, const struct option *option, const struct node *node,
                          void *field)
{
    if (option->low && node->kind == NODE_SCALAR && slice_equal(node->text, SLICE("all")))
        return;
    if (!expect_items(l, option, node, option->low ? "statuses, or all" : "statuses"))
        return;
    uint64_t *counted = arena_zeroed(l->arena, STATUS_WORDS, sizeof *counted);
    EACH_ITEM (item, node)
        if (!item->broken)
            (void)read_status(l, item, counted);
    *(uint64_t **)field = counted;
}

static bool hold_whole_class(const uint64_t *statuses, unsigned class)
{
    for (unsigned i = 0; i < 100; i++)
        if (!statuses_hold(statuses, class * 100 + i))
            return false;
    return true;
}

static void print_statuses(const struct printer *printer, const void *field)
{
    const uint64_t *statuses = *(uint64_t *const *)field;
    const char *const start = " [ ", *before = start;

    if (!statuses) {
        fputs(" all\n", printer->out);
        return;
    }
    for (unsigned class = STATUS_MIN / 100; class <= STATUS_MAX / 100; class ++) {
        bool whole = hold_whole_class(statuses, class);
        if (whole)
            fprintf(printer->out, "%s%uxx", before, class), before = ", ";
        for (unsigned i = 0; i < 100 && !whole; i++)
            if (statuses_hold(statuses, class * 100 + i))
                fprintf(printer->out, "%s%u", before, class * 100 + i), before = ", ";
    }
    fputs(before == start ? " []\n" : " ]\n", printer->out);
}

const struct option_type type_statuses = {"list of statuses", read_statuses, print_statuses, false,
                                          sizeof(uint64_t *)};
