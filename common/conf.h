/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conf: INI files into structs by one table of keys (conf_value.h: type, unit, default, range, help), and back into
 * text.
 *
 * The table is the only place a key is defined: parsing, defaults, checks, --print-config, the tests of the sample
 * files and the nearest-key hint all read it. Files are read by inih. Every refusal is one line:
 * "FILE:LINE: [section] key: reason". Called at start-up, from one thread.
 */
#ifndef COMMON_CONF_H
#define COMMON_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/conf_value.h"
#include "common/err.h"

struct conf_schema {
    const struct conf_key *keys;
    size_t keys_count;
    size_t struct_bytes;
    const char *gone_section, *gone_remedy; /* one that there was once, refused with what to do; NULL: none */
};

/* "section.key=value" given on a command line. */
struct conf_override {
    const char *text;
};

/* Fills `*out` (schema->struct_bytes, overwritten) from defaults, then the file, then the overrides, and checks that
 * nothing required is missing. ERR_CONF names file, line, key and remedy. On failure nothing is left to free. */
ERR_MUST_CHECK enum err conf_load(const struct conf_schema *schema, const char *path,
                                  const struct conf_override *overrides, size_t overrides_count, void *out);

/* As conf_load(), from text in memory; `name` stands for the file in errors. */
ERR_MUST_CHECK enum err conf_parse(const struct conf_schema *schema, const char *text, const char *name, void *out);
ERR_MUST_CHECK enum err conf_parse_with(const struct conf_schema *schema, const char *text, const char *name,
                                        const struct conf_override *overrides, size_t overrides_count, void *out);

/* Releases the strings of a struct filled by conf_load(). */
void conf_deinit(const struct conf_schema *schema, void *out);

/* Writes every key in file form. `with_help` adds the comment, unit, range and default above each; without it the text
 * is canonical: equal structs give equal text, and keys of this machine alone are left out. */
void conf_print(const struct conf_schema *schema, const void *in, bool with_help, FILE *file);

/* As conf_print() with help, but only these keys, as "section.name" and NULL after the last. */
void conf_print_some(const struct conf_schema *schema, const void *in, const char *const *keys, FILE *file);

#endif
