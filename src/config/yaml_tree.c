#include "config/yaml_tree.h"

#include <yaml.h>

#include "base/memory.h"
#include "config/lookalike.h"

struct yaml_reading {
    yaml_parser_t parser;
    yaml_event_t event; /* the current one */
    struct arena *arena;
    struct report *report;
    struct slice bytes;
    struct node *root;          /* the result */
    char room[TREE_SCALAR_MAX]; /* for a text with environment variables */
    unsigned nodes;
    bool stopped; /* a fatal error was reported */
};

static struct position position_of_mark(yaml_mark_t mark)
{
    return (struct position){(unsigned)mark.line + 1, (unsigned)mark.column + 1};
}

/* libyaml reports only the offset of invalid UTF-8, without line and column. Columns count
 * characters, so continuation bytes (10xxxxxx) do not count. */
static struct position position_of_offset(struct slice bytes, size_t offset)
{
    struct position position = {1, 1};
    for (size_t i = 0; i < offset && i < bytes.n; i++) {
        bool line_end = bytes.p[i] == '\n';
        position.line += line_end;
        position.column = line_end ? 1 : position.column + ((bytes.p[i] & 0xc0) != 0x80);
    }
    return position;
}

static struct slice line_at(struct slice bytes, size_t line)
{
    const char *p = bytes.p, *end = bytes.p + bytes.n;
    while (line && p < end)
        line -= *p++ == '\n';
    const char *lf = p < end ? memchr(p, '\n', (size_t)(end - p)) : NULL;
    return (struct slice){p, (size_t)((lf ? lf : end) - p)};
}

/* Returns true if the line is indented with a tab; libyaml's message does not explain that. */
static bool has_tab_indent(struct slice line)
{
    size_t blanks = 0;
    while (blanks < line.n && line.p[blanks] == ' ')
        blanks++;
    return blanks < line.n && line.p[blanks] == '\t';
}

/* Returns true after reporting an unquoted text with an invisible character or a lookalike. */
static bool report_lookalike(struct yaml_reading *r, const yaml_event_t *event, struct slice text)
{
    const struct lookalike *found =
        event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE ? find_lookalike(text) : NULL;

    if (!found || (!found->blank && !slice_starts_with(text, slice_of(found->utf8))))
        return false;
    report_mistake(r->report, position_of_mark(event->start_mark), "%s has %s", QUOTE(text),
                   found->name);
    return true;
}

/* Returns the usual cause of a libyaml error. */
static const char *yaml_remedy(const char *problem)
{
    if (strstr(problem, "did not find expected ','"))
        return "; within { } and [ ], separate values by commas, close what is open, and quote a "
               "value that holds one of { } [ ] ,";
    if (strstr(problem, "did not find expected alphabetic"))
        return "; a value that begins with * or & takes quotes";
    if (strstr(problem, "cannot start any token"))
        return "; a value that begins with @, % or ` takes quotes";
    if (strstr(problem, "did not find expected node content"))
        return "; a value such as \"[::1]:8080\" or \"::1\" takes quotes";
    if (strstr(problem, "unexpected end of stream"))
        return "; the quote that opens there is not closed";
    if (strstr(problem, "mapping values are not allowed"))
        return "; indent the keys of a map alike, and quote a value that holds \": \"";
    if (strstr(problem, "found unexpected ':'"))
        return "; write a space after the colon of a key, and quote a value that holds a colon";
    if (strstr(problem, "did not find expected key"))
        return "; indent the keys of a map alike";
    return "";
}

static void report_syntax(struct yaml_reading *r)
{
    const yaml_parser_t *p = &r->parser;
    const char *problem = p->problem ? p->problem : "no more memory";
    struct position position = position_of_mark(p->problem_mark);
    struct slice line = line_at(r->bytes, p->problem_mark.line);
    const struct lookalike *lookalike = find_lookalike(line);

    if (p->error == YAML_READER_ERROR && strstr(problem, "control characters"))
        report_mistake(r->report, position_of_offset(r->bytes, p->problem_offset),
                       "holds a control character; remove it");
    else if (p->error == YAML_READER_ERROR)
        report_mistake(r->report, position_of_offset(r->bytes, p->problem_offset),
                       "not UTF-8 text: %s; save the file as UTF-8", problem);
    else if (lookalike)
        report_mistake(r->report, position, "not valid YAML: the line has %s", lookalike->name);
    else if (p->error == YAML_SCANNER_ERROR && has_tab_indent(line))
        report_mistake(r->report, position, "not valid YAML: indented with a tab; use spaces");
    else if (p->context)
        report_mistake(r->report, position, "not valid YAML: %s (%s, line %u)%s", problem,
                       p->context, position_of_mark(p->context_mark).line, yaml_remedy(problem));
    else
        report_mistake(r->report, position, "not valid YAML: %s%s", problem, yaml_remedy(problem));
}

