#include "config/suggest.h"

#include <stdio.h>

enum { WORD_MAX = 64 };

struct suggestion suggestion_for(struct slice word)
{
    return (struct suggestion){.word = word};
}

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Returns the restricted Damerau edit distance (Damerau 1964): insertions, deletions, replacements
 * and transpositions of adjacent characters. */
static unsigned distance(struct slice a, struct slice b)
{
    unsigned rows[3][WORD_MAX + 1];
    unsigned *before = rows[0], *last = rows[1], *row = rows[2];

    for (unsigned j = 0; j <= b.n; j++)
        last[j] = j;
    for (unsigned i = 1; i <= a.n; i++) {
        row[0] = i;
        for (unsigned j = 1; j <= b.n; j++) {
            unsigned replaced = last[j - 1] + (a.p[i - 1] != b.p[j - 1]);
            row[j] = least(replaced, least(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a.p[i - 1] == b.p[j - 2] && a.p[i - 2] == b.p[j - 1])
                row[j] = least(row[j], before[j - 2] + 1);
        }
        unsigned *free_row = before;
        before = last, last = row, row = free_row;
    }
    return last[b.n];
}

void suggestion_consider(struct suggestion *suggestion, struct slice candidate)
{
    if (suggestion->word.n > WORD_MAX || candidate.n > WORD_MAX)
        return;
    unsigned d = distance(suggestion->word, candidate);
    unsigned close = candidate.n < 6 ? 1 + (candidate.n > 3) : (unsigned)candidate.n / 3;
    bool begins = (suggestion->word.n >= 4 && slice_starts_with(candidate, suggestion->word)) ||
                  (candidate.n >= 4 && slice_starts_with(suggestion->word, candidate));
    if (d > close && begins) /* "body" for "body_file": if nothing is closer */
        d = close = WORD_MAX + d;
    if (d <= close && (begins || d < candidate.n) &&
        (suggestion->best.n == 0 || d < suggestion->distance)) {
        suggestion->best = candidate;
        suggestion->distance = d;
    }
}

const char *word_at(const void *words, unsigned index)
{
    return ((const char *const *)words)[index];
}

int index_of(struct slice name, name_at *at, const void *names, struct suggestion *meant)
{
    *meant = suggestion_for(name);
    for (unsigned i = 0; at(names, i); i++)
        if (slice_equal(name, slice_of(at(names, i))))
            return (int)i;
    for (unsigned i = 0; at(names, i); i++)
        suggestion_consider(meant, slice_of(at(names, i)));
    return -1;
}

const char *suggestion_words(const struct suggestion *suggestion, struct suggestion_text *out)
{
    if (suggestion->best.n)
        snprintf(out->text, sizeof out->text, "; did you mean \"%.*s\"?",
                 SLICE_ARG(suggestion->best));
    else
        out->text[0] = 0;
    return out->text;
}
