/* explain_words.c - the reasons in an explanation, for both reports. */
#include "base/values.h"
#include "explain/explain_print.h"
#include "policy/identity_source.h"

void explain_write_peer(struct text *out, const struct address *from)
{
    struct ip ip;

    if (ip_of_address(from, &ip))
        ip_format(&ip, out);
    else
        text_literal(out, "unix");
}

/* ---- sources --------------------------------------------------------------------------------- */

void explain_write_source(struct text *out, const struct identity_from *from)
{
    text_put(out, slice_of(from->source->word));
    if (!from->name)
        return;
    text_char(out, ':');
    text_clean(out, slice_of(from->name));
}

static const char *absent_reason(const struct tried_source *tried)
{
    const struct identity_source *source = tried->from->source;

    if (source_is_token(source))
        return tried->token == TOKEN_INVALID ? tried->why
               : tried->token == TOKEN_VALID ? "the token has no such claim"
                                             : "no token";
    if (source->verified)
        return "no certificate, or none with such a name";
    if (!tried->from->path)
        return "absent or empty";
    return tried->content == CONTENT_ABSENT   ? "no content"
           : tried->content == CONTENT_UNSURE ? "the content is no JSON object that weir reads"
                                              : "the content has no such value";
}

static const char *used_reason(const struct tried_source *tried, const struct identity *identity)
{
    struct slice text = identity_text(identity);
    size_t prefix = tried->from->source->prefix.n;

    if (!tried->from->source->is_id)
        return "used";
    if (tried->from->source->hashed ||
        (text.n > prefix + 2 && text.p[prefix] == 'h' && text.p[prefix + 1] == ':'))
        return "used, as a hash";
    return "used";
}

const char *explain_source_reason(const struct tried_source *tried, const struct identity *identity)
{
    switch (tried->result) {
    case SOURCE_NOT_TRUSTED: return "not read: the peer is not in identity.trusted_proxies";
    case SOURCE_ABSENT: return absent_reason(tried);
    case SOURCE_BAD: return tried->why;
    case SOURCE_NEEDS_CONTENT: return "in the content, which was not read";
    case SOURCE_UNKNOWN:
        return tried->not_in_database ? "the database has no such client"
                                      : "not in clients, see identity.known_clients_only";
    case SOURCE_USED: break;
    }
    return used_reason(tried, identity);
}

/* ---- rules ----------------------------------------------------------------------------------- */

static void write_json_pattern(struct text *out, struct slice pattern)
{
    bool typed;
    struct slice text = criterion_json_pattern(pattern, &typed);

    if (typed) {
        text_put(out, text);
        return;
    }
    text_char(out, '"');
    text_json(out, text);
    text_char(out, '"');
}

static void write_list(struct text *out, const struct slice *items, unsigned count, bool is_json)
{
    enum { SHOWN = 4 };

    for (unsigned i = 0; i < count && i < SHOWN; i++) {
        text_put(out, i ? SLICE(", ") : SLICE(""));
        if (is_json)
            write_json_pattern(out, items[i]);
        else
            text_clean(out, items[i]);
    }
    if (count > SHOWN)
        text_printf(out, " and %u more", count - SHOWN);
}

static void write_criterion(struct text *out, const struct criterion *criterion, enum truth truth)
{
    text_put(out, slice_of(criterion->kind->key));
    if (criterion->name.n) {
        text_char(out, ' ');
        text_clean(out, criterion->name);
    }
    if (truth == TRUTH_MAYBE) {
        text_put(out, criterion->kind->is_json
                          ? SLICE(" is uncertain: the content cannot be read for certain")
                          : SLICE(" is uncertain: servers may read the request differently"));
        return;
    }
    if (criterion->count == 1 && slice_equal(criterion->patterns[0], SLICE("*"))) {
        text_literal(out, " is absent");
        return;
    }
    text_put(out, criterion->count == 1 ? SLICE(" is not ") : SLICE(" is none of "));
    write_list(out, criterion->patterns, criterion->count, criterion->kind->is_json);
}

void explain_write_miss(struct text *out, const struct explanation *e,
                        const struct tried_rule *tried)
{
    const struct rule *rule = tried->rule;

    switch (tried->miss.of) {
    case MISS_NONE: return;
    case MISS_METHOD:
        text_literal(out, "method ");
        text_clean(out, e->head->method_text);
        text_put(out, rule->method_count == 1 ? SLICE(" is not ") : SLICE(" is none of "));
        write_list(out, rule->methods, rule->method_count, false);
        return;
    case MISS_PATH:
        text_literal(out, "path is not ");
        text_clean(out, rule->path);
        return;
    case MISS_HOST:
        text_literal(out, "host is not ");
        text_clean(out, rule->host);
        return;
    case MISS_CRITERION: write_criterion(out, tried->miss.criterion, tried->truth); return;
    }
}

/* ---- the result ------------------------------------------------------------------------------ */

static void write_rejection(struct text *out, const struct explanation *e)
{
    if (e->verdict == VERDICT_PROHIBITED) {
        text_literal(out, "the client's quota is 0");
        return;
    }
    if (e->rejected_by < 0) {
        text_literal(out, "OPTIONS with Max-Forwards: 0 is answered by weir itself");
        return;
    }
    const struct explained_limit *limit = &e->limits[e->rejected_by];
    text_printf(out, "limit %s has no room for %lld: ", limit->planned.limit->name,
                (long long)limit->planned.cost);
    if (limit->never) {
        text_printf(out, "it never admits more than %lld", (long long)limit->capacity);
        return;
    }
    text_printf(out, "%lld left", (long long)explained_remaining(limit));
    if (limit->planned.cost == 1 && !limit->planned.numbers.share &&
        limit->state.retry_after_us > 0) {
        text_literal(out, ", the next in ");
        wait_write(out, limit->state.retry_after_us);
    }
}

void explain_write_reason(struct text *out, const struct explanation *e)
{
    if (e->result.cause == CAUSE_NONE) {
        write_rejection(out, e);
        return;
    }
    text_put(out, slice_of(cause_table[e->result.cause].text));
    if (!e->result.why)
        return;
    text_literal(out, ": ");
    text_put(out, slice_of(e->result.why));
}
