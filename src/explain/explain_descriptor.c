/* explain_descriptor.c - what weir does with one descriptor of Envoy's rate limit service, and why:
 * the configured entries that match it, and their limits. Redis is not used. */
#include "explain/explain_print.h"
#include "limit/key.h"
#include "policy/descriptor_name.h"

enum { LINE_SIZE = 8192, COLUMN = 24 };

struct explained_descriptor {
    const struct policy *policy;
    const struct rate_limit_domain *domain; /* NULL: the policy does not have it */
    struct parsed_descriptor parsed;
    struct descriptor_name name;
    struct descriptor_match match;
    /* By entry of the descriptor. NULL: none matches it, or none did before. */
    const struct configured_entry *entries[DESCRIPTOR_ENTRIES_MAX];
    bool is_over; /* a limit admits nothing; else all limits may have room */
};

static bool is_shadow(const struct explained_descriptor *e, const struct limit *limit)
{
    return e->policy->rate_limit_service.shadow ||
           !descriptor_enforces(&e->match, limit, descriptor_name_text(&e->name));
}

/* Returns NULL, or what is wrong with the name. */
static const char *explain_name(const struct policy *policy, struct slice name,
                                struct explained_descriptor *e)
{
    *e = (struct explained_descriptor){.policy = policy};
    const char *why = descriptor_name_parse(name, &e->parsed);
    struct call_descriptor first = e->parsed.descriptor;

    if (why || e->parsed.hashed)
        return why ? why : "the name is a hash; weir explain needs the whole name";
    e->domain = rate_limit_domain(&policy->rate_limit_service, e->parsed.domain);
    for (unsigned i = 0; e->domain && i < e->parsed.descriptor.entry_count; i++) {
        first.entry_count = i + 1;
        descriptor_match(e->domain, &first, &e->match);
        e->entries[i] = e->match.entry;
    }
    descriptor_name_write(e->parsed.domain, &e->parsed.descriptor, &e->match, &e->name);
    for (unsigned i = 0; i < descriptor_limit_count(&e->match); i++) {
        const struct limit *limit = descriptor_limit(&e->match, i);
        e->is_over |= limit->limit < 1 && !is_shadow(e, limit);
    }
    return NULL;
}

/* ---- reasons --------------------------------------------------------------------------------- */

/* Returns the file that names the domain; its entries may be in another one. */
static const char *file_of_domain(const struct explained_descriptor *e)
{
    return e->domain->position_file ? e->domain->position_file : e->policy->file;
}

static const char *file_of_entries(const struct explained_descriptor *e)
{
    return e->domain->file ? e->domain->file : file_of_domain(e);
}

/* Returns why no configured entry matches this entry. */
static const char *miss_of(const struct explained_descriptor *e, unsigned i)
{
    const struct entry_level *level = i ? &e->entries[i - 1]->below : &e->domain->top;

    return text_table_find(&level->by_key, e->parsed.entries[i].key)
               ? "no entry of this level has this value"
               : "no entry of this level has this key";
}

