/* identity_token.c - ids from claims of JSON Web Tokens (RFC 6750 section 2.1, RFC 7519). */
#include "policy/identity_token.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "http/credentials.h"
#include "policy/identity_internal.h"
#include "policy/remote_keys.h"
#include "policy/token_cache.h"

static const uint64_t log_interval_us = 10000000;

struct token_checker {
    struct token_cache *cache;
    struct jwt_rules rules;
    struct remote_hold remote[KEY_URLS_MAX];
    const struct identity_settings *settings;
    struct token_stats *stats;
    uint64_t logged_us, unlogged; /* time of the last line; invalid tokens since */
    void *given;                  /* claims of all requests, see token_checker_give(); NULL: none */
};

bool token_checker_new(const struct policy *policy, struct token_stats *stats,
                       struct token_checker **checker)
{
    const struct identity_settings *settings = &policy->identity;
    const struct jwt_settings *jwt = &settings->jwt;
    struct token_checker *made;

    *checker = NULL;
    if (settings->claim_count == 0)
        return true;
    if (!(made = calloc(1, sizeof *made)))
        return false;
    made->settings = settings;
    made->stats = stats;
    made->rules = (struct jwt_rules){.set_count = jwt->set_count + jwt->remote_count,
                                     .issuer = jwt->issuer,
                                     .audience = jwt->audience,
                                     .leeway_s = (int64_t)(jwt->leeway_us / 1000000),
                                     .require_exp = jwt->require_exp};
    for (unsigned i = 0; i < jwt->set_count; i++)
        made->rules.sets[i] = jwt->sets[i];
    made->cache = token_cache_new(settings->claim_count, IDENTITY_TEXT_MAX);
    if (!made->cache) {
        free(made);
        return false;
    }
    *checker = made;
    return true;
}

void token_checker_free(struct token_checker *checker)
{
    for (unsigned i = 0; checker && i < checker->settings->jwt.remote_count; i++)
        remote_keys_let_go(&checker->remote[i]);
    if (checker)
        token_cache_free(checker->cache);
    free(checker);
}

bool token_checker_is_ready(const struct token_checker *checker)
{
    const struct jwt_settings *jwt = checker ? &checker->settings->jwt : NULL;

    for (unsigned i = 0; jwt && i < jwt->remote_count; i++)
        if (!remote_keys_were_tried(jwt->remote[i]))
            return false;
    return true;
}

/* --- Reading --- */

/* Removes the scheme. Returns false if it is not Bearer; `*token` is the value then. Other headers
 * than Authorization may contain the token alone. */
static bool read_token(const struct jwt_settings *jwt, struct slice value, struct slice *token)
{
    size_t scheme = 0;

    while (scheme < value.n && value.p[scheme] != ' ' && value.p[scheme] != '\t')
        scheme++;
    *token = value;
    if (slice_equal_nocase((struct slice){value.p, scheme}, SLICE("Bearer"))) {
        *token = slice_trim_ows((struct slice){value.p + scheme, value.n - scheme});
        return true;
    }
    return value.n && !slice_equal_nocase(slice_of(jwt->header), SLICE("Authorization"));
}

/* Writes a line of invalid tokens at most every 10 s. Tokens never appear in it. */
static void note_invalid(struct token_checker *checker, const struct identity *identity,
                         enum jwt_fault fault)
{
    uint64_t now = clock_cached_us();
    char bytes[64];
    struct text ip = text_over(bytes, sizeof bytes);

    checker->unlogged++;
    if (checker->logged_us && now - checker->logged_us < log_interval_us)
        return;
    if (identity->has_ip)
        ip_format(&identity->ip, &ip);
    else
        text_literal(&ip, "a unix socket");
    log_info("%llu invalid token%s; the last, from %.*s: %s", (unsigned long long)checker->unlogged,
             checker->unlogged == 1 ? "" : "s", (int)ip.n, bytes, jwt_fault_text[fault]);
    checker->logged_us = now;
    checker->unlogged = 0;
}

/* Stores the identities that the claims of a verified token give. */
static int cache_token(struct token_checker *checker, const struct token_hash *hash,
                       const struct jwt_token *token)
{
    int entry = token_cache_add(checker->cache, hash, token->from_s, token->until_s);
    char number[JWT_NUMBER_MAX];
    struct identity identity;
    const char *why;

    for (unsigned i = 0; i < checker->settings->claim_count; i++) {
        const struct identity_from *from = checker->settings->claims[i];
        struct slice value = jwt_claim(token, from->name, number);
        if (identity_write_id(checker->settings, from->source, value, &identity, &why) == FOUND)
            token_cache_set(checker->cache, entry, i, identity_text(&identity));
    }
    return entry;
}

/* Takes the current keys. A token that was verified with a key that is withdrawn must not stay
 * valid. */
static void update_keys(struct token_checker *checker)
{
    const struct jwt_settings *jwt = &checker->settings->jwt;
    bool changed = false;

    for (unsigned i = 0; i < jwt->remote_count; i++) {
        changed |= remote_keys_update(jwt->remote[i], &checker->remote[i]);
        checker->rules.sets[jwt->set_count + i] = checker->remote[i].keys;
    }
    if (changed)
        token_cache_clear(checker->cache);
}

/* The issuer may have a new key. */
static void want_keys(const struct token_checker *checker)
{
    for (unsigned i = 0; i < checker->settings->jwt.remote_count; i++)
        remote_keys_want(checker->settings->jwt.remote[i]);
}

