/* server_internal.h - state of the process, shared by:
 *
 * - server.c: start-up, signals, shutdown;
 * - server_admin.c: the sockets of the admin listeners;
 * - server_descriptors.c: the limit of file descriptors;
 * - server_memory.c: the limit of buffers, and returning memory;
 * - server_policy.c: reading a policy, reload;
 * - server_resets.c: the subscription to resets and grants;
 * - server_sockets.c: listening sockets;
 * - server_systemd.c: notifications and the watchdog of systemd.
 *
 * No other file includes it. */
#ifndef WEIR_SERVER_INTERNAL_H
#define WEIR_SERVER_INTERNAL_H

#include <event2/event.h>
#include <stdio.h>

#include "admin/admin.h"
#include "admin/recent_counts.h"
#include "base/counter_table.h"
#include "base/memory_stream.h"
#include "jwks/key_fetcher.h"
#include "quota/quotas.h"
#include "upstream/endpoint_set.h"
#include "worker/worker.h"

/* All state of the process, owned by the main thread. */
struct weir {
    const char *file, *lua_dir;
    struct event_base *base;
    /* The policy at start. Its workers, sockets and embedded Redis are used until the process
     * ends. */
    struct policy *first;
    struct policy *policy;             /* the active policy */
    struct endpoint_set *endpoint_set; /* of the active policy */
    struct embedded *embedded;
    /* Subscriptions to resets and grants, which any weir instance publishes. After a reload, the
     * previous one is kept until the new one is established. */
    struct reset_subscription *resets, *resets_before;
    struct grant_reader *grants;
    struct redis_host_name
        *redis_host_name; /* NULL if no limit needs Redis or redis.address is no host name */
    struct admin *admin;
    struct admin_view view;
    struct counter_names names[NAMES_COUNT];
    struct worker_shared shared;
    struct quotas *quotas;
    struct key_fetcher *keys;
    struct worker **workers;
    unsigned made, started; /* counts of workers, at most first->workers */
    _Atomic unsigned serving, ended;
    /* first->listen as in the file: port 0 is not replaced with the port that the kernel chose. */
    struct listen_settings *written;
    struct address *written_admin; /* likewise for admin */
    int *listen_fds;               /* [worker][address]; each worker takes ownership of its own */
    bool *inherited;               /* [address] the socket is systemd's (socket activation) */
    unsigned opened;               /* number of open listen addresses */
    uint64_t started_wall_us;
    unsigned connections_max; /* client connections that the descriptor limit allows; 0: no bound */
    int *admin_fds;           /* by admin listener; -1 once `admin` owns it */
    bool *admin_inherited;    /* likewise: the socket is systemd's */
    unsigned admin_opened;    /* number of open admin listeners */
    int change_fd; /* eventfd: a worker accepts connections, has a new policy, or has ended */
    struct recent_counts *recent;                      /* what admin/problems.h evaluates */
    struct event *signals[4], *change, *drain, *watch; /* drain: ends timeouts.drain */
    struct event *memory;                              /* checks whether memory can be returned */
    uint64_t memory_peak; /* maximum use of memory since the last return, in bytes */
    struct watchdog *watchdog;
    bool ready, stopping, unlinked;
    bool reloading; /* some workers do not use the active policy yet */
};

/* ---- server_sockets.c ---- */

/* Opens the listening sockets of weir->first, or takes those that systemd passes. Sets the
 * addresses in the policy to those that the sockets are bound to. Logs errors. Takes over every
 * socket that systemd passes. */
MUST_CHECK bool open_listeners(struct weir *weir);
void report_listening(const struct weir *weir);
/* Removes the files of unix sockets, once, except those of systemd. */
void unlink_sockets(struct weir *weir);
/* Closes the sockets that no worker and no admin listener has taken over. */
void close_unused_listeners(struct weir *weir);

/* ---- server_systemd.c: no effect in builds without libsystemd or without systemd ---- */

/* Reports that a policy is in force and connections are accepted, and whether the last reload has
 * failed. No effect before weir->ready. */
