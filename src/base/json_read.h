/* json_read.h - what weir reads of JSON (RFC 8259) beside jansson's own functions. */
#ifndef WEIR_BASE_JSON_READ_H
#define WEIR_BASE_JSON_READ_H

#include <jansson.h>

#include "base/slice.h"

/* Follows member names separated by dots: "latency.requests.p50_seconds". Returns NULL if one is
 * missing. `node` may be NULL. */
const json_t *json_at(const json_t *node, const char *path);
/* Returns the value of a number; `otherwise` for NULL and other types. */
double json_double(const json_t *node, double otherwise);
/* Returns the text of a string, valid as long as the node; empty for NULL and other types. */
struct slice json_text(const json_t *node);

#endif
