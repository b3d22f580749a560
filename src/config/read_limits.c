/* read_limits.c - section limits. */
#include <errno.h>
#include <unistd.h>

#include "config/parts.h"
#include "config/types.h"

#define LEASE_DEFAULT_US INT64_C(10000000) /* default lease of concurrency limits, µs */

static const struct script_kind {
    const char *name;
    enum limit_kind kind;
} scripts[] = {
    {"token_bucket", LIMIT_BUCKET},
    {"leaky_bucket", LIMIT_BUCKET},
    {"gcra", LIMIT_BUCKET},
    {"fixed_window", LIMIT_WINDOW},
    {"rolling_window", LIMIT_WINDOW},
    {"sliding_window_log", LIMIT_WINDOW},
    {"sliding_window_counter", LIMIT_WINDOW},
    {"concurrency", LIMIT_CONCURRENCY},
};

static bool script_is(const struct limit *limit, const char *name)
{
    return limit->script && strcmp(limit->script, name) == 0;
}

bool limit_has_burst(const void *limit)
{
    enum limit_kind kind = ((const struct limit *)limit)->kind;
    return kind != LIMIT_WINDOW && kind != LIMIT_CONCURRENCY;
}

bool limit_has_align(const void *limit)
{
    return script_is(limit, "fixed_window") || ((const struct limit *)limit)->kind == LIMIT_CUSTOM;
}

bool limit_has_offset(const void *limit)
{
    return ((const struct limit *)limit)->has_offset;
}

bool limit_has_buckets(const void *limit)
{
    return script_is(limit, "rolling_window");
}

bool limit_has_max_delay(const void *limit)
{
    return script_is(limit, "leaky_bucket");
}

static bool limit_is_in_flight(const void *limit)
{
    return ((const struct limit *)limit)->kind == LIMIT_CONCURRENCY;
}

bool limit_has_period(const void *limit)
{
    return !limit_is_in_flight(limit);
}

bool limit_has_best_effort(const void *limit)
{
    return !limit_is_in_flight(limit);
}

bool limit_has_enforce(const void *limit)
{
    return !((const struct limit *)limit)->shadow;
}

int64_t limit_capacity(const struct limit *limit, const struct limit_numbers *numbers)
{
    return limit->kind == LIMIT_BUCKET ? numbers->burst : numbers->limit;
}

void limit_check_numbers(struct loading *l, const struct node *node, const struct limit *limit,
                         const struct limit_numbers *numbers)
{
    if (limit->kind != LIMIT_BUCKET || numbers->limit < 1)
        return;
    double refill = (double)numbers->burst * (double)limit->period_us / (double)numbers->limit;
    if (refill > (double)REFILL_MAX_US)
        mistake(l, node,
                "a burst of %lld would take %.0f years to come back, beyond what scripts count exactly; "
                "lower the burst or the period",
                (long long)numbers->burst, refill / 1e6 / 86400 / 365.25);
}

const struct limit *limit_named(const struct policy *policy, struct slice name)
{
    for (unsigned i = 0; i < policy->limit_count; i++)
        if (slice_equal(slice_of(policy->limits[i].name), name))
            return &policy->limits[i];
    return NULL;
}

void limit_unknown(struct loading *l, const struct node *node, struct slice name, bool is_key)
{
    struct suggestion meant = suggestion_for(name);
    for (unsigned i = 0; i < l->policy->limit_count; i++)
        suggestion_consider(&meant, slice_of(l->policy->limits[i].name));
    (is_key ? mistake_of_key : mistake)(l, node, "no limit is named %s%s", QUOTE(name), DID_YOU_MEAN(&meant));
}

/* --- script --- */

bool script_names(struct slice name, struct script_names *out)
{
    struct text t = text_over(out->text, sizeof out->text - 1);
    bool found = false;

    for (size_t i = 0; i < COUNT_OF(scripts); i++) {
        found = found || slice_equal(name, slice_of(scripts[i].name));
        text_put(&t, i ? SLICE(", ") : SLICE_NONE);
        text_put(&t, slice_of(scripts[i].name));
    }
    out->text[t.n] = 0;
    return found;
}

