/* Content: paths, the JSON scanner against jansson on random documents, event streams, usages. */
#include <jansson.h>
#include <stdio.h>

#include "content/json_values.h"
#include "content/stream_usage.h"
#include "content/usage_reader.h"
#include "run_suite.h"

static uint64_t seed = 88172645463325252u;

static unsigned roll(unsigned below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (unsigned)((seed >> 16) % below);
}

/* ---- paths ----------------------------------------------------------------------------------- */

START_TEST(paths_are_names_joined_by_dots)
{
    static const struct {
        const char *text, *names; /* joined by | */
    } good[] = {{"model", "model"},
                {"usage.total_tokens", "usage|total_tokens"},
                {"a.\"b.c\"", "a|b.c"},
                {"\"a b\".c", "a b|c"},
                {"a.b.c.d.e.f.g.h", "a|b|c|d|e|f|g|h"}};
    static const char *const bad[] = {"",     ".a",     "a.", "a..b", "a.\"b",
                                      "\"\"", "\"a\"b", "é",  "a\n",  "a.b.c.d.e.f.g.h.i"};

    for (unsigned i = 0; i < COUNT_OF(good); i++) {
        struct json_path path;
        char bytes[256];
        struct text joined = text_over(bytes, sizeof bytes);
        ck_assert_ptr_null(json_path_parse(slice_of(good[i].text), &path));
        for (unsigned n = 0; n < path.count; n++) {
            if (n)
                text_char(&joined, '|');
            text_put(&joined, path.names[n]);
        }
        ck_assert(slice_equal(text_slice(&joined), slice_of(good[i].names)));
    }
    for (unsigned i = 0; i < COUNT_OF(bad); i++) {
        struct json_path path;
        ck_assert_msg(json_path_parse(slice_of(bad[i]), &path) != NULL, "%s", bad[i]);
    }
}
END_TEST

/* ---- the scanner ----------------------------------------------------------------------------- */

/* What the scanner reported, as text: "path kind integer text\n" for each value. */
struct scan {
    struct json_scanner scanner;
    char bytes[4096];
    struct text log;
};

static void note(struct json_scanner *scanner, unsigned path, const struct scanned_value *value)
{
    struct scan *scan = CONTAINER_OF(scanner, struct scan, scanner);
    char line[512];

    snprintf(line, sizeof line, "%u %d %lld %.*s%s\n", path, (int)value->kind,
             value->kind == SCANNED_INTEGER ? (long long)value->integer : 0LL,
             value->kind == SCANNED_INTEGER || value->kind == SCANNED_TEXT ? (int)value->text.n : 0,
             value->text.p, value->cut ? "..." : "");
    text_put(&scan->log, slice_of(line));
}

static struct json_paths paths_of(const char *const *texts, unsigned count)
{
    struct json_paths set = {0};

    for (unsigned i = 0; i < count; i++) {
        struct json_path path;
        ck_assert_ptr_null(json_path_parse(slice_of(texts[i]), &path));
        ck_assert_int_eq(json_paths_add(&set, &path), (int)i);
    }
    return set;
}

/* Scans `document` in pieces of `piece` bytes; 0: of random sizes. */
static enum json_scan scan_all(struct scan *scan, const struct json_paths *paths,
                               struct slice document, size_t piece)
{
    static char room[64];

    scan->log = text_over(scan->bytes, sizeof scan->bytes);
    json_scanner_begin(&scan->scanner, paths, note, text_over(room, sizeof room));
    while (document.n) {
        size_t n = piece ? piece : 1 + roll(9);
        n = n < document.n ? n : document.n;
        /* a block of exactly its size, so that a sanitizer finds reads past its end */
        char *copy = malloc(n);
        memcpy(copy, document.p, n);
        (void)json_scanner_read(&scan->scanner, (struct slice){copy, n});
        free(copy);
        document.p += n;
        document.n -= n;
    }
    return json_scanner_end(&scan->scanner);
}

static const char *const names[] = {"model", "usage.total", "a.b.c", "usage", "n", "s"};

static void expect(const char *document, enum json_scan result, uint32_t ambiguous,
                   const char *values)
{
    struct json_paths paths = paths_of(names, COUNT_OF(names));
    static struct scan scan;

    for (size_t piece = 1; piece <= strlen(document) + 1; piece++) {
        memset(&scan, 0, sizeof scan);
        ck_assert_msg(scan_all(&scan, &paths, slice_of(document), piece) == result, "%s", document);
        ck_assert_msg(slice_equal(text_slice(&scan.log), slice_of(values)), "%s: %.*s", document,
                      SLICE_ARG(text_slice(&scan.log)));
        ck_assert_msg(scan.scanner.ambiguous == ambiguous, "%s: %x", document,
                      scan.scanner.ambiguous);
    }
}

