/* access_log.h - one line per request, as JSON or in the combined format of Apache and nginx.
 *
 * access_log_begin() writes the parts from the request header, access_log_end() writes the
 * results. So the header does not need to be kept for the log. */
#ifndef WEIR_PROXY_ACCESS_LOG_H
#define WEIR_PROXY_ACCESS_LOG_H

#include "proxy/exchange_state.h"

/* Begins the line of a request, or of one whose header was refused. Call only if the policy has
 * an access log. Without memory, x->record.log stays NULL and no line is written. */
void access_log_begin(struct exchange *x, const struct request_head *head);
void access_log_begin_refused(struct exchange *x, const struct request_line *line);
/* Completes and writes the line. Call only if x->record.log is set. `duration_us`: duration of the
 * request. */
void access_log_end(struct exchange *x, uint64_t duration_us);

#endif
