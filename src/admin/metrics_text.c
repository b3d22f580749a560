#include "admin/metrics_text.h"

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

bool metric_write_labels(struct text *text, const char *const *labels)
{
    for (; *labels; labels += 2) {
        text_printf(text, "%s%s=\"", text->n ? "," : "", labels[0]);
        label_value(text, labels[1]);
        text_char(text, '"');
    }
    return !text->failed;
}

void metric_labelled(struct evbuffer *out, const char *name, uint64_t number,
                     const char *const *labels)
{
    char bytes[METRIC_LABELS_MAX];
    struct text text = text_over(bytes, sizeof bytes);

    if (metric_write_labels(&text, labels))
        evbuffer_add_printf(out, "%s{%.*s} %llu\n", name, SLICE_ARG(text_slice(&text)),
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
