/* compose.c - see compose.h. The composed script:
 *
 *   local muldiv, numbers ...lua/muldiv.lua, if a limiter uses it...
 *   local limiter = setmetatable({}, { __index = function(made, name)
 *     local run
 *     if false then
 *     elseif name == "token_bucket" then run = (function(...) --@ lua/token_bucket.lua
 *   ...the file...
 *   end)(muldiv, numbers)
 *     end
 *     made[name] = run
 *     return run
 *   end })
 *   local limits = setmetatable({}, { __index = function(made, number)
 *     ...likewise: elseif number == "1" then limit = { run = limiter["token_bucket"],
 *                                                         period = 60000000 }
 *   end }) if #ARGV == 1 then local _ = limiter["token_bucket"] end
 *   --@ lua/driver.lua
 *   ...driver.lua...
 *
 * The operator's own limiters are wrapped in guard(...) (lua/guard.lua), so that an error fails
 * only the limiter's requests. Limits by the calendar are wrapped in calendar(...)
 * (lua/calendar.lua). Each of the two files, and each time zone, is included only if a limit needs
 * it.
 *
 * With a single limit: local limit = { run = ... }. Lines of driver.lua that no limit needs are
 * left empty, see its head.
 *
 * Redis runs the whole script for every call. Since table entries are built on first use, 60 limits
 * cost a call no more than one (13 µs instead of 26). A call without requests loads every limiter,
 * for compose_check().
 *
 * Limits are numbered as in the policy; limits that no rule uses are left out. From the "--@"
 * marks compose_check() finds the source file of a line. */
#include "limit/compose.h"

#include <stdlib.h>

#include "base/memory_stream.h"
#include "limit/compose_text.h"
#include "policy/shipped_limiter.h"
#include "policy/zone.h"

/* --- The driver ------------------------------------------------------------------------------- */

bool compose_uses(const struct policy *policy, const struct limit *limit)
{
    if (limit->in_descriptors)
        return true;
    for (unsigned i = 0; i < policy->rule_count; i++)
        for (unsigned j = 0; j < policy->rules[i].limit_count; j++)
            if (policy->rules[i].limits[j] == limit)
                return true;
    return false;
}

static unsigned unit_count(const struct policy *policy)
{
    return policy->rate_limit_service.domain_count ? UNIT_COUNT - UNIT_SECOND : 0;
}

/* The limits, their variants and the units of rate limits, in the order of their indexes. */
static unsigned entry_count(const struct policy *policy)
{
    return policy->limit_count + policy->variant_count + unit_count(policy);
}

/* Returns the entry with this index if a rule or a descriptor uses it, else NULL. */
static const struct limit *entry_used(const struct policy *policy, unsigned index)
{
    unsigned limits = policy->limit_count, variants = policy->variant_count;

    if (index >= limits + variants)
        return &policy->rate_limit_service.units[UNIT_SECOND + index - limits - variants];
    const struct limit *limit =
        index < limits ? &policy->limits[index] : policy->variants[index - limits];
    return compose_uses(policy, &policy->limits[limit->base]) ? limit : NULL;
}

/* Returns the entry with this index if it is the first that uses its script, else NULL. */
static const struct limit *first_of_script(const struct policy *policy, unsigned index)
{
    const struct limit *limit = entry_used(policy, index), *other;

    for (unsigned i = 0; limit && i < index; i++)
        if ((other = entry_used(policy, i)) && strcmp(other->script, limit->script) == 0)
            return NULL;
    return limit;
}

/* The features of the driver that a policy's limits need; see the head of lua/driver.lua. */
struct features {
    bool many; /* the policy uses more than one limit */
    bool several, options, dedup, own, numbers, clock, next, priority, calls;
    bool muldiv; /* not of the driver: lua/muldiv.lua */
};

static enum state_end state_end(const struct limit *limit)
{
    return limit->shipped ? limit->shipped->state_end : STATE_END_NONE;
}

/* Returns the number of options that the script receives: those without a value at the end are left
 * out. */
static unsigned passed_options(const struct limit *limit)
{
    unsigned count = limit->option_count;

    while (count && limit->options[count - 1].kind == OPTION_NONE)
        count--;
    return count;
}

static bool uses_muldiv(const struct limit *limit)
{
    return strstr(limit->script_text, "local muldiv");
}

static struct features features_of(const struct policy *policy)
{
    struct features f = {.many = false};
    unsigned used = 0;

