/* printer.h - writes values as YAML, in the form that weir check prints. */
#ifndef WEIR_CONFIG_PRINTER_H
#define WEIR_CONFIG_PRINTER_H

#include <stdio.h>

#include "base/json_writer.h"
#include "config/yaml_tree.h"

struct option;

/* Output state. `indent` is in spaces; with `item`, the next line starts a list item. */
struct printer {
    FILE *out;
    unsigned indent;
    bool item;
    const struct option *option; /* that is printed; NULL: a level between options */
};

/* Returns a printer for the next level. */
struct printer printer_below(const struct printer *printer);
/* Prints "KEY:" with indentation, and with the dash if it starts a list item. */
void print_key(struct printer *printer, struct slice key);

/* Prints a text as a YAML scalar, quoted if it would not be read as this text. */
void print_scalar(FILE *out, struct slice text);
/* The same as the value of an option: with a space before it and the end of the line after it. */
void print_scalar_value(const struct printer *printer, struct slice text);
/* Prints an escaped text for use between double quotes. */
void print_quoted(FILE *out, struct slice text);

/* Prints item `index` of the list that `base` stores. */
typedef void print_item(FILE *out, const void *base, unsigned index);
/* Prints "[ A, B ]", or "{ A, B }" if the items print a key and a value each. */
void print_list(FILE *out, unsigned count, print_item *item, const void *base);
void print_map(FILE *out, unsigned count, print_item *item, const void *base);
/* The same as the value of an option: with a space before it and the end of the line after it. */
void print_items(const struct printer *printer, unsigned count, print_item *item, const void *base);

/* Defines print() of an option whose field is a struct with a list of `count` items. */
#define PRINT_ITEMS(name, type, count, item)                                                       \
    static void name(const struct printer *printer, const void *field)                             \
    {                                                                                              \
        print_items(printer, ((const struct type *)field)->count, item, field);                    \
    }

/* Returns true for a number of JSON (RFC 8259 section 6). The text ends with NUL. */
bool is_json_number(const char *text);
/* Writes a tree as JSON. Plain scalars are numbers if JSON can write them, and true and false are
 * booleans; all others are strings. */
void print_json(struct json_writer *json, const struct node *node);

#endif
