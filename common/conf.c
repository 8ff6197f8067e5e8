/* SPDX-License-Identifier: Apache-2.0 */
#include "common/conf.h"

#include <ctype.h>
#include <ini.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/mem.h"
#include "common/nearest.h"

/* Of a file; what inih takes is shorter, see read_line(). */
enum { LINE_BYTES = 8192 };

struct loader {
    const struct conf_schema *schema;
    void *out;
    const char *path;
    char *folder;
    FILE *file;
    int line;              /* of the line being handled */
    char text[LINE_BYTES]; /* it */
    const char *value;     /* in it, when it is longer than inih's lines; else NULL */
    int *key_line;         /* per key: line it was given on, 0 if not */
    enum err err;          /* first failure; its text is in err_text() */
    char where[512];       /* "FILE:LINE" or "--set", for errors */
};

static const char *where(struct loader *loader)
{
    if (loader->line > 0)
        snprintf(loader->where, sizeof loader->where, "%s:%d", loader->path, loader->line);
    else
        snprintf(loader->where, sizeof loader->where, "%s", loader->path);
    return loader->where;
}

/* ---- nearest names ---- */

/* The key most like `name`; a key of the same section wins over an equally near one elsewhere. */
static const struct conf_key *nearest_key(const struct conf_schema *schema, const char *section, const char *name)
{
    struct nearest nearest = nearest_to(name);
    const struct conf_key *best = NULL;
    for (size_t i = 0; i < schema->keys_count; i++)
        nearest_try(&nearest, schema->keys[i].name, strcmp(section, schema->keys[i].section) != 0);
    const char *found = nearest_found(&nearest);
    for (size_t i = 0; found != NULL && i < schema->keys_count; i++) {
        const struct conf_key *key = &schema->keys[i];
        if (strcmp(key->name, found) == 0 && (best == NULL || strcmp(key->section, section) == 0))
            best = key;
    }
    return best;
}

static const char *nearest_section(const struct conf_schema *schema, const char *section)
{
    struct nearest nearest = nearest_to(section);
    for (size_t i = 0; i < schema->keys_count; i++)
        nearest_try(&nearest, schema->keys[i].section, false);
    return nearest_found(&nearest);
}

/* The keys of a section, or (NULL) the sections. */
static void list_names(const struct conf_schema *schema, const char *section, char *text, size_t text_bytes)
{
    const char *last = "";
    text[0] = '\0';
    for (size_t i = 0; i < schema->keys_count; i++) {
        const struct conf_key *key = &schema->keys[i];
        size_t at = strlen(text);
        const char *gap = at > 0 ? ", " : "";
        if (section == NULL && strcmp(key->section, last) != 0)
            snprintf(text + at, text_bytes - at, "%s[%s]", gap, key->section);
        else if (section != NULL && strcmp(key->section, section) == 0)
            snprintf(text + at, text_bytes - at, "%s%s", gap, key->name);
        last = key->section;
    }
}

/* ---- one key ---- */

/* Whether it is a section, with or without a name in it, that there was once. */
static bool is_gone(const struct conf_schema *schema, const char *section)
{
    size_t bytes = schema->gone_section != NULL ? strlen(schema->gone_section) : 0;
    return bytes > 0 && strncmp(section, schema->gone_section, bytes) == 0 &&
           (section[bytes] == '\0' || section[bytes] == ' ');
}

