/* key_source.h - a value of the request that limits count by (`per`), beside the identity. */
#ifndef WEIR_POLICY_KEY_SOURCE_H
#define WEIR_POLICY_KEY_SOURCE_H

#include "policy/identity_settings.h"

enum { KEY_SOURCES_MAX = 16, KEY_SEGMENT_MAX = 32 };

struct key_source {
    const char *text;          /* as written: "jwt:team" */
    struct identity_from from; /* its source is NULL: a segment of the path */
    unsigned segment;          /* of the path, from 1; 0: `from` applies */
};

#endif
