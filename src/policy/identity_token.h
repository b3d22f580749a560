/* identity_token.h - verification of tokens for jwt sources, with a worker's cache and counters. */
#ifndef WEIR_POLICY_IDENTITY_TOKEN_H
#define WEIR_POLICY_IDENTITY_TOKEN_H

#include "base/counter_table.h"
#include "policy/jwt.h"
#include "policy/policy.h"

/* Written by one worker. A request counts once, in one of them; requests without token in none. */
struct token_stats {
    counter_t verified;                 /* signature and claims */
    counter_t cached;                   /* verified before, and still valid */
    counter_t invalid[JWT_FAULT_COUNT]; /* by reason */
};

/* Creates a worker's checker for one policy, which must outlive it. Sets `*checker` to NULL if the
 * policy has no jwt source. Returns false if out of memory. */
struct token_checker;
MUST_CHECK bool token_checker_new(const struct policy *policy, struct token_stats *stats,
                                  struct token_checker **checker);
void token_checker_free(struct token_checker *checker);

/* For tests of policies: the next requests have a verified token with these claims, whatever is in
 * their header. `claims`: a json_t object, which must outlive them; NULL: no longer. `checker` may
 * be NULL. */
void token_checker_give(struct token_checker *checker, void *claims);
/* Returns whether the first fetch of all keys by URL has ended. NULL is ready. */
bool token_checker_is_ready(const struct token_checker *checker);
/* Returns whether the request's token names an unknown key that may be fetched soon: the caller may
 * wait until token_checker_keys_may_come() is false. Requests the fetch. */
bool token_checker_should_wait(struct token_checker *checker, const struct fields *fields);
bool token_checker_keys_may_come(const struct token_checker *checker);

#endif