/* Stores the next event, valid until the next call. Returns false, with an empty event, after a
 * syntax error was reported or reading stopped. */
static bool next_event(struct yaml_reading *r, yaml_event_t *event)
{
    yaml_event_delete(&r->event);
    bool good = !r->stopped && yaml_parser_parse(&r->parser, &r->event);
    if (r->parser.error == YAML_MEMORY_ERROR)
        memory_exhausted();
    if (!good && !r->stopped)
        report_syntax(r);
    r->stopped |= !good;
    *event = r->event;
    return good;
}

static struct node *node_new(struct yaml_reading *r, enum node_kind kind, struct position position)
{
    struct node *node = arena_zeroed(r->arena, 1, sizeof *node);
    node->kind = kind;
    node->position = position;
    if (++r->nodes > TREE_NODES_MAX && !r->stopped) {
        report_mistake(r->report, position, "the policy has more than %d values", TREE_NODES_MAX);
        r->stopped = true;
    }
    return node;
}

static void append_child(struct node *parent, struct node *child)
{
    child->parent = parent;
    child->index = parent->count++;
    *(parent->last ? &parent->last->next : &parent->first) = child;
    parent->last = child;
}

static bool name_byte(char c)
{
    return ascii_is_alnum(c) || c == '_';
}

/* Returns the value of the `${NAME}` at the start of `text`, whose length is stored in `*taken`. */
static const char *environment(struct yaml_reading *r, struct position position, struct slice text,
                               size_t *taken)
{
    char name[128];
    size_t n = 2;

    while (n < text.n && name_byte(text.p[n]))
        n++;
    if (n > 2 && n < text.n && text.p[n] != '}' && memchr(text.p + n, '}', text.n - n)) {
        report_mistake(r->report, position,
                       "\"${%.*s\" goes on after the name of the variable; expected \"}\": a name "
                       "has letters, digits and _, and a default value is not supported",
                       (int)n - 2, text.p + 2);
        return NULL;
    }
    if (n == text.n || text.p[n] != '}' || n == 2 || n - 2 >= sizeof name) {
        report_mistake(r->report, position,
                       "\"${\" without a name and \"}\"; write ${NAME} for the environment's "
                       "value, or $${ for "
                       "\"${\" itself");
        return NULL;
    }
    memcpy(name, text.p + 2, n - 2);
    name[n - 2] = 0;
    *taken = n + 1;
    const char *value = getenv(name);
    if (!value)
        report_mistake(r->report, position, "the environment has no variable %s", name);
    return value;
}

/* Replaces environment variables in `text`. Returns false after reporting an error. */
static bool substitute(struct yaml_reading *r, struct position position, struct slice text,
                       struct slice *result)
{
    struct text out = text_over(r->room, sizeof r->room);
    bool good = true;

    for (size_t i = 0; i < text.n && good;) {
        struct slice rest = {text.p + i, text.n - i};
        size_t taken = 1;
        if (slice_starts_with(rest, SLICE("$${"))) {
            text_literal(&out, "${");
            taken = 3;
        } else if (slice_starts_with(rest, SLICE("${"))) {
            const char *value = environment(r, position, rest, &taken);
            good = value != NULL;
            text_put(&out, slice_of(value));
        } else {
            text_char(&out, rest.p[0]);
        }
        i += taken;
    }
    if (good && out.failed)
        report_mistake(r->report, position, "longer than %d bytes", TREE_SCALAR_MAX);
    good = good && !out.failed;
    if (good)
        *result = (struct slice){arena_text(r->arena, text_slice(&out)), out.n};
    return good;
}

/* Checks a key or value for its size and for NUL bytes. */
static bool scalar_fits(struct yaml_reading *r, const yaml_event_t *event)
{
    struct position position = position_of_mark(event->start_mark);
    size_t size = event->data.scalar.length;

    if (size > TREE_SCALAR_MAX)
        report_mistake(r->report, position, "longer than %d bytes", TREE_SCALAR_MAX);
    else if (memchr(event->data.scalar.value, 0, size))
        report_mistake(r->report, position, "holds a NUL byte");
    else
        return true;
    return false;
}

static struct slice scalar_text(const yaml_event_t *event)
{
    return (struct slice){(const char *)event->data.scalar.value, event->data.scalar.length};
}

static bool is_null(const yaml_event_t *event)
{
    struct slice text = scalar_text(event);
    return event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (text.n == 0 || slice_equal(text, SLICE("~")) || slice_equal(text, SLICE("null")));
}

