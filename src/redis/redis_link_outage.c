/* redis_link_outage.c - log lines about a link that is down, and when it counts as recovered. */
#include "base/clock.h"
#include "base/event_timer.h"
#include "base/log.h"
#include "redis/redis_link_internal.h"

/* READY for this long: a later failure is another outage */
static const uint64_t recovery_us = 1000000;

/* redis.on_failure as written in the policy; limits may override it */
static const char *const on_failure_label[] = {
    [ON_FAILURE_LOCAL] = "local", [ON_FAILURE_ALLOW] = "allow", [ON_FAILURE_DENY] = "deny"};

void redis_link_report_down(struct redis_link *link, enum redis_failure cause, const char *detail)
{
    uint64_t us = 0;
    enum outage_event event = link->outage
                                  ? redis_outage_down(link->outage, &link->outage_link, cause, &us)
                                  : OUTAGE_KNOWN;
    char lasts[64] = "";

    if (event == OUTAGE_CHANGES || event == OUTAGE_LASTS)
        snprintf(lasts, sizeof lasts, "still unavailable after %.1f s: ", (double)us / 1e6);
    log_at(event == OUTAGE_BEGINS  ? LEVEL_ERROR
           : event == OUTAGE_KNOWN ? LEVEL_DEBUG
                                   : LEVEL_WARN,
           "redis %s: %s%s%s%s%s; limits follow on_failure (%s) until it is available; %s",
           link->address_text, lasts, redis_failure_text[cause], detail && *detail ? " (" : "",
           detail && *detail ? detail : "", detail && *detail ? ")" : "",
           on_failure_label[link->settings->on_failure],
           redis_failure_remedy(cause, link->settings));
}

static void report_up(const struct redis_link *link, uint64_t us)
{
    log_info("redis %s: available again after %.*f s, and stable since; limits are counted in "
             "Redis",
             link->address_text, us < 1000000 ? 3 : 1, (double)us / 1e6);
}

void redis_link_recovered(struct redis_link *link)
{
    uint64_t us;

    event_del(link->recovery_timer);
    link->relapsed = false;
    link->down_since_us = 0;
    if (link->outage && redis_outage_up(link->outage, &link->outage_link, link->ready_us, &us))
        report_up(link, us);
}

void redis_link_leave_outage(struct redis_link *link)
{
    uint64_t us;

    if (link->outage && redis_outage_leave(link->outage, link->outage_link, &us))
        report_up(link, us);
}

void redis_link_watch_recovery(struct redis_link *link)
{
    event_timer_arm(link->recovery_timer, recovery_us);
}

/* If calls failed or got no reply since the link became READY, waits longer. */
void redis_link_on_recovery_timer(evutil_socket_t fd, short what, void *arg)
{
    struct redis_link *link = redis_link_of(arg);
    bool doubtful = link->timeouts || link->unfit || (link->pending && !link->answered);
    (void)fd, (void)what;

    if (doubtful)
        redis_link_watch_recovery(link);
    else
        redis_link_recovered(link);
}