static void unknown_script(struct loading *l, const struct node *node)
{
    struct script_names names;
    struct suggestion meant = suggestion_for(node->text);

    for (size_t i = 0; i < COUNT_OF(scripts); i++)
        suggestion_consider(&meant, slice_of(scripts[i].name));
    (void)script_names(node->text, &names);
    mistake(l, node, "no script is named %s; there are %s, or write a path such as ./my.lua%s",
            QUOTE(node->text), names.text, DID_YOU_MEAN(&meant));
}

/* Returns true if a built-in script is readable; otherwise reports an error. */
static bool is_installed(struct loading *l, const struct node *node, const char *path)
{
    if (access(path, R_OK) == 0)
        return true;
    mistake(l, node,
            "%s cannot be read: %s; install weir, or name the directory of its limiters in WEIR_LUA_DIR",
            path, strerror(errno));
    return false;
}

/* Returns the path of the script; NULL after reporting an error. */
static const char *script_path(struct loading *l, const struct node *node, struct limit *limit)
{
    struct slice text = node->text;
    bool is_path = memchr(text.p, '/', text.n) || (text.n > 4 && !strcmp(text.p + text.n - 4, ".lua"));

    limit->kind = LIMIT_CUSTOM;
    if (is_path)
        return neighbour_path(l, text);
    for (size_t i = 0; i < COUNT_OF(scripts); i++)
        if (slice_equal(text, slice_of(scripts[i].name))) {
            size_t room = strlen(l->lua_dir) + text.n + 6;
            char *path = arena_zeroed(&l->scratch, room, 1);
            snprintf(path, room, "%s/%s.lua", l->lua_dir, text.p);
            limit->kind = scripts[i].kind;
            return path;
        }
    unknown_script(l, node);
    return NULL;
}

/* Returns the text that an earlier limit has read from the same file, or NULL. */
static char *text_known(const struct policy *policy, const struct limit *limit)
{
    for (const struct limit *known = policy->limits; known < limit; known++)
        if (known->script && strcmp(known->script, limit->script) == 0)
            return known->script_text;
    return NULL;
}

static void read_script(struct loading *l, const struct option *option, const struct node *node, void *field)
{
    struct limit *limit = field;
    struct slice bytes;

    (void)option;
    if (!expect_scalar(l, node, "a script's name or path") || !text_fits(l, node, 1, 4096))
        return;
    const char *path = script_path(l, node, limit);
    if (!path)
        return;
    limit->script = keep_text(l, node);
    limit->script_position = node->position;
    limit->script_text = text_known(l->policy, limit);
    if (limit->script_text)
        return;
    if (limit->kind != LIMIT_CUSTOM && !is_installed(l, node, path))
        return;
    if (!named_file_read(l, node, &l->scratch, path, LUA_FILE_MAX, &bytes))
        return;
    if (memchr(bytes.p, 0, bytes.n))
        mistake(l, node, "%s is no Lua text: it holds a NUL byte", path);
    else
        limit->script_text = arena_text(l->arena, bytes);
}

static void print_script(const struct printer *printer, const struct option *option, const void *field)
{
    const struct limit *limit = field;
    type_text.print(printer, option, &limit->script);
}

const struct option_type type_script = {"name or path", read_script, print_script, false};

/* --- per --- */

static const char *const per_names[] = {
    [PER_CLIENT] = "client", [PER_IP] = "ip",     [PER_ROUTE] = "route",
    [PER_METHOD] = "method", [PER_HOST] = "host", [PER_ALL] = "all",
};

static bool read_part(struct loading *l, const struct node *item, struct limit_part *part)
{
    static const char expected[] = "client, ip, route, method, host, all or header:NAME";
    struct suggestion meant = suggestion_for(item->text);

    if (!expect_scalar(l, item, expected))
        return false;
    struct slice name = {item->text.p + 7, item->text.n - 7};
    if (slice_starts_with(item->text, SLICE("header:")) && slice_is_token(name) && name.n <= 128) {
        *part = (struct limit_part){PER_HEADER, arena_text(l->arena, name)};
        return true;
    }
    for (unsigned i = 0; i < COUNT_OF(per_names); i++) {
        suggestion_consider(&meant, slice_of(per_names[i]));
        if (slice_equal(item->text, slice_of(per_names[i]))) {
            part->per = (enum limit_per)i;
            return true;
        }
    }
    mistake(l, item, "%s is unknown; expected %s%s", QUOTE(item->text), expected, DID_YOU_MEAN(&meant));
    return false;
}

