/* access_log.h - one line a request, as JSON or in the combined format of Apache and nginx.
 *
 * What comes from the request's head is written when the head is there (access_log_begin), what came of the
 * request when it has ended (access_log_end), so that a head need not be kept for the log's sake. */
#ifndef WEIR_PROXY_ACCESS_LOG_H
#define WEIR_PROXY_ACCESS_LOG_H

#include "proxy/exchange.h"

/* `head` NULL: it could not be read. Does nothing when there is no access log, or no memory for a line. */
/* Where the policy wants a log; and where one was begun (x->log). */
void access_log_begin(struct exchange *x, const struct request_head *head);
void access_log_end(struct exchange *x, uint64_t duration_us);

#endif
