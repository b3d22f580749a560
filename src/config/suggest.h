/* suggest.h - "did you mean" suggestions for misspelled words. */
#ifndef WEIR_CONFIG_SUGGEST_H
#define WEIR_CONFIG_SUGGEST_H

#include "base/slice.h"

/* Best candidate so far. */
struct suggestion {
    struct slice word; /* as written */
    struct slice best; /* n == 0: no close candidate */
    unsigned distance;
};

struct suggestion suggestion_for(struct slice word);
/* Stores `candidate` if it is close to the word and closer than the best so far. It must outlive
 * the suggestion. */
void suggestion_consider(struct suggestion *suggestion, struct slice candidate);

/* Returns the name at an index of `names`; NULL: there are no more. */
typedef const char *name_at(const void *names, unsigned index);
/* name_at() of a NULL-terminated array of words. */
const char *word_at(const void *words, unsigned index);
/* Returns the index of a name, or -1 with the closest name in `*meant`. */
int index_of(struct slice name, name_at *at, const void *names, struct suggestion *meant);

/* `; did you mean "burst"?`, or an empty text. */
struct suggestion_text {
    char text[96];
};
const char *suggestion_words(const struct suggestion *suggestion, struct suggestion_text *out);
#define DID_YOU_MEAN(suggestion) suggestion_words((suggestion), &(struct suggestion_text){{0}})

#endif