static bool same_part(const struct limit_part *a, const struct limit_part *b)
{
    return a->per == b->per &&
           (a->per != PER_HEADER || slice_equal_nocase(slice_of(a->header), slice_of(b->header)));
}

static bool part_fits(struct loading *l, const struct node *item, const struct limit *limit,
                      const struct limit_part *part)
{
    for (unsigned i = 0; i < limit->per_count; i++) {
        if (same_part(&limit->per[i], part)) {
            mistake(l, item, "%s stands here twice", QUOTE(item->text));
            return false;
        }
        if (limit->per[i].per == PER_ALL || part->per == PER_ALL) {
            mistake(l, item, "all stands alone: what is counted for all is not counted apart");
            return false;
        }
    }
    return true;
}

/* PER_CLIENT goes first, because limit_is_per_client() checks only per[0]. */
static void insert_part(struct limit *limit, struct limit_part part)
{
    unsigned at = part.per == PER_CLIENT ? 0 : limit->per_count;
    memmove(&limit->per[at + 1], &limit->per[at], (limit->per_count - at) * sizeof part);
    limit->per[at] = part;
    limit->per_count++;
}

static void read_per(struct loading *l, const struct option *option, const struct node *node, void *field)
{
    struct limit *limit = field;

    if (!list_fits(option, node)) {
        mistake(l, node, "expected 1 to %d of client, ip, route, method, host, all and header:NAME",
                (int)option->high);
        return;
    }
    for (const struct node *item = list_first(node); item; item = list_next(node, item)) {
        struct limit_part part = {0};
        if (!item->broken && read_part(l, item, &part) && part_fits(l, item, limit, &part))
            insert_part(limit, part);
    }
}

static void print_per(const struct printer *printer, const struct option *option, const void *field)
{
    const struct limit *limit = field;

    (void)option;
    for (unsigned i = 0; i < limit->per_count; i++) {
        const struct limit_part *part = &limit->per[i];
        fputs(i ? ", " : " [ ", printer->out);
        if (part->per == PER_HEADER)
            fprintf(printer->out, "\"header:%s\"", part->header);
        else
            fputs(per_names[part->per], printer->out);
    }
    fputs(" ]\n", printer->out);
}

const struct option_type type_per = {"word or list", read_per, print_per, false};

/* --- label, align --- */

/* The label is sent in quoted strings of response headers (RFC 9651 section 3.3.3). */
static void read_label(struct loading *l, const struct option *option, const struct node *node, void *field)
{
    if (ascii_fits(l, option, node, "\"\\", "printable ASCII without quotes and backslashes"))
        *(char **)field = keep_text(l, node);
}

static void print_label(const struct printer *printer, const struct option *option, const void *field)
{
    type_text.print(printer, option, field);
}

const struct option_type type_label = {"text", read_label, print_label, false};

static void read_align(struct loading *l, const struct option *option, const struct node *node, void *field)
{
    bool *has_offset = field;

    (void)option;
    if (!expect_scalar(l, node, "first-request or clock"))
        return;
    *has_offset = slice_equal(node->text, SLICE("clock"));
    if (!*has_offset && !slice_equal(node->text, SLICE("first-request")))
        mistake(l, node, "%s is unknown; expected first-request or clock", QUOTE(node->text));
}

static void print_align(const struct printer *printer, const struct option *option, const void *field)
{
    (void)option;
    fputs(*(const bool *)field ? " clock\n" : " first-request\n", printer->out);
}

const struct option_type type_align = {"word", read_align, print_align, false};

/* --- count --- */

enum { STATUS_WORDS = STATUS_MAX / 64 + 1 };

static void add_statuses(uint64_t *counted, unsigned first, unsigned last)
{
    for (; first <= last; first++)
        counted[first / 64] |= (uint64_t)1 << first % 64;
}

/* Reads a status such as 401, or a class such as 5xx. */
static bool read_status(struct loading *l, const struct node *item, uint64_t *counted)
{
    struct slice text = item->text;
    uint64_t status;

    if (!expect_scalar(l, item, "a status such as 401 or 5xx"))
        return false;
    if (text.n == 3 && text.p[0] >= '1' && text.p[0] <= '5' && text.p[1] == 'x' && text.p[2] == 'x')
        add_statuses(counted, (unsigned)(text.p[0] - '0') * 100, (unsigned)(text.p[0] - '0') * 100 + 99);
    else if (slice_to_u64(text, STATUS_MAX, &status) && status >= STATUS_MIN)
        add_statuses(counted, (unsigned)status, (unsigned)status);
    else {
        mistake(l, item, "%s is no status; expected 100 to 599, or 1xx to 5xx", QUOTE(text));
        return false;
    }
    return true;
}