void systemd_ready(const struct weir *weir);
/* Bracket the blocking part of a reload. */
void systemd_reloading(const struct weir *weir);
void systemd_reload_read(const struct weir *weir);
/* Reports that weir stops, with an upper bound of the time for that. */
void systemd_stopping(const struct weir *weir);
/* Starts to check that the workers and the log writer make progress, and to ping the watchdog if
 * systemd has set one. False: no memory. Call after the workers
 * were created. */
MUST_CHECK bool watchdog_start(struct weir *weir);
void watchdog_stop(struct weir *weir);

/* ---- server_descriptors.c ---- */

/* Raises the soft descriptor limit to the hard limit. If that is too low for size_limits, sets
 * weir->connections_max, and logs it. */
void raise_descriptor_limit(struct weir *weir);

/* ---- server_memory.c ---- */

/* Sets the limit of the policy; by default, it depends on the machine. */
void apply_memory_limit(const struct policy *policy);
/* Applies the limit of weir->first, and starts to return memory that is not used any more to the
 * system. Returns false if out of memory. */
MUST_CHECK bool memory_start(struct weir *weir);
void memory_stop(struct weir *weir);

/* ---- server_admin.c ---- */

/* Opens the sockets of the admin listeners, or takes those that systemd passes. Logs the reason and
 * returns false on failure. */
struct inherited;
bool open_admin(struct weir *weir, struct inherited *inherited);
/* Starts the admin listeners. Returns false if out of memory. */
bool start_admin(struct weir *weir);
/* Logs the addresses. Returns the number of sockets from systemd. */
unsigned report_admin(const struct weir *weir);
/* Removes the files of Unix sockets, except those of systemd. */
void unlink_admin(const struct weir *weir);
/* Closes the sockets that no listener uses, and frees the tables. */
void close_admin(struct weir *weir);

/* ---- server_policy.c ---- */

/* Collects the lines that a function prints, for the log. If out of memory, the stream is stderr,
 * or lines are missing. */
struct report_lines {
    FILE *stream;
    struct memory_stream text;
};
void report_begin(struct report_lines *report);
/* Logs each line and frees the report. If `failed`, lines without "warning: " are errors; all other
 * lines are warnings. */
void report_log(struct report_lines *report, bool failed);
/* Reports why weir does not start and frees the report. Writes the lines to stderr unchanged, or to
 * the log if `as_events`. */
void report_end(struct report_lines *report, bool as_events);

/* Reads and checks weir->file and composes its Redis script. Prints errors and warnings to
 * `report`. Returns NULL if there was an error. */
struct policy *read_policy(struct weir *weir, FILE *report);
/* Opens log.file. On failure, prints the reason to `report` and returns false. */
bool open_log(const struct policy *policy, FILE *report);
/* Applies the policy's log.level and log.format. */
void apply_log_settings(const struct policy *policy);
/* If the policy uses the embedded Redis, sets its address in `next`. On failure, prints the reason
 * to `report` and returns false. */
bool adjust_redis(const struct weir *weir, struct policy *next, FILE *report);
/* Assigns counter rows to rules and limits by name, so that counts continue across reloads.
 * Returns false if out of memory. */
bool assign_rows(struct weir *weir, struct policy *policy);
/* Upstream addresses, or keys of tokens, have changed: wakes the workers. `context`: the weir. */
void wake_workers(void *context);
/* Returns an endpoint set for the policy that will become active, or NULL if out of memory. */
struct endpoint_set *make_endpoint_set(struct weir *weir, struct policy *policy);
void drop_endpoint_set(struct endpoint_set *endpoint_set);
/* Reloads weir->file. If it has errors, the active policy is kept. Blocks the main thread. */
void reload(struct weir *weir);
/* After a reload, logs that the new policy is active when all workers use it. */
void report_reloaded(struct weir *weir);

/* ---- server_resets.c ---- */

/* Subscribes to resets and grants with the active policy's Redis settings. Without a subscription,
 * cached denials expire after DENIAL_US and grants are read every GRANTS_EVERY_US. */
void listen_for_resets(struct weir *weir);
void stop_listening_for_resets(struct weir *weir);

#endif
