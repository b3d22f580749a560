/* access_log.h - one line a request, as JSON or in the combined format of Apache and nginx.
 *
 * What comes from the request's head is written when the head is there (access_log_begin), what came of the
 * request when it has ended (access_log_end), so that a head need not be kept for the log's sake. */
#ifndef WEIR_PROXY_ACCESS_LOG_H
#define WEIR_PROXY_ACCESS_LOG_H

#include "proxy/exchange.h"

/* Begins the line of a request, or of one whose head was refused; to be called only if the policy has an access log.
 * Without memory for a line x->log stays NULL. */
void access_log_begin(struct exchange *x, const struct request_head *head);
void access_log_begin_refused(struct exchange *x, const struct request_line *line);
/* Writes the line that was begun; to be called only if x->log is set. */
void access_log_end(struct exchange *x, uint64_t duration_us);

#endif
