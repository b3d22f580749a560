#include "http/head_copy.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct head_copy {
    size_t head_size; /* the used part of a struct request_head */
    size_t size;      /* of `bytes` */
    char bytes[];     /* that part, then the bytes of head->whole */
};

static size_t used_size(const struct request_head *head)
{
    return offsetof(struct request_head, fields.at) +
           head->fields.count * sizeof head->fields.at[0];
}

struct head_copy *head_copy_new(const struct request_head *head)
{
    size_t head_size = used_size(head), size = head_size + head->whole.n;
    struct head_copy *copy = malloc(sizeof *copy + size);

    if (!copy)
        return NULL;
    copy->head_size = head_size;
    copy->size = size;
    memcpy(copy->bytes, head, head_size);
    memcpy(copy->bytes + head_size, head->whole.p, head->whole.n);
    return copy;
}

/* Moves a slice of `from` to the same offset from `to`. */
static void rebase(struct slice *s, struct slice from, const char *to)
{
    if (s->p >= from.p && s->p <= from.p + from.n)
        s->p = to + (s->p - from.p);
}

void head_copy_restore(const struct head_copy *copy, struct request_head *head)
{
    const char *to = copy->bytes + copy->head_size;

    memcpy(head, copy->bytes, copy->head_size);
    struct slice from = head->whole, *const slices[] = {&head->method_text, &head->target,
                                                        &head->path,        &head->query,
                                                        &head->host,        &head->whole};
    for (unsigned i = 0; i < COUNT_OF(slices); i++)
        rebase(slices[i], from, to);
    for (unsigned i = 0; i < head->fields.count; i++) {
        rebase(&head->fields.at[i].name, from, to);
        rebase(&head->fields.at[i].value, from, to);
    }
}

size_t head_copy_memory(const struct head_copy *copy)
{
    return sizeof *copy + copy->size;
}

void head_copy_free(struct head_copy *copy)
{
    free(copy);
}
