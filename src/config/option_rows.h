/* option_rows.h - shorthand for the files that hold rows of the option table. */
#ifndef WEIR_CONFIG_OPTION_ROWS_H
#define WEIR_CONFIG_OPTION_ROWS_H

#include <stddef.h>

#include "config/parts.h"
#include "config/types.h"

#define MS(n)    (INT64_C(n) * 1000)
#define SEC(n)   (INT64_C(n) * 1000000)
#define HOURS(n) (SEC(n) * 3600)
#define KIB(n)   (INT64_C(n) << 10)
#define MIB(n)   (INT64_C(n) << 20)

#define OF(member)         offsetof(struct policy, member)
#define CLIENT_TLS(member) offsetof(struct client_tls, member)
#define RESTART            OPTION_RESTART
#define REQUIRED           OPTION_REQUIRED
#define DERIVED            OPTION_DERIVED

#endif
