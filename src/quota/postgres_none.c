/* postgres_none.c - stubs for builds without libpq. Policies with quotas are then rejected, so
 * these functions are not called. */
#include "config.h"
#include "quota/postgres_link.h"

#ifndef HAVE_LIBPQ

bool postgres_is_there(void)
{
    return false;
}

struct postgres_link *postgres_link_new(struct event_base *base,
                                        const struct quota_settings *settings,
                                        const struct postgres_watch *watch)
{
    (void)base, (void)settings, (void)watch;
    return NULL;
}

void postgres_link_free(struct postgres_link *link)
{
    (void)link;
}

bool postgres_link_is_idle(const struct postgres_link *link)
{
    (void)link;
    return false;
}

bool postgres_link_is_down(const struct postgres_link *link)
{
    (void)link;
    return true;
}

void postgres_link_query(struct postgres_link *link, struct slice id)
{
    (void)link, (void)id;
}

#endif