    for (unsigned i = 0; i < entry_count(policy); i++) {
        const struct limit *limit = entry_used(policy, i);
        if (!limit)
            continue;
        used++;
        f.options |= passed_options(limit) > 0;
        f.dedup |= limit->dedup.header != NULL;
        f.own |= limit->kind == LIMIT_CUSTOM;
        f.numbers |= state_end(limit) != STATE_END_NONE;
        f.next |= limit_tells_next(limit);
        f.muldiv |= uses_muldiv(limit);
    }
    for (unsigned i = 0; i < policy->rule_count; i++)
        f.several |= policy->rules[i].limit_count > 1;
    f.calls = unit_count(policy) > 0;
    f.several |= f.calls;
    f.many = used != 1;
    f.priority = policy->priority_count > 0;
    return f;
}

static bool has_feature(const struct features *f, struct slice name)
{
#define NAMES(feature) (slice_equal(name, SLICE(#feature)) && f->feature)
    return NAMES(many) || NAMES(several) || NAMES(options) || NAMES(dedup) || NAMES(own) ||
           NAMES(numbers) || NAMES(next) || NAMES(priority) || NAMES(calls) || NAMES(clock);
#undef NAMES
}

/* Leaves out the lines from "--{ FEATURE" to "--}" of unneeded features. Writes empty lines in
 * their place, which keeps the line numbers. */
static void write_needed_lines(FILE *out, const char *text, const struct features *f)
{
    static const char begin[] = "--{ ";
    unsigned left_out = 0; /* nesting depth of blocks, counted from the outermost unneeded one */

    while (*text) {
        size_t n = strcspn(text, "\n");
        bool begins = n >= sizeof begin && memcmp(text, begin, sizeof begin - 1) == 0;
        bool ends = slice_equal((struct slice){text, n}, SLICE("--}"));
        if (begins && (left_out || !has_feature(f, (struct slice){text + sizeof begin - 1,
                                                                  n + 1 - sizeof begin})))
            left_out++;
        else if (ends)
            left_out -= left_out > 0;
        else if (!begins && !left_out)
            fwrite(text, 1, n, out);
        putc('\n', out);
        text += n + (text[n] == '\n');
    }
}

/* A table whose entries are built on first use. */
static void begin_table(FILE *out, const char *table, const char *key, const char *entry)
{
    fprintf(
        out,
        "local %s = setmetatable({}, { __index = function(made, %s)\n  local %s\n  if false then\n",
        table, key, entry);
}

static void end_table(FILE *out, const char *key, const char *entry)
{
    fprintf(out, "  end\n  made[%s] = %s\n  return %s\nend })\n", key, entry, entry);
}

/* Writes the time zone changes `low` to `high` as a tree of comparisons: about six of them find
 * one of eighty, and nothing is built in advance. Each leaf: offset from UTC in seconds, start,
 * end. */
static void write_changes(FILE *out, const struct zone *zone, unsigned low, unsigned high)
{
    unsigned middle = (low + high) / 2;

    if (low < high) {
        fprintf(out, "if t < %lld then ", (long long)zone->changes[middle].at);
        write_changes(out, zone, low, middle);
        fputs("else ", out);
        write_changes(out, zone, middle + 1, high);
        fputs("end ", out);
        return;
    }
    fprintf(out, "return %lld, ", (long long)(low ? zone->changes[low - 1].offset : zone->first));
    if (low)
        fprintf(out, "%lld, ", (long long)zone->changes[low - 1].at);
    else
        fputs("-1e15, ", out);
    if (low < zone->count)
        fprintf(out, "%lld ", (long long)zone->changes[low].at);
    else
        fputs("1e15 ", out);
}

static bool is_zone_before(const struct policy *policy, const struct limit *limit)
{
    for (unsigned i = 0; i < limit->index; i++) {
        const struct limit *other = entry_used(policy, i);
        if (other && other->calendar && strcmp(other->time_zone, limit->time_zone) == 0)
            return true;
    }
    return false;
}

static void write_zones(FILE *out, const struct policy *policy)
{
    begin_table(out, "zone", "name", "ahead");
    for (unsigned i = 0; i < entry_count(policy); i++) {
        const struct limit *limit = entry_used(policy, i);
        if (!limit || !limit->calendar || is_zone_before(policy, limit))
            continue;
        fputs("  elseif name == ", out);
        lua_write_quoted(out, limit->time_zone);
        fputs(" then ahead = function(t) ", out);
        write_changes(out, limit->zone, 0, limit->zone->count);
        fputs("end\n", out);
    }
    end_table(out, "name", "ahead");
}

