/* SPDX-License-Identifier: Apache-2.0 */
#include "common/commands.h"

#include <string.h>

#include "common/nearest.h"

bool commands_named(const char *names, const char *option)
{
    char word[64];
    snprintf(word, sizeof word, " %s ", option);
    return strstr(names, word) != NULL;
}

enum err commands_refuse(const struct commands *commands, const char *name)
{
    struct nearest nearest = nearest_to(name);
    for (size_t i = 0; i < commands->rows_count; i++)
        nearest_try(&nearest, commands->rows[i].name, false);
    const char *near = nearest_found(&nearest);
    if (near == NULL)
        return err_set(ERR_ARG, "no command \"%s\"; --help lists them", name);
    return err_set(ERR_ARG, "no command \"%s\"; did you mean %s?", name, near);
}

/* ---- of all ---- */

static void print_row(const struct commands_row *row, FILE *file)
{
    args_help_row(row->usage, row->help, file);
}

static bool is_in(const struct commands_group *group, const char *usage)
{
    const char *const *at = group->usages;
    while (*at != NULL && strcmp(*at, usage) != 0)
        at++;
    return *at != NULL;
}

static bool is_in_any(const struct commands *commands, const char *usage)
{
    for (size_t i = 0; i < commands->groups_count; i++)
        if (is_in(&commands->groups[i], usage))
            return true;
    return false;
}

/* In the order of the group. */
static void print_group(const struct commands *commands, const struct commands_group *group, FILE *file)
{
    fprintf(file, "\n%s\n", group->title);
    for (const char *const *usage = group->usages; *usage != NULL; usage++)
        for (size_t i = 0; i < commands->rows_count; i++)
            if (strcmp(commands->rows[i].usage, *usage) == 0)
                print_row(&commands->rows[i], file);
}

static void print_overview(const struct commands *commands, FILE *file)
{
    bool titled = false;
    fprintf(file, "usage: %s COMMAND [options]\n\n%s\n", commands->program, commands->about);
    for (size_t i = 0; i < commands->groups_count; i++)
        print_group(commands, &commands->groups[i], file);
    for (size_t i = 0; i < commands->rows_count; i++) {
        if (is_in_any(commands, commands->rows[i].usage))
            continue;
        fputs(titled ? "" : "\nmore\n", file);
        titled = true;
        print_row(&commands->rows[i], file);
    }
    fputs("\noptions of most\n", file);
    for (size_t i = 0; i < commands->options_count; i++)
        if (commands_named(commands->common, commands->options[i].name))
            args_help(&commands->options[i], 1, file);
    fprintf(file, "\n%s COMMAND --help tells of one command.\n", commands->program);
}

/* ---- of one ---- */

static void print_forms(const struct commands *commands, const char *name, FILE *file)
{
    const char *before = "usage:";
    int forms = 0;
    for (size_t i = 0; i < commands->rows_count; i++) {
        if (strcmp(commands->rows[i].name, name) != 0)
            continue;
        fprintf(file, "%s %s %s [options]\n", before, commands->program, commands->rows[i].usage);
        before = "      ";
        forms++;
    }
    fputc('\n', file);
    for (size_t i = 0; i < commands->rows_count; i++)
        if (strcmp(commands->rows[i].name, name) == 0 && forms > 1)
            print_row(&commands->rows[i], file);
        else if (strcmp(commands->rows[i].name, name) == 0)
            args_help_text(commands->rows[i].help, file);
}

static void print_options(const struct commands *commands, const char *name, FILE *file)
{
    bool titled = false;
    for (size_t o = 0; o < commands->options_count; o++) {
        bool taken = false;
        for (size_t i = 0; i < commands->rows_count; i++)
            taken |= strcmp(commands->rows[i].name, name) == 0 &&
                     commands_named(commands->rows[i].takes, commands->options[o].name);
        if (!taken)
            continue;
        fputs(titled ? "" : "\noptions\n", file);
        titled = true;
        args_help(&commands->options[o], 1, file);
    }
}

static void print_examples(const struct commands *commands, const char *name, FILE *file)
{
    bool titled = false;
    for (size_t i = 0; i < commands->examples_count; i++) {
        if (strcmp(commands->examples[i].name, name) != 0)
            continue;
        fputs(titled ? "" : "\nexamples\n", file);
        titled = true;
        for (const char *line = commands->examples[i].text; *line != '\0'; line += strcspn(line, "\n") + 1)
            fprintf(file, "  %.*s\n", (int)strcspn(line, "\n"), line);
    }
}

enum err commands_help(const struct commands *commands, const char *name, FILE *file)
{
    bool known = name == NULL;
    for (size_t i = 0; i < commands->rows_count && !known; i++)
        known = strcmp(commands->rows[i].name, name) == 0;
    if (!known)
        return commands_refuse(commands, name);
    if (name == NULL) {
        print_overview(commands, file);
    } else {
        print_forms(commands, name, file);
        print_options(commands, name, file);
        print_examples(commands, name, file);
    }
    return fflush(file) == 0 ? ERR_OK : err_set_errno(ERR_IO, "cannot write");
}