static const char *without_limits(const struct explained_descriptor *e)
{
    return !e->domain                           ? "the policy has no such domain"
           : !e->match.entry                    ? "no configured entry matches"
           : descriptor_is_unlimited(&e->match) ? "the entry is unlimited"
           : !descriptor_limit_count(&e->match) ? "the entry has no limit"
                                                : NULL;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Prints a line: label, "FILE:LINE" or nothing, and two texts. */
static void line(const char *label, const char *position, struct slice name, const char *about)
{
    char bytes[LINE_SIZE];
    struct text text = text_over(bytes, sizeof bytes);

    text_printf(&text, "%-10s%-*s  ", label, COLUMN, position);
    size_t start = text.n;
    text_clean(&text, name);
    if (*about)
        text_printf(&text, "%*s%s",
                    text.n < start + COLUMN ? (int)(start + COLUMN - text.n) + 2 : 2, "", about);
    printf("%.*s\n", SLICE_ARG(text_slice(&text)));
}

static const char *position_text(const char *file, struct position position, char *bytes)
{
    const char *name = strrchr(file, '/');

    snprintf(bytes, LINE_SIZE, "%s:%u", name ? name + 1 : file, position.line);
    return bytes;
}

static void print_entry(const struct explained_descriptor *e, unsigned i)
{
    const struct configured_entry *entry = e->entries[i];
    const struct descriptor_entry *given = &e->parsed.entries[i];
    char bytes[LINE_SIZE], about_bytes[LINE_SIZE], position[LINE_SIZE] = "";
    struct text name = text_over(bytes, sizeof bytes), about = text_over(about_bytes, LINE_SIZE);

    text_put(&name, given->key);
    text_char(&name, '=');
    text_put(&name, given->value);
    if (!entry)
        text_put(&about, slice_of(miss_of(e, i)));
    else if (entry->value.n) {
        text_literal(&about, "value ");
        text_clean(&about, entry->value);
    } else
        text_literal(&about, "every value");
    if (entry && entry->shares)
        text_literal(&about, " (its values share one count)");
    if (entry && entry == e->match.entry) {
        text_put(&about, entry->quota ? SLICE(", quota_mode") : SLICE(""));
        text_put(&about, entry->shadow ? SLICE(", shadow_mode") : SLICE(""));
    }
    text_char(&about, 0);
    line(i ? "" : "entries",
         entry ? position_text(file_of_entries(e), entry->position, position) : "",
         text_slice(&name), about.p);
}

static void print_limit(const struct explained_descriptor *e, const char *label,
                        const struct limit *limit)
{
    char bytes[LINE_SIZE], position[LINE_SIZE];
    struct text about = text_over(bytes, sizeof bytes);
    bool own = e->match.entry->has_rate_limit;

    text_printf(&about, "%s %lld per ", limit->script, (long long)limit->limit);
    limit_period_write(&about, limit);
    if (limit->kind == LIMIT_BUCKET && limit->burst != limit->limit)
        text_printf(&about, ", burst %lld", (long long)limit->burst);
    if (is_shadow(e, limit))
        text_literal(&about, " (shadow: never rejects)");
    text_char(&about, 0);
    line(label,
         position_text(own ? file_of_entries(e) : e->policy->file,
                       own ? e->match.entry->position : limit->position, position),
         slice_of(limit->name), about.p);
    struct text key = text_over(bytes, sizeof bytes);
    text_literal(&key, "key ");
    key_write_descriptor(&key, e->policy, limit, descriptor_name_text(&e->name));
    line("", "", text_slice(&key), "");
}

const char *explain_descriptor(const struct policy *policy, struct slice name, bool *is_over)
{
    static const char *const charges[] = {
        [CHARGE_ALL] = "charge: all", [CHARGE_EVERY] = "charge: every"};
    struct explained_descriptor explained, *e = &explained;
    const char *why = explain_name(policy, name, e);
    char position[LINE_SIZE] = "";

    if (why)
        return why;
    const char *without = without_limits(e);
    line("client", "", descriptor_name_text(&e->name), "");
    line("domain", e->domain ? position_text(file_of_domain(e), e->domain->position, position) : "",
         e->parsed.domain, e->domain ? charges[e->domain->charge] : "is not in the policy");
    for (unsigned i = 0; e->domain && i < e->parsed.descriptor.entry_count; i++) {
        print_entry(e, i);
        if (!e->entries[i])
            break;
    }
    if (without)
        printf("%-10snone: %s\n", "limits", without);
    for (unsigned i = 0; e->domain && !without && i < descriptor_limit_count(&e->match); i++)
        print_limit(e, i ? "" : "limits", descriptor_limit(&e->match, i));
    printf("%-10s%s\n", "result",
           e->is_over ? "OVER_LIMIT: a limit admits nothing"
           : without  ? "OK: nothing is counted"
                      : "OK if its limits have room (weir inspect reads what is left)");
    *is_over = e->is_over;
    return NULL;
}