/* Writes a limiter as an expression. */
static void write_limiter(FILE *out, const struct limit *limit, const char *lua_dir)
{
    char *path = lua_path(limit->script, lua_dir);
    bool own = limit->kind == LIMIT_CUSTOM;
    if (own)
        fputs("guard(pcall(function() return ", out);
    lua_write_chunk(out, path ? path : limit->script, limit->script_text, own);
    if (own)
        fputs("end))\n", out);
    free(path);
}

static void write_limiters(FILE *out, const struct policy *policy, const char *lua_dir)
{
    const struct limit *limit;

    begin_table(out, "limiter", "name", "run");
    for (unsigned i = 0; i < entry_count(policy); i++)
        if ((limit = first_of_script(policy, i))) {
            fputs("  elseif name == ", out);
            lua_write_quoted(out, limit->script);
            fputs(" then run = ", out);
            write_limiter(out, limit, lua_dir);
        }
    end_table(out, "name", "run");
}

static void write_option(FILE *out, const struct script_option *option)
{
    switch (option->kind) {
    case OPTION_NONE: fputs("nil", out); break;
    case OPTION_TEXT: lua_write_quoted(out, option->text); break;
    case OPTION_BOOL: fputs(option->number ? "true" : "false", out); break;
    case OPTION_NUMBER:
    case OPTION_DURATION: fprintf(out, "%lld", (long long)option->number); break;
    }
}

static void write_options(FILE *out, const struct limit *limit)
{
    unsigned count = passed_options(limit);

    for (unsigned i = 0; i < count; i++) {
        fputs(i ? ", " : ", options = { ", out);
        write_option(out, &limit->options[i]);
    }
    fputs(count ? " }" : "", out);
}

/* Writes the limiter itself, or its entry in the table `limiter` (`lua_dir` is NULL). */
static void write_run(FILE *out, const struct limit *limit, const char *lua_dir)
{
    static const char *const units[] = {[CALENDAR_DAY] = "day",
                                        [CALENDAR_WEEK] = "week",
                                        [CALENDAR_MONTH] = "month",
                                        [CALENDAR_YEAR] = "year"};

    fputs(limit->calendar ? "calendar(" : "", out);
    if (lua_dir)
        write_limiter(out, limit, lua_dir);
    else {
        fputs("limiter[", out);
        lua_write_quoted(out, limit->script);
        fputs("]", out);
    }
    if (limit->calendar) {
        fprintf(out, ", \"%s\", %lld, zone[", units[limit->calendar],
                (long long)(limit->offset_us / 1000000));
        lua_write_quoted(out, limit->time_zone);
        fputs("])", out);
    }
}

/* The limit's own numbers. Clients with other numbers pass them with the request. */
static void write_own_numbers(FILE *out, const struct limit *limit)
{
    long long amount = limit->limit, burst = limit->burst, period = limit->period_us;

    fprintf(out, ", amount = %lld, burst = %lld", amount, burst);
    if (state_end(limit) == STATE_END_FIELDS)
        fprintf(out, ", numbers = \":0:02:%lld:%lld:%lld\"", amount, period, burst);
    else if (state_end(limit) == STATE_END_DIGITS && amount < STATE_DIGITS && burst < STATE_DIGITS)
        fprintf(out, ", numbers = \"%013lld%014lld%013lld\"", amount, period, burst);
}

/* Writes a limit as an expression; `lua_dir` as in write_run(). */
static void write_limit(FILE *out, const struct limit *limit, const char *lua_dir)
{
    fputs("{ run = ", out);
    write_run(out, limit, lua_dir);
    fprintf(out, ", period = %lld", (long long)limit->period_us);
    write_own_numbers(out, limit);
    if (limit->align == ALIGN_CLOCK)
        fprintf(out, ", offset = %lld", (long long)limit->offset_us);
    if (limit->dedup.header)
        fprintf(out, ", repeats = %lld", (long long)limit->dedup.repeats);
    if (limit_tells_next(limit))
        fputs(", next = true", out);
    write_options(out, limit);
    fputs(limit->kind == LIMIT_CUSTOM ? ", exact = true }\n" : " }\n", out);
}

