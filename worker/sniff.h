/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sniff: what the first bytes of a file give it away as, where it is to be text or tokens.
 *
 * A corpus that was never unpacked trains without any error, on noise. Pure: it reads what it is given, and says what
 * it takes that for. Any thread.
 */
#ifndef WORKER_SNIFF_H
#define WORKER_SNIFF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SNIFF_TEXT_BYTES = 80 };

/* Whether the file is of a kind that holds no plain text; then `what` says which, as in "gzip data". With `is_text` a
 * share of zero bytes that no text has counts, too: give false for tokens. */
bool sniff(const uint8_t *bytes, size_t count, bool is_text, char what[SNIFF_TEXT_BYTES]);

#endif
