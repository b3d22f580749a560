/* read_options.c - limits.NAME.options: options of custom limiter scripts. */
#include "base/values.h"
#include "config/sections.h"
#include "policy/shipped_limiter.h"

/* Largest integer that Lua doubles hold exactly. */
#define EXACT_MAX (INT64_C(1) << 53)

static const char expected[] = "a whole number, a duration such as 25ms, true, false, or a text";

/* Returns true if the text looks like a number. */
static bool starts_as_number(struct slice text)
{
    return text.n && (strchr("+-.", text.p[0]) || (text.p[0] >= '0' && text.p[0] <= '9'));
}

static bool read_number(struct loading *l, const struct node *item, struct script_option *option)
{
    enum value_result result = number_read(item->text, &option->number);

    option->kind = OPTION_NUMBER;
    if (result == VALUE_NO_NUMBER &&
        (result = duration_read(item->text, &option->number)) == VALUE_GOOD)
        option->kind = OPTION_DURATION;
    if (result == VALUE_GOOD && option->number >= -EXACT_MAX && option->number <= EXACT_MAX)
        return true;
    if (result == VALUE_NO_NUMBER)
        mistake(l, item,
                "%s is neither a whole number nor a duration; write fractions as e.g. 500 of 1000, "
                "and text in quotes",
                QUOTE(item->text));
    else
        mistake(l, item, "%s is out of range; expected -2^53 to 2^53, which scripts store exactly",
                QUOTE(item->text));
    return false;
}

static bool read_value(struct loading *l, const struct node *item, struct script_option *option)
{
    if (!expect_scalar(l, item, expected) || !text_fits(l, item, 0, SCRIPT_TEXT_MAX))
        return false;
    bool is_true = slice_equal(item->text, SLICE("true"));
    if (!item->quoted && (is_true || slice_equal(item->text, SLICE("false")))) {
        option->kind = OPTION_BOOL;
        option->number = is_true;
        return true;
    }
    if (!item->quoted && starts_as_number(item->text))
        return read_number(l, item, option);
    option->kind = OPTION_TEXT;
    option->text = keep_text(l, item);
    return true;
}

static void read_own_options(struct loading *l, const struct option *option,
                             const struct node *node, void *field)
{
    struct limit *limit = field;

    if (node->kind == NODE_SCALAR || node->count > (unsigned)option->high) {
        mistake(l, node, "expected a map of at most %d names and values, or a list of values",
                (int)option->high);
        return;
    }
    limit->own_options = arena_zeroed(l->arena, node->count, sizeof *limit->own_options);
    for (const struct node *item = node->first; item; item = item->next) {
        struct script_option *own = &limit->own_options[limit->own_option_count];
        if (node->kind == NODE_MAP)
            own->name = arena_text(l->arena, item->key);
        if (!item->broken && read_value(l, item, own))
            limit->own_option_count++;
    }
}

static void print_value(FILE *out, const struct script_option *own)
{
    char room[32];
    struct text text = text_over(room, sizeof room);

    switch (own->kind) {
    case OPTION_NUMBER: fprintf(out, "%lld", (long long)own->number); break;
    case OPTION_BOOL: fputs(own->number ? "true" : "false", out); break;
    case OPTION_TEXT:
        fputc('"', out);
        print_quoted(out, slice_of(own->text));
        fputc('"', out);
        break;
    case OPTION_DURATION:
        duration_write(&text, own->number);
        fwrite(room, 1, text.n, out);
        break;
    }
}

static void print_own_options(const struct printer *printer, const struct option *option,
                              const void *field)
{
    const struct limit *limit = field;
    struct printer below = printer_below(printer);

    (void)option;
    if (limit->own_option_count == 0)
        fputs(" []", printer->out);
    for (unsigned i = 0; i < limit->own_option_count; i++) {
        const struct script_option *own = &limit->own_options[i];
        if (own->name) {
            fputc('\n', printer->out);
            print_key(&below, slice_of(own->name));
            fputc(' ', printer->out);
        } else
            fputs(i ? ", " : " [ ", printer->out);
        print_value(printer->out, own);
    }
    fputs(limit->own_option_count && !limit->own_options[0].name ? " ]\n" : "\n", printer->out);
}

const struct option_type type_own_options = {"map or list", read_own_options, print_own_options,
                                             true, 0};

bool limit_has_own_options(const void *limit)
{
    const struct limit *l = limit;
    return l->shipped ? l->shipped->rest != NULL : l->kind == LIMIT_CUSTOM;
}

/* Returns true if the only option is the limiter's rest. In JSON, durations are quoted. */
static bool is_rest(const struct limit *limit)
{
    struct script_option *own = limit->own_options;

    if (limit->own_option_count == 1 && own->kind == OPTION_TEXT &&
        duration_read(slice_of(own->text), &own->number) == VALUE_GOOD)
        own->kind = OPTION_DURATION;
    return limit->own_option_count == 1 && own->name &&
           strcmp(own->name, limit->shipped->rest) == 0 && own->kind == OPTION_DURATION &&
           own->number >= PERIOD_MIN_US && own->number <= PERIOD_MAX_US;
}

void limit_finish_own_options(struct loading *l, const struct node *node, struct limit *limit)
{
    const struct node *options = node_find(node, "options");

    if (!limit->shipped || !limit->shipped->rest)
        return;
    limit->rest_us = limit->period_us;
    if (!options)
        return;
    if (is_rest(limit))
        limit->rest_us = limit->own_options->number;
    else
        mistake(l, options, "%s has one option: { %s: DURATION }, 1ms to 366d", limit->script,
                limit->shipped->rest);
}
