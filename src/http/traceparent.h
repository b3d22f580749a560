/* traceparent.h - the field traceparent of distributed tracing (W3C Trace Context, section 3.2). */
#ifndef WEIR_HTTP_TRACEPARENT_H
#define WEIR_HTTP_TRACEPARENT_H

#include "base/slice.h"

/* Returns the trace id, 32 lower-case hexadecimal digits, of a field value; none if the value is
 * malformed or the id is all zeros. Values of later versions may continue after the flags. */
struct slice traceparent_id(struct slice value);

#endif
