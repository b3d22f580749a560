/* server_internal.h - the running process as its files see it: server.c (start, signals, end), server_policy.c (reading a policy,
 * reload) and server_resets.c (the subscription to resets). Nobody else includes it. */
#ifndef WEIR_SERVER_INTERNAL_H
#define WEIR_SERVER_INTERNAL_H

#include <event2/event.h>
#include <stdio.h>

#include "admin/admin.h"
#include "base/counter_table.h"
#include "proxy/endpoint_set.h"
#include "proxy/worker.h"
#include "quota/quotas.h"

/* The running process. */
struct weir {
    const char *file, *lua_dir;
    struct event_base *base;
    struct policy
        *first; /* that weir started with: its workers, sockets and embedded Redis stay until the end */
    struct policy *policy;             /* in force */
    struct endpoint_set *endpoint_set; /* of the policy in force */
    struct embedded *embedded;
    struct hearing *resets,
        *resets_before; /* of clients, by any weir; and grants. Until the first is heard, the one before */
    struct grant_reader *grants;
    struct redis_host_name *redis_host_name; /* NULL: redis.address is none */
    struct admin *admin;
    struct admin_view view;
    struct counter_names rules, limits;
    struct worker_shared shared;
    struct quotas *quotas;
    struct worker **workers;
    unsigned made, started; /* of first->workers */
    _Atomic unsigned serving, ended;
    struct listen_settings
        *written; /* first->listen as the file says it: port 0 is not yet what the kernel chose */
    struct address written_admin;
    int *listen_fds; /* [worker][address], until the worker takes them */
    unsigned opened; /* addresses that are open */
    uint64_t started_wall_us;
    unsigned connections_max; /* clients for which there are descriptors; 0: any number */
    int admin_fd;
    int change_fd; /* eventfd: a worker serves, has taken a policy, or has ended */
    struct event *signals[4], *change;
    bool ready, stopping, unlinked;
    bool reloading; /* workers have yet to take the policy in force */
};

/* ---- server.c ---- */

/* One line a state, as sd_notify(3) has it. */
void tell_systemd(const char *state);

/* ---- server_policy.c ---- */

/* Lines that a function prints to a stream and that belong into the log. Where there is no memory, the stream is stderr. */
struct report_lines {
    FILE *stream;
    char *text;
    size_t size;
};
void report_begin(struct report_lines *report);
/* Logs each line: as a warning, or, where `failed` and the line is none, as an error. */
void report_log(struct report_lines *report, bool failed);
/* weir does not start: writes the lines to stderr as they are, or `as_events` of the log. */
void report_end(struct report_lines *report, bool as_events);

/* Reads, checks and composes weir->file. Mistakes and warnings are printed to `report`. NULL: there was a mistake. */
struct policy *read_policy(struct weir *weir, FILE *report);
/* Opens log.file. False: printed to `report`. */
bool open_log(const struct policy *policy, FILE *report);
/* From now on events are written by the policy's log.level and log.format. */
void apply_log_settings(const struct policy *policy);
/* Sets the address of the embedded Redis, where the policy wants it. False: printed to `report`. */
bool adjust_redis(const struct weir *weir, struct policy *next, FILE *report);
/* Every rule and limit gets the row of counters that belongs to its name, whatever policy it stands in. False: no memory. */
bool assign_rows(struct weir *weir, struct policy *policy);
/* A endpoint set for the policy that is to be in force. NULL: no memory. */
struct endpoint_set *make_endpoint_set(struct weir *weir, struct policy *policy);
void drop_endpoint_set(struct endpoint_set *endpoint_set);
/* Reads weir->file again and puts it in force; where it has mistakes, the policy in force stays. Blocks the main thread. */
void reload(struct weir *weir);
/* Logs that the policy is in force, once all workers have taken it. */
void report_reloaded(struct weir *weir);

/* ---- server_resets.c ---- */

/* Subscribes to resets and grants by the policy in force. Without a subscription a denial is remembered for its second at most, and
 * grants are read now and then. */
void listen_for_resets(struct weir *weir);
void stop_listening_for_resets(struct weir *weir);

#endif
