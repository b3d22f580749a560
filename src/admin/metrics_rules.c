/* metrics_rules.c - durations of requests by rule. */
#include "admin/metrics.h"
#include "admin/metrics_text.h"
#include "base/text.h"

void metrics_write_rules(struct evbuffer *out, const struct admin_view *view)
{
    char label[1024];

    metric_head(out, "weir_rule_duration_seconds", "histogram",
                "Time from reading a request header to writing the end of the response, by rule.");
    for (unsigned row = 0; row < view->names[NAMES_RULES].count; row++) {
        struct text text = text_over(label, sizeof label);
        text_literal(&text, "rule=\"");
        label_value(&text, view->names[NAMES_RULES].name[row]);
        text_put(&text, (struct slice){"\"", 2}); /* with the NUL */
        if (!text.failed)
            metric_row_histogram(out, "weir_rule_duration_seconds", label, view,
                                 TABLE_RULE_DURATIONS, row);
    }
}
