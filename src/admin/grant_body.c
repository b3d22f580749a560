#include "admin/grant_body.h"

#include <stdio.h>

#include "base/text.h"
#include "clients/client_query.h"

enum { WORD_MAX = 64 }; /* bytes of a key or a value */

/* A string without quotes, or a number or bare word as written. */
struct word {
    char bytes[WORD_MAX];
    size_t n;
    bool quoted;
};

static struct slice slice_of_word(const struct word *word)
{
    return (struct slice){word->bytes, word->n};
}

static void skip_space(struct slice *rest)
{
    while (rest->n && strchr(" \t\r\n", *rest->p) && *rest->p)
        rest->p++, rest->n--;
}

static bool take(struct slice *rest, char c)
{
    skip_space(rest);
    if (rest->n == 0 || *rest->p != c)
        return false;
    rest->p++, rest->n--;
    return true;
}

/* Rejects escapes: no valid key or value needs them. */
static bool take_string(struct slice *rest, struct word *word)
{
    if (!take(rest, '"'))
        return false;
    word->n = 0;
    word->quoted = true;
    for (; rest->n && *rest->p != '"'; rest->p++, rest->n--) {
        if (word->n == WORD_MAX || *rest->p == '\\' || (unsigned char)*rest->p < 0x20)
            return false;
        word->bytes[word->n++] = *rest->p;
    }
    return take(rest, '"');
}

static bool take_value(struct slice *rest, struct word *word)
{
    skip_space(rest);
    if (rest->n && *rest->p == '"')
        return take_string(rest, word);
    word->n = 0;
    word->quoted = false;
    for (; rest->n && !strchr(" \t\r\n,}", *rest->p); rest->p++, rest->n--) {
        if (word->n == WORD_MAX || strchr("{[\":", *rest->p))
            return false;
        word->bytes[word->n++] = *rest->p;
    }
    return word->n > 0;
}

static bool say(char *why, const char *text)
{
    snprintf(why, GRANT_WHY_MAX, "%s", text);
    return false;
}

static bool read_quota(const struct word *word, int64_t *quota, char *why)
{
    struct slice text = slice_of_word(word);

    if (!word->quoted && slice_equal(text, SLICE("null"))) {
        *quota = GRANT_NONE;
        return true;
    }
    bool named = slice_equal(text, SLICE("unlimited"));
    if (named == word->quoted && grant_quota_read(text, quota) && *quota != GRANT_NONE)
        return true;
    return say(why,
               "quota: a whole number from 0 to 1000000000 was expected, or -1 or \"unlimited\", or null to "
               "take a grant back");
}

static bool read_time(const struct word *word, int64_t *us, char *why)
{
    return (word->quoted && grant_time_read(slice_of_word(word), us)) ||
           say(why, "for: a duration from \"1s\" to \"30d\" was expected, as in \"1h\"");
}

/* Reads the members between the braces. */
static bool read_members(struct slice *rest, int64_t *quota, int64_t *us, char *why)
{
    struct word key, value;
    bool has_quota = false, has_time = false;

    do {
        if (!take_string(rest, &key) || !take(rest, ':') || !take_value(rest, &value))
            return say(why, "the body is no JSON object such as {\"quota\": 100, \"for\": \"1h\"}");
        bool is_quota = slice_equal(slice_of_word(&key), SLICE("quota"));
        if (!is_quota && !slice_equal(slice_of_word(&key), SLICE("for"))) {
            snprintf(why, GRANT_WHY_MAX, "unknown member \"%.*s\"; there are quota and for", (int)key.n,
                     key.bytes);
            return false;
        }
        bool *has = is_quota ? &has_quota : &has_time;
        if (*has)
            return say(why, is_quota ? "quota stands twice" : "for stands twice");
        *has = true;
        if (!(is_quota ? read_quota(&value, quota, why) : read_time(&value, us, why)))
            return false;
    } while (take(rest, ','));
    if (!has_quota)
        return say(why, "the quota is missing, as in {\"quota\": 100, \"for\": \"1h\"}");
    if (has_time == (*quota == GRANT_NONE))
        return say(why, has_time ? "a grant that is taken back has no time: leave for out"
                                 : "for is missing: how long, from \"1s\" to \"30d\", as in \"1h\"");
    return true;
}

bool grant_body_read(struct slice body, int64_t *quota, int64_t *us, char why[static GRANT_WHY_MAX])
{
    *us = 0;
    if (!take(&body, '{'))
        return say(why, "a JSON object was expected, such as {\"quota\": 100, \"for\": \"1h\"}");
    if (!read_members(&body, quota, us, why))
        return false;
    if (!take(&body, '}'))
        return say(why, "the body is no JSON object such as {\"quota\": 100, \"for\": \"1h\"}");
    skip_space(&body);
    return body.n == 0 || say(why, "something stands behind the JSON object");
}
