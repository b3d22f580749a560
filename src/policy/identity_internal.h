/* identity_internal.h - sources in files of their own, and what they share. */
#ifndef WEIR_POLICY_IDENTITY_INTERNAL_H
#define WEIR_POLICY_IDENTITY_INTERNAL_H

#include "policy/identity_source.h"

enum { IDENTITY_HASH_BYTES = 16, IDENTITY_HASH_DIGITS = 2 * IDENTITY_HASH_BYTES };

struct pair;

/* Returns the text without bytes at its ends that are not ASCII. Python and JavaScript trim the
 * blanks of Unicode too, in names and values of cookies: for Django, "session\302\240" is
 * "session". */
struct slice identity_trim_cookie(struct slice text);
enum found identity_find_cookie(const struct identity_search *search,
                                const struct identity_from *from);
enum found identity_find_query(const struct identity_search *search,
                               const struct identity_from *from);
enum found identity_find_claim(const struct identity_search *search,
                               const struct identity_from *from);
enum found identity_find_json(const struct identity_search *search,
                              const struct identity_from *from);
/* certificate:NAME; NAME is cn, san or fingerprint. */
bool identity_is_certificate_name(struct slice name);
enum found identity_find_certificate(const struct identity_search *search,
                                     const struct identity_from *from);

/* Takes one cookie or parameter, of which there must not be several values or names. `odd` is a
 * character that some servers read as a separator too. `before` and the result: whether the
 * identity has a value. */
enum found identity_take_pair(const struct identity_search *search,
                              const struct identity_from *from, const struct pair *pair, char odd,
                              enum found before);

/* Hashes one spelling of the values that servers read alike: without quotes around it and escapes
 * inside them, decoded once, with "+" as a space, without spaces at its ends. `*empty`: nothing is
 * left. Returns the reason if the value is refused, for control bytes, malformed encoding or blanks
 * of Unicode at its ends, else NULL. With `keep_malformed`, malformed encoding stays as it is, and
 * only NUL, CR and LF are refused. */
const char *identity_hash_value(SHA256_CTX *hash, struct slice value, bool keep_malformed,
                                bool *empty);
/* Hashes one of several values, with `keep_malformed`. A NUL stands before each, which no value
 * contains: the hash of a list is that of no single value, and of no other list. */
const char *identity_hash_item(SHA256_CTX *hash, struct slice value, bool *empty);
/* Ends an HMAC and appends its first IDENTITY_HASH_BYTES as hexadecimal digits. */
void identity_write_hash(struct text *out, const struct hmac_key *key, SHA256_CTX *hash);

/* Before another call: the index of a valid token may be that of another one then. Invalid tokens
 * are not verified again. */
void identity_forget_cached_token(struct identity *identity);

/* Sets the identity's text to that of a long value, of which `hash` is the HMAC. */
void identity_write_long(const struct identity_settings *settings,
                         const struct identity_source *source, SHA256_CTX *hash,
                         struct identity *identity);

/* Rejects the request with 400. */
static inline enum found identity_bad(const struct identity_search *search, const char *why)
{
    search->identity->failure = IDENTITY_MALFORMED;
    *search->why = why;
    return FOUND_BAD;
}

#endif
