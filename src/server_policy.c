/* server_policy.c - reads the policy and activates a new one on reload. */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/library_memory.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "config/policy_file.h"
#include "limit/compose.h"
#include "redis/embedded.h"
#include "server_internal.h"

/* ---- errors and warnings of a policy --------------------------------------------------------- */

void report_begin(struct report_lines *report)
{
    report->stream = memory_stream_open(&report->text) ? report->text.file : stderr;
}

void report_log(struct report_lines *report, bool failed)
{
    if (report->stream == stderr)
        return;
    char *text = memory_stream_close(&report->text);
    if (!text)
        log_error("out of memory: messages about the policy are missing");
    for (char *line, *rest = text; (line = strsep(&rest, "\n"));)
        if (*line)
            log_at(failed && !strstr(line, "warning: ") ? LEVEL_ERROR : LEVEL_WARN, "%s", line);
    free(text);
}

void report_end(struct report_lines *report, bool as_events)
{
    if (as_events || report->stream == stderr) {
        report_log(report, true);
        return;
    }
    char *text = memory_stream_close(&report->text);
    fputs(text ? text : "weir: out of memory\n", stderr);
    free(text);
}

/* ---- the policy ------------------------------------------------------------------------------ */

struct policy *read_policy(struct weir *weir, FILE *report)
{
    struct policy *policy = policy_load(weir->file, weir->lua_dir, report);

    if (!policy)
        return NULL;
    if ((policy->driver = compose_driver(policy, weir->lua_dir, report)))
        return policy;
    policy_drop(policy);
    return NULL;
}

bool open_log(const struct policy *policy, FILE *report)
{
    if (log_open(policy->log.file) != 0) {
        fprintf(report, "weir: cannot open the log %s: %s\n", policy->log.file,
                errno == ENXIO ? "it is a FIFO that no process reads" : strerror(errno));
        return false;
    }
    return true;
}

void apply_log_settings(const struct policy *policy)
{
    log_set_level((enum log_level)policy->log.level);
    log_set_format(policy->log.format);
}

static void assign_descriptor_rows(struct counter_names *names, struct rate_limit_service *service)
{
    for (unsigned i = 0; i < service->rate_limit_count; i++)
        service->rate_limits[i]->row =
            counter_names_row(&names[NAMES_LIMITS], NULL, service->rate_limits[i]->name);
    (void)counter_names_row(&names[NAMES_DOMAINS], NULL, "(unknown)");
    for (unsigned i = 0; i < service->domain_count; i++) {
        struct rate_limit_domain *domain = &service->domains[i];
        domain->row = counter_names_row(&names[NAMES_DOMAINS], NULL, domain->name);
        for (unsigned unit = UNIT_SECOND; unit < UNIT_COUNT; unit++)
            domain->stated[unit].row =
                counter_names_row(&names[NAMES_LIMITS], NULL, domain->stated[unit].name);
    }
}

/* Listeners do not change: each has the row of its number. */
static void name_listeners(struct weir *weir)
{
    char number[16];

    for (unsigned i = 0; i < weir->first->listen_count; i++) {
        snprintf(number, sizeof number, "%u", i);
        (void)counter_names_row(&weir->names[NAMES_LISTENERS], NULL, number);
    }
}

bool assign_rows(struct weir *weir, struct policy *policy)
{
    struct counter_names *names = weir->names;

    for (unsigned i = 0; i < NAMES_COUNT; i++)
        counter_names_begin(&names[i]);
    for (unsigned i = 0; i < policy->rule_count; i++)
        policy->rules[i].row = counter_names_row(&names[NAMES_RULES], NULL, policy->rules[i].name);
    for (unsigned i = 0; i < policy->limit_count; i++)
        policy->limits[i].row =
            counter_names_row(&names[NAMES_LIMITS], NULL, policy->limits[i].name);
    for (unsigned i = 0; i < policy->priority_count; i++)
        policy->priorities[i].row =
            counter_names_row(&names[NAMES_PRIORITIES], NULL, policy->priorities[i].name);
    for (unsigned i = 0; i < policy->variant_count; i++)
        policy->variants[i]->row = policy->limits[policy->variants[i]->base].row;
    assign_descriptor_rows(names, &policy->rate_limit_service);
    for (unsigned i = 0; i < policy->upstream_count; i++)
        for (unsigned j = 0; j < policy->upstreams[i].server_count; j++) {
            struct upstream_server *server = &policy->upstreams[i].servers[j];
            server->row =
                counter_names_row(&names[NAMES_SERVERS], policy->upstreams[i].name, server->text);
        }
    name_listeners(weir);
    for (unsigned i = 0; i < weir->made; i++)
        if (!worker_make_rows(weir->workers[i]))
            return false;
    return true;
}