START_TEST(values_of_paths_are_found)
{
    expect("{\"model\": \"gpt-4\"}", JSON_COMPLETE, 0, "0 1 0 gpt-4\n");
    expect("{\"mod\\u0065l\":\"\\u00e9\\ud83d\\ude00\\n\"}", JSON_COMPLETE, 0, "0 1 0 é😀\n\n");
    expect(" {\"usage\" : {\"x\": [1,{\"total\":3}], \"total\":\t17 } }\r\n", JSON_COMPLETE, 0,
           "3 5 0 \n1 0 17 17\n");
    expect("{\"a\":{\"b\":{\"c\":true}}}", JSON_COMPLETE, 0, "2 2 0 \n");
    expect("{\"a\":[{\"b\":{\"c\":true}}],\"x\":{\"model\":1}}", JSON_COMPLETE, 0, "");
    expect("{\"n\":1.0,\"s\":null}", JSON_COMPLETE, 0, "4 5 0 \n5 4 0 \n");
    expect("{\"n\":-0,\"s\":false}", JSON_COMPLETE, 0, "4 5 0 \n5 3 0 \n");
    expect("{\"n\":999999999999999}", JSON_COMPLETE, 0, "4 0 999999999999999 999999999999999\n");
    expect("{\"n\":1000000000000000}", JSON_COMPLETE, 0, "4 0 -1 1000000000000000\n");
    expect("{\"n\":1e3,\"usage\":7}", JSON_COMPLETE, 0, "4 5 0 \n3 0 7 7\n");
    expect("{\"modelx\":1,\"mode\":2,\"\":3}", JSON_COMPLETE, 0, "");
    expect("5", JSON_COMPLETE, 0, "");
    expect("[{\"model\":1}]", JSON_COMPLETE, 0, "");
}
END_TEST

START_TEST(names_that_other_readers_may_confuse_are_ambiguous)
{
    expect("{\"model\":1,\"model\":2}", JSON_COMPLETE, 1, "0 0 1 1\n0 0 2 2\n");
    expect("{\"Model\":1}", JSON_COMPLETE, 1, "");
    expect("{\"model\":1,\"MODEL\":2}", JSON_COMPLETE, 1, "0 0 1 1\n");
    expect("{\"\\u017f\":1}", JSON_COMPLETE, 1 << 5, "");
    expect("{\"u\\u017Fage\":1}", JSON_COMPLETE, 1 << 1 | 1 << 3, "");
    expect("{\"a\":{\"b\":1},\"a\":{\"b\":{\"c\":5}}}", JSON_COMPLETE, 1 << 2, "2 0 5 5\n");
    expect("{\"x\":{\"model\":1,\"model\":2}}", JSON_COMPLETE, 0, "");
    expect("{\"a\":{\"model\":1},\"model\":2}", JSON_COMPLETE, 0, "0 0 2 2\n");
    expect("{\"model\\u0000\":1}", JSON_COMPLETE, 1, "");
    expect("{\"MODEL\\u0000\\u0000x\":1,\"s\":1}", JSON_COMPLETE, 1, "5 0 1 1\n");
    expect("{\"mode\\u0000l\":1,\"\\u0000model\":1}", JSON_COMPLETE, 0, "");
}
END_TEST

/* As Java's equalsIgnoreCase() compares them. */
START_TEST(letters_with_and_without_a_dot_are_alike)
{
    static const char *const documents[] = {"{\"\\u0130d\":1}", "{\"\\u0131d\":1}", "{\"ıD\":1}",
                                            "{\"ID\":1}"};
    static const char *const path[] = {"id"};
    struct json_paths paths = paths_of(path, 1);
    static struct scan scan;

    for (unsigned i = 0; i < COUNT_OF(documents); i++) {
        ck_assert(scan_all(&scan, &paths, slice_of(documents[i]), 1) == JSON_COMPLETE);
        ck_assert_msg(scan.scanner.ambiguous == 1, "%s", documents[i]);
    }
}
END_TEST

static void join(void *context, struct slice bytes)
{
    text_put(context, bytes);
}

