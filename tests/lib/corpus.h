/* SPDX-License-Identifier: Apache-2.0 */
/*
 * corpus: a text to train on that is there wherever this was built.
 */
#ifndef TESTS_LIB_CORPUS_H
#define TESTS_LIB_CORPUS_H

#include <stdbool.h>
#include <stddef.h>

/* Makes `path` a link to `data`. False, with the reason on stderr, if there is no such file. */
bool corpus_link(const char *data, const char *path);

/* Makes `path` (no quotes in it) a text: a link to `data`, or, where that is NULL, the C headers of this machine in
 * order of name, `bytes_max` of them at most. False, with the reason on stderr, if neither is there. */
bool corpus_make(const char *data, const char *path, size_t bytes_max);

#endif
