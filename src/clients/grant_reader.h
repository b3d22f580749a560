/* grant_reader.h - keeps grants.h current with Redis, on the main thread's loop.
 *
 * It asks when told of a change, when messages may have been missed, and every GRANTS_EVERY_US all the same; an
 * unchanged hash is answered in one word. While Redis is away what was known goes on until it ends by itself. */
#ifndef WEIR_CLIENTS_GRANT_READER_H
#define WEIR_CLIENTS_GRANT_READER_H

#include <event2/event.h>

#include "policy/policy.h"

enum { GRANTS_EVERY_US = 5000000 };

struct grant_reader;

/* Starts to connect, and holds the policy. NULL: no memory. */
struct grant_reader *grant_reader_new(struct event_base *base, struct policy *policy);
void grant_reader_free(struct grant_reader *reader);

/* Something was granted or taken back, or may have been. */
void grant_reader_look(struct grant_reader *reader);

#endif
