/* script_failures.c - counts failures of the operator's own limiter scripts, and logs when a script
 * starts to fail and when it has recovered.
 *
 * The state is the process's, not a worker's: one time for each limit, by its row of counters. A
 * script may fail for some requests only, so it counts as recovered after 60 s without a
 * failure. */
#include "limit/failed_limits.h"

#include "base/log.h"
#include "limit/compose.h"
#include "limit/limiter_parts.h"

static const uint64_t good_after_us = 60000000;

/* Monotonic time of the last failure of the limit in this row; 0: recovered. */
static _Atomic uint64_t failed_us[COUNTER_TABLE_ROWS_MAX];

static bool is_own(const struct limit *limit)
{
    return limit->kind == LIMIT_CUSTOM;
}

static void count_failure(const struct limit_op *op, const struct limit *limit, unsigned column)
{
    counter_add(counter_table_row(&op->limiter->stats->by_limit, limit->row) + column, 1);
}

static void report_failed(const struct policy *policy, const struct limit *limit, const char *why)
{
    char room[512];
    struct text blame = text_over(room, sizeof room);

    if (!policy->driver || !compose_blame(policy->driver, why, &blame)) {
        blame = text_over(room, sizeof room);
        text_printf(&blame, "%s: %s", limit->script, why);
    }
    log_error("limit %s: its script fails: %.*s; on_failure applies to such requests; correct the "
              "script and reload; weir_script_failures_total counts them",
              limit->name, (int)blame.n, room);
}

static void note_failed(const struct limit_op *op, const struct limit *limit, const char *why,
                        uint64_t now_us)
{
    count_failure(op, limit, SCRIPT_FAILED_COLUMN);
    if (atomic_exchange(&failed_us[limit->row], now_us) == 0)
        report_failed(op->limiter->policy, limit, why);
}

static void note_good(const struct limit *limit, uint64_t now_us)
{
    uint64_t last = atomic_load_explicit(&failed_us[limit->row], memory_order_relaxed);

    if (last && now_us > last + good_after_us &&
        atomic_compare_exchange_strong(&failed_us[limit->row], &last, 0))
        log_info("limit %s: the script has not failed for %d s", limit->name,
                 (int)(good_after_us / 1000000));
}

static unsigned limit_count(const struct limit_op *op)
{
    return op->wide ? op->wide->count : op->count;
}

void failures_note(const struct limit_op *op, const struct limit_reply *replies, uint64_t now_us)
{
    for (unsigned i = 0; i < limit_count(op); i++, replies++) {
        const struct op_limit *part = &op_limits(op)[i];
        if (!is_own(part->limit))
            continue;
        if (replies->failure)
            note_failed(op, part->limit, replies->failure, now_us);
        else
            note_good(part->limit, now_us);
    }
}

void failures_note_late(const struct limit_op *op)
{
    for (unsigned i = 0; i < limit_count(op); i++)
        if (is_own(op_limits(op)[i].limit))
            count_failure(op, op_limits(op)[i].limit, SCRIPT_LATE_COLUMN);
}
