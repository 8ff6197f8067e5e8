/* SPDX-License-Identifier: Apache-2.0 */
#include "common/conf_value.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/mem.h"
#include "common/mixture.h"

struct unit {
    const char *name;
    double factor;
};

static const struct unit units_bytes[] = {{"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0},
                                          {"kB", 1e3},     {"MB", 1e6},        {"GB", 1e9},
                                          {"B", 1},        {NULL, 0}};
static const struct unit units_rate[] = {{"kbit", 1e3}, {"Mbit", 1e6}, {"Gbit", 1e9}, {"bit", 1}, {NULL, 0}};
static const struct unit units_duration[] = {{"ms", 1}, {"min", 60e3}, {"s", 1e3}, {"h", 3600e3}, {NULL, 0}};

static const struct unit *units_of(enum conf_type type)
{
    switch (type) {
    case CONF_BYTES: return units_bytes;
    case CONF_RATE: return units_rate;
    case CONF_DURATION: return units_duration;
    case CONF_STRING:
    case CONF_PATH:
    case CONF_MIXTURE:
    case CONF_LOCAL:
    case CONF_BOOL:
    case CONF_INT:
    case CONF_REAL:
    case CONF_ENUM:
    case CONF_OWN_ENUM: break;
    }
    return NULL;
}

static void list_units(const struct unit *units, char *out, size_t out_bytes)
{
    size_t used = 0;
    out[0] = '\0';
    for (; units->name != NULL && used < out_bytes; units++)
        used += (size_t)snprintf(out + used, out_bytes - used, "%s%s", used > 0 ? ", " : "", units->name);
}

static bool is_text(const struct conf_key *key)
{
    return key->type == CONF_STRING || key->type == CONF_PATH || key->type == CONF_LOCAL || key->type == CONF_MIXTURE;
}

static void *field(const struct conf_key *key, void *base)
{
    return (char *)base + key->offset;
}

static enum err check_range(const struct conf_key *key, double value, const char *text)
{
    if (isnan(value) || (key->min != key->max && (value < key->min || value > key->max)))
        return err_set(ERR_CONF, "%s is outside %g .. %g%s%s", text, key->min, key->max, key->unit ? " " : "",
                       key->unit ? key->unit : "");
    return ERR_OK;
}

static enum err parse_number(const char *text, double *value, const char **rest)
{
    char *end;
    errno = 0;
    *value = strtod(text, &end);
    if (end == text || errno == ERANGE || !isfinite(*value))
        return err_set(ERR_CONF, "\"%s\" is not a number", text);
    *rest = end + strspn(end, " \t");
    return ERR_OK;
}

static enum err set_int(const struct conf_key *key, const char *text, void *base)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno == ERANGE)
        return err_set(ERR_CONF, "\"%s\" is not a whole number%s%s", text, key->unit ? " of " : "",
                       key->unit ? key->unit : "");
    TRY(check_range(key, (double)value, text));
    *(int64_t *)field(key, base) = value;
    return ERR_OK;
}

static enum err set_real(const struct conf_key *key, const char *text, void *base)
{
    double value;
    const char *rest;
    TRY(parse_number(text, &value, &rest));
    if (*rest != '\0')
        return err_set(ERR_CONF, "\"%s\" is not a number", text);
    TRY(check_range(key, value, text));
    *(double *)field(key, base) = value;
    return ERR_OK;
}

static enum err set_scaled(const struct conf_key *key, const char *text, void *base)
{
    double value;
    const char *rest;
    char names[128];
    const struct unit *units = units_of(key->type);
    list_units(units, names, sizeof names);
    TRY(parse_number(text, &value, &rest));
    if (value != 0 && *rest == '\0')
        return err_set(ERR_CONF, "\"%s\" has no unit; write one of %s after it", text, names);
    double factor = value == 0 && *rest == '\0' ? 1 : 0;
    for (const struct unit *unit = units; unit->name != NULL; unit++)
        if (strcasecmp(rest, unit->name) == 0)
            factor = unit->factor;
    if (factor == 0)
        return err_set(ERR_CONF, "\"%s\": unknown unit \"%s\"; use one of %s", text, rest, names);
    if (value < 0)
        return err_set(ERR_CONF, "%s is negative", text);
    double scaled = value * factor;
    if (key->min != key->max && (scaled < key->min || scaled > key->max))
        return err_set(ERR_CONF, "%s is outside %g .. %g %s", text, key->min, key->max, key->unit);
    if (scaled >= 0x1p63)
        return err_set(ERR_CONF, "%s is too large", text);
    *(uint64_t *)field(key, base) = (uint64_t)(scaled + 0.5);
    return ERR_OK;
}