void wake_workers(void *context)
{
    struct weir *weir = context;
    for (unsigned i = 0; i < weir->made; i++)
        if (weir->workers[i]) /* NULL: worker_new() failed */
            worker_wake(weir->workers[i]);
}

struct endpoint_set *make_endpoint_set(struct weir *weir, struct policy *policy)
{
    const struct endpoint_set_listener listener = {wake_workers, weir};
    return endpoint_set_new(weir->base, policy, weir->endpoint_set, &listener);
}

void drop_endpoint_set(struct endpoint_set *endpoint_set)
{
    if (endpoint_set)
        endpoint_set_close(endpoint_set);
    endpoint_set_drop(endpoint_set);
}

/* A worker uses the previous policy until its Redis connection for the new one is ready, for at
 * most 1 s. */
void report_reloaded(struct weir *weir)
{
    if (!weir->reloading)
        return;
    for (unsigned i = 0; i < weir->made; i++)
        if (!worker_uses(weir->workers[i], weir->endpoint_set))
            return;
    weir->reloading = false;
    log_info("reload: %s is in effect", weir->file);
    systemd_ready(weir);
}

/* Returns true if listeners of the option are added, removed or changed. */
static bool listeners_changed(const struct weir *weir, const struct policy *next,
                              const char *option)
{
    const struct listen_settings *a = next->listen, *a_end = a + next->listen_count,
                                 *b = weir->written, *b_end = b + weir->first->listen_count;

    for (;; a++, b++) {
        while (a < a_end && strcmp(listen_option(a), option) != 0)
            a++;
        while (b < b_end && strcmp(listen_option(b), option) != 0)
            b++;
        if (a == a_end || b == b_end || !listen_settings_same(a, b))
            return a < a_end || b < b_end;
    }
}

static void warn_of_restart(const struct weir *weir, const struct policy *next)
{
    static const char *const options[] = {"listen", "decisions.listen",
                                          "rate_limit_service.listen"};
    const struct policy *first = weir->first;

    for (unsigned i = 0; i < COUNT_OF(options); i++)
        if (listeners_changed(weir, next, options[i]))
            log_warn("reload: a changed %s takes effect after a restart", options[i]);
    if (next->workers != first->workers)
        log_warn("reload: a changed workers takes effect after a restart");
    if (!policy_same_admin(next, weir->policy, weir->written_admin))
        log_warn("reload: a changed admin takes effect after a restart");
    if (weir->shared.ip_counts && (next->identity.ipv4_prefix != first->identity.ipv4_prefix ||
                                   next->identity.ipv6_prefix != first->identity.ipv6_prefix))
        log_warn("reload: for size_limits.connections_per_ip, a changed identity.ipv4_prefix or "
                 "ipv6_prefix takes effect after a restart");
    if (next->size_limits.connections_per_ip && !weir->shared.ip_counts)
        log_warn("reload: size_limits.connections_per_ip takes effect after a restart");
}

/* The embedded Redis is started only with the process. */
bool adjust_redis(const struct weir *weir, struct policy *next, FILE *report)
{
    if (!next->redis.embedded)
        return true;
    if (!weir->embedded) {
        fputs("redis.address: embedded requires a restart\n", report);
        return false;
    }
    next->redis.address = *embedded_address(weir->embedded);
    return true;
}

/* Returns what an open listener needs and `next` lacks; NULL: nothing. */
static const char *missing_for(const struct listen_settings *listener, const struct policy *next)
{
    if (listener->serves_limits)
        return next->rate_limit_service.is_set ? NULL : "rate_limit_service";
    if (!next->upstream_count)
        return "upstreams";
    if (listener->proxy_protocol && !next->identity.trusted_count && !next->identity.trust_unix)
        return "identity.trusted_proxies";
    return NULL;
}

/* The open listeners stay open until a restart. Returns false after printing what `next` lacks for
 * one of them. */