static enum jwt_fault verify_token(struct token_checker *checker, struct slice token, int *entry,
                                   bool *cached)
{
    struct token_hash hash = token_cache_hash(checker->cache, token);
    int64_t now_s = (int64_t)(clock_cached_wall_us() / 1000000);
    struct jwt_token verified;

    update_keys(checker);
    *entry = token_cache_find(checker->cache, &hash, now_s);
    *cached = *entry >= 0;
    if (*cached)
        return JWT_GOOD;
    enum jwt_fault fault = jwt_verify(&checker->rules, token, now_s, &verified);
    if (fault == JWT_GOOD) {
        *entry = cache_token(checker, &hash, &verified);
        jwt_token_free(&verified);
    } else if (fault == JWT_UNKNOWN_KEY || fault == JWT_NO_KEYS)
        want_keys(checker);
    return fault;
}

bool token_checker_keys_may_come(const struct token_checker *checker)
{
    for (unsigned i = 0; i < checker->settings->jwt.remote_count; i++)
        if (remote_keys_may_come(checker->settings->jwt.remote[i]))
            return true;
    return false;
}

bool token_checker_should_wait(struct token_checker *checker, const struct fields *fields)
{
    const struct jwt_settings *jwt = &checker->settings->jwt;
    const struct field *field = fields_next_named(fields, slice_of(jwt->header), NULL);
    struct slice token;

    if (!field || !read_token(jwt, field->value, &token))
        return false;
    update_keys(checker);
    struct token_hash hash = token_cache_hash(checker->cache, token);
    if (token_cache_find(checker->cache, &hash, (int64_t)(clock_cached_wall_us() / 1000000)) >= 0)
        return false;
    enum jwt_fault fault = jwt_find_key(&checker->rules, token);
    if (fault != JWT_UNKNOWN_KEY && fault != JWT_NO_KEYS)
        return false;
    want_keys(checker);
    return token_checker_keys_may_come(checker);
}

static const char other_token[] = "servers may read another token in the header";

static void read_request(const struct identity_search *search, const struct field *field)
{
    struct token_checker *checker = search->input->tokens;
    const struct jwt_settings *jwt = &checker->settings->jwt;
    struct identity *identity = search->identity;
    enum jwt_fault fault = JWT_MALFORMED;
    struct slice token;
    bool cached = false;

    identity->token_state = TOKEN_NONE;
    identity->token_doubt = NULL;
    if (fields_next_named(search->input->fields, slice_of(jwt->header), field)) {
        fault = JWT_REPEATED; /* servers differ in which one they use */
        identity->token_doubt = "the header of the token occurs twice";
    } else if (read_token(jwt, field->value, &token)) {
        fault = verify_token(checker, token, &identity->token, &cached);
        if (fault != JWT_GOOD && !bearer_is_plain(token))
            identity->token_doubt = other_token;
    } else if (bearer_is_in(token)) {
        identity->token_doubt = other_token;
    } else {
        return;
    }
    identity->token_state = fault == JWT_GOOD ? TOKEN_VALID : TOKEN_INVALID;
    identity->token_fault = jwt_fault_text[fault];
    if (identity->token_counted)
        return;
    identity->token_counted = true;
    counter_add(fault != JWT_GOOD ? &checker->stats->invalid[fault]
                : cached          ? &checker->stats->cached
                                  : &checker->stats->verified,
                1);
    if (fault != JWT_GOOD)
        note_invalid(checker, identity, fault);
}

void token_checker_give(struct token_checker *checker, void *claims)
{
    if (checker)
        checker->given = claims;
}

/* Stores the given claims as if their token had been verified. */
static void take_given(struct token_checker *checker, struct identity *identity)
{
    const struct jwt_token token = {.until_s = INT64_MAX, .claims = checker->given};
    struct token_hash hash = token_cache_hash(checker->cache, SLICE("given"));

    identity->token = cache_token(checker, &hash, &token);
    identity->token_state = TOKEN_VALID;
}

enum found identity_find_claim(const struct identity_search *search,
                               const struct identity_from *from)
{
    struct token_checker *checker = search->input->tokens;
    struct identity *identity = search->identity;
    const struct field *field;

    if (!checker)
        return FOUND_NONE;
    if (identity->token_state == TOKEN_UNREAD && checker->given)
        take_given(checker, identity);
    if (identity->token_state == TOKEN_UNREAD) {
        field =
            fields_next_named(search->input->fields, slice_of(checker->settings->jwt.header), NULL);
        if (field && field_is_named_away(field))
            return identity_bad(search, "Connection names the header of the token");
        identity->token_state = TOKEN_NONE;
        if (field)
            read_request(search, field);
    }
    if (identity->token_state == TOKEN_INVALID &&
        checker->settings->jwt.invalid == JWT_INVALID_401) {
        identity->failure = IDENTITY_INVALID_TOKEN;
        *search->why = identity->token_fault;
        return FOUND_BAD;
    }
    if (identity->token_state == TOKEN_INVALID && identity->token_doubt)
        return identity_bad(search, identity->token_doubt);
    if (identity->token_state != TOKEN_VALID)
        return FOUND_NONE;
    struct slice text = token_cache_get(checker->cache, identity->token, from->claim);
    memcpy(identity->text, text.p, text.n);
    identity->size = text.n;
    return text.n ? FOUND : FOUND_NONE;
}