/* Stores the text of a key or value in `*value`. Returns false after reporting an error. */
static bool scalar_value(struct yaml_reading *r, const yaml_event_t *event, struct slice *value)
{
    struct slice text = scalar_text(event);

    if (!scalar_fits(r, event) || report_lookalike(r, event, text))
        return false;
    if (text.n && memmem(text.p, text.n, "${", 2))
        return substitute(r, position_of_mark(event->start_mark), text, value);
    *value = (struct slice){arena_text(r->arena, text), text.n};
    return true;
}

/* Warns of "$NAME", which is no variable. */
static void check_variable(struct yaml_reading *r, struct position position, struct slice text)
{
    size_t n = 1;
    while (n < text.n && name_byte(text.p[n]) && !(text.p[n] >= 'a' && text.p[n] <= 'z'))
        n++;
    if (n < 3 || n != text.n || text.p[0] != '$')
        return;
    char line[256];
    snprintf(line, sizeof line,
             "%s is not replaced; write ${%.*s} for the value of the environment variable",
             QUOTE(text), (int)text.n - 1 < 64 ? (int)text.n - 1 : 64, text.p + 1);
    report_line_add(r->report, true, position, line);
}

static struct node *read_scalar(struct yaml_reading *r, const yaml_event_t *event)
{
    struct node *node = node_new(r, NODE_SCALAR, position_of_mark(event->start_mark));

    node->text = SLICE("");
    node->null = is_null(event);
    node->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    node->broken = !scalar_value(r, event, &node->text);
    node->substituted = memmem(scalar_text(event).p, scalar_text(event).n, "${", 2) != NULL;
    check_variable(r, node->position, scalar_text(event));
    return node;
}

static void refuse_extras(struct yaml_reading *r, const yaml_event_t *event, const void *anchor,
                          const void *tag)
{
    struct position position = position_of_mark(event->start_mark);
    if (anchor)
        report_mistake(r->report, position,
                       "YAML anchors are not supported; write the value itself");
    if (tag)
        report_mistake(r->report, position, "YAML tags are not supported; write the value alone");
}

static struct node *read_node(struct yaml_reading *r, yaml_event_t *event, unsigned depth);

static void read_list(struct yaml_reading *r, struct node *list, unsigned depth)
{
    yaml_event_t event;
    while (next_event(r, &event) && event.type != YAML_SEQUENCE_END_EVENT)
        append_child(list, read_node(r, &event, depth));
}

/* Reads a key and its value. `event` is the key's. */
static void read_pair(struct yaml_reading *r, struct node *map, yaml_event_t *event, unsigned depth)
{
    struct position key_position = position_of_mark(event->start_mark);
    struct slice key = SLICE_NONE;
    yaml_event_t value_event;

    if (event->type != YAML_SCALAR_EVENT) {
        report_mistake(r->report, key_position,
                       "a key must be a single word, not a map, list or alias%s",
                       event->type == YAML_SEQUENCE_START_EVENT
                           ? "; a value such as \"[::1]:8080\" takes quotes"
                           : "");
        read_node(r, event, depth);
    } else {
        refuse_extras(r, event, event->data.scalar.anchor, event->data.scalar.tag);
        (void)scalar_value(r, event, &key);
    }
    if (!next_event(r, &value_event))
        return;
    struct node *value = read_node(r, &value_event, depth);
    if (!key.p)
        return;
    value->key = key;
    value->key_position = key_position;
    append_child(map, value);
}

static int by_key(const void *left, const void *right)
{
    const struct node *a = *(struct node *const *)left, *b = *(struct node *const *)right;
    size_t shorter = a->key.n < b->key.n ? a->key.n : b->key.n;
    int order = memcmp(a->key.p, b->key.p, shorter);
    if (order == 0 && a->key.n != b->key.n)
        return a->key.n < b->key.n ? -1 : 1;
    return order ? order : (a->index > b->index) - (a->index < b->index);
}

static void report_duplicate(struct yaml_reading *r, const struct node *again,
                             const struct node *first)
{
    char path[256];
    struct text t = text_over(path, sizeof path - 3);
    node_path(again->parent, &t);
    if (t.n)
        text_literal(&t, ": ");
    path[t.n] = 0;
    report_mistake(r->report, again->key_position, "%s%s is already defined at line %u", path,
                   QUOTE(again->key), first->key_position.line);
}

