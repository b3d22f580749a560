/* https_get_none.c - stubs for builds without libcurl. Policies with keys by URL are then rejected,
 * so these functions are not called, but for the first and those that accept NULL. */
#include "config.h"
#include "jwks/https_get.h"

#ifndef HAVE_LIBCURL

bool https_is_there(void)
{
    return false;
}

struct https_client *https_client_new(struct event_base *base,
                                      const struct resolver_settings *names)
{
    (void)base, (void)names;
    return NULL;
}

void https_client_free(struct https_client *client)
{
    (void)client;
}

struct https_get *https_get(struct https_client *client, const char *url, const char *ca,
                            void (*ended)(void *context, const struct https_result *result),
                            void *context)
{
    (void)client, (void)url, (void)ca, (void)ended, (void)context;
    return NULL;
}

void https_get_cancel(struct https_get *get)
{
    (void)get;
}

#endif
