/* compose_text.c - see compose_text.h. */
#include "limit/compose_text.h"

#include <errno.h>
#include <stdlib.h>

#include "limit/compose.h"

/* --- Files ------------------------------------------------------------------------------------ */

static char *read_whole(FILE *file)
{
    char *bytes = NULL, *larger;
    size_t size = 0, got = 0;
    do {
        if (!(larger = realloc(bytes, size + 4096))) {
            free(bytes);
            return NULL;
        }
        bytes = larger;
        got = fread(bytes + size, 1, 4095, file);
        size += got;
    } while (got > 0);
    bytes[size] = 0;
    return bytes;
}

char *lua_read(const char *path, FILE *report)
{
    FILE *file = path ? fopen(path, "re") : NULL;
    char *text = file ? read_whole(file) : NULL;

    if (!text || ferror(file)) {
        fprintf(report, "%s: cannot be read: %s\n", path ? path : "a script", strerror(errno));
        free(text);
        text = NULL;
    }
    if (file)
        fclose(file);
    return text;
}

bool compose_is_path(const char *script)
{
    size_t n = strlen(script);
    return strchr(script, '/') || (n > 4 && strcmp(script + n - 4, ".lua") == 0);
}

char *lua_path(const char *script, const char *lua_dir)
{
    char *path = NULL;
    if (compose_is_path(script))
        return strdup(script);
    return asprintf(&path, "%s/%s.lua", lua_dir, script) < 0 ? NULL : path;
}

/* --- Lua text --------------------------------------------------------------------------------- */

/* Decimal escapes work for every byte in every version of Lua. */
void lua_write_quoted(FILE *out, const char *text)
{
    putc('"', out);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        if (*c < 0x20 || *c >= 0x7f || *c == '"' || *c == '\\')
            fprintf(out, "\\%03u", *c);
        else
            putc(*c, out);
    putc('"', out);
}

/* Replaces control characters, so that the mark is one line for any name. */
void lua_write_mark(FILE *out, const char *name)
{
    fputs(COMPOSE_MARK, out);
    for (; *name; name++)
        putc((unsigned char)*name < 0x20 ? '?' : *name, out);
    putc('\n', out);
}

/* Returns the position of "return" if it is the file's first statement, else NULL. */
static const char *only_return(const char *text)
{
    while (*text == '\n' || strncmp(text, "--", 2) == 0)
        text += strcspn(text, "\n") + (text[strcspn(text, "\n")] == '\n');
    return strncmp(text, "return ", strlen("return ")) == 0 ? text : NULL;
}

void lua_write_chunk(FILE *out, const char *name, const char *text, bool own)
{
    const char *value = own ? NULL : only_return(text);

    if (value) {
        lua_write_mark(out, name);
        fwrite(text, 1, (size_t)(value - text), out);
        fprintf(out, "%s\n%s\n", value + strlen("return "), LUA_VALUE_END);
        return;
    }
    fputs(own ? "(function(...) local redis, server, KEYS, ARGV " : "(function(...) ", out);
    lua_write_mark(out, name);
    if (text[0] == '#')
        fputs("--", out);
    fputs(text, out);
    fprintf(out, "\n%s\n", own ? LUA_OWN_END : LUA_END);
}

bool lua_write_helper(FILE *out, const char *name, const char *lua_dir, FILE *report)
{
    char *path = lua_path(name, lua_dir), *text = lua_read(path, report);

    if (text) {
        fprintf(out, "local %s = ", name);
        lua_write_chunk(out, path, text, false);
    }
    free(path);
    free(text);
    return text != NULL;
}
