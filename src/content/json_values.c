#include "content/json_values.h"

#include "base/macros.h"

struct json_reading {
    struct json_scanner scanner;
    struct json_values *values;
};

static void write_value(struct text *out, const struct scanned_value *value)
{
    bool marked = value->kind != SCANNED_TEXT || (value->text.n && value->text.p[0] == '=');

    if (marked)
        text_char(out, '=');
    if (value->kind == SCANNED_TRUE || value->kind == SCANNED_FALSE)
        text_put(out, value->kind == SCANNED_TRUE ? SLICE("true") : SLICE("false"));
    else
        text_put(out, value->text);
}

static void keep_value(struct json_scanner *scanner, unsigned path,
                       const struct scanned_value *value)
{
    struct json_values *v = CONTAINER_OF(scanner, struct json_reading, scanner)->values;

    if (value->kind == SCANNED_INTEGER)
        v->integers[path] = value->integer < 0 ? JSON_INTEGER_MAX : value->integer;
    if (value->kind == SCANNED_NULL || value->kind == SCANNED_OTHER)
        return;
    v->texts[path] = text_over(v->room[path], JSON_VALUE_MAX);
    write_value(&v->texts[path], value);
    if (value->cut)
        v->cut |= UINT32_C(1) << path;
    if (value->text.n && memchr(value->text.p, 0, value->text.n))
        v->ambiguous |= UINT32_C(1) << path;
}

bool json_values_read(struct json_values *values, const struct json_paths *paths,
                      struct slice document)
{
    char bytes[JSON_VALUE_MAX - 1]; /* and the mark */
    struct json_reading reading = {.values = values};

    json_values_clear(values);
    for (unsigned i = 0; i < paths->count; i++) {
        values->integers[i] = -1;
        values->texts[i] = text_over(NULL, 0);
    }
    json_scanner_begin(&reading.scanner, paths, keep_value, text_over(bytes, sizeof bytes));
    (void)json_scanner_read(&reading.scanner, document);
    if (json_scanner_end(&reading.scanner) == JSON_INVALID || !reading.scanner.is_object)
        return false;
    values->paths = paths;
    values->document = document;
    values->ambiguous |= reading.scanner.ambiguous;
    return true;
}

struct slice json_values_text(const struct json_values *values, const struct json_path *path)
{
    int at = values->paths ? json_paths_find(values->paths, path) : -1;

    if (at < 0 || values->ambiguous >> at & 1)
        return SLICE_NONE;
    return text_slice(&values->texts[at]);
}

static bool has_path(const struct json_values *values, uint32_t set, const struct json_path *path)
{
    int at = values->paths ? json_paths_find(values->paths, path) : -1;

    return at >= 0 && set >> at & 1;
}

bool json_values_ambiguous(const struct json_values *values, const struct json_path *path)
{
    return has_path(values, values->ambiguous, path);
}

bool json_values_cut(const struct json_values *values, const struct json_path *path)
{
    return has_path(values, values->cut, path);
}

/* ---- the whole text of a value --------------------------------------------------------------- */

struct piecewise {
    struct json_scanner scanner;
    void (*piece)(void *context, struct slice bytes);
    void *context;
};

static void pass_piece(struct json_scanner *scanner, struct slice bytes)
{
    struct piecewise *reading = CONTAINER_OF(scanner, struct piecewise, scanner);

    reading->piece(reading->context, bytes);
}

static void pass_end(struct json_scanner *scanner, unsigned path, const struct scanned_value *value)
{
    (void)path;
    pass_piece(scanner, value->text);
}

void json_values_pieces(const struct json_values *values, const struct json_path *path,
                        void (*piece)(void *context, struct slice bytes), void *context)
{
    char bytes[JSON_VALUE_MAX];
    const struct json_paths paths = {.count = 1, .paths = {*path}};
    struct piecewise reading = {.piece = piece, .context = context};

    json_scanner_begin(&reading.scanner, &paths, pass_end, text_over(bytes, sizeof bytes));
    reading.scanner.piece = pass_piece;
    (void)json_scanner_read(&reading.scanner, values->document);
    (void)json_scanner_end(&reading.scanner);
}

/* ---- integers -------------------------------------------------------------------------------- */

int64_t json_values_first(const struct json_values *values, const struct json_paths *wanted)
{
    int64_t first = -1;

    for (unsigned i = 0; values->paths && i < wanted->count; i++) {
        int at = json_paths_find(values->paths, &wanted->paths[i]);
        if (at < 0 || values->ambiguous >> at & 1)
            return -1;
        if (first < 0)
            first = values->integers[at];
    }
    return first;
}
