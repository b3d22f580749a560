/* client_body.h - the JSON that answers an inspect, reset or grant of one client. */
#ifndef WEIR_ADMIN_CLIENT_BODY_H
#define WEIR_ADMIN_CLIENT_BODY_H

#include <event2/buffer.h>

#include "admin/client_query.h"

/* Writes the results of a completed query of this kind, by json_writer_growing(). */
void client_body_write(struct text *out, const struct query *query, enum client_query_kind kind,
                       const struct identity *identity);

#endif