static enum err refuse_key(struct loader *loader, const char *section, const char *name)
{
    const struct conf_schema *schema = loader->schema;
    char there_are[400];
    bool known_section = false;
    if (is_gone(schema, section))
        return err_set(ERR_CONF, "%s: [%s]: %s", where(loader), section, schema->gone_remedy);
    if (section[0] == '\0') {
        list_names(schema, NULL, there_are, sizeof there_are);
        return err_set(ERR_CONF, "%s: %.40s%s: it stands in no section; put one of these before it: %s", where(loader),
                       name, strlen(name) > 40 ? "..." : "", there_are);
    }
    for (size_t i = 0; i < schema->keys_count; i++)
        known_section |= strcmp(schema->keys[i].section, section) == 0;
    list_names(schema, known_section ? section : NULL, there_are, sizeof there_are);
    if (!known_section) {
        const char *near = nearest_section(schema, section);
        if (near == NULL)
            return err_set(ERR_CONF, "%s: [%s]: no such section; there are: %s", where(loader), section, there_are);
        return err_set(ERR_CONF, "%s: [%s]: no such section; did you mean [%s]?", where(loader), section, near);
    }
    const struct conf_key *near = nearest_key(schema, section, name);
    if (near == NULL)
        return err_set(ERR_CONF, "%s: [%s] %.40s%s: no such key; there are: %s", where(loader), section, name,
                       strlen(name) > 40 ? "..." : "", there_are);
    return err_set(ERR_CONF, "%s: [%s] %s: no such key; did you mean [%s] %s?", where(loader), section, name,
                   near->section, near->name);
}

/* Of the key with this index; once in a file, or in several lines where they add up. */
static enum err set_value(struct loader *loader, size_t index, const char *value)
{
    const struct conf_key *key = &loader->schema->keys[index];
    int *first = &loader->key_line[index];
    bool again = *first > 0 && loader->line > 0, added = false;
    enum err err = again ? conf_value_add(key, value, loader->folder, loader->out, &added)
                         : conf_value_set(key, value, loader->folder, loader->out);
    if (err == ERR_CONF)
        return err_prefix(err, "%s: [%s] %s", where(loader), key->section, key->name);
    TRY(err);
    if (again && !added)
        return err_set(ERR_CONF, "%s: [%s] %s: given twice, first on line %d; keep one", where(loader), key->section,
                       key->name, *first);
    if (!again)
        *first = loader->line > 0 ? loader->line : -1;
    return ERR_OK;
}

static enum err set_key(struct loader *loader, const char *section, const char *name, const char *value)
{
    const struct conf_schema *schema = loader->schema;
    for (size_t i = 0; i < schema->keys_count; i++)
        if (strcmp(schema->keys[i].section, section) == 0 && strcmp(schema->keys[i].name, name) == 0)
            return set_value(loader, i, value);
    return refuse_key(loader, section, name);
}

/* ---- the file ---- */

/* inih's callback; returning 1 lets it go on so that only the first failure counts. */
static int handle_line(void *user, const char *section, const char *name, const char *value)
{
    struct loader *loader = user;
    if (loader->value != NULL)
        value = loader->value;
    if (loader->err == ERR_OK)
        loader->err = set_key(loader, section, name, value != NULL ? value : "");
    return 1;
}

/* The value behind a '=', as inih would cut it out: without the spaces around it, and without a comment behind it. */
static char *value_behind(char *equals)
{
    for (char *at = equals + 1; *at != '\0'; at++)
        if (*at == ';' && isspace((unsigned char)at[-1]))
            *at = '\0';
    char *value = equals + 1 + strspn(equals + 1, " \t");
    size_t length = strlen(value);
    while (length > 0 && isspace((unsigned char)value[length - 1]))
        value[--length] = '\0';
    return value;
}

/* Of a line that is longer than `line`, the key goes to inih and the value past it. */
static bool split_line(struct loader *loader, char *text, char *line, size_t line_bytes)
{
    size_t key_bytes = strcspn(text, "=:");
    if (text[0] == ';' || text[0] == '#') {
        snprintf(line, line_bytes, "#\n");
        return true;
    }
    if (text[0] == '[' || text[key_bytes] == '\0' || key_bytes + sizeof "=\n" > line_bytes)
        return false;
    snprintf(line, line_bytes, "%.*s=\n", (int)key_bytes, text);
    loader->value = value_behind(text + key_bytes);
    return true;
}

/* The next line, as fgets() has it, but for one with bytes that are no text: of a file that was damaged (zeros, after a
 * power cut) fgets() would have given the part before them alone. */
