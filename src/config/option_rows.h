/* option_rows.h - shorthand for the files that hold rows of the option table. */
#ifndef WEIR_CONFIG_OPTION_ROWS_H
#define WEIR_CONFIG_OPTION_ROWS_H

#include <stddef.h>

#include "config/sections.h"

#define MS(n)    (INT64_C(n) * 1000)
#define SEC(n)   (INT64_C(n) * 1000000)
#define HOURS(n) (SEC(n) * 3600)
#define KIB(n)   (INT64_C(n) << 10)
#define MIB(n)   (INT64_C(n) << 20)

/* The field of an option; without it, the option reads the struct of its section. */
#define MEMBER(type, member)                                                                       \
    .offset = offsetof(struct type, member), .size = sizeof(((struct type *)0)->member)
/* The member that is printed, of an option that reads a struct. */
#define SHOWS(type, member) .shown = offsetof(struct type, member)
/* The option applies if a member is set (not zero), or if it is not. */
#define SET(type, member)                                                                          \
    .when = {offsetof(struct type, member), sizeof(((struct type *)0)->member), false}
#define UNSET(type, member)                                                                        \
    .when = {offsetof(struct type, member), sizeof(((struct type *)0)->member), true}
#define OF(member)         MEMBER(policy, member)
#define CLIENT_TLS(member) MEMBER(client_tls, member)
#define RESTART            OPTION_RESTART
#define REQUIRED           OPTION_REQUIRED
#define DERIVED            OPTION_DERIVED

#endif
