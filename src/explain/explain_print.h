/* explain_print.h - prints an explanation, for people and as JSON. */
#ifndef WEIR_EXPLAIN_EXPLAIN_PRINT_H
#define WEIR_EXPLAIN_EXPLAIN_PRINT_H

#include "explain/explanation.h"

/* For a person, who reads it from top to bottom. Prints to standard output. */
void explain_print_text(const struct policy *policy, const struct explain_request *request,
                        const struct explanation *e);
/* One JSON object and a newline; weir(8) lists its keys. */
void explain_print_json(const struct policy *policy, const struct explain_request *request,
                        const struct explanation *e);

/* Explains and prints the descriptor of the rate limit service with this name. `*is_over`: a limit
 * admits nothing; else all limits may have room. Returns NULL, or what is wrong with the name. */
const char *explain_descriptor(const struct policy *policy, struct slice name, bool *is_over);

/* ---- shared by both ---- */

/* Returns why the source was not used, or how; static text or that of the request's refusal. */
const char *explain_source_reason(const struct tried_source *tried,
                                  const struct identity *identity);

/* Writes "header:X-Client-Id". */
void explain_write_source(struct text *out, const struct identity_from *from);
/* Writes which condition of a rule fails, such as "method GET is none of POST, PUT"; nothing if the
 * rule matches. */
void explain_write_miss(struct text *out, const struct explanation *e,
                        const struct tried_rule *tried);
/* Writes why the request is not forwarded, without the status. */
void explain_write_reason(struct text *out, const struct explanation *e);
/* Writes "127.0.0.1:50000" without its port, or "unix". */
void explain_write_peer(struct text *out, const struct address *from);

#endif
