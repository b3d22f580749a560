#include "config/types.h"

#include "base/values.h"
#include "policy/policy.h"

enum { PRINTED_MAX = 48 }; /* bytes of a number with its unit */

/* --- numbers, with or without unit --- */

struct amount {
    const char *what;
    enum value_result (*read)(struct slice text, int64_t *value);
    void (*write)(struct text *out, int64_t value);
    void (*meant)(struct slice text, struct text *out); /* or NULL */
};

static const struct amount duration = {"a duration such as 500us, 25ms, 1s, 1m, 1h or 1d",
                                       duration_read, duration_write, duration_meant};
static const struct amount size = {"a size such as 512, 8k or 1m", size_read, size_write,
                                   size_meant};
static const struct amount number = {"a whole number such as 1000", number_read, text_i64, NULL};

static const struct amount share = {"a share such as 10% or 0.5%", share_read, share_write, NULL};

static const char *amount_text(const struct amount *amount, int64_t value,
                               char text[static PRINTED_MAX])
{
    struct text t = text_over(text, PRINTED_MAX - 1);
    amount->write(&t, value);
    text[t.n] = 0;
    return text;
}

static void out_of_range(struct loading *l, const struct option *option, const struct node *node,
                         const struct amount *amount)
{
    char low[PRINTED_MAX], high[PRINTED_MAX];
    mistake(l, node, "%s is out of range; expected %s to %s", QUOTE(node->text),
            amount_text(amount, option->low, low), amount_text(amount, option->high, high));
}

static void no_number(struct loading *l, const struct node *node, const struct amount *amount)
{
    char text[PRINTED_MAX];
    struct text meant = text_over(text, sizeof text - 1);

    if (amount->meant)
        amount->meant(node->text, &meant);
    if (meant.n && !meant.failed)
        mistake(l, node, "%s is not %s; did you mean \"%.*s\"?", QUOTE(node->text), amount->what,
                (int)meant.n, text);
    else
        mistake(l, node, "%s is not %s", QUOTE(node->text), amount->what);
}

static bool read_amount(struct loading *l, const struct option *option, const struct node *node,
                        const struct amount *amount, int64_t *value)
{
    if (!expect_scalar(l, node, amount->what))
        return false;
    enum value_result result = amount->read(node->text, value);
    if (result == VALUE_GOOD && *value >= option->low && *value <= option->high)
        return true;
    if (result == VALUE_NO_NUMBER)
        no_number(l, node, amount);
    else if (result == VALUE_NO_UNIT)
        mistake(l, node, "%s has no unit; write %.*sms, %.*ss or %.*sm", QUOTE(node->text),
                SLICE_ARG(node->text), SLICE_ARG(node->text), SLICE_ARG(node->text));
    else
        out_of_range(l, option, node, amount);
    return false;
}

static void print_amount(const struct printer *printer, const struct amount *amount, int64_t value)
{
    char text[PRINTED_MAX];
    fprintf(printer->out, " %s\n", amount_text(amount, value, text));
}

#define AMOUNT_TYPE(word)                                                                          \
    static void read_##word(struct loading *l, const struct option *option,                        \
                            const struct node *node, void *field)                                  \
    {                                                                                              \
        int64_t value;                                                                             \
        if (read_amount(l, option, node, &word, &value))                                           \
            *(int64_t *)field = value;                                                             \
    }                                                                                              \
    static void print_##word(const struct printer *printer, const void *field)                     \
    {                                                                                              \
        print_amount(printer, &word, *(const int64_t *)field);                                     \
    }                                                                                              \
    const struct option_type type_##word = {#word, read_##word, print_##word, false,               \
                                            sizeof(int64_t)}

AMOUNT_TYPE(duration);
AMOUNT_TYPE(size);
AMOUNT_TYPE(number);
AMOUNT_TYPE(share);

static void read_count(struct loading *l, const struct option *option, const struct node *node,
                       void *field)
{
    int64_t value;
    if (read_amount(l, option, node, &number, &value))
        *(unsigned *)field = (unsigned)value;
}

void print_count(const struct printer *printer, const void *field)
{
    print_amount(printer, &number, *(const unsigned *)field);
}

const struct option_type type_count = {"number", read_count, print_count, false, sizeof(unsigned)};

