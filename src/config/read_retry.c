/* read_retry.c - upstreams.NAME.retry.on: failures after which weir retries on another server. */
#include "base/macros.h"
#include "config/parts.h"
#include "config/types.h"

static const struct {
    const char *name;
    unsigned bit;
} causes[] = {
    {"connect", RETRY_ON_CONNECT}, {"reset", RETRY_ON_RESET}, {"timeout", RETRY_ON_TIMEOUT},
    {"502", RETRY_ON_502},         {"503", RETRY_ON_503},     {"504", RETRY_ON_504},
};

static void read_cause(struct loading *l, const struct node *item, unsigned *on)
{
    if (item->broken || !expect_scalar(l, item, "connect, reset, timeout, 502, 503 or 504"))
        return;
    for (size_t i = 0; i < COUNT_OF(causes); i++)
        if (slice_equal(item->text, slice_of(causes[i].name))) {
            *on |= causes[i].bit;
            return;
        }
    mistake(l, item, "%s is not valid; use connect, reset, timeout, 502, 503 or 504",
            QUOTE(item->text));
}

static void read_retry_on(struct loading *l, const struct option *option, const struct node *node,
                          void *field)
{
    if (!list_fits(option, node)) {
        mistake(l, node, "expected a list of connect, reset, timeout, 502, 503 and 504");
        return;
    }
    for (const struct node *item = list_first(node); item; item = list_next(node, item))
        read_cause(l, item, field);
}

static void print_retry_on(const struct printer *printer, const struct option *option,
                           const void *field)
{
    unsigned on = *(const unsigned *)field;
    const char *before = " [ ";

    (void)option;
    for (size_t i = 0; i < COUNT_OF(causes); i++)
        if (on & causes[i].bit)
            fprintf(printer->out, "%s%s", before, causes[i].name), before = ", ";
    fputs(on ? " ]\n" : " []\n", printer->out);
}

const struct option_type type_retry_on = {"list of words", read_retry_on, print_retry_on, false};
