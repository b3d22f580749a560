/* identity_cookies.c - ids from cookies (RFC 6265 section 4.2).
 *
 * Browsers send several cookies of one name: of the host and of its domain, or of two applications
 * that spell the name differently. Servers read different ones. With identity.cookies: hash, all
 * of them together are the identity, whichever the server reads. With reject, such a request is
 * rejected. */
#include "base/text.h"
#include "policy/identity_internal.h"
#include "policy/pairs.h"

/* The cookies of all Cookie fields: HTTP/2 splits them (RFC 9113 section 8.2.3). */
struct cookies {
    const struct fields *fields;
    const char *separators;
    const struct field *field; /* being read; NULL: none yet */
    struct pairs pairs;
};

/* Sets the next cookie, without blanks around it, its name and its value. */
static bool next_cookie(struct cookies *cookies, struct pair *cookie)
{
    while (!cookies->field || !pairs_next(&cookies->pairs, cookie)) {
        cookies->field = fields_next_named(cookies->fields, SLICE("Cookie"), cookies->field);
        if (!cookies->field)
            return false;
        cookies->pairs = pairs_of(cookies->field->value, cookies->separators);
    }
    cookie->text = slice_trim_ows(cookie->text);
    cookie->name = slice_trim_ows(cookie->name);
    cookie->value = slice_trim_ows(cookie->value);
    return true;
}

/* Returns true if the wanted name and a "=" stand after a blank inside a cookie. Python's
 * http.cookies separates cookies by blanks too: it reads "a=b session=x" as two. */
static bool is_named_behind_blank(struct slice cookie, struct slice wanted)
{
    struct pairs words = pairs_of(cookie, " \t");
    struct slice name = SLICE_NONE; /* of the last word, if a blank stands before it */
    struct pair word;
    bool first = true;

    if (!memchr(cookie.p, ' ', cookie.n) && !memchr(cookie.p, '\t', cookie.n))
        return false;
    while (pairs_next(&words, &word)) {
        if (word.text.n == 0)
            continue;
        if (word.name.n)
            name = first ? SLICE_NONE : word.name;
        first = false;
        if (word.has_value && name.n && name_match(name, wanted) != NAME_DIFFERS)
            return true;
    }
    return false;
}

static bool is_ascii(char c)
{
    return (unsigned char)c < 0x80;
}

struct slice identity_trim_cookie(struct slice text)
{
    for (; text.n && !is_ascii(text.p[0]); text.n--)
        text.p++;
    while (text.n && !is_ascii(text.p[text.n - 1]))
        text.n--;
    return slice_trim_ows(text);
}

static enum found refuse_blank(const struct identity_search *search)
{
    return identity_bad(search, "the name of the identity's cookie stands after a blank");
}

/* --- reject --- */

/* Returns true if Python's http.cookies ends the value at a blank inside it. */
static bool ends_at_blank(struct slice value)
{
    bool quoted = value.n >= 2 && value.p[0] == '"' && value.p[value.n - 1] == '"' &&
                  !memchr(value.p + 1, '"', value.n - 2);

    return !quoted && value.n && (memchr(value.p, ' ', value.n) || memchr(value.p, '\t', value.n));
}

/* Returns true if servers may trim what weir would count as a part of the name or value. */
static bool is_trimmed_by_some(const struct pair *cookie, struct slice wanted)
{
    struct slice name = identity_trim_cookie(cookie->name);

    if (name_match(name, wanted) == NAME_DIFFERS)
        return false;
    return name.n != cookie->name.n || identity_trim_cookie(cookie->value).n != cookie->value.n;
}

/* Servers that follow RFC 2965 section 3.3.4 also separate cookies by ",", which values must not
 * contain (RFC 6265 section 4.1.1). */
static enum found find_only(const struct identity_search *search, const struct identity_from *from)
{
    struct cookies cookies = {.fields = search->input->fields, .separators = ";,"};
    struct slice wanted = slice_of(from->name);
    enum found found = FOUND_NONE;
    struct pair cookie;

