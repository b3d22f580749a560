/* json_values.h - the values of a set of paths in one JSON object that is whole in memory. */
#ifndef WEIR_CONTENT_JSON_VALUES_H
#define WEIR_CONTENT_JSON_VALUES_H

#include "content/json_scanner.h"

enum { JSON_VALUE_MAX = 260 }; /* bytes of a value's text; longer ones are cut */

struct json_values {
    const struct json_paths *paths; /* NULL: there is no object */
    struct slice document;          /* from which they were read */
    uint32_t ambiguous;             /* bit set of paths: readers may see other values */
    uint32_t cut;                   /* bit set of paths: the value's text is longer than `texts` */
    bool doubtful;                  /* readers may see another document; set by the caller */
    int64_t integers[JSON_PATHS_MAX]; /* at most JSON_INTEGER_MAX; -1: absent, or no integer */
    struct text texts[JSON_PATHS_MAX];
    char room[JSON_PATHS_MAX][JSON_VALUE_MAX];
};

/* No values. */
static inline void json_values_clear(struct json_values *values)
{
    values->paths = NULL;
    values->ambiguous = values->cut = 0;
    values->doubtful = false;
}
/* Reads the values of `paths`. `paths` and `document` must outlive `values`. Returns false if
 * `document` is not a valid JSON object; then there are no values. */
bool json_values_read(struct json_values *values, const struct json_paths *paths,
                      struct slice document);

/* Returns the value of a path as text. Integers and booleans begin with "=", as do texts that begin
 * with "=" themselves, so that 5 and "5" differ. text.p is NULL: absent, null, ambiguous, another
 * kind of value, or not one of the paths. */
struct slice json_values_text(const struct json_values *values, const struct json_path *path);
/* Returns true if readers may see other values: the name stands twice, or a C string would end in
 * the text. */
bool json_values_ambiguous(const struct json_values *values, const struct json_path *path);
/* Returns true if json_values_text() has only the beginning of the value. */
bool json_values_cut(const struct json_values *values, const struct json_path *path);
/* Passes the whole text of a value to `piece`, without the "=". Reads the document again. */
void json_values_pieces(const struct json_values *values, const struct json_path *path,
                        void (*piece)(void *context, struct slice bytes), void *context);
/* Returns the integer at the first path of `wanted` that is there; -1: there is none, or a path is
 * ambiguous. */
int64_t json_values_first(const struct json_values *values, const struct json_paths *wanted);

#endif
