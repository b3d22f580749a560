#include "quota/quota_row.h"

#include "policy/bounds.h"

static struct slice trimmed(struct slice s)
{
    while (s.n && s.p[0] == ' ')
        s.p++, s.n--;
    while (s.n && s.p[s.n - 1] == ' ')
        s.n--;
    return s;
}

/* Removes ".", ".0", ".00", which numeric columns append to whole numbers. */
static struct slice without_fraction(struct slice s)
{
    size_t n = s.n;
    while (n && s.p[n - 1] == '0')
        n--;
    if (n > 1 && s.p[n - 1] == '.')
        s.n = n - 1;
    return s;
}

bool quota_read(struct slice text, int64_t *quota)
{
    int64_t value = 0;

    text = without_fraction(trimmed(text));
    if (slice_equal(text, SLICE("-1")) || slice_equal(text, SLICE("unlimited"))) {
        *quota = -1;
        return true;
    }
    bool negative = text.n && text.p[0] == '-';
    if (negative)
        text.p++, text.n--;
    if (text.n == 0)
        return false;
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] < '0' || text.p[i] > '9')
            return false;
        value = value * 10 + (text.p[i] - '0');
        value = value < LIMIT_MAX ? value : LIMIT_MAX;
    }
    *quota = negative ? 0 : value;
    return true;
}

void quota_row_write(struct text *out, const struct quota_row *row)
{
    if (!row->present) {
        text_literal(out, "absent");
        return;
    }
    if (row->quota == QUOTA_OF_ITS_OWN)
        text_char(out, '-');
    else
        text_i64(out, row->quota);
    if (row->plan[0]) {
        text_char(out, ' ');
        text_put(out, slice_of(row->plan));
    }
}

bool quota_row_parse(struct slice text, struct quota_row *row)
{
    const char *space = text.n ? memchr(text.p, ' ', text.n) : NULL;
    struct slice quota = {text.p, space ? (size_t)(space - text.p) : text.n};
    struct slice plan = space ? (struct slice){space + 1, text.n - quota.n - 1} : SLICE_NONE;

    *row = (struct quota_row){.present = !slice_equal(text, SLICE("absent")),
                              .quota = QUOTA_OF_ITS_OWN};
    if (!row->present)
        return true;
    if (plan.n > QUOTA_PLAN_MAX ||
        (!slice_equal(quota, SLICE("-")) && !quota_read(quota, &row->quota)))
        return false;
    if (plan.n)
        memcpy(row->plan, plan.p, plan.n);
    return true;
}