START_TEST(long_values_are_read_in_pieces)
{
    static const char *const path[] = {"a.s"};
    struct json_paths paths = paths_of(path, 1);
    char bytes[2000], expected[2000], document[2100];

    for (int size = 250; size < 1500; size += size < 265 ? 1 : 97) {
        static struct json_values values;
        struct text whole = text_over(bytes, sizeof bytes);
        int n = snprintf(expected, sizeof expected, "é%0*d😀", size - 6, 7);
        snprintf(document, sizeof document, "{\"s\":1,\"a\":{\"s\":\"\\u00e9%.*s\\ud83d\\ude00\"}}",
                 n - 6, expected + 2);
        ck_assert(json_values_read(&values, &paths, slice_of(document)));
        ck_assert(json_values_cut(&values, &paths.paths[0]) == (size >= JSON_VALUE_MAX));
        json_values_pieces(&values, &paths.paths[0], join, &whole);
        ck_assert_msg(slice_equal(text_slice(&whole), slice_of(expected)), "%d", size);
    }
}
END_TEST

START_TEST(invalid_documents_are_refused)
{
    static const char *const bad[] = {"",
                                      " ",
                                      "{",
                                      "[",
                                      "{\"a\"}",
                                      "{\"a\":}",
                                      "{a:1}",
                                      "{\"a\":1,}",
                                      "[1,]",
                                      "[1 2]",
                                      "01",
                                      "1.",
                                      ".5",
                                      "1e",
                                      "1e+",
                                      "-",
                                      "+1",
                                      "tru",
                                      "True",
                                      "nulll",
                                      "\"a",
                                      "\"\\x\"",
                                      "\"\\u12g4\"",
                                      "\"\\ud800\"",
                                      "\"\\ud800x\"",
                                      "\"\\ud800\\n\"",
                                      "\"\\ud800\\u0041\"",
                                      "\"\\udc00\"",
                                      "\"\t\"",
                                      "\"\x80\"",
                                      "\"\xc0\x80\"",
                                      "\"\xed\xa0\x80\"",
                                      "\"\xf4\x90\x80\x80\"",
                                      "\"\xe2\x82\"",
                                      "{}{}",
                                      "{} x",
                                      "1 2",
                                      "{]",
                                      "[}",
                                      "\xef\xbb\xbf{}",
                                      "{\"a\":1 \"b\":2}"};

    for (unsigned i = 0; i < COUNT_OF(bad); i++)
        expect(bad[i], JSON_INVALID, 0, "");
}
END_TEST

START_TEST(depth_and_tokens_are_bounded)
{
    struct json_paths paths = paths_of(names, COUNT_OF(names));
    static struct scan scan;
    static char document[200000];

    memset(document, '[', JSON_DEPTH_MAX);
    memset(document + JSON_DEPTH_MAX, ']', JSON_DEPTH_MAX);
    ck_assert_int_eq(scan_all(&scan, &paths, (struct slice){document, 2 * JSON_DEPTH_MAX}, 7),
                     JSON_COMPLETE);
    memset(document, '[', JSON_DEPTH_MAX + 1);
    memset(document + JSON_DEPTH_MAX + 1, ']', JSON_DEPTH_MAX + 1);
    ck_assert_int_eq(scan_all(&scan, &paths, (struct slice){document, 2 * JSON_DEPTH_MAX + 2}, 7),
                     JSON_INVALID);
    memset(document, '1', JSON_TOKEN_MAX + 2);
    ck_assert_int_eq(scan_all(&scan, &paths, (struct slice){document, JSON_TOKEN_MAX + 2}, 999),
                     JSON_INVALID);
    ck_assert_int_eq(scan_all(&scan, &paths, (struct slice){document, JSON_TOKEN_MAX}, 999),
                     JSON_COMPLETE);
}
END_TEST

/* ---- random documents, against jansson --------------------------------------------------------- */

static void random_blank(struct text *out)
{
    while (roll(4) == 0)
        text_char(out, " \t\r\n"[roll(4)]);
}

static void random_string(struct text *out, const char *text)
{
    text_char(out, '"');
    for (; *text; text++) {
        if (roll(8) == 0) {
            char escape[8];
            snprintf(escape, sizeof escape, roll(2) ? "\\u%04x" : "\\u%04X", (unsigned)*text);
            text_put(out, slice_of(escape));
        } else {
            text_char(out, *text);
        }
    }
    text_char(out, '"');
}