static enum err take_line(struct loader *loader, size_t *bytes)
{
    int byte = 0;
    size_t count = 0;
    loader->line++;
    while (byte != '\n' && count + 1 < sizeof loader->text && (byte = getc(loader->file)) != EOF) {
        if (iscntrl(byte) && !isspace(byte))
            return err_set(ERR_CONF,
                           "%s: a byte that is no text (0x%02x); this file is damaged, or another one is meant",
                           where(loader), (unsigned)byte);
        loader->text[count++] = (char)byte;
    }
    loader->text[count] = '\0';
    *bytes = count;
    return ERR_OK;
}

/* inih's line source. It counts lines (Debian's inih does not pass them on), strips indentation (which inih would take
 * for a continuation of the value above), and brings in lines that are longer than Debian's inih takes (198 bytes, and
 * it would silently cut them): a command line may be. */
static char *read_line(char *line, int line_bytes, void *stream)
{
    struct loader *loader = stream;
    size_t length = 0;
    if (loader->err == ERR_OK)
        loader->err = take_line(loader, &length);
    if (loader->err != ERR_OK || length == 0)
        return NULL;
    loader->value = NULL;
    bool cut = length + 1 == sizeof loader->text && loader->text[length - 1] != '\n';
    char *text = loader->text + strspn(loader->text, " \t");
    if (!cut && strlen(text) < (size_t)line_bytes) {
        snprintf(line, (size_t)line_bytes, "%s", text);
        return line;
    }
    if (!cut && split_line(loader, text, line, (size_t)line_bytes))
        return line;
    loader->err = err_set(ERR_CONF, "%s: the line is longer than %d bytes; shorten it", where(loader),
                          cut ? LINE_BYTES - 2 : line_bytes - 2);
    return NULL;
}

static enum err check_complete(struct loader *loader)
{
    for (size_t i = 0; i < loader->schema->keys_count; i++) {
        const struct conf_key *key = &loader->schema->keys[i];
        if (key->initial != NULL || loader->key_line[i] != 0)
            continue;
        return err_set(ERR_CONF, "%s: [%s] %s: missing; %s", loader->path, key->section, key->name, key->help);
    }
    return ERR_OK;
}

static enum err apply_override(struct loader *loader, const char *text)
{
    char copy[512];
    if ((size_t)snprintf(copy, sizeof copy, "%s", text) >= sizeof copy)
        return err_set(ERR_ARG, "--set %.40s...: too long", text);
    char *equals = strchr(copy, '=');
    char *dot = strchr(copy, '.');
    if (equals == NULL || dot == NULL || dot > equals)
        return err_set(ERR_ARG, "--set %s: expected section.key=value", text);
    *equals = '\0';
    *dot = '\0';
    loader->path = "--set";
    loader->line = 0;
    char *folder = loader->folder;
    loader->folder = NULL; /* paths on a command line are relative to where it is typed */
    enum err err = set_key(loader, copy, dot + 1, equals + 1);
    loader->folder = folder;
    return err;
}

/* Reads and closes loader->file. */
static enum err load_file(struct loader *loader)
{
    int bad_line = ini_parse_stream(read_line, loader, handle_line, loader);
    bool failed = ferror(loader->file) != 0;
    fclose(loader->file);
    if (failed)
        return err_set_errno(ERR_IO, "%s: cannot read", loader->path);
    if (loader->err != ERR_OK)
        return loader->err;
    if (bad_line != 0)
        return err_set(ERR_CONF, "%s:%d: expected [section] or key = value", loader->path, bad_line);
    return ERR_OK;
}