/* Reports duplicate keys and marks the second as broken. The map must already be in the tree. */
static void find_duplicates(struct yaml_reading *r, const struct node *map)
{
    if (map->count < 2)
        return;
    struct node **sorted = arena_zeroed(r->arena, map->count, sizeof *sorted);
    unsigned n = 0;
    for (struct node *child = map->first; child; child = child->next)
        sorted[n++] = child;
    qsort(sorted, n, sizeof *sorted, by_key);
    for (unsigned i = 1, first = 0; i < n; i++) {
        if (!slice_equal(sorted[i]->key, sorted[first]->key)) {
            first = i;
            continue;
        }
        sorted[i]->broken = true;
        report_duplicate(r, sorted[i], sorted[first]);
    }
}

static void find_all_duplicates(struct yaml_reading *r, const struct node *node)
{
    if (node->kind == NODE_MAP)
        find_duplicates(r, node);
    for (const struct node *child = node->first; child; child = child->next)
        find_all_duplicates(r, child);
}

static void read_map(struct yaml_reading *r, struct node *map, unsigned depth)
{
    yaml_event_t event;
    while (next_event(r, &event) && event.type != YAML_MAPPING_END_EVENT)
        read_pair(r, map, &event, depth);
}

static bool too_deep(struct yaml_reading *r, struct position position, unsigned depth)
{
    if (depth < TREE_DEPTH_MAX)
        return false;
    report_mistake(r->report, position, "nested deeper than %d levels", TREE_DEPTH_MAX);
    r->stopped = true;
    return true;
}

/* Reads the node that begins with `event`. */
static struct node *read_node(struct yaml_reading *r, yaml_event_t *event, unsigned depth)
{
    struct position position = position_of_mark(event->start_mark);
    struct node *node;

    switch (event->type) {
    case YAML_SCALAR_EVENT:
        refuse_extras(r, event, event->data.scalar.anchor, event->data.scalar.tag);
        node = read_scalar(r, event);
        break;
    case YAML_SEQUENCE_START_EVENT:
        refuse_extras(r, event, event->data.sequence_start.anchor, event->data.sequence_start.tag);
        node = node_new(r, NODE_LIST, position);
        if (!too_deep(r, position, depth))
            read_list(r, node, depth + 1);
        break;
    case YAML_MAPPING_START_EVENT:
        refuse_extras(r, event, event->data.mapping_start.anchor, event->data.mapping_start.tag);
        node = node_new(r, NODE_MAP, position);
        if (!too_deep(r, position, depth))
            read_map(r, node, depth + 1);
        break;
    default:
        report_mistake(r->report, position,
                       "YAML aliases are not supported; write the value itself");
        node = node_new(r, NODE_SCALAR, position);
        node->broken = true;
    }
    return node;
}

static struct node *read_stream(struct yaml_reading *r)
{
    struct node *root = NULL;
    yaml_event_t event;

    while (next_event(r, &event) && event.type != YAML_STREAM_END_EVENT) {
        if (event.type == YAML_DOCUMENT_START_EVENT && root) {
            report_mistake(r->report, position_of_mark(event.start_mark),
                           "a second YAML document; a policy is one document");
            break;
        }
        if (event.type == YAML_SCALAR_EVENT || event.type == YAML_SEQUENCE_START_EVENT ||
            event.type == YAML_MAPPING_START_EVENT || event.type == YAML_ALIAS_EVENT)
            root = read_node(r, &event, 0);
    }
    return root;
}

static void read_tree(void *reading)
{
    struct yaml_reading *r = reading;

    if (!yaml_parser_initialize(&r->parser))
        memory_exhausted();
    yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r->parser, (const unsigned char *)r->bytes.p, r->bytes.n);
    r->root = read_stream(r);
    if (!r->root || r->stopped) {
        r->root = node_new(r, NODE_MAP, (struct position){1, 1});
        r->root->broken = r->stopped;
    }
    find_all_duplicates(r, r->root);
}

const struct node *tree_read(struct arena *arena, struct slice bytes, struct report *report)
{
    struct yaml_reading r = {.arena = arena, .report = report, .bytes = slice_after_bom(bytes)};
    bool good = memory_try(read_tree, &r);
    yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    if (!good)
        memory_exhausted();
    return r.root;
}

const struct node *node_find(const struct node *map, const char *key)
{
    struct slice wanted = slice_of(key);
    for (const struct node *child = map ? map->first : NULL; child; child = child->next)
        if (slice_equal(child->key, wanted))
            return child;
    return NULL;
}

void node_path(const struct node *node, struct text *out)
{
    if (!node || !node->parent)
        return;
    node_path(node->parent, out);
    if (node->parent->kind == NODE_LIST) {
        text_printf(out, "[%u]", node->index);
    } else {
        if (out->n)
            text_char(out, '.');
        text_put(out, node->key);
    }
}
