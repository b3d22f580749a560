#include "admin/metrics_text.h"

#include "base/text.h"

enum { LABELS_MAX = 4096 }; /* bytes; a sample with longer labels is left out */

void metric_head(struct evbuffer *out, const char *name, const char *type, const char *help)
{
    evbuffer_add_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void metric_sample(struct evbuffer *out, const char *name, const char *labels, uint64_t value)
{
    evbuffer_add_printf(out, "%s%s %llu\n", name, labels, (unsigned long long)value);
}

void metric_single(struct evbuffer *out, const char *name, const char *type, const char *help,
                   uint64_t value)
{
    metric_head(out, name, type, help);
    metric_sample(out, name, "", value);
}

void metric_single_number(struct evbuffer *out, const char *name, const char *type,
                          const char *help, double value)
{
    metric_head(out, name, type, help);
    evbuffer_add_printf(out, "%s %.15g\n", name, value);
}

void metric_labelled(struct evbuffer *out, const char *name, uint64_t number,
                     const char *const *labels)
{
    char bytes[LABELS_MAX];
    struct text text = text_over(bytes, sizeof bytes);

    for (; *labels; labels += 2) {
        text_printf(&text, "%c%s=\"", text.n ? ',' : '{', labels[0]);
        label_value(&text, labels[1]);
        text_char(&text, '"');
    }
    if (!text.failed)
        evbuffer_add_printf(out, "%s%.*s} %llu\n", name, SLICE_ARG(text_slice(&text)),
                            (unsigned long long)number);
}

void label_value(struct text *t, const char *value)
{
    for (; *value; value++) {
        if (*value == '\\' || *value == '"' || *value == '\n')
            text_char(t, '\\');
        text_char(t, *value == '\n' ? 'n' : *value);
    }
}
