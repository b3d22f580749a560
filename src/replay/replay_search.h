/* replay_search.h - searches the smallest value of each limit that would limit no client.
 *
 * Clients that sent more than ten times as many requests as the median client are left out, at most
 * 1 % of the clients: they may be those that the limit is made for.
 *
 * Each pass over the logs tries one value per limit, all limits at once, each on its own. The value
 * is multiplied or divided by 4 until the wanted value lies between two tried ones, and then
 * bisected. */
#ifndef WEIR_REPLAY_REPLAY_SEARCH_H
#define WEIR_REPLAY_REPLAY_SEARCH_H

#include "replay/replay_report.h"

enum { REPLAY_SEARCH_PASSES = 12 };

struct search_limit;

/* The search in one policy. */
struct replay_search {
    unsigned count;
    struct search_limit *limits;
};

/* Begins with the values of the policy. `stats`: of the first pass; limits that applied to no
 * request are not searched. */
void replay_search_init(struct replay_search *search, const struct policy *policy,
                        const struct replay_stats *stats);
void replay_search_free(struct replay_search *search);

/* Returns whether another pass would make a value more precise. */
bool replay_search_continues(const struct replay_search *search);
/* Sets the values to try next in a freshly loaded policy. */
void replay_search_apply(const struct replay_search *search, struct policy *policy);
/* Takes the results of the pass. */
void replay_search_learn(struct replay_search *search, const struct replay_stats *stats);

/* Returns the suggestions by limit, to be freed by the caller. */
struct limit_suggestion *replay_search_result(const struct replay_search *search);

#endif
