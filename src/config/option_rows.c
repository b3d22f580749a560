/* option_rows.c - the option table: its groups of rows in order. */
#include "config/option_rows.h"

const struct option_group *const option_groups[] = {
    &options_server, &options_upstreams,          &options_identity, &options_limits,
    &options_rules,  &options_rate_limit_service, &options_process,  NULL};