/* Fills from `file`, which it closes. */
static enum err load(const struct conf_schema *schema, FILE *file, const char *path,
                     const struct conf_override *overrides, size_t overrides_count, void *out)
{
    enum err err;
    struct loader loader = {.schema = schema, .out = out, .path = path, .file = file};
    char *path_copy = NULL;
    memset(out, 0, schema->struct_bytes);
    TRY_OUT(mem_new(schema->keys_count, sizeof *loader.key_line, "config keys", &loader.key_line));
    TRY_OUT(mem_strdup(path, &path_copy));
    TRY_OUT(mem_strdup(dirname(path_copy), &loader.folder));
    for (size_t i = 0; i < schema->keys_count; i++)
        if (schema->keys[i].initial != NULL)
            TRY_OUT(conf_value_set(&schema->keys[i], schema->keys[i].initial, NULL, out));
    file = NULL;
    TRY_OUT(load_file(&loader));
    for (size_t i = 0; i < overrides_count; i++)
        TRY_OUT(apply_override(&loader, overrides[i].text));
    loader.path = path;
    TRY_OUT(check_complete(&loader));
out:
    if (file != NULL)
        fclose(file);
    if (err != ERR_OK)
        conf_deinit(schema, out);
    mem_free(loader.key_line);
    mem_free(loader.folder);
    mem_free(path_copy);
    return err;
}

enum err conf_load(const struct conf_schema *schema, const char *path, const struct conf_override *overrides,
                   size_t overrides_count, void *out)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return err_set_errno(ERR_CONF, "%s: cannot open", path);
    return load(schema, file, path, overrides, overrides_count, out);
}

enum err conf_parse_with(const struct conf_schema *schema, const char *text, const char *name,
                         const struct conf_override *overrides, size_t overrides_count, void *out)
{
    FILE *file = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
    if (file == NULL)
        return err_set_errno(ERR_CONF, "%s: cannot read", name);
    return load(schema, file, name, overrides, overrides_count, out);
}

enum err conf_parse(const struct conf_schema *schema, const char *text, const char *name, void *out)
{
    return conf_parse_with(schema, text, name, NULL, 0, out);
}

void conf_deinit(const struct conf_schema *schema, void *out)
{
    for (size_t i = 0; i < schema->keys_count; i++)
        conf_value_free(&schema->keys[i], out);
    memset(out, 0, schema->struct_bytes);
}

/* ---- printing ---- */

/* Whether a key is one of these, "section.name"; NULL: all are. */
static bool is_wanted(const struct conf_key *key, const char *const *only)
{
    char name[128];
    if (only == NULL)
        return true;
    snprintf(name, sizeof name, "%s.%s", key->section, key->name);
    while (*only != NULL && strcmp(*only, name) != 0)
        only++;
    return *only != NULL;
}

static void print_section(const struct conf_schema *schema, const char *section, const void *base, bool with_help,
                          const char *const *only, FILE *file)
{
    for (size_t i = 0; i < schema->keys_count; i++) {
        const struct conf_key *key = &schema->keys[i];
        if (strcmp(key->section, section) != 0 || !is_wanted(key, only) || (conf_value_is_local(key) && !with_help))
            continue;
        if (with_help)
            conf_value_print_help(key, file);
        fprintf(file, "%s =%s", key->name, conf_value_empty(key, base) ? "" : " ");
        conf_value_print(key, base, file);
        fputs(with_help ? "\n\n" : "\n", file);
    }
}

static void print(const struct conf_schema *schema, const void *in, bool with_help, const char *const *only, FILE *file)
{
    const char *section = "";
    for (size_t i = 0; i < schema->keys_count; i++) {
        const struct conf_key *key = &schema->keys[i];
        if (strcmp(key->section, section) == 0 || !is_wanted(key, only))
            continue;
        section = key->section;
        fprintf(file, "[%s]\n", section);
        print_section(schema, section, in, with_help, only, file);
    }
}

void conf_print(const struct conf_schema *schema, const void *in, bool with_help, FILE *file)
{
    print(schema, in, with_help, NULL, file);
}

void conf_print_some(const struct conf_schema *schema, const void *in, const char *const *keys, FILE *file)
{
    print(schema, in, true, keys, file);
}