static enum err set_bool(const struct conf_key *key, const char *text, void *base)
{
    static const char *const yes[] = {"yes", "true", "on", "1"};
    static const char *const no[] = {"no", "false", "off", "0"};
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++) {
        if (strcasecmp(text, yes[i]) == 0 || strcasecmp(text, no[i]) == 0) {
            *(bool *)field(key, base) = strcasecmp(text, yes[i]) == 0;
            return ERR_OK;
        }
    }
    return err_set(ERR_CONF, "\"%s\" is neither yes nor no", text);
}

static enum err set_enum(const struct conf_key *key, const char *text, void *base)
{
    char all[256];
    size_t used = 0;
    for (int i = 0; key->choices[i] != NULL; i++) {
        if (strcmp(text, key->choices[i]) == 0) {
            *(int *)field(key, base) = i;
            return ERR_OK;
        }
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", i > 0 ? ", " : "", key->choices[i]);
    }
    return err_set(ERR_CONF, "\"%s\" is not one of %s", text, all);
}

static enum err set_string(const struct conf_key *key, const char *text, const char *folder, void *base)
{
    char **slot = field(key, base);
    char *copy = NULL;
    bool relative = key->type != CONF_STRING && text[0] != '/' && text[0] != '\0' && folder != NULL;
    if (relative && strcmp(folder, ".") != 0)
        TRY(mem_printf(&copy, "%s/%s", folder, text));
    else
        TRY(mem_strdup(text, &copy));
    mem_free(*slot);
    *slot = copy;
    return ERR_OK;
}

static enum err set_mixture(const struct conf_key *key, const char *text, const char *folder, void *base)
{
    struct mixture mixture;
    char **slot = field(key, base), *copy;
    enum err err = mixture_parse(text, folder, &mixture);
    if (err == ERR_OK) {
        err = mixture_text(&mixture, " ", &copy);
        mixture_free(&mixture);
    } else if (err == ERR_CONF) {
        err = mem_strdup(text, &copy);
    }
    TRY(err);
    mem_free(*slot);
    *slot = copy;
    return ERR_OK;
}

enum err conf_value_add(const struct conf_key *key, const char *text, const char *folder, void *base, bool *added)
{
    char **slot = field(key, base), *first, *both;
    *added = key->type == CONF_MIXTURE && mixture_is(*slot) && mixture_is(text);
    if (!*added)
        return ERR_OK;
    TRY(mem_strdup(*slot, &first));
    enum err err = set_mixture(key, text, folder, base);
    if (err == ERR_OK)
        err = mem_printf(&both, "%s %s", first, *slot);
    mem_free(first);
    TRY(err);
    err = set_mixture(key, both, NULL, base);
    mem_free(both);
    return err;
}

enum err conf_value_set(const struct conf_key *key, const char *text, const char *folder, void *base)
{
    switch (key->type) {
    case CONF_STRING:
    case CONF_PATH:
    case CONF_LOCAL: return set_string(key, text, folder, base);
    case CONF_MIXTURE: return set_mixture(key, text, folder, base);
    case CONF_BOOL: return set_bool(key, text, base);
    case CONF_INT: return set_int(key, text, base);
    case CONF_REAL: return set_real(key, text, base);
    case CONF_ENUM:
    case CONF_OWN_ENUM: return set_enum(key, text, base);
    case CONF_BYTES:
    case CONF_RATE:
    case CONF_DURATION: return set_scaled(key, text, base);
    }
    return err_set(ERR_CONF, "key of unknown type");
}

/* The largest unit that divides the value, so that 90000 ms prints as "90s" and 1536 MiB as "1536MiB". */
static void print_scaled(const struct conf_key *key, uint64_t value, FILE *file)
{
    const struct unit *best = NULL;
    if (value == 0) {
        fputs("0", file);
        return;
    }
    for (const struct unit *unit = units_of(key->type); unit->name != NULL; unit++) {
        uint64_t factor = (uint64_t)unit->factor;
        if (value % factor == 0 && (best == NULL || unit->factor > best->factor))
            best = unit;
    }
    fprintf(file, "%" PRIu64 "%s", value / (uint64_t)best->factor, best->name);
}

