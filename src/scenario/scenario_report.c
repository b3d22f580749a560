/* scenario_report.c - the formats: text for people, TAP version 13, JSON. */
#include "scenario/scenario_report.h"

#include <inttypes.h>

#include "base/json_writer.h"
#include "base/memory.h"

/* --- Text ------------------------------------------------------------------------------------- */

/* Failures of one request stand below it. */
static void text_failure(const struct scenario_failure *f, bool same, const char *file,
                         struct evbuffer *out)
{
    if (!same)
        evbuffer_add_printf(out, "    request %" PRIu64 ": %s\n    %s\n", f->number, f->request,
                            f->decision);
    evbuffer_add_printf(out, "      %s:%u:%u: expected %s\n", file, f->position.line,
                        f->position.column, f->expected);
    evbuffer_add_printf(out, "      came %s\n", f->came);
}

static void text_result(const struct scenario_result *r, unsigned number, struct evbuffer *out)
{
    uint64_t before = 0;

    (void)number;
    evbuffer_add_printf(out, "%s  %s:%u  %s\n", r->failure_count ? "FAIL" : "ok  ", r->file->path,
                        r->scenario->position.line, r->scenario->name);
    for (const struct scenario_failure *f = r->failures; f; f = f->next) {
        text_failure(f, f->number == before, r->file->path, out);
        before = f->number;
    }
    if (r->failure_count > FAILURES_MAX)
        evbuffer_add_printf(out, "    and %u more that were not as expected\n",
                            r->failure_count - FAILURES_MAX);
}

static void text_end(const struct scenario_totals *t, struct evbuffer *out)
{
    if (!t->complete)
        return;
    evbuffer_add_printf(out, "%u test%s, %u failed; %" PRIu64 " requests in %.1f s\n", t->tests,
                        t->tests == 1 ? "" : "s", t->failed, t->requests, (double)t->took_us / 1e6);
}

/* --- TAP -------------------------------------------------------------------------------------- */

static void tap_begin(unsigned tests, struct evbuffer *out)
{
    evbuffer_add_printf(out, "TAP version 13\n1..%u\n", tests);
}

/* "#" begins a directive, and "\" an escape. */
static void put_description(struct evbuffer *out, const char *text)
{
    for (; *text; text++)
        evbuffer_add_printf(out, *text == '#' || *text == '\\' ? "\\%c" : "%c", *text);
    evbuffer_add_printf(out, "\n");
}

/* A JSON string is one of YAML, too. */
static void put_member(struct evbuffer *out, const char *before, const char *text)
{
    struct json_writer json = json_writer_over(out);

    evbuffer_add_printf(out, "%s: ", before);
    json_put_text(&json, NULL, text);
    evbuffer_add_printf(out, "\n");
}

static void tap_result(const struct scenario_result *r, unsigned number, struct evbuffer *out)
{
    evbuffer_add_printf(out, "%s %u - ", r->failure_count ? "not ok" : "ok", number);
    put_description(out, r->scenario->name);
    if (!r->failure_count)
        return;
    put_member(out, "  ---\n  file", r->file->path);
    evbuffer_add_printf(out, "  line: %u\n  failure_count: %u\n  failures:\n",
                        r->scenario->position.line, r->failure_count);
    for (const struct scenario_failure *f = r->failures; f; f = f->next) {
        evbuffer_add_printf(out, "    - line: %u\n      column: %u\n      number: %" PRIu64 "\n",
                            f->position.line, f->position.column, f->number);
        put_member(out, "      request", f->request);
        put_member(out, "      expected", f->expected);
        put_member(out, "      came", f->came);
        put_member(out, "      decision", f->decision);
    }
    evbuffer_add_printf(out, "  ...\n");
}

static void tap_end(const struct scenario_totals *t, struct evbuffer *out)
{
    if (!t->complete)
        evbuffer_add_printf(out, "Bail out! the tests could not be run\n");
    else
        evbuffer_add_printf(out, "# %u failed; %" PRIu64 " requests in %.1f s\n", t->failed,
                            t->requests, (double)t->took_us / 1e6);
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void json_begin_report(unsigned tests, struct evbuffer *out)
{
    (void)tests;
    evbuffer_add_printf(out, "{\"tests\":[");
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

static void json_result(const struct scenario_result *r, unsigned number, struct evbuffer *out)
{
    struct json_writer json = {out, number > 1};

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
}

static void json_end_report(const struct scenario_totals *t, struct evbuffer *out)
{
    struct json_writer json = {out, true};

    json_end(&json, ']');
    json_put_bool(&json, "complete", t->complete);
    json_put_u64(&json, "passed", t->tests - t->failed);
    json_put_u64(&json, "failed", t->failed);
    json_put_u64(&json, "requests", t->requests);
    json_put_seconds(&json, "took_seconds", (int64_t)t->took_us);
    json_end(&json, '}');
    evbuffer_add_printf(out, "\n");
}

/* --- Formats ---------------------------------------------------------------------------------- */

static void text_begin(unsigned tests, struct evbuffer *out)
{
    (void)tests, (void)out;
}

static const struct {
    void (*begin)(unsigned tests, struct evbuffer *out);
    void (*result)(const struct scenario_result *result, unsigned number, struct evbuffer *out);
    void (*end)(const struct scenario_totals *totals, struct evbuffer *out);
} formats[] = {[SCENARIO_TEXT] = {text_begin, text_result, text_end},
               [SCENARIO_TAP] = {tap_begin, tap_result, tap_end},
               [SCENARIO_JSON] = {json_begin_report, json_result, json_end_report}};

/* Writes the buffer to the file, and frees it. */
static void put_out(struct evbuffer *buffer, FILE *out)
{
    size_t size = evbuffer_get_length(buffer);

    if (size)
        fwrite(evbuffer_pullup(buffer, -1), 1, size, out);
    evbuffer_free(buffer);
    fflush(out);
}

static struct evbuffer *new_buffer(void)
{
    struct evbuffer *buffer = evbuffer_new();

    if (!buffer)
        memory_exhausted();
    return buffer;
}

void scenario_report_begin(enum scenario_format format, unsigned tests, FILE *out)
{
    struct evbuffer *buffer = new_buffer();

    formats[format].begin(tests, buffer);
    put_out(buffer, out);
}

void scenario_report(enum scenario_format format, const struct scenario_result *result,
                     unsigned number, FILE *out)
{
    struct evbuffer *buffer = new_buffer();

    formats[format].result(result, number, buffer);
    put_out(buffer, out);
}

void scenario_report_end(enum scenario_format format, const struct scenario_totals *totals,
                         FILE *out)
{
    struct evbuffer *buffer = new_buffer();

    formats[format].end(totals, buffer);
    put_out(buffer, out);
}