static bool serves_listeners(const struct weir *weir, const struct policy *next, FILE *report)
{
    for (unsigned i = 0; i < weir->first->listen_count; i++) {
        const struct listen_settings *listener = &weir->first->listen[i];
        const char *missing = missing_for(listener, next);
        if (missing) {
            fprintf(report,
                    "%s is missing, and listeners of %s%s stay open until a restart; restart weir, "
                    "or keep %s\n",
                    missing, listen_option(listener),
                    listener->proxy_protocol ? " with proxy_protocol" : "", missing);
            return false;
        }
    }
    return true;
}

/* A reload before the point of no return: all that can fail. */
struct preparation {
    struct weir *weir;
    FILE *report;
    struct policy *next; /* NULL: cannot be read */
    struct endpoint_set *endpoint_set;
    bool good;
};

static void prepare_policy(void *preparation)
{
    struct preparation *p = preparation;
    struct weir *weir = p->weir;
    struct policy *next = p->next = read_policy(weir, p->report);

    if (!next || !adjust_redis(weir, next, p->report) || !serves_listeners(weir, next, p->report) ||
        (policy_needs_redis(next) &&
         !cli_check_scripts(next, next->driver, weir->lua_dir, p->report)))
        return;
    if (!assign_rows(weir, next) || !quotas_prepare(weir->quotas, next) ||
        !(p->endpoint_set = make_endpoint_set(weir, next)))
        memory_exhausted();
    warn_of_restart(weir, next);
    policy_keep_listeners(next, weir->policy, weir->written);
    policy_keep_admin(next, weir->policy, weir->written_admin);
    next->workers = weir->first->workers;
    p->good = quotas_start(weir->quotas) &&
              (strcmp(next->log.file, weir->policy->log.file) == 0 || open_log(next, p->report));
}

/* Activates the policy. Takes ownership of `next` and `endpoint_set`. The workers switch
 * asynchronously. */
static void put_in_force(struct weir *weir, struct policy *next, struct endpoint_set *endpoint_set)
{
    struct policy *before = weir->policy; /* until redis_host_name_free() */

    for (unsigned i = 0; i < NAMES_COUNT; i++)
        counter_names_commit(&weir->names[i]);
    apply_log_settings(next);
    apply_memory_limit(next);
    quotas_apply(weir->quotas, next);
    key_fetcher_apply(weir->keys, next);
    for (unsigned i = 0; i < weir->made; i++)
        worker_reload(weir->workers[i], endpoint_set);
    policy_log_changes(before, next);
    drop_endpoint_set(weir->endpoint_set);
    weir->view.endpoint_set = weir->endpoint_set = endpoint_set;
    weir->view.policy = weir->policy = next;
    admin_reload(weir->admin);
    listen_for_resets(weir);
    policy_drop(before);
    weir->reloading = true;
    report_reloaded(weir);
}

/* If descriptors are scarce, frees some from the reserve for the files that a reload reads. Closed
 * descriptors refill the reserve. */
static void lend_descriptors(void)
{
    enum { FOR_FILES = 4 };

    for (unsigned i = 0; descriptors_are_scarce() && i < FOR_FILES; i++)
        if (!descriptors_give(DESCRIPTOR_FOR_MAIN, EMFILE))
            return;
}

void reload(struct weir *weir)
{
    struct report_lines report;

    if (weir->stopping)
        return;
    systemd_reloading(weir);
    lend_descriptors();
    report_begin(&report);
    struct preparation p = {.weir = weir, .report = report.stream};
    (void)library_memory_failed();
    bool has_memory = memory_try(prepare_policy, &p);
    has_memory = !library_memory_failed() && has_memory;
    report_log(&report, !p.good);
    weir->view.last_reload_failed = !p.good;
    if (p.good) {
        put_in_force(weir, p.next, p.endpoint_set);
        weir->view.reloads_good++;
        weir->view.policy_loaded_wall_us = clock_wall_us();
    } else {
        weir->view.reloads_failed++;
        log_error("reload: %s %s; the current policy stays in effect", weir->file,
                  has_memory ? "has errors or cannot be read" : "cannot be used: out of memory");
        drop_endpoint_set(p.endpoint_set);
        policy_drop(p.next);
        systemd_ready(weir);
    }
    systemd_reload_read(weir);
}