static void read_statuses(struct loading *l, const struct option *option, const struct node *node,
                          void *field)
{

    if (option->low && node->kind == NODE_SCALAR && slice_equal(node->text, SLICE("all")))
        return;
    if (!list_fits(option, node)) {
        mistake(l, node, "expected %sa list of %d to %d statuses", option->low ? "all, or " : "",
                (int)option->low, (int)option->high);
        return;
    }
    uint64_t *counted = arena_zeroed(l->arena, STATUS_WORDS, sizeof *counted);
    for (const struct node *item = list_first(node); item; item = list_next(node, item))
        if (!item->broken)
            (void)read_status(l, item, counted);
    *(uint64_t **)field = counted;
}

static bool counts_whole_class(const struct limit *limit, unsigned class)
{
    for (unsigned i = 0; i < 100; i++)
        if (!limit_counts(limit, class * 100 + i))
            return false;
    return true;
}

static void print_statuses(const struct printer *printer, const struct option *option, const void *field)
{
    const struct limit limit = {.counted = *(uint64_t *const *)field};
    const char *const start = " [ ", *before = start;

    (void)option;
    if (!limit.counted) {
        fputs(" all\n", printer->out);
        return;
    }
    for (unsigned class = STATUS_MIN / 100; class <= STATUS_MAX / 100; class ++) {
        bool whole = counts_whole_class(&limit, class);
        if (whole)
            fprintf(printer->out, "%s%uxx", before, class), before = ", ";
        for (unsigned i = 0; i < 100 && !whole; i++)
            if (limit_counts(&limit, class * 100 + i))
                fprintf(printer->out, "%s%u", before, class * 100 + i), before = ", ";
    }
    fputs(before == start ? " []\n" : " ]\n", printer->out);
}

const struct option_type type_statuses = {"list of statuses", read_statuses, print_statuses, false};

/* --- lease --- */

/* limit->script is set, since it is read earlier. */
static void read_lease(struct loading *l, const struct option *option, const struct node *node, void *field)
{
    static const char expected[] = "auto, off or how many units a worker may take at once, 1 to 100000";
    struct limit *limit = field;
    uint64_t units = 0;

    if (limit_is_in_flight(limit)) {
        type_duration.read(l, option, node, &limit->lease_us);
        return;
    }
    if (!expect_scalar(l, node, expected))
        return;
    if (slice_equal(node->text, SLICE("auto")))
        limit->lease_units = LEASE_AUTO;
    else if (slice_equal(node->text, SLICE("off")))
        limit->lease_units = 0;
    else if (slice_to_u64(node->text, LEASE_MOST, &units) && units > 0)
        limit->lease_units = (int64_t)units;
    else
        mistake(l, node, "%s is neither; expected %s", QUOTE(node->text), expected);
}

static void print_lease(const struct printer *printer, const struct option *option, const void *field)
{
    const struct limit *limit = field;

    if (limit_is_in_flight(limit))
        type_duration.print(printer, option, &limit->lease_us);
    else if (limit->lease_units == LEASE_AUTO)
        fputs(" auto\n", printer->out);
    else if (limit->lease_units == 0)
        fputs(" off\n", printer->out);
    else
        fprintf(printer->out, " %lld\n", (long long)limit->lease_units);
}

const struct option_type type_lease = {"auto, off or number", read_lease, print_lease, false};

/* Returns why units of this limit cannot be leased, that is, charged before use; NULL: they can. */
static const char *no_lease(const struct limit *limit)
{
    if (limit->kind == LIMIT_CUSTOM)
        return "what a script of your own would say of a unit that is used later than it was charged is not "
               "known";
    if (limit->max_delay_us)
        return "a queue holds each request for its own time";
    if (limit->kind == LIMIT_WINDOW && !script_is(limit, "fixed_window"))
        return "a unit that is used later than it was charged would count too short";
    return NULL;
}