/* --- words --- */

/* "local, allow or deny" */
static const char *names_listed(const struct option *option, char *text, size_t room)
{
    struct text t = text_over(text, room - 1);
    for (const char *const *name = option->names; *name; name++) {
        if (name > option->names)
            text_put(&t, name[1] ? SLICE(", ") : SLICE(" or "));
        text_put(&t, slice_of(*name));
    }
    text[t.n] = 0;
    return text;
}

bool word_read(struct loading *l, const struct node *node, const char *const *names,
               const char *expected, unsigned *index)
{
    struct suggestion meant;

    if (!expect_scalar(l, node, expected))
        return false;
    int found = index_of(node->text, word_at, names, &meant);
    if (found >= 0)
        *index = (unsigned)found;
    else
        mistake(l, node, "%s is unknown; expected %s%s", QUOTE(node->text), expected,
                DID_YOU_MEAN(&meant));
    return found >= 0;
}

static void read_enum(struct loading *l, const struct option *option, const struct node *node,
                      void *field)
{
    char names[200];

    (void)word_read(l, node, option->names, names_listed(option, names, sizeof names), field);
}

void print_enum(const struct printer *printer, const void *field)
{
    print_scalar_value(printer, slice_of(printer->option->names[*(const unsigned *)field]));
}

const struct option_type type_enum = {"word", read_enum, print_enum, false, sizeof(unsigned)};

static void read_words(struct loading *l, const struct option *option, const struct node *node,
                       void *field)
{
    unsigned *bits = field, index, count = 0;
    char names[200];

    while (option->names[count])
        count++;
    if (node->kind == NODE_MAP || list_count(node) > count) {
        mistake(l, node, "expected a list of %s", names_listed(option, names, sizeof names));
        return;
    }
    names_listed(option, names, sizeof names);
    EACH_ITEM (item, node)
        if (!item->broken && word_read(l, item, option->names, names, &index))
            *bits |= 1u << index;
}

static void print_words(const struct printer *printer, const void *field)
{
    unsigned bits = *(const unsigned *)field;
    const char *before = " [ ";

    for (unsigned i = 0; printer->option->names[i]; i++)
        if (bits >> i & 1)
            fprintf(printer->out, "%s%s", before, printer->option->names[i]), before = ", ";
    fputs(bits ? " ]\n" : " []\n", printer->out);
}

const struct option_type type_words = {"list of words", read_words, print_words, false,
                                       sizeof(unsigned)};

static void read_bool(struct loading *l, const struct option *option, const struct node *node,
                      void *field)
{
    (void)option;
    if (!expect_scalar(l, node, "true or false"))
        return;
    if (slice_equal(node->text, SLICE("true")))
        *(bool *)field = true;
    else if (slice_equal(node->text, SLICE("false")))
        *(bool *)field = false;
    else
        mistake(l, node, "%s is neither true nor false", QUOTE(node->text));
}

static void print_bool(const struct printer *printer, const void *field)
{
    fprintf(printer->out, " %s\n", *(const bool *)field ? "true" : "false");
}

const struct option_type type_bool = {"true or false", read_bool, print_bool, false, sizeof(bool)};

bool expect_text(struct loading *l, const struct option *option, const struct node *node,
                 const char *what)
{
    return expect_scalar(l, node, what) &&
           text_fits(l, node, (size_t)option->low, (size_t)option->high);
}

static void read_text(struct loading *l, const struct option *option, const struct node *node,
                      void *field)
{
    if (node->null || !expect_text(l, option, node, "text"))
        return;
    if (slice_has_control_bytes(node->text))
        mistake(l, node, "contains control bytes; expected printable text");
    else
        *(char **)field = keep_text(l, node);
}

bool ascii_fits(struct loading *l, const struct option *option, const struct node *node,
                const char *refused, const char *what)
{
    if (!expect_text(l, option, node, "text"))
        return false;
    for (size_t i = 0; i < node->text.n; i++)
        if (node->text.p[i] < ' ' || node->text.p[i] > '~' || strchr(refused, node->text.p[i])) {
            mistake(l, node, "%s contains more than %s", QUOTE(node->text), what);
            return false;
        }
    return true;
}

