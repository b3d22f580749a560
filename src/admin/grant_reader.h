/* grant_reader.h - synchronises the table in grants.h with Redis, on the main thread's loop.
 *
 * It reads the hash after a change message, when messages may have been missed, and every
 * GRANTS_EVERY_US. If the hash is unchanged, the reply contains only the time and the
 * version. While Redis is down, known grants remain until they expire. */
#ifndef WEIR_ADMIN_GRANT_READER_H
#define WEIR_ADMIN_GRANT_READER_H

#include <event2/event.h>

#include "policy/policy.h"

enum { GRANTS_EVERY_US = 5000000 };

struct grant_reader;

/* Starts to connect and holds a reference to the policy. Returns NULL if out of memory. */
struct grant_reader *grant_reader_new(struct event_base *base, struct policy *policy);
void grant_reader_free(struct grant_reader *reader);

/* Grants have changed or may have changed: reads them. */
void grant_reader_look(struct grant_reader *reader);

#endif