static void finish_lease(struct loading *l, const struct node *node, struct limit *limit)
{
    const struct node *lease = node_find(node, "lease");
    const char *why = no_lease(limit);

    if (limit_is_in_flight(limit)) {
        if (!limit->lease_us)
            limit->lease_us = LEASE_DEFAULT_US;
        limit->period_us = limit->lease_us;
        return;
    }
    if (!lease)
        limit->lease_units = why ? 0 : LEASE_AUTO;
    if (lease && why && limit->lease_units != 0)
        mistake(l, lease, "%s takes no leases: %s; remove it, or use off", limit->script, why);
    if (why)
        limit->lease_units = 0;
}

/* --- dedup --- */

static void read_dedup(struct loading *l, const struct option *option, const struct node *node, void *field)
{
    struct dedup_settings *dedup = field;

    if (node->null)
        return;
    if (node->kind == NODE_SCALAR) { /* only the header name */
        dedup->repeats = DEDUP_REPEATS_DEFAULT;
        type_text.read(l, option, node, &dedup->header);
    } else if (expect_map(l, node, "a header's name or a map such as { header: Idempotency-Key }"))
        options_read(l, node, option->path, field);
    if (dedup->header && !slice_is_token(slice_of(dedup->header))) {
        const struct node *header = node->kind == NODE_SCALAR ? node : node_find(node, "header");
        mistake(l, header, "%s is no header's name", QUOTE(slice_of(dedup->header)));
    }
}

static void print_dedup(const struct printer *printer, const struct option *option, const void *field)
{
    const struct dedup_settings *dedup = field;

    if (dedup->header)
        type_section.print(printer, option, field);
    else
        fputs(" null\n", printer->out);
}

const struct option_type type_dedup = {"map or text", read_dedup, print_dedup, true};

/* --- one limit --- */

static void refuse_where_useless(struct loading *l, const struct node *node, const struct limit *limit)
{
    const struct node *burst = node_find(node, "burst"), *align = node_find(node, "align"),
                      *offset = node_find(node, "offset"), *buckets = node_find(node, "buckets"),
                      *enforce = node_find(node, "enforce"), *dedup = node_find(node, "dedup"),
                      *own = node_find(node, "options");

    if (burst && !limit_has_burst(limit))
        mistake_of_key(l, burst, "%s has no burst; remove it, or use token_bucket, gcra or leaky_bucket",
                       limit->script);
    if (align && !limit_has_align(limit))
        mistake_of_key(l, align, "%s cannot be aligned; remove it, or use fixed_window", limit->script);
    if (offset && limit_has_align(limit) && !limit->has_offset)
        mistake_of_key(l, offset, "offset counts from the clock; add align: clock");
    else if (offset && !limit_has_align(limit))
        mistake_of_key(l, offset, "%s has no offset; remove it, or use fixed_window with align: clock",
                       limit->script);
    else if (offset && limit->period_us && !limit->calendar && limit->offset_us >= limit->period_us)
        mistake(l, offset, "is not less than the period");
    if (own && !limit_has_own_options(limit))
        mistake_of_key(l, own, "%s takes no options; they are for a script of your own, by its path",
                       limit->script);
    if (buckets && !limit_has_buckets(limit))
        mistake_of_key(l, buckets, "%s has no buckets; remove it, or use rolling_window", limit->script);
    if (limit->dedup.header && limit->counted)
        mistake_of_key(
            l, dedup,
            "a limit with count charges after the answer and knows no repeats; remove one of the two");
    if (enforce && limit->shadow && node_find(node, "shadow"))
        mistake_of_key(l, enforce, "a shadow limit rejects nobody; remove one of the two");
}

static void refuse_in_flight(struct loading *l, const struct node *node, const struct limit *limit)
{
    static const struct {
        const char *key, *why;
    } useless[] = {
        {"period", "concurrency counts requests in flight and has no period; remove it"},
        {"best_effort", "a request is in flight or it is not; remove best_effort"},
    };

    if (!limit_is_in_flight(limit))
        return;
    for (size_t i = 0; i < COUNT_OF(useless); i++) {
        const struct node *key = node_find(node, useless[i].key);
        if (key)
            mistake_of_key(l, key, "%s", useless[i].why);
    }
    if (limit->counted)
        mistake_of_key(l, node_find(node, "count"),
                       "a request in flight has no status yet; remove count, or use another script");
    if (limit->dedup.header)
        mistake_of_key(l, node_find(node, "dedup"),
                       "a repeat is in flight as well; remove dedup, or use another script");
}

