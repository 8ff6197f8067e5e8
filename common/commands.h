/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commands: what a program with commands says of them: help for one or all, and which one was probably meant.
 *
 * All is told from the program's tables, which complete.h reads, too: a command and an option stand in one place.
 * Pure but for what it prints; any thread.
 */
#ifndef COMMON_COMMANDS_H
#define COMMON_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "common/args.h"
#include "common/conf.h"
#include "common/err.h"

struct commands_row {
    const char *name;
    const char *usage; /* "join TOKEN": a name may have several forms, each with a row */
    const char *help;  /* what it does, in one line */
    const char *takes; /* options, with a blank between two, and at both ends */
};

/* For the overview. What stands in no group is shown below the last. */
struct commands_group {
    const char *title;
    const char *const *usages; /* NULL after the last */
};

struct commands_example {
    const char *name; /* of the command */
    const char *text; /* as it is typed; lines end with '\n' */
};

struct commands {
    const char *program;
    const char *about; /* one sentence */
    const struct commands_row *rows;
    size_t rows_count;
    const struct commands_group *groups;
    size_t groups_count;
    const struct commands_example *examples;
    size_t examples_count;
    const struct args_option *options;
    size_t options_count;
    const char *common;            /* options that the overview shows, as `takes` has them */
    const struct conf_schema *set; /* whose keys --set takes; NULL: there is no such option */
    const char *tells_names;       /* command and option that print what NAME may be, one a line; NULL: there is none */
    const char *told_by;           /* options that it is given as they were typed, as `takes` has them */
};

/* `takes` and `common` name it. */
bool commands_named(const char *names, const char *option);

/* Of the command called `name`, in all its forms; NULL: of all. ERR_ARG: there is none of that name. */
ERR_MUST_CHECK enum err commands_help(const struct commands *commands, const char *name, FILE *file);

/* ERR_ARG: "no command …", and the one that was probably meant. */
enum err commands_refuse(const struct commands *commands, const char *name);

#endif
