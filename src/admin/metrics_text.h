/* metrics_text.h - writes the Prometheus text format; for the files that write metrics. */
#ifndef WEIR_ADMIN_METRICS_TEXT_H
#define WEIR_ADMIN_METRICS_TEXT_H

#include <event2/buffer.h>

#include "base/text.h"

enum { METRIC_LABELS_MAX = 4096 }; /* bytes; a sample with longer labels is left out */

/* Writes the lines HELP and TYPE of a family. */
void metric_head(struct evbuffer *out, const char *name, const char *type, const char *help);
/* Writes a sample; `labels` is "" or {KEY="VALUE",...}. */
void metric_sample(struct evbuffer *out, const char *name, const char *labels, uint64_t value);
/* Writes a family with one sample. */
void metric_single(struct evbuffer *out, const char *name, const char *type, const char *help,
                   uint64_t value);
void metric_single_number(struct evbuffer *out, const char *name, const char *type,
                          const char *help, double value);
/* Writes a sample with LABELS(NAME, VALUE, NAME, VALUE). */
#define LABELS(...) ((const char *const[]){__VA_ARGS__, NULL})
void metric_labelled(struct evbuffer *out, const char *name, uint64_t number,
                     const char *const *labels);
/* Writes NAME="VALUE",... False: they are too long. */
bool metric_write_labels(struct text *text, const char *const *labels);
/* Appends a label value; escapes backslash, quote and newline. */
void label_value(struct text *t, const char *value);

#endif