    while (found != FOUND_BAD && next_cookie(&cookies, &cookie)) {
        if (is_named_behind_blank(cookie.text, wanted))
            return refuse_blank(search);
        if (ends_at_blank(cookie.value) && name_match(cookie.name, wanted) == NAME_EQUAL)
            return identity_bad(search, "the identity's cookie contains a blank");
        if (is_trimmed_by_some(&cookie, wanted))
            return identity_bad(search, "the identity's cookie begins or ends with a byte that is "
                                        "not ASCII");
        found = identity_take_pair(search, from, &cookie, ',', found);
    }
    return found;
}

/* --- hash --- */

/* Returns true if "," stands before the name and a "=" inside a cookie. */
static bool is_named_behind_comma(struct slice cookie, struct slice wanted)
{
    struct pairs parts = pairs_of(cookie, ",");
    struct pair part;

    if (!memchr(cookie.p, ',', cookie.n))
        return false;
    while (pairs_next(&parts, &part))
        if (part.before && part.has_value &&
            name_match(slice_trim_ows(part.name), wanted) != NAME_DIFFERS)
            return true;
    return false;
}

/* Sets the value of a cookie that servers may read as the wanted one. Of a cookie that only servers
 * after RFC 2965 read so, it is the whole cookie. Bytes at its ends that are not ASCII do not
 * count: else each number of them would be another client. */
static enum name_match cookie_value(const struct pair *cookie, struct slice wanted,
                                    struct slice *value)
{
    struct slice name = identity_trim_cookie(cookie->name);
    enum name_match match = cookie->has_value ? name_match(name, wanted) : NAME_DIFFERS;
    bool odd = is_named_behind_comma(cookie->text, wanted) ||
               (match == NAME_EQUAL && name.n != cookie->name.n);

    *value = match == NAME_DIFFERS ? cookie->text : identity_trim_cookie(cookie->value);
    return odd ? NAME_TWIN : match;
}

/* The identity is the hash of all values in their order. */
static enum found take_all(const struct identity_search *search, const struct identity_from *from)
{
    const struct hmac_key *key = &search->input->policy->identity.hash_key;
    struct cookies cookies = {.fields = search->input->fields, .separators = ";"};
    struct text text = text_over(search->identity->text, sizeof search->identity->text);
    SHA256_CTX hash = hmac_begin(key);
    bool empty, all_empty = true;
    struct slice value;
    struct pair cookie;

    while (next_cookie(&cookies, &cookie)) {
        if (cookie_value(&cookie, slice_of(from->name), &value) == NAME_DIFFERS)
            continue;
        const char *why = identity_hash_item(&hash, value, &empty);
        if (why)
            return identity_bad(search, why);
        all_empty &= empty;
    }
    text_put(&text, from->source->prefix);
    identity_write_hash(&text, key, &hash);
    search->identity->size = text.n;
    return all_empty ? FOUND_NONE : FOUND;
}

static enum found find_all(const struct identity_search *search, const struct identity_from *from)
{
    struct cookies cookies = {.fields = search->input->fields, .separators = ";"};
    struct slice value, first = SLICE_NONE;
    bool found = false, several = false;
    struct pair cookie;

    while (next_cookie(&cookies, &cookie)) {
        if (is_named_behind_blank(cookie.text, slice_of(from->name)))
            return refuse_blank(search);
        enum name_match match = cookie_value(&cookie, slice_of(from->name), &value);
        if (match == NAME_DIFFERS)
            continue;
        several |= match == NAME_TWIN || (found && !slice_equal(value, first));
        first = value;
        found = true;
    }
    if (several)
        return take_all(search, from);
    return found ? identity_write_id(&search->input->policy->identity, from->source, first,
                                     search->identity, search->why)
                 : FOUND_NONE;
}

enum found identity_find_cookie(const struct identity_search *search,
                                const struct identity_from *from)
{
    return search->input->policy->identity.cookies == COOKIES_HASH ? find_all(search, from)
                                                                   : find_only(search, from);
}
