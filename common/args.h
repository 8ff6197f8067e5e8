/* SPDX-License-Identifier: Apache-2.0 */
/*
 * args: command lines of the programs: long options from a table, with help and one clear error.
 */
#ifndef COMMON_ARGS_H
#define COMMON_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/err.h"

enum args_type {
    ARGS_FLAG,   /* bool */
    ARGS_STRING, /* const char *, borrowed from argv */
    ARGS_U64,
    ARGS_REAL,
    ARGS_LIST, /* struct args_list: may be given several times */
};

enum { ARGS_LIST_MAX = 64 };
struct args_list {
    const char *item[ARGS_LIST_MAX];
    size_t count;
};

struct args_option {
    const char *name; /* without the dashes; one letter: it is written with one */
    enum args_type type;
    void *to;
    const char *value_name; /* "FILE"; of a fixed set "cpu|cuda|auto"; NULL for a flag */
    const char *help;
};

/* Reads options from argv[1..). Arguments that do not start with "--", and are no option of one letter, go to `rest`;
 * NULL: they are refused. "--name value" and "--name=value"; "--" ends options. ERR_ARG names the fault and how to get
 * help. */
ERR_MUST_CHECK enum err args_parse(int argc, char **argv, const struct args_option *options, size_t options_count,
                                   struct args_list *rest);

/* The same, and the names of the options that were given go to `given`, each time anew. */
ERR_MUST_CHECK enum err args_parse_given(int argc, char **argv, const struct args_option *options, size_t options_count,
                                         struct args_list *rest, struct args_list *given);

/* The option, and what it is for, in lines of 80 columns at most where words allow. */
void args_help(const struct args_option *options, size_t options_count, FILE *file);

/* The same layout for any two texts, and for one. */
void args_help_row(const char *left, const char *help, FILE *file);
void args_help_text(const char *text, FILE *file);

/* "--", or "-" before a name of one letter. */
const char *args_dashes(const char *name);

#endif
