/* free_list.h - freed objects of one size that are kept for reuse.
 *
 * free_list_trim(), called once per period, returns the objects to malloc(3) that were not needed
 * in that period. So a list shrinks after a peak, and one in steady use is left alone. */
#ifndef WEIR_BASE_FREE_LIST_H
#define WEIR_BASE_FREE_LIST_H

#include <stdlib.h>

struct free_object {
    struct free_object *next; /* overwrites the start of the object */
};

/* Zeroed: empty. */
struct free_list {
    struct free_object *first;
    unsigned count;
    unsigned unused; /* minimum of `count` since the last free_list_trim() */
};

/* Returns an object with undefined content; NULL: the list is empty. */
static inline void *free_list_take(struct free_list *list)
{
    struct free_object *object = list->first;

    if (!object)
        return NULL;
    list->first = object->next;
    if (--list->count < list->unused)
        list->unused = list->count;
    return object;
}

static inline void free_list_put(struct free_list *list, void *object)
{
    struct free_object *first = object;

    first->next = list->first;
    list->first = first;
    list->count++;
}

/* Frees up to `n` objects. Returns their number. */
static inline unsigned free_list_drop(struct free_list *list, unsigned n)
{
    unsigned dropped = 0;

    for (void *object; dropped < n && (object = free_list_take(list)); dropped++)
        free(object);
    return dropped;
}

/* Frees the objects that were not needed since the last call. Returns their number. */
static inline unsigned free_list_trim(struct free_list *list)
{
    unsigned dropped = free_list_drop(list, list->unused);

    list->unused = list->count;
    return dropped;
}

#endif
