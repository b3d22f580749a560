/* jwt_none.c - replaces this directory in a build without OpenSSL or jansson. The policy refuses
 * jwt sources, so nothing is ever verified. */
#include "config.h"
#include "jwt/jwt.h"

const char *const jwt_fault_label[JWT_FAULT_COUNT] = {
#define X(name, label, text) [name] = label,
    JWT_FAULTS(X)
#undef X
};

const char *const jwt_fault_text[JWT_FAULT_COUNT] = {
#define X(name, label, text) [name] = text,
    JWT_FAULTS(X)
#undef X
};

#ifndef HAVE_JWT

bool jwt_is_there(void)
{
    return false;
}

struct jwt_keys *jwt_keys_new(void)
{
    return NULL;
}

void jwt_keys_free(struct jwt_keys *keys)
{
    (void)keys;
}

bool jwt_keys_add_set(struct jwt_keys *keys, struct slice json, struct jwt_set_report *report)
{
    (void)keys, (void)json;
    *report = (struct jwt_set_report){.why = "weir was built without jansson or OpenSSL"};
    return false;
}

bool jwt_keys_add_secret(struct jwt_keys *keys, struct slice secret)
{
    (void)keys, (void)secret;
    return false;
}

enum jwt_fault jwt_verify(const struct jwt_rules *rules, struct slice text, int64_t now_s,
                          struct jwt_token *token)
{
    (void)rules, (void)text, (void)now_s, (void)token;
    return JWT_UNKNOWN_KEY;
}

void jwt_token_free(struct jwt_token *token)
{
    (void)token;
}

struct slice jwt_claim(const struct jwt_token *token, const char *name,
                       char room[static JWT_NUMBER_MAX])
{
    (void)token, (void)name, (void)room;
    return SLICE_NONE;
}

#endif
