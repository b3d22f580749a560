/* compose_text.h - Lua files and Lua text, for compose.c. */
#ifndef WEIR_LIMIT_COMPOSE_TEXT_H
#define WEIR_LIMIT_COMPOSE_TEXT_H

#include <stdbool.h>
#include <stdio.h>

/* The last line of a chunk that lua_write_chunk() writes, with the arguments of the file: muldiv
 * (lua/muldiv.lua) and, for weir's own files, numbers (see lua/driver.lua). */
#define LUA_END     "end)(muldiv, numbers)"
#define LUA_OWN_END "end)(muldiv)"
/* The line after a file that is a single return statement, written as that value. */
#define LUA_VALUE_END "-- end of the file"

/* Returns the text of a file, to be freed by the caller; NULL: error printed to `report`. */
char *lua_read(const char *path, FILE *report);

/* Returns the path of a limiter given by name or path, to be freed by the caller. NULL: out of
 * memory, which lua_read() reports. */
char *lua_path(const char *script, const char *lua_dir);

/* Writes a Lua string. */
void lua_write_quoted(FILE *out, const char *text);

/* Writes the mark of the file `name`, see COMPOSE_MARK. */
void lua_write_mark(FILE *out, const char *name);

/* Writes a file as an expression: its chunk, called once, or the value of its only statement. The
 * newline before `end` closes a comment on the last line. A first line "#!..." is for the shell.
 * `own`: an operator's own limiter, which has no access to Redis. */
void lua_write_chunk(FILE *out, const char *name, const char *text, bool own);

/* Writes `local NAME = ` and the value that lua_dir/NAME.lua returns. False: the file cannot be
 * read; error printed to `report`. */
bool lua_write_helper(FILE *out, const char *name, const char *lua_dir, FILE *report);

#endif
