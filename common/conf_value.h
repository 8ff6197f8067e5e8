/*
 * conf_value: the text form of one configuration value: parse, check, print. Used by conf.c alone.
 */
#ifndef COMMON_CONF_VALUE_H
#define COMMON_CONF_VALUE_H

#include <stdio.h>

#include "common/conf.h"
#include "common/err.h"

/* Parses `text` into the key's field of `base`, replacing what is there. `folder` is what a relative CONF_PATH is
 * taken from; NULL leaves it as it is. ERR_CONF says why the text will not do, without naming file or key. */
ERR_MUST_CHECK enum err conf_value_set(const struct conf_key *key, const char *text, const char *folder, void *base);

/* Prints the value so that conf_value_set() reads the same one back. */
void conf_value_print(const struct conf_key *key, const void *base, FILE *file);

/* Whether it prints as nothing. */
bool conf_value_empty(const struct conf_key *key, const void *base);

/* Prints the help, unit, range and default as comment lines. */
void conf_value_print_help(const struct conf_key *key, FILE *file);

void conf_value_free(const struct conf_key *key, void *base);

#endif
