#include "replay/log_merge.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "replay/log_reader.h"

/* A line in a window; owns the bytes that `line` points into. */
struct window_line {
    struct log_line line;
    uint64_t number; /* of the line in its file */
    char bytes[];
};

/* A file and its window: a binary heap, the earliest line first. */
struct merged_file {
    const char *path;
    struct log_reader *file;
    struct window_line **heap;
    unsigned count;
    bool at_end;
};

struct log_merge {
    struct merged_file *sources;
    unsigned source_count;
    struct window_line *current;
    int64_t time_us; /* of the last request delivered */
    struct log_counts counts;
};

/* --- The window ------------------------------------------------------------------------------- */

static bool line_is_before(const struct window_line *a, const struct window_line *b)
{
    return a->line.time_us < b->line.time_us ||
           (a->line.time_us == b->line.time_us && a->number < b->number);
}

static void heap_push(struct merged_file *s, struct window_line *entry)
{
    unsigned at = s->count++;

    for (; at && line_is_before(entry, s->heap[(at - 1) / 2]); at = (at - 1) / 2)
        s->heap[at] = s->heap[(at - 1) / 2];
    s->heap[at] = entry;
}

static struct window_line *heap_pop(struct merged_file *s)
{
    struct window_line *first = s->heap[0], *last = s->heap[--s->count];
    unsigned at = 0;

    for (unsigned child; (child = 2 * at + 1) < s->count; at = child) {
        if (child + 1 < s->count && line_is_before(s->heap[child + 1], s->heap[child]))
            child++;
        if (!line_is_before(s->heap[child], last))
            break;
        s->heap[at] = s->heap[child];
    }
    s->heap[at] = last;
    return first;
}

/* --- Reading ---------------------------------------------------------------------------------- */

static void note_odd(struct log_merge *m, const struct merged_file *s)
{
    if (m->counts.odd++)
        return;
    m->counts.odd_file = s->path;
    m->counts.odd_line = log_reader_line(s->file);
}

static void take_line(struct log_merge *m, struct merged_file *s, const char *bytes, size_t size)
{
    struct window_line *entry = xmalloc(sizeof *entry + size);

    memcpy(entry->bytes, bytes, size);
    entry->number = log_reader_line(s->file);
    enum log_line_kind kind = log_line_parse(entry->bytes, size, &entry->line);
    if (kind == LOG_LINE_REQUEST) {
        m->counts.requests++;
        m->counts.left_out += entry->line.left_out;
        heap_push(s, entry);
        return;
    }
    if (kind == LOG_LINE_ODD)
        note_odd(m, s);
    else
        m->counts.other++;
    free(entry);
}

static void fill_window(struct log_merge *m, struct merged_file *s)
{
    char *bytes;
    size_t size;

    while (!s->at_end && s->count < LOG_WINDOW) {
        enum log_read got = log_reader_next(s->file, &bytes, &size);
        s->at_end = got == LOG_READ_END || got == LOG_READ_FAILED;
        m->counts.lines += !s->at_end;
        if (got == LOG_READ_LINE)
            take_line(m, s, bytes, size);
        else if (got == LOG_READ_LONG)
            note_odd(m, s);
        else if (got == LOG_READ_FAILED) {
            fprintf(stderr, "weir: %s: cannot be read to its end: %s\n", s->path,
                    errno ? strerror(errno) : "gzip failed");
            m->counts.failed = true;
        }
    }
}

struct log_merge *log_merge_open(char *const *paths, unsigned count)
{
    struct log_merge *m = xcalloc(1, sizeof *m);
    uint64_t size;

    m->sources = xcalloc(count, sizeof *m->sources);
    m->time_us = INT64_MIN;
    for (unsigned i = 0; i < count; i++) {
        struct merged_file *s = &m->sources[i];
        if (!(s->file = log_reader_open(paths[i], &size))) {
            fprintf(stderr, "weir: %s: cannot be read: %s\n", paths[i], strerror(errno));
            log_merge_close(m);
            return NULL;
        }
        m->source_count = i + 1;
        s->heap = xcalloc(LOG_WINDOW, sizeof(struct window_line *));
        s->path = paths[i];
        m->counts.bytes_total += size;
    }
    return m;
}

const struct log_line *log_merge_next(struct log_merge *m, const char **file, uint64_t *number)
{
    struct merged_file *first = NULL;

    free(m->current);
    m->current = NULL;
    for (unsigned i = 0; i < m->source_count; i++) {
        struct merged_file *s = &m->sources[i];
        fill_window(m, s);
        if (s->count && (!first || s->heap[0]->line.time_us < first->heap[0]->line.time_us))
            first = s;
    }
    if (!first)
        return NULL;
    m->current = heap_pop(first);
    if (m->current->line.time_us < m->time_us) {
        m->current->line.time_us = m->time_us;
        m->counts.out_of_order++;
    }
    m->time_us = m->current->line.time_us;
    *file = first->path;
    *number = m->current->number;
    return &m->current->line;
}

struct log_counts log_merge_counts(const struct log_merge *m)
{
    struct log_counts counts = m->counts;

    for (unsigned i = 0; i < m->source_count; i++)
        counts.bytes += log_reader_position(m->sources[i].file);
    return counts;
}

void log_merge_close(struct log_merge *m)
{
    if (!m)
        return;
    for (unsigned i = 0; i < m->source_count; i++) {
        while (m->sources[i].count)
            free(heap_pop(&m->sources[i]));
        free(m->sources[i].heap);
        log_reader_close(m->sources[i].file);
    }
    free(m->sources);
    free(m->current);
    free(m);
}