const char *file_path(struct loading *l, const struct option *option, const struct node *node)
{
    if (node->null || !expect_text(l, option, node, "a file's path"))
        return NULL;
    return neighbour_path(l, node->text);
}

void print_text(const struct printer *printer, const void *field)
{
    const char *text = *(char *const *)field;
    if (text)
        print_scalar_value(printer, slice_of(text));
    else
        fputs(" null\n", printer->out);
}

const struct option_type type_text = {"text", read_text, print_text, true, sizeof(char *)};

void note_secret(struct loading *l, const struct node *node)
{
    bool variable = node->text.n && node->text.p[0] == '$'; /* $NAME: warned of already */

    if (!l->secret && !node->substituted && !variable)
        l->secret = node;
}

static void read_secret(struct loading *l, const struct option *option, const struct node *node,
                        void *field)
{
    read_text(l, option, node, field);
    if (!node->null && *(char **)field)
        note_secret(l, node);
}

void print_secret(const struct printer *printer, const void *field)
{
    fputs(*(char *const *)field ? " \"***\"\n" : " null\n", printer->out);
}

const struct option_type type_secret = {"text", read_secret, print_secret, true, sizeof(char *)};

void print_slice(const struct printer *printer, const void *field)
{
    print_scalar_value(printer, *(const struct slice *)field);
}

/* --- names of the policy --- */

#define NAME_AT(function, list, list_count)                                                        \
    const char *function(const void *policy, unsigned index)                                       \
    {                                                                                              \
        const struct policy *of = policy;                                                          \
        return index < of->list_count ? of->list[index].name : NULL;                               \
    }

NAME_AT(limit_at, limits, limit_count)
NAME_AT(rule_at, rules, rule_count)
NAME_AT(upstream_at, upstreams, upstream_count)
NAME_AT(plan_at, plans, plan_count)
NAME_AT(priority_at, priorities, priority_count)

int policy_index(struct loading *l, const struct node *node, bool is_key, name_at *at,
                 const char *what)
{
    struct suggestion meant;
    struct slice name = is_key ? node->key : node->text;
    int index = index_of(name, at, l->policy, &meant);

    if (index < 0)
        (is_key ? mistake_of_key : mistake)(l, node, "there is no %s %s%s", what, QUOTE(name),
                                            DID_YOU_MEAN(&meant));
    return index;
}

/* --- lists, maps --- */

bool expect_items(struct loading *l, const struct option *option, const struct node *node,
                  const char *what)
{
    unsigned count = list_count(node);

    if (node->kind != NODE_MAP && count >= (unsigned)option->low && count <= (unsigned)option->high)
        return true;
    if (option->low)
        mistake(l, node, "expected a list of %d to %d %s", (int)option->low, (int)option->high,
                what);
    else
        mistake(l, node, "expected a list of at most %d %s", (int)option->high, what);
    return false;
}

bool expect_entries(struct loading *l, const struct option *option, const struct node *node,
                    const char *a_map, const char *things)
{
    if (!expect_map(l, node, a_map))
        return false;
    if (node->count >= (unsigned)option->low && node->count <= (unsigned)option->high)
        return true;
    if (option->low)
        mistake(l, node, "has %u %s; expected %d to %d", node->count, things, (int)option->low,
                (int)option->high);
    else
        mistake(l, node, "has %u %s; expected at most %d", node->count, things, (int)option->high);
    return false;
}

void read_elsewhere(struct loading *l, const struct option *option, const struct node *node,
                    void *field)
{
    (void)l, (void)option, (void)node, (void)field;
}

/* --- sections --- */

static void read_section(struct loading *l, const struct option *option, const struct node *node,
                         void *field)
{
    struct option_keys known;
    char expected[sizeof known + 32];
    bool any = *option_keys(l, option->path, &known);

    snprintf(expected, sizeof expected, "a map of keys and values%s%s", any ? ": " : "",
             any ? known.text : "");
    if (expect_map(l, node, expected))
        options_read(l, node, option->path, field);
}

void print_section(const struct printer *printer, const void *field)
{
    struct printer below = printer_below(printer);
    fputc('\n', printer->out);
    options_print(&below, printer->option->path, field);
}

const struct option_type type_section = {"section", read_section, print_section, true, 0};
