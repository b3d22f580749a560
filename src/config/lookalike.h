/* lookalike.h - characters that word processors and web pages use in place of ASCII ones. In an
 * editor they look right. */
#ifndef WEIR_CONFIG_LOOKALIKE_H
#define WEIR_CONFIG_LOOKALIKE_H

#include "base/slice.h"

struct lookalike {
    const char *utf8;
    const char *name; /* with a remedy: "a no-break space (U+00A0); replace it by a space" */
    bool blank;       /* invisible */
};

/* Returns the first one in the text, or NULL. */
const struct lookalike *find_lookalike(struct slice text);

#endif
