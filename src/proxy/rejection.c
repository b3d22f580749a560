#include "proxy/rejection.h"

#include <stdlib.h>

#include "base/clock.h"

struct rejection {
    struct decision decision;
    uint16_t status;
    struct marks marks;
    int64_t numbers[MARKS_MAX]; /* the values at the marks */
    struct response_image image;
};

struct rejections {
    unsigned count;
    struct rejection *of_rule[]; /* NULL: none yet */
};

struct rejections *rejections_new(unsigned rules)
{
    struct rejections *all = calloc(1, sizeof *all + rules * sizeof all->of_rule[0]);

    if (all)
        all->count = rules;
    return all;
}

void rejections_free(struct rejections *all)
{
    for (unsigned i = 0; all && i < all->count; i++)
        free(all->of_rule[i]);
    free(all);
}

static struct rejection **slot_of_rule(struct rejections *all, unsigned rule)
{
    return rule < all->count ? &all->of_rule[rule] : NULL;
}

/* Overwrites a marked number. False: the new number has a different size. */
static bool put_digits(char *at, unsigned size, int64_t value)
{
    char digits[24];
    struct text out = text_over(digits, sizeof digits);

    text_i64(&out, value);
    if (out.n != size)
        return false;
    memcpy(at, digits, size);
    return true;
}

static bool patch(struct rejection *r, const struct rejection_facts *facts, uint64_t wall_us)
{
    for (unsigned i = 0; i < r->marks.count; i++) {
        const struct mark *mark = &r->marks.mark[i];
        char *at = r->image.bytes + mark->at;
        if (mark->number >= NUMBER_COUNT) {
            struct slice text = mark->number == MARK_DATE ? facts->date : facts->request_id;
            if (text.n != mark->size)
                return false;
            memcpy(at, text.p, text.n);
            continue;
        }
        int64_t value = decision_number(facts->decision, mark->number,
                                        &facts->decision->results[mark->result], wall_us);
        if (value != r->numbers[i] && !put_digits(at, mark->size, value))
            return false;
        r->numbers[i] = value;
    }
    return true;
}

const struct response_image *rejection_patch(struct rejections *all,
                                             const struct rejection_facts *facts)
{
    struct rejection **slot = slot_of_rule(all, facts->rule), *r = slot ? *slot : NULL;

    if (!r || r->status != facts->status || !decision_reads_like(facts->decision, &r->decision))
        return NULL;
    if (!patch(r, facts, clock_cached_wall_us())) {
        free(r); /* it is partly overwritten */
        *slot = NULL;
        return NULL;
    }
    return &r->image;
}

static bool add_marks(struct marks *all, const struct marks *more, size_t behind)
{
    if (more->too_many || all->count + more->count > MARKS_MAX)
        return false;
    for (unsigned i = 0; i < more->count; i++) {
        all->mark[all->count] = more->mark[i];
        all->mark[all->count++].at += (uint16_t)behind;
    }
    return true;
}

struct response_image *rejection_image(struct rejections *all, const struct rejection_facts *facts)
{
    struct rejection **slot = slot_of_rule(all, facts->rule), *r;

    if (!slot || facts->decision->verdict != VERDICT_LIMITED)
        return NULL;
    if (!(r = *slot) && !(r = *slot = malloc(sizeof *r)))
        return NULL;
    r->decision = *facts->decision;
    r->status = facts->status;
    r->image.size = 0;
    return &r->image;
}

void rejection_keep(struct rejections *all, unsigned rule, const struct marks *of_lines,
                    const struct marks *of_document)
{
    struct rejection **slot = slot_of_rule(all, rule), *r = *slot;

    r->marks.count = 0;
    if (r->image.size == 0 || !add_marks(&r->marks, of_lines, r->image.lines_at) ||
        !add_marks(&r->marks, of_document, r->image.content_at)) {
        free(r);
        *slot = NULL;
        return;
    }
    for (unsigned i = 0; i < r->marks.count; i++)
        r->numbers[i] = INT64_MIN; /* the first patch writes all of them */
}