static void compose_limits(FILE *out, const struct policy *policy)
{
    begin_table(out, "limits", "number", "limit");
    for (unsigned i = 0; i < entry_count(policy); i++) {
        const struct limit *limit = entry_used(policy, i);
        if (!limit)
            continue;
        fprintf(out, "  elseif number == \"%u\" then limit = ", i + 1);
        write_limit(out, limit, NULL);
    }
    end_table(out, "number", "limit");
}

/* Writes the policy's only limit, which contains the limiter. */
static void write_single_limit(FILE *out, const struct policy *policy, const char *lua_dir)
{
    const struct limit *limit;

    for (unsigned i = 0; i < policy->limit_count; i++)
        if ((limit = entry_used(policy, i))) {
            fputs("local limit = ", out);
            write_limit(out, limit, lua_dir);
        }
}

static void write_loading(FILE *out, const struct policy *policy)
{
    const struct limit *limit;

    fputs("if #ARGV == 1 then local _", out);
    for (unsigned i = 0; i < entry_count(policy); i++)
        if ((limit = first_of_script(policy, i))) {
            fputs(" _ = limiter[", out);
            lua_write_quoted(out, limit->script);
            fputs("]", out);
        }
    fputs(" end\n", out);
}

static void report_no_memory(FILE *report)
{
    fputs("the script of the limits cannot be composed: out of memory\n", report);
}

/* Returns the text of the stream; NULL if it is not `good` or if memory ran out. */
static char *finish_text(struct memory_stream *stream, bool good, FILE *report)
{
    char *script = memory_stream_close(stream);

    if (!script)
        report_no_memory(report);
    if (!good) {
        free(script);
        script = NULL;
    }
    return script;
}

char *compose_contract(const char *lua_dir, FILE *report)
{
    char *path = lua_path("contract", lua_dir), *contract = lua_read(path, report), *script = NULL;
    struct memory_stream out;

    if (contract && memory_stream_open(&out)) {
        fputs("local muldiv, numbers\n", out.file);
        bool good = lua_write_helper(out.file, "muldiv", lua_dir, report);
        fputs(contract, out.file);
        script = finish_text(&out, good, report);
    } else if (contract)
        report_no_memory(report);
    free(contract);
    free(path);
    return script;
}

/* Writes what limiters and the driver share: the files and tables that the policy needs. */
static bool write_helpers(FILE *out, const struct policy *policy, const struct features *features,
                          const char *lua_dir, FILE *report)
{
    bool own = false, calendar = false;

    for (unsigned i = 0; i < entry_count(policy); i++) {
        const struct limit *limit = entry_used(policy, i);
        own |= limit && limit->kind == LIMIT_CUSTOM;
        calendar |= limit && limit->calendar != CALENDAR_NONE;
    }
    fputs(features->numbers ? "local muldiv, numbers = nil, { \"\" }\n" : "local muldiv, numbers\n",
          out);
    if (calendar)
        write_zones(out, policy);
    return (!features->muldiv || lua_write_helper(out, "muldiv", lua_dir, report)) &&
           (!own || lua_write_helper(out, "guard", lua_dir, report)) &&
           (!calendar || lua_write_helper(out, "calendar", lua_dir, report));
}

static char *compose(const struct policy *policy, bool clock, const char *lua_dir, FILE *report)
{
    char *path = lua_path("driver", lua_dir), *driver = lua_read(path, report), *script = NULL;
    struct memory_stream stream;

    if (driver && memory_stream_open(&stream)) {
        FILE *out = stream.file;
        struct features features = features_of(policy);
        features.clock = clock;
        bool good = write_helpers(out, policy, &features, lua_dir, report);
        if (features.many) {
            write_limiters(out, policy, lua_dir);
            compose_limits(out, policy);
            write_loading(out, policy);
        } else
            write_single_limit(out, policy, lua_dir);
        lua_write_mark(out, path);
        write_needed_lines(out, driver, &features);
        script = finish_text(&stream, good, report);
    } else if (driver)
        report_no_memory(report);
    free(driver);
    free(path);
    return script;
}

char *compose_driver(const struct policy *policy, const char *lua_dir, FILE *report)
{
    return compose(policy, false, lua_dir, report);
}

char *compose_driver_with_clock(const struct policy *policy, const char *lua_dir, FILE *report)
{
    return compose(policy, true, lua_dir, report);
}
