/* scenario_report.c - the formats: text for people, TAP version 13, JSON. */
#include "scenario/scenario_report.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/json_writer.h"
#include "base/memory.h"

/* Writes a document of json_writer_growing(), and frees it. */
static void put_json(struct text *json, FILE *out)
{
    if (json->failed)
        memory_exhausted();
    fwrite(json->p, 1, json->n, out);
    free(json->p);
}

/* --- Text ------------------------------------------------------------------------------------- */

/* Failures of one request stand below it. */
static void text_failure(const struct scenario_failure *f, bool same, const char *file, FILE *out)
{
    if (!same)
        fprintf(out, "    request %" PRIu64 ": %s\n    %s\n", f->number, f->request, f->decision);
    fprintf(out, "      %s:%u:%u: expected %s\n", file, f->position.line, f->position.column,
            f->expected);
    fprintf(out, "      came %s\n", f->came);
}

static void text_result(const struct scenario_result *r, unsigned number, FILE *out)
{
    uint64_t before = 0;

    (void)number;
    fprintf(out, "%s  %s:%u  %s\n", r->failure_count ? "FAIL" : "ok  ", r->file->path,
            r->scenario->position.line, r->scenario->name);
    for (const struct scenario_failure *f = r->failures; f; f = f->next) {
        text_failure(f, f->number == before, r->file->path, out);
        before = f->number;
    }
    if (r->failure_count > FAILURES_MAX)
        fprintf(out, "    and %u more that were not as expected\n",
                r->failure_count - FAILURES_MAX);
}

static void text_end(const struct scenario_totals *t, FILE *out)
{
    if (!t->complete)
        return;
    fprintf(out, "%u test%s, %u failed; %" PRIu64 " requests in %.1f s\n", t->tests,
            t->tests == 1 ? "" : "s", t->failed, t->requests, (double)t->took_us / 1e6);
}

/* --- TAP -------------------------------------------------------------------------------------- */

static void tap_begin(unsigned tests, FILE *out)
{
    fprintf(out, "TAP version 13\n1..%u\n", tests);
}

/* "#" begins a directive, and "\" an escape. */
static void put_description(FILE *out, const char *text)
{
    for (; *text; text++)
        fprintf(out, *text == '#' || *text == '\\' ? "\\%c" : "%c", *text);
    putc('\n', out);
}

/* A JSON string is one of YAML, too. */
static void put_member(FILE *out, const char *before, const char *value)
{
    struct text text;
    struct json_writer json = json_writer_growing(&text);

    fprintf(out, "%s: ", before);
    json_put_text(&json, NULL, value);
    put_json(&text, out);
    putc('\n', out);
}

static void tap_result(const struct scenario_result *r, unsigned number, FILE *out)
{
    fprintf(out, "%s %u - ", r->failure_count ? "not ok" : "ok", number);
    put_description(out, r->scenario->name);
    if (!r->failure_count)
        return;
    put_member(out, "  ---\n  file", r->file->path);
    fprintf(out, "  line: %u\n  failure_count: %u\n  failures:\n", r->scenario->position.line,
            r->failure_count);
    for (const struct scenario_failure *f = r->failures; f; f = f->next) {
        fprintf(out, "    - line: %u\n      column: %u\n      number: %" PRIu64 "\n",
                f->position.line, f->position.column, f->number);
        put_member(out, "      request", f->request);
        put_member(out, "      expected", f->expected);
        put_member(out, "      came", f->came);
        put_member(out, "      decision", f->decision);
    }
    fprintf(out, "  ...\n");
}

static void tap_end(const struct scenario_totals *t, FILE *out)
{
    if (!t->complete)
        fprintf(out, "Bail out! the tests could not be run\n");
    else
        fprintf(out, "# %u failed; %" PRIu64 " requests in %.1f s\n", t->failed, t->requests,
                (double)t->took_us / 1e6);
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void json_begin_report(unsigned tests, FILE *out)
{
    (void)tests;
    fputs("{\"tests\":[\n", out);
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

static void json_result(const struct scenario_result *r, unsigned number, FILE *out)
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
    put_json(&text, out);
    putc('\n', out);
}

static void json_end_report(const struct scenario_totals *t, FILE *out)
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
    put_json(&text, out);
    putc('\n', out);
}

/* --- Formats ---------------------------------------------------------------------------------- */

static void text_begin(unsigned tests, FILE *out)
{
    (void)tests, (void)out;
}

static const struct {
    void (*begin)(unsigned tests, FILE *out);
    void (*result)(const struct scenario_result *result, unsigned number, FILE *out);
    void (*end)(const struct scenario_totals *totals, FILE *out);
} formats[] = {[SCENARIO_TEXT] = {text_begin, text_result, text_end},
               [SCENARIO_TAP] = {tap_begin, tap_result, tap_end},
               [SCENARIO_JSON] = {json_begin_report, json_result, json_end_report}};

void scenario_report_begin(enum scenario_format format, unsigned tests, FILE *out)
{
    formats[format].begin(tests, out);
    fflush(out);
}

void scenario_report(enum scenario_format format, const struct scenario_result *result,
                     unsigned number, FILE *out)
{
    formats[format].result(result, number, out);
    fflush(out);
}

void scenario_report_end(enum scenario_format format, const struct scenario_totals *totals,
                         FILE *out)
{
    formats[format].end(totals, out);
    fflush(out);
}
