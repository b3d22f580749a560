/* log_json.h - reads the members of one JSON object, such as a line of weir's access log. */
#ifndef WEIR_REPLAY_LOG_JSON_H
#define WEIR_REPLAY_LOG_JSON_H

#include "base/slice.h"

/* Calls `member` for each member of the object. Strings are decoded in place (RFC 8259 section 7),
 * so `bytes` changes, and the slices point into it; other values are given as their text. Returns
 * false if the text is not one JSON object; members before the error were reported. */
MUST_CHECK bool log_json_parse(char *bytes, size_t size,
                               void (*member)(void *context, struct slice name, struct slice value),
                               void *context);

#endif