static void random_value(struct text *out, unsigned depth)
{
    static const char *const plain[] = {"0",         "7",     "120",   "-3",   "1.5",
                                        "2e3",       "true",  "false", "null", "\"\"",
                                        "\"x\\ty\"", "\"é\"", "98765"};
    static const char *const members[] = {"model", "usage", "total", "a",  "b",
                                          "c",     "n",     "s",     "zz", "Usage"};
    unsigned which = roll(depth > 5 ? 2 : 6);

    random_blank(out);
    if (which < 2) {
        text_put(out, slice_of(plain[roll(COUNT_OF(plain))]));
    } else {
        bool object = which > 2;
        text_char(out, object ? '{' : '[');
        random_blank(out);
        for (unsigned i = 0, n = roll(5); i < n; i++) {
            if (i)
                text_char(out, ',');
            random_blank(out);
            if (object) {
                random_string(out, members[roll(COUNT_OF(members))]);
                random_blank(out);
                text_char(out, ':');
            }
            random_value(out, depth + 1);
        }
        text_char(out, object ? '}' : ']');
    }
    random_blank(out);
}

static const json_t *follow(const json_t *node, const struct json_path *path)
{
    for (unsigned i = 0; node && i < path->count; i++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", SLICE_ARG(path->names[i]));
        node = json_object_get(node, name);
    }
    return node;
}

struct last {
    struct json_scanner scanner;
    struct {
        bool seen;
        enum scanned_kind kind;
        int64_t integer;
        char text[64];
    } of[COUNT_OF(names)];
};

static void keep_last(struct json_scanner *scanner, unsigned path,
                      const struct scanned_value *value)
{
    struct last *last = CONTAINER_OF(scanner, struct last, scanner);

    last->of[path].seen = true;
    last->of[path].kind = value->kind;
    last->of[path].integer = value->integer;
    snprintf(last->of[path].text, sizeof last->of[path].text, "%.*s", SLICE_ARG(value->text));
}

static bool same_value(const struct last *last, unsigned i, const json_t *node)
{
    if (!node || !last->of[i].seen)
        return !node && !last->of[i].seen;
    switch (last->of[i].kind) {
    case SCANNED_INTEGER:
        return json_is_integer(node) && json_integer_value(node) == last->of[i].integer;
    case SCANNED_TEXT:
        return json_is_string(node) && !strcmp(json_string_value(node), last->of[i].text);
    case SCANNED_TRUE: return json_is_true(node);
    case SCANNED_FALSE: return json_is_false(node);
    case SCANNED_NULL: return json_is_null(node);
    case SCANNED_OTHER: break;
    }
    return json_is_object(node) || json_is_array(node) || json_is_real(node) ||
           (json_is_integer(node) && json_integer_value(node) <= 0);
}

static enum json_scan scan_pieces(struct json_scanner *scanner, struct slice document)
{
    while (document.n) {
        size_t n = 1 + roll(roll(2) ? 3 : 40);
        n = n < document.n ? n : document.n;
        (void)json_scanner_read(scanner, (struct slice){document.p, n});
        document.p += n;
        document.n -= n;
    }
    return json_scanner_end(scanner);
}

/* Values equal those of jansson, unless a name stands twice (jansson keeps the last one). Validity
 * is the same, also for documents with one changed byte. */