static void refuse_to_hold(struct loading *l, const struct node *node, const struct limit *limit)
{
    const struct node *max_delay = node_find(node, "max_delay");

    if (max_delay && !limit_has_max_delay(limit))
        mistake_of_key(l, max_delay, "%s holds no requests; remove it, or use leaky_bucket", limit->script);
    else if (limit->max_delay_us && limit->max_delay_us < PERIOD_MIN_US)
        mistake(l, max_delay, "is less than 1ms, and not 0");
    if (limit->max_delay_us && limit->counted)
        mistake_of_key(l, max_delay,
                       "a limit with count charges after the answer and holds nobody; remove one of the two");
}

static void check_cost(struct loading *l, const struct node *node, const struct limit *limit)
{
    struct limit_numbers numbers = {limit->limit, limit->burst};
    const struct node *cost = node_find(node, "cost");

    if (cost && !limit->best_effort && limit->cost > limit_capacity(limit, &numbers))
        mistake(l, cost, "a cost of %lld can never be admitted: the limit holds %lld at most",
                (long long)limit->cost, (long long)limit_capacity(limit, &numbers));
}

/* Sets and checks everything that depends on several options of the limit. */
static void finish_limit(struct loading *l, const struct node *node, struct limit *limit)
{
    if (!limit->label)
        limit->label = limit->name;
    if (!node_find(node, "on_failure"))
        limit->on_failure = l->policy->redis.on_failure;
    if (!node_find(node, "shadow"))
        limit->shadow = l->policy->shadow;
    if (limit->shadow)
        limit->enforce = 0;
    limit_finish_windows(l, node, limit);
    if (limit->burst == 0 || !limit_has_burst(limit))
        limit->burst = limit->limit;
    if (limit_has_buckets(limit))
        limit->option_count = 1;
    else
        limit->options[0] = 0;
    if (!limit->script)
        return; /* reported; the other checks depend on it */
    finish_lease(l, node, limit);
    if (limit_has_max_delay(limit) && limit->max_delay_us) {
        limit->option_count = 1;
        limit->options[0] = limit->max_delay_us;
    }
    refuse_where_useless(l, node, limit);
    refuse_in_flight(l, node, limit);
    refuse_to_hold(l, node, limit);
    if (limit->limit && limit->period_us) {
        struct limit_numbers numbers = {limit->limit, limit->burst};
        limit_check_numbers(l, node, limit, &numbers);
        check_cost(l, node, limit);
    }
}

static void read_limit(struct loading *l, const struct node *node, struct limit *limit)
{
    limit->name = arena_text(l->arena, node->key);
    limit->position = node->key_place;
    if (name_is_good(l, node) && slice_equal(node->key, SLICE("none")))
        mistake_of_key(l, node, "none stands for no limits in a rule; choose another name");
    if (node->broken || !expect_map(l, node, "a map with script, limit and period"))
        return;
    options_read(l, node, "limits.NAME", limit);
    finish_limit(l, node, limit);
}

static void read_limits(struct loading *l, const struct option *option, const struct node *node, void *field)
{
    struct policy *policy = field;

    if (!expect_map(l, node, "a map of limits by name"))
        return;
    if (node->count > (unsigned)option->high) {
        mistake(l, node, "has %u limits; expected at most %d", node->count, (int)option->high);
        return;
    }
    policy->limits = arena_zeroed(l->arena, node->count, sizeof *policy->limits);
    for (const struct node *child = node->first; child; child = child->next) {
        struct limit *limit = &policy->limits[policy->limit_count];
        limit->index = policy->limit_count++;
        read_limit(l, child, limit);
    }
}

static void print_limits(const struct printer *printer, const struct option *option, const void *field)
{
    const struct policy *policy = field;
    struct printer names = printer_below(printer);

    (void)option;
    fputs(policy->limit_count ? "\n" : " {}\n", printer->out);
    for (unsigned i = 0; i < policy->limit_count; i++) {
        print_key(&names, slice_of(policy->limits[i].name));
        fputc('\n', printer->out);
        struct printer below = printer_below(&names);
        options_print(&below, "limits.NAME", &policy->limits[i]);
    }
}

const struct option_type type_limits = {"map by name", read_limits, print_limits, true};