/* A line for each source: one line of a file is of limited length. */
static void print_mixture(const struct conf_key *key, const char *value, FILE *file)
{
    struct mixture mixture;
    char between[100], *text;
    if (value == NULL || !mixture_is(value) || mixture_parse(value, NULL, &mixture) != ERR_OK) {
        fputs(value != NULL ? value : "", file);
        return;
    }
    snprintf(between, sizeof between, "\n%s = ", key->name);
    enum err err = mixture_text(&mixture, between, &text);
    mixture_free(&mixture);
    fputs(err == ERR_OK ? text : value, file);
    if (err == ERR_OK)
        mem_free(text);
}

bool conf_value_is_local(const struct conf_key *key)
{
    return key->type == CONF_LOCAL || key->type == CONF_OWN_ENUM;
}

bool conf_value_empty(const struct conf_key *key, const void *base)
{
    const char *text = is_text(key) ? *(char *const *)(const void *)((const char *)base + key->offset) : "x";
    return text == NULL || text[0] == '\0';
}

void conf_value_print(const struct conf_key *key, const void *base, FILE *file)
{
    const void *value = (const char *)base + key->offset;
    switch (key->type) {
    case CONF_STRING:
    case CONF_MIXTURE: print_mixture(key, *(char *const *)value, file); break;
    case CONF_PATH:
    case CONF_LOCAL: fputs(*(char *const *)value != NULL ? *(char *const *)value : "", file); break;
    case CONF_BOOL: fputs(*(const bool *)value ? "yes" : "no", file); break;
    case CONF_INT: fprintf(file, "%" PRId64, *(const int64_t *)value); break;
    case CONF_REAL: {
        /* Shortest text that reads back to the same number. */
        char text[32];
        for (int digits = 6; digits <= 17; digits++) {
            snprintf(text, sizeof text, "%.*g", digits, *(const double *)value);
            if (strtod(text, NULL) == *(const double *)value)
                break;
        }
        fputs(text, file);
        break;
    }
    case CONF_ENUM:
    case CONF_OWN_ENUM: fputs(key->choices[*(const int *)value], file); break;
    case CONF_BYTES:
    case CONF_RATE:
    case CONF_DURATION: print_scaled(key, *(const uint64_t *)value, file); break;
    }
}

static void print_wrapped(const char *text, FILE *file)
{
    enum { WIDTH = 96 };
    bool first = true;
    while (*text != '\0') {
        size_t take = strlen(text);
        if (take > WIDTH) {
            take = WIDTH;
            while (take > 1 && text[take] != ' ')
                take--;
        }
        fprintf(file, "# %c%.*s\n", first ? toupper((unsigned char)*text) : *text, (int)take - 1, text + 1);
        first = false;
        text += take;
        text += strspn(text, " ");
    }
}

void conf_value_print_help(const struct conf_key *key, FILE *file)
{
    print_wrapped(key->help, file);
    if (key->choices != NULL) {
        fputs("# One of:", file);
        for (int i = 0; key->choices[i] != NULL; i++)
            fprintf(file, " %s", key->choices[i]);
        fputs("\n", file);
    }
    fputs("#", file);
    const struct unit *units = units_of(key->type);
    if (units != NULL) {
        char names[128];
        list_units(units, names, sizeof names);
        fprintf(file, " Units: %s.", names);
    } else if (key->unit != NULL) {
        fprintf(file, " Unit: %s.", key->unit);
    }
    if (key->min != key->max && units != NULL) {
        fputs(" Range: ", file);
        print_scaled(key, (uint64_t)key->min, file);
        fputs(" .. ", file);
        print_scaled(key, (uint64_t)key->max, file);
        fputs(".", file);
    } else if (key->min != key->max) {
        fprintf(file, " Range: %.10g .. %.10g.", key->min, key->max);
    }
    if (key->initial == NULL)
        fputs(" Must be given.\n", file);
    else
        fprintf(file, " Default: %s.\n", key->initial[0] != '\0' ? key->initial : "empty");
}

void conf_value_free(const struct conf_key *key, void *base)
{
    if (!is_text(key))
        return;
    char **slot = field(key, base);
    mem_free(*slot);
    *slot = NULL;
}