START_TEST(random_documents_are_read_as_jansson_reads_them)
{
    struct json_paths paths = paths_of(names, COUNT_OF(names));
    static char bytes[65536];

    for (unsigned round = 0; round < 30000; round++) {
        struct text document = text_over(bytes, sizeof bytes);
        char room[64];
        struct last last = {0};
        json_error_t error;

        random_value(&document, 0);
        if (document.n && round % 2)
            bytes[roll((unsigned)document.n)] = "{}[]\",:\\x1e\x80 "[roll(13)];
        json_t *tree = json_loadb(bytes, document.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
        json_scanner_begin(&last.scanner, &paths, keep_last, text_over(room, sizeof room));
        enum json_scan result = scan_pieces(&last.scanner, text_slice(&document));
        if (!tree && strstr(error.text, "overflow")) /* jansson's numbers have a range */
            continue;
        ck_assert_msg((result == JSON_COMPLETE) == (tree != NULL), "%.*s: %s",
                      SLICE_ARG(text_slice(&document)), error.text);
        for (unsigned i = 0; tree && i < paths.count; i++) {
            if (!(last.scanner.ambiguous >> i & 1))
                ck_assert_msg(same_value(&last, i, follow(tree, &paths.paths[i])), "%s in %.*s",
                              names[i], SLICE_ARG(text_slice(&document)));
        }
        json_decref(tree);
    }
}
END_TEST

/* ---- event streams ----------------------------------------------------------------------------- */

struct gathered {
    struct event_stream stream;
    char bytes[512];
    struct text text;
};

static void gather(struct event_stream *stream, struct slice part)
{
    text_put(&CONTAINER_OF(stream, struct gathered, stream)->text, part);
}

static void gather_end(struct event_stream *stream)
{
    text_char(&CONTAINER_OF(stream, struct gathered, stream)->text, '|');
}

START_TEST(events_are_split_at_any_boundary)
{
    static const struct {
        const char *stream, *events;
    } cases[] = {{"data: a\n\ndata:b\r\n\r\n", "a|b|"},
                 {"data:  a\rdata\rdata:\r\r", " a\n\n|"},
                 {": comment\nevent: x\nid: 1\n\ndata: c\n", "c|"},
                 {"dat: a\n\ndatax: b\n\nxdata: c\n\n", ""},
                 {"data: a\r\n: x\r\ndata: b\r\n\r\n\r\n\r\n", "a\nb|"},
                 {"data:{\"a\":1}\n\ndata: [DONE]\n\n", "{\"a\":1}|[DONE]|"}};

    for (unsigned i = 0; i < COUNT_OF(cases); i++) {
        size_t n = strlen(cases[i].stream);
        for (size_t piece = 1; piece <= n; piece++) {
            struct gathered g = {.stream = {.data = gather, .end = gather_end}};
            g.text = text_over(g.bytes, sizeof g.bytes);
            event_stream_begin(&g.stream);
            for (size_t at = 0; at < n; at += piece)
                event_stream_read(&g.stream, (struct slice){cases[i].stream + at,
                                                            n - at < piece ? n - at : piece});
            event_stream_end(&g.stream);
            ck_assert_msg(slice_equal(text_slice(&g.text), slice_of(cases[i].events)),
                          "%u by %zu: %.*s", i, piece, SLICE_ARG(text_slice(&g.text)));
        }
    }
}
END_TEST

/* ---- usages that weir asks for ----------------------------------------------------------------- */

START_TEST(requests_for_streams_get_the_option)
{
    static const char *const asked[] = {"{\"stream\":true}", " \n{ \"a\":{\"stream_options\":1},"
                                                             "\"stream\" : true }"};
    static const char *const stated[] = {
        "{}", "{\"stream\":false}", "{\"stream\":null,\"stream_options\":{}}",
        "{\"a\":{\"stream\":true}}",
        "{\"stream_options\":{\"include_usage\":true},\"stream\":true}"};
    static const char *const unsure[] = {
        "",
        "{\"stream\":\"true\"}",
        "{\"stream\":1}",
        "[{\"stream\":true}]",
        "{\"stream\":true",
        "{\"stream\":true}}",
        "{\"stream\":true,\"stream\":true}",
        "{\"stream\":true,\"Stream\":true}",
        "{\"stream\":true,\"STREAM_OPTIONS\":{}}",
        "{\"stream\":true,\"stream_options\":null}",
        "{\"stream\":true,\"stream\\u005foptions\":{}}",
        "{\"stream_options\":{\"include_usage\":false},\"stream\":true}",
        "{\"stream_options\":{\"include_usage\":true,\"include_usage\":false},\"stream\":true}",
        "{\"stream_options\":{\"include_usage\":1},\"stream\":true}",
        "\xef\xbb\xbf{\"stream\":true}"};

    size_t place;

    for (unsigned i = 0; i < COUNT_OF(asked); i++) {
        ck_assert_int_eq(stream_usage_of(slice_of(asked[i]), &place), STREAM_USAGE_UNASKED);
        ck_assert_msg(asked[i][place - 1] == '{', "%s: %zu", asked[i], place);
    }
    for (unsigned i = 0; i < COUNT_OF(stated); i++)
        ck_assert_msg(stream_usage_of(slice_of(stated[i]), &place) == STREAM_USAGE_STATED, "%s",
                      stated[i]);
    for (unsigned i = 0; i < COUNT_OF(unsure); i++)
        ck_assert_msg(stream_usage_of(slice_of(unsure[i]), &place) == STREAM_USAGE_UNSURE, "%s",
                      unsure[i]);
}
END_TEST

/* Appends what the filter sends for the stream, read in pieces of `piece` bytes. The header comes
 * before the first piece. */
static void filter_stream(const char *stream, size_t piece, struct text *out)
{
    struct stream_usage_filter *filter = malloc(sizeof *filter);
    size_t n = strlen(stream);

    stream_usage_filter_begin(filter);
    stream_usage_filter_read(filter, SLICE_NONE, false, out);
    for (size_t at = 0; at < n; at += piece) {
        struct slice part = {stream + at, n - at < piece ? n - at : piece};
        stream_usage_filter_read(filter, part, at + part.n == n, out);
    }
    free(filter);
}

START_TEST(only_the_event_with_the_usage_is_removed)
{
#define CHOICE "data: {\"id\":1,\"choices\":[{\"delta\":{\"content\":\"x\"}}],\"usage\":null}\n\n"
#define USAGE  "data: {\"id\":1,\"choices\" : [ ],\"usage\":{\"total_tokens\":30}}\n\n"
    static const struct {
        const char *stream, *sent;
    } cases[] = {
        {CHOICE USAGE "data: [DONE]\n\n", CHOICE "data: [DONE]\n\n"},
        {USAGE CHOICE, CHOICE},
        {"id: 5\nevent: x\n" USAGE CHOICE, CHOICE},
        {"data: {\"choices\":[],\r\ndata: \"usage\":{}}\r\n\r\ndata: [DONE]\r\n\r\n",
         "data: [DONE]\r\n\r\n"},
        {"data: a\r\rdata: {\"choices\":[],\"usage\":{}}\r\rdata: b\r\r", "data: a\r\rdata: b\r\r"},
        {"data: {\"choices\":[],\"usage\":null}\n\n", NULL},
        {"data: {\"choices\":[],\"usage\":5}\n\n", NULL},
        {"data: {\"usage\":{}}\n\n", NULL},
        {"data: {\"choices\":[],\"choices\":[1],\"usage\":{}}\n\n", NULL},
        {": \"choices\":[] \"usage\":{}\n\ndata: x\n\n", NULL},
        {"data: {\"choices\":[],\"usage\":{}}\n", NULL}, /* cut off */
        {"\n\n\ndata: [DONE]", NULL}};

    for (unsigned i = 0; i < COUNT_OF(cases); i++) {
        const char *sent = cases[i].sent ? cases[i].sent : cases[i].stream;
        for (size_t piece = 1; piece <= strlen(cases[i].stream); piece++) {
            char bytes[4096];
            struct text out = text_over(bytes, sizeof bytes);
            filter_stream(cases[i].stream, piece, &out);
            ck_assert_msg(slice_equal(text_slice(&out), slice_of(sent)), "%u by %zu: %.*s", i,
                          piece, SLICE_ARG(text_slice(&out)));
        }
    }
}
END_TEST

/* Events that cannot be the one leave at once; a long one too, in spite of its beginning. */
START_TEST(events_are_not_held_without_need)
{
    static const char begun[] = "data: {\"choices\":[{\"delta\":";
    static char long_event[3 * STREAM_USAGE_HELD_MAX], bytes[4 * STREAM_USAGE_HELD_MAX];
    struct stream_usage_filter *filter = malloc(sizeof *filter);
    struct text out = text_over(bytes, sizeof bytes);

    stream_usage_filter_begin(filter);
    stream_usage_filter_read(filter, slice_of(begun), false, &out);
    ck_assert_uint_eq(out.n, strlen(begun));
    free(filter);
    memset(long_event, 'x', sizeof long_event - 1);
    memcpy(long_event, "data: ", 6);
    for (size_t piece = 1000; piece < sizeof long_event; piece += 7000) {
        out = text_over(bytes, sizeof bytes);
        filter_stream(long_event, piece, &out);
        ck_assert(slice_equal(text_slice(&out), slice_of(long_event)));
    }
}
END_TEST

/* An event leaves with the piece that ends it, by whatever ends its lines. */
START_TEST(events_are_not_delayed)
{
    static const char *const streams[] = {"data: {\"id\":1}\n\n", "data: {\"id\":1}\r\r",
                                          "data: {\"id\":1}\r\n\r\n", ": ping\r\n\r\n",
                                          "data: [DONE]\r\n\r\n"};
    struct stream_usage_filter *filter = malloc(sizeof *filter);
    char bytes[256];

    for (unsigned i = 0; i < COUNT_OF(streams); i++) {
        stream_usage_filter_begin(filter);
        for (unsigned piece = 0; piece < 3; piece++) {
            struct text out = text_over(bytes, sizeof bytes);
            stream_usage_filter_read(filter, slice_of(streams[i]), false, &out);
            ck_assert_msg(slice_equal(text_slice(&out), slice_of(streams[i])), "%u: %u: %.*s", i,
                          piece, SLICE_ARG(text_slice(&out)));
        }
    }
    free(filter);
}
END_TEST

/* ---- usages ------------------------------------------------------------------------------------ */

/* Returns the usage in the content, read in pieces of `piece` bytes. */
static int64_t usage_in(const struct usage *usage, enum usage_type type, const char *content,
                        bool whole, size_t piece, enum usage_result *result)
{
    struct json_paths paths = {0};
    size_t n = strlen(content);

    for (unsigned i = 0; i < usage->part_count; i++)
        ck_assert_int_ge(json_paths_add(&paths, &usage->parts[i].path), 0);
    struct usage_reader *reader = malloc(usage_reader_size(&paths));
    usage_reader_begin(reader, &paths, type, usage->objects_in_array);
    for (size_t at = 0; at < n; at += piece)
        usage_reader_read(reader, (struct slice){content + at, n - at < piece ? n - at : piece});
    *result = usage_reader_end(reader, whole);
    int64_t sum = usage_reader_sum(reader, usage);
    free(reader);
    return sum;
}

static void expect_usage(const struct usage *usage, enum usage_type type, const char *content,
                         enum usage_result result, int64_t sum)
{
    for (size_t piece = 1; piece <= strlen(content); piece++) {
        enum usage_result got;
        int64_t units = usage_in(usage, type, content, result != USAGE_INCOMPLETE, piece, &got);
        ck_assert_msg(got == result && units == sum, "%s by %zu: %d, %lld", content, piece,
                      (int)got, (long long)units);
    }
}

START_TEST(openai_states_its_usage)
{
    struct usage usage;

    usage_of_format(&usage, USAGE_OPENAI, NULL);
    expect_usage(&usage, USAGE_TYPE_JSON,
                 "\xef\xbb\xbf{\"choices\":[{\"usage\":{\"total_tokens\":1}}],\"usage\":{"
                 "\"prompt_tokens\":9,\"completion_tokens\":12,\"total_tokens\":21}}",
                 USAGE_READ, 21);
    expect_usage(&usage, USAGE_TYPE_EVENTS,
                 "data: {\"usage\":null}\n\ndata: {\"choices\":[],\"usage\":{\"total_tokens\":30}}"
                 "\n\ndata: [DONE]\n\n",
                 USAGE_READ, 30);
    expect_usage(&usage, USAGE_TYPE_EVENTS,
                 "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{"
                 "\"usage\":{\"input_tokens\":5,\"total_tokens\":44}}}\n\n",
                 USAGE_READ, 44);
    expect_usage(&usage, USAGE_TYPE_JSON, "{\"usage\":{\"total_tokens\":0}}", USAGE_READ, 0);
    expect_usage(&usage, USAGE_TYPE_JSON, "{\"usage\":{}}", USAGE_MISSING, -1);
    expect_usage(&usage, USAGE_TYPE_JSON, "{\"usage\":{\"total_tokens\":5}} x", USAGE_INVALID, 5);
    expect_usage(&usage, USAGE_TYPE_JSON, "{\"usage\":{\"total_tokens\":5},", USAGE_INCOMPLETE, 5);
    expect_usage(&usage, USAGE_TYPE_JSON, "{\"usage\":{\"total_tokens\":1000000000000000}}",
                 USAGE_INVALID, -1);
    expect_usage(&usage, USAGE_TYPE_EVENTS, "data: {\"usage\":{\"total_tokens\":5}} x\n\n",
                 USAGE_MISSING, -1);
}
END_TEST

/* A client whose text the API repeats could otherwise spare itself the cost. */
START_TEST(unpaired_surrogates_do_not_hide_a_usage)
{
    static const char *const texts[] = {"\\ud800",     "\\ud800x",          "\\ud800\\n",
                                        "\\udc00",     "\\ud800\\u0041",    "\\ud800\\ud800\\udc00",
                                        "\\ud800\\\"", "\\udc00\\udbff\\\\"};
    struct usage usage;
    char content[200];

    usage_of_format(&usage, USAGE_OPENAI, NULL);
    for (unsigned i = 0; i < COUNT_OF(texts); i++) {
        snprintf(content, sizeof content, "{\"%s\":\"%s\",\"usage\":{\"total_tokens\":7}}",
                 texts[i], texts[i]);
        expect_usage(&usage, USAGE_TYPE_JSON, content, USAGE_READ, 7);
    }
    expect_usage(&usage, USAGE_TYPE_JSON, "{\"a\":\"\\ud800\\x\",\"usage\":{\"total_tokens\":7}}",
                 USAGE_INVALID, -1);
}
END_TEST

START_TEST(weights_count_cached_input_once)
{
    static const struct usage_weights weights = {1000, 5000, 100, 1250};
    struct usage usage;

    usage_of_format(&usage, USAGE_OPENAI, &weights);
    expect_usage(&usage, USAGE_TYPE_JSON,
                 "{\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":10,\"total_tokens\":110,"
                 "\"prompt_tokens_details\":{\"cached_tokens\":55}}}",
                 USAGE_READ, 101); /* 45 + 5.5 + 50, rounded up */
    usage_of_format(&usage, USAGE_GEMINI, &weights);
    expect_usage(&usage, USAGE_TYPE_JSON,
                 "[{\"usageMetadata\":{\"promptTokenCount\":4,\"candidatesTokenCount\":1}},"
                 "{\"usageMetadata\":{\"promptTokenCount\":4,\"candidatesTokenCount\":3,"
                 "\"toolUsePromptTokenCount\":7}}]",
                 USAGE_READ, 26);
}
END_TEST

START_TEST(later_numbers_of_anthropic_replace_earlier_ones)
{
    static const struct usage_weights weights = {1000, 1000, 100, 1250};
    static const char stream[] =
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{"
        "\"input_tokens\":25,\"cache_read_input_tokens\":11,\"output_tokens\":1}}}\n\n"
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":15}}"
        "\n\n";
    struct usage usage;

    usage_of_format(&usage, USAGE_ANTHROPIC, NULL);
    expect_usage(&usage, USAGE_TYPE_EVENTS, stream, USAGE_READ, 40);
    expect_usage(&usage, USAGE_TYPE_JSON, "{\"usage\":{\"input_tokens\":3,\"output_tokens\":4}}",
                 USAGE_READ, 7);
    usage_of_format(&usage, USAGE_ANTHROPIC, &weights);
    expect_usage(&usage, USAGE_TYPE_EVENTS, stream, USAGE_READ, 42);
}
END_TEST

START_TEST(gemini_counts_the_last_total)
{
    struct usage usage;

    usage_of_format(&usage, USAGE_GEMINI, NULL);
    expect_usage(&usage, USAGE_TYPE_JSON,
                 "[{\"usageMetadata\":{\"totalTokenCount\":4}}\n,\r\n{\"usageMetadata\":"
                 "{\"totalTokenCount\":9}}]",
                 USAGE_READ, 9);
    expect_usage(&usage, USAGE_TYPE_EVENTS,
                 "data: {\"usageMetadata\":{\"totalTokenCount\":4}}\r\n\r\ndata: {"
                 "\"usageMetadata\":{\"totalTokenCount\":12}}\r\n\r\n",
                 USAGE_READ, 12);
}
END_TEST

START_TEST(content_types_select_how_content_is_read)
{
    ck_assert_int_eq(usage_type_of(SLICE("application/json")), USAGE_TYPE_JSON);
    ck_assert_int_eq(usage_type_of(SLICE("Application/JSON; charset=utf-8")), USAGE_TYPE_JSON);
    ck_assert_int_eq(usage_type_of(SLICE("application/problem+json")), USAGE_TYPE_JSON);
    ck_assert_int_eq(usage_type_of(SLICE("text/event-stream;x=y")), USAGE_TYPE_EVENTS);
    ck_assert_int_eq(usage_type_of(SLICE("text/plain")), USAGE_TYPE_NONE);
    ck_assert_int_eq(usage_type_of(SLICE_NONE), USAGE_TYPE_NONE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("content");
    TCase *tests = tcase_create("content");

    tcase_add_test(tests, paths_are_names_joined_by_dots);
    tcase_add_test(tests, values_of_paths_are_found);
    tcase_add_test(tests, names_that_other_readers_may_confuse_are_ambiguous);
    tcase_add_test(tests, letters_with_and_without_a_dot_are_alike);
    tcase_add_test(tests, long_values_are_read_in_pieces);
    tcase_add_test(tests, invalid_documents_are_refused);
    tcase_add_test(tests, depth_and_tokens_are_bounded);
    tcase_add_test(tests, random_documents_are_read_as_jansson_reads_them);
    tcase_add_test(tests, events_are_split_at_any_boundary);
    tcase_add_test(tests, openai_states_its_usage);
    tcase_add_test(tests, unpaired_surrogates_do_not_hide_a_usage);
    tcase_add_test(tests, weights_count_cached_input_once);
    tcase_add_test(tests, later_numbers_of_anthropic_replace_earlier_ones);
    tcase_add_test(tests, gemini_counts_the_last_total);
    tcase_add_test(tests, content_types_select_how_content_is_read);
    tcase_add_test(tests, requests_for_streams_get_the_option);
    tcase_add_test(tests, only_the_event_with_the_usage_is_removed);
    tcase_add_test(tests, events_are_not_held_without_need);
    tcase_add_test(tests, events_are_not_delayed);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
