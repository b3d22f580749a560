/* scenario_report.c - the formats: text for people, TAP version 13, JSON. */
#include "scenario/test_command.h"

#include <inttypes.h>

#include "base/json_writer.h"

/* --- Text ------------------------------------------------------------------------------------- */

/* Failures of one request stand below it. */
static void text_failure(const struct scenario_failure *f, bool same, const char *file)
{
    if (!same)
        printf("    request %" PRIu64 ": %s\n    %s\n", f->number, f->request, f->decision);
    printf("      %s:%u:%u: expected %s\n", file, f->position.line, f->position.column,
           f->expected);
    printf("      came %s\n", f->came);
}

static void text_result(const struct scenario_result *r, unsigned number)
{
    uint64_t before = 0;

    (void)number;
    printf("%s  %s:%u  %s\n", r->failure_count ? "FAIL" : "ok  ", r->file->path,
           r->scenario->position.line, r->scenario->name);
    for (const struct scenario_failure *f = r->failures; f; f = f->next) {
        text_failure(f, f->number == before, r->file->path);
        before = f->number;
    }
    if (r->failure_count > FAILURES_MAX)
        printf("    and %u more that were not as expected\n", r->failure_count - FAILURES_MAX);
}

static void text_end(const struct scenario_totals *t)
{
    if (!t->complete)
        return;
    printf("%u test%s, %u failed; %" PRIu64 " requests in %.1f s\n", t->tests,
           t->tests == 1 ? "" : "s", t->failed, t->requests, (double)t->took_us / 1e6);
}

const struct scenario_format scenario_text = {NULL, text_result, text_end};

/* --- TAP -------------------------------------------------------------------------------------- */

static void tap_begin(unsigned tests)
{
    printf("TAP version 13\n1..%u\n", tests);
}

/* "#" begins a directive, and "\" an escape. */
static void put_description(const char *text)
{
    for (; *text; text++)
        printf(*text == '#' || *text == '\\' ? "\\%c" : "%c", *text);
    putchar('\n');
}

/* A JSON string is one of YAML, too. */
static void put_member(const char *before, const char *value)
{
    struct text text;
    struct json_writer json = json_writer_growing(&text);

    printf("%s: ", before);
    json_put_text(&json, NULL, value);
    json_print(&text);
}

static void tap_result(const struct scenario_result *r, unsigned number)
{
    printf("%s %u - ", r->failure_count ? "not ok" : "ok", number);
    put_description(r->scenario->name);
    if (!r->failure_count)
        return;
    put_member("  ---\n  file", r->file->path);
    printf("  line: %u\n  failure_count: %u\n  failures:\n", r->scenario->position.line,
           r->failure_count);
    for (const struct scenario_failure *f = r->failures; f; f = f->next) {
        printf("    - line: %u\n      column: %u\n      number: %" PRIu64 "\n", f->position.line,
               f->position.column, f->number);
        put_member("      request", f->request);
        put_member("      expected", f->expected);
        put_member("      came", f->came);
        put_member("      decision", f->decision);
    }
    printf("  ...\n");
}

static void tap_end(const struct scenario_totals *t)
{
    if (!t->complete)
        printf("Bail out! the tests could not be run\n");
    else
        printf("# %u failed; %" PRIu64 " requests in %.1f s\n", t->failed, t->requests,
               (double)t->took_us / 1e6);
}

const struct scenario_format scenario_tap = {tap_begin, tap_result, tap_end};

/* --- JSON ------------------------------------------------------------------------------------- */

static void json_begin_report(unsigned tests)
{
    (void)tests;
    fputs("{\"tests\":[\n", stdout);
}

static void json_failure(struct json_writer *json, const struct scenario_failure *f)
{
    json_begin(json, NULL, '{');
    json_put_u64(json, "line", f->position.line);
    json_put_u64(json, "column", f->position.column);
    json_put_u64(json, "number", f->number);
    json_put_text(json, "request", f->request);
    json_put_text(json, "expected", f->expected);
    json_put_text(json, "came", f->came);
    json_put_text(json, "decision", f->decision);
    json_end(json, '}');
}

static void json_result(const struct scenario_result *r, unsigned number)
{
    struct text text;
    struct json_writer json = json_writer_growing(&text);

    json.comma = number > 1;
    json_begin(&json, NULL, '{');
    json_put_text(&json, "file", r->file->path);
    json_put_u64(&json, "line", r->scenario->position.line);
    json_put_text(&json, "name", r->scenario->name);
    json_put_bool(&json, "passed", r->failure_count == 0);
    json_put_u64(&json, "requests", r->requests);
    json_put_seconds(&json, "virtual_seconds", r->virtual_us);
    json_put_u64(&json, "failure_count", r->failure_count);
    json_begin(&json, "failures", '[');
    for (const struct scenario_failure *f = r->failures; f; f = f->next)
        json_failure(&json, f);
    json_end(&json, ']');
    json_end(&json, '}');
    json_print(&text);
}

static void json_end_report(const struct scenario_totals *t)
{
    struct text text;
    struct json_writer json = json_writer_growing(&text);

    json_end(&json, ']');
    json_put_bool(&json, "complete", t->complete);
    json_put_u64(&json, "passed", t->tests - t->failed);
    json_put_u64(&json, "failed", t->failed);
    json_put_u64(&json, "requests", t->requests);
    json_put_seconds(&json, "took_seconds", (int64_t)t->took_us);
    json_end(&json, '}');
    json_print(&text);
}

const struct scenario_format scenario_json = {json_begin_report, json_result, json_end_report};
