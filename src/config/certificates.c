/* certificates.c - warns about certificates that are not valid now or expire soon. */
#include <time.h>

#include "base/clock.h"
#include "config/types.h"
#include "net/tls.h"

enum { DAY_S = 86400 };

/* "2026-01-31 12:00:00 UTC" */
struct date_text {
    char text[48];
};

static const char *date_into(struct date_text *date, int64_t seconds)
{
    time_t at = (time_t)seconds;
    struct tm tm;

    if (!gmtime_r(&at, &tm) ||
        !strftime(date->text, sizeof date->text, "%Y-%m-%d %H:%M:%S UTC", &tm))
        memcpy(date->text, "?", 2);
    return date->text;
}

void certificate_check(struct loading *l, const struct node *file, const struct tls_dates *dates)
{
    int64_t now = (int64_t)(clock_wall_us() / 1000000), left = dates->until_s - now;
    struct date_text date;

    if (left <= 0)
        warning(l, file,
                "%s has expired, on %s: clients that verify it refuse it; renew it, then reload",
                QUOTE(file->text), date_into(&date, dates->until_s));
    else if (left < CERTIFICATE_WARN_S)
        warning(l, file, "%s expires in %lld %s, on %s; renew it, then reload", QUOTE(file->text),
                (long long)(left < 2 * DAY_S ? left / 3600 : left / DAY_S),
                left < 2 * DAY_S ? "hours" : "days", date_into(&date, dates->until_s));
    if (dates->from_s > now)
        warning(
            l, file,
            "%s is not valid before %s; until then, clients that verify it refuse the connection",
            QUOTE(file->text), date_into(&date, dates->from_s));
}
