/* suggest.h - "did you mean": the word that was probably meant. */
#ifndef WEIR_CONFIG_SUGGEST_H
#define WEIR_CONFIG_SUGGEST_H

#include "base/slice.h"

/* The best of the words seen so far. */
struct suggestion {
    struct slice word; /* what was written */
    struct slice best; /* n == 0: nothing is close */
    unsigned distance;
};

struct suggestion suggestion_for(struct slice word);
/* Takes `candidate` when it is close to the word and closer than the best so far; it must outlive the
 * suggestion. */
void suggestion_consider(struct suggestion *suggestion, struct slice candidate);

/* `; did you mean "burst"?`, or nothing. */
struct suggestion_text {
    char text[96];
};
const char *suggestion_words(const struct suggestion *suggestion, struct suggestion_text *out);
#define DID_YOU_MEAN(suggestion) suggestion_words((suggestion), &(struct suggestion_text){{0}})

#endif
