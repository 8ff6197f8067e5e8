/* SPDX-License-Identifier: Apache-2.0 */
#include "common/args.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/nearest.h"

static enum err set_value(const struct args_option *option, const char *value)
{
    char *end = NULL;
    errno = 0;
    switch (option->type) {
    case ARGS_FLAG: *(bool *)option->to = true; return ERR_OK;
    case ARGS_STRING: *(const char **)option->to = value; return ERR_OK;
    case ARGS_U64:
        *(uint64_t *)option->to = strtoull(value, &end, 10);
        if (value[0] < '0' || value[0] > '9' || *end != '\0' || errno != 0)
            return err_set(ERR_ARG, "--%s %s: not a whole number", option->name, value);
        return ERR_OK;
    case ARGS_REAL:
        *(double *)option->to = strtod(value, &end);
        if (end == value || *end != '\0' || !isfinite(*(double *)option->to))
            return err_set(ERR_ARG, "--%s %s: not a number", option->name, value);
        return ERR_OK;
    case ARGS_LIST: {
        struct args_list *list = option->to;
        if (list->count == ARGS_LIST_MAX)
            return err_set(ERR_ARG, "--%s: given more than %d times", option->name, ARGS_LIST_MAX);
        list->item[list->count++] = value;
        return ERR_OK;
    }
    }
    return err_set(ERR_ARG, "--%s: unknown kind of option", option->name);
}

/* A name of one letter is written with one dash. */
static bool is_option(const char *text, const struct args_option *options, size_t options_count)
{
    if (strncmp(text, "--", 2) == 0)
        return true;
    for (size_t i = 0; text[0] == '-' && i < options_count; i++)
        if (strlen(options[i].name) == 1 && strcmp(text + 1, options[i].name) == 0)
            return true;
    return false;
}

static enum err note(const struct args_option *option, struct args_list *given)
{
    if (given == NULL)
        return ERR_OK;
    if (given->count == ARGS_LIST_MAX)
        return err_set(ERR_ARG, "more than %d options", ARGS_LIST_MAX);
    given->item[given->count++] = option->name;
    return ERR_OK;
}

static enum err refuse_unknown(const char *text, const struct args_option *options, size_t options_count)
{
    char name[64];
    size_t dashes = strspn(text, "-");
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text + dashes, "="), text + dashes);
    struct nearest nearest = nearest_to(name);
    for (size_t i = 0; i < options_count; i++)
        nearest_try(&nearest, options[i].name, false);
    const char *near = nearest_found(&nearest);
    if (near == NULL)
        return err_set(ERR_ARG, "unknown option %s; --help lists them", text);
    return err_set(ERR_ARG, "unknown option %s; did you mean %s%s?", text, args_dashes(near), near);
}

static enum err one_option(char **argv, int argc, int *at, const struct args_option *options, size_t options_count,
                           struct args_list *given)
{
    const char *text = argv[*at] + (argv[*at][1] == '-' ? 2 : 1);
    size_t name_bytes = strcspn(text, "=");
    for (size_t i = 0; i < options_count; i++) {
        const struct args_option *option = &options[i];
        if (strlen(option->name) != name_bytes || strncmp(option->name, text, name_bytes) != 0)
            continue;
        TRY(note(option, given));
        bool inline_value = text[name_bytes] == '=';
        if (option->type == ARGS_FLAG) {
            if (inline_value)
                return err_set(ERR_ARG, "--%s takes no value", option->name);
            return set_value(option, NULL);
        }
        if (inline_value)
            return set_value(option, text + name_bytes + 1);
        if (*at + 1 >= argc)
            return err_set(ERR_ARG, "--%s needs a value: --%s %s", option->name, option->name, option->value_name);
        return set_value(option, argv[++*at]);
    }
    return refuse_unknown(argv[*at], options, options_count);
}

enum err args_parse_given(int argc, char **argv, const struct args_option *options, size_t options_count,
                          struct args_list *rest, struct args_list *given)
{
    bool options_over = false;
    for (int i = 1; i < argc; i++) {
        if (!options_over && strcmp(argv[i], "--") == 0) {
            options_over = true;
        } else if (!options_over && is_option(argv[i], options, options_count)) {
            TRY(one_option(argv, argc, &i, options, options_count, given));
        } else if (rest == NULL || rest->count == ARGS_LIST_MAX) {
            return err_set(ERR_ARG, "\"%s\" was not expected here; --help shows the usage", argv[i]);
        } else {
            rest->item[rest->count++] = argv[i];
        }
    }
    return ERR_OK;
}

enum err args_parse(int argc, char **argv, const struct args_option *options, size_t options_count,
                    struct args_list *rest)
{
    return args_parse_given(argc, argv, options, options_count, rest, NULL);
}

const char *args_dashes(const char *name)
{
    return strlen(name) == 1 ? "-" : "--";
}

enum { COLUMNS = 80 };

/* From `column` on; what follows the first line begins at column `begin`. */
static void wrap(const char *text, int begin, int column, FILE *file)
{
    for (text += strspn(text, " "); *text != '\0'; text += strspn(text, " ")) {
        int word = (int)strcspn(text, " ");
        if (column > begin && column + 1 + word > COLUMNS) {
            fputc('\n', file);
            column = 0;
        }
        if (column > begin)
            column += fprintf(file, " ");
        else
            column += fprintf(file, "%*s", begin - column, "");
        column += fprintf(file, "%.*s", word, text);
        text += word;
    }
    fputc('\n', file);
}

void args_help_text(const char *text, FILE *file)
{
    wrap(text, 0, 0, file);
}

void args_help_row(const char *left, const char *help, FILE *file)
{
    enum { INDENT = 2, LEFT = 26 };
    int column = fprintf(file, "%*s%-*s", INDENT, "", LEFT, left);
    if (column > INDENT + LEFT) {
        fputc('\n', file);
        column = 0;
    }
    wrap(help, INDENT + LEFT + 1, column, file);
}

void args_help(const struct args_option *options, size_t options_count, FILE *file)
{
    for (size_t i = 0; i < options_count; i++) {
        char left[64];
        snprintf(left, sizeof left, "%s%s%s%s", args_dashes(options[i].name), options[i].name,
                 options[i].value_name != NULL ? " " : "", options[i].value_name != NULL ? options[i].value_name : "");
        args_help_row(left, options[i].help, file);
    }
}
