/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conf_value: one configuration key, and its value between text and the field of a struct.
 *
 * Owns the types and units of values: how each is read, checked, printed and explained. Tables of keys are made of
 * struct conf_key and reach this header through conf.h; conf.c calls the functions, and who reads one value of a
 * command line. It knows no file, section or line: conf.c puts these before a refusal.
 */
#ifndef COMMON_CONF_VALUE_H
#define COMMON_CONF_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "common/err.h"

enum conf_type {
    CONF_STRING,   /* char *, owned by the struct */
    CONF_PATH,     /* char *; a relative path is taken from the folder of the file it stands in */
    CONF_LOCAL,    /* a path, of this machine alone: conf_print() leaves it out of canonical text */
    CONF_MIXTURE,  /* char *; a path, or several with weights (common/mixture.h); relative ones as of CONF_PATH. What
                    * begins  like a mixture and is none stays as it is: only who uses it knows whether that is wrong */
    CONF_BOOL,     /* bool; yes/no, true/false, on/off, 1/0 */
    CONF_INT,      /* int64_t */
    CONF_REAL,     /* double */
    CONF_ENUM,     /* int: index into choices */
    CONF_OWN_ENUM, /* the same, of this machine alone: conf_print() leaves it out of canonical text, too */
    CONF_BYTES,    /* uint64_t bytes; B, KiB, MiB, GiB, kB, MB, GB */
    CONF_RATE,     /* uint64_t bit/s; bit, kbit, Mbit, Gbit */
    CONF_DURATION, /* uint64_t milliseconds; ms, s, min, h */
};

struct conf_key {
    const char *section;
    const char *name;
    enum conf_type type;
    size_t offset;              /* of the field in the struct (for a list section: in the element) */
    const char *initial;        /* default, as text; NULL: the key must be given; "": empty string or 0 */
    double min, max;            /* in the field's unit; min == max means no range */
    const char *const *choices; /* of enums; NULL-terminated */
    const char *unit;           /* for people; NULL if it has none */
    const char *help;           /* one sentence or more */
};

/* Parses `text` into the key's field of `base` and replaces its value. A relative path is taken from `folder`; NULL
 * leaves it as it is. ERR_CONF says why the text will not do, without naming file or key. */
ERR_MUST_CHECK enum err conf_value_set(const struct conf_key *key, const char *text, const char *folder, void *base);

/* Where a key may be given in several lines (sources of a mixture), adds `text` to its value, and `*added` is true.
 * Otherwise `*added` is false and nothing has changed. */
ERR_MUST_CHECK enum err conf_value_add(const struct conf_key *key, const char *text, const char *folder, void *base,
                                       bool *added);

/* Prints the value so that conf_value_set() reads the same one back. */
void conf_value_print(const struct conf_key *key, const void *base, FILE *file);

/* Whether machines may differ in it. */
bool conf_value_is_local(const struct conf_key *key);

/* Whether it prints as nothing. */
bool conf_value_empty(const struct conf_key *key, const void *base);

/* Prints the help, unit, range and default as comment lines. */
void conf_value_print_help(const struct conf_key *key, FILE *file);

/* Releases the field's text, if it has one, and leaves the field NULL. */
void conf_value_free(const struct conf_key *key, void *base);

#endif
