/* client_report.h - prints the results of weir inspect, weir reset and weir grant. */
#ifndef WEIR_CLI_CLIENT_REPORT_H
#define WEIR_CLI_CLIENT_REPORT_H

#include "admin/client_query.h"

/* A client and the completed query about it. */
struct client_subject {
    struct policy *policy;
    struct identity identity;
    struct query_descriptor descriptor;
    struct client_query *query;
};

/* Each prints the result to standard output, and what went wrong to standard error. Returns the
 * exit status. */
int client_report_inspect(const struct client_subject *subject);
int client_report_reset(const struct client_subject *subject);
int client_report_grant(const struct client_subject *subject);

#endif
