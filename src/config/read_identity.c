/* read_identity.c - section identity: sources of client identity, and trusted peers. */
#include "config/parts.h"
#include "config/types.h"

/* Reads `ip` or `header:NAME`. */
static bool read_source(struct loading *l, const struct node *item, struct identity_from *from)
{
    struct slice text = item->text;

    if (!expect_scalar(l, item, "ip or \"header:NAME\" (without a space behind the colon)"))
        return false;
    if (slice_equal(text, SLICE("ip")))
        return true;
    struct slice name = {text.p + 7, text.n - 7};
    if (!slice_starts_with(text, SLICE("header:")) || !slice_is_token(name) || name.n > 128) {
        mistake(l, item, "%s is unknown; expected ip or header:NAME", QUOTE(text));
        return false;
    }
    from->source = IDENTITY_HEADER;
    from->header = arena_text(l->arena, name);
    from->field = slice_equal_nocase(name, SLICE("X-Client-Id")) ? FIELD_X_CLIENT_ID : FIELD_OTHER;
    return true;
}

static bool same_source(const struct identity_from *a, const struct identity_from *b)
{
    return a->source == b->source &&
           (a->source == IDENTITY_IP || slice_equal_nocase(slice_of(a->header), slice_of(b->header)));
}

static void read_from(struct loading *l, const struct option *option, const struct node *node, void *field)
{
    struct identity_settings *identity = field;

    if (!list_fits(option, node)) {
        mistake(l, node, "expected a list of 1 to %d of ip and header:NAME", (int)option->high);
        return;
    }
    for (const struct node *item = list_first(node); item; item = list_next(node, item)) {
        struct identity_from *from = &identity->from[identity->from_count];
        if (item->broken || !read_source(l, item, from))
            continue;
        for (unsigned i = 0; i < identity->from_count; i++)
            if (same_source(&identity->from[i], from))
                mistake(l, item, "%s stands here twice", QUOTE(item->text));
        identity->from_count++;
    }
}

static void print_from(const struct printer *printer, const struct option *option, const void *field)
{
    const struct identity_settings *identity = field;

    (void)option;
    fputs(" [ ", printer->out);
    for (unsigned i = 0; i < identity->from_count; i++) {
        const struct identity_from *from = &identity->from[i];
        fputs(i ? ", " : "", printer->out);
        if (from->source == IDENTITY_IP)
            fputs("ip", printer->out);
        else
            fprintf(printer->out, "\"header:%s\"", from->header); /* a token needs no escapes */
    }
    fputs(" ]\n", printer->out);
}

const struct option_type type_identity_from = {"list of sources", read_from, print_from, false};

static void read_proxy(struct loading *l, const struct node *item, struct identity_settings *identity)
{
    struct ip_range *range = &identity->trusted[identity->trusted_count];
    const char *why;

    if (!expect_scalar(l, item, "an address, a range or \"unix:\" (in quotes)"))
        return;
    if (slice_equal(item->text, SLICE("unix:")))
        identity->trust_unix = true;
    else if (ip_range_parse(item->text, range, &why))
        identity->trusted_count++;
    else
        mistake(l, item, "%s: %s", QUOTE(item->text), why);
}

static void read_trusted(struct loading *l, const struct option *option, const struct node *node, void *field)
{
    struct identity_settings *identity = field;
    unsigned count = list_count(node);

    if (!list_fits(option, node)) {
        mistake(l, node, "expected a list of at most %d addresses and ranges", (int)option->high);
        return;
    }
    identity->trusted = arena_zeroed(l->arena, count, sizeof *identity->trusted);
    for (const struct node *item = list_first(node); item; item = list_next(node, item))
        if (!item->broken)
            read_proxy(l, item, identity);
}

static void print_trusted(const struct printer *printer, const struct option *option, const void *field)
{
    const struct identity_settings *identity = field;

    (void)option;
    fputs(" [", printer->out);
    for (unsigned i = 0; i < identity->trusted_count; i++) {
        char room[64];
        struct text range = text_over(room, sizeof room);
        ip_range_format(&identity->trusted[i], &range);
        fputs(i ? ", " : " ", printer->out);
        print_scalar(printer->out, text_slice(&range));
    }
    if (identity->trust_unix)
        fprintf(printer->out, "%s\"unix:\"", identity->trusted_count ? ", " : " ");
    fputs(identity->trusted_count || identity->trust_unix ? " ]\n" : "]\n", printer->out);
}

const struct option_type type_trusted = {"list of addresses and ranges", read_trusted, print_trusted, true};

void identity_finish(struct policy *policy)
{
    struct identity_settings *identity = &policy->identity;
    bool trusts_nobody = identity->trusted_count == 0 && !identity->trust_unix;

    identity->headers_from_anyone = trusts_nobody || identity->headers_from == HEADERS_FROM_ANYONE;
}
