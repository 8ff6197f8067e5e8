/* SPDX-License-Identifier: Apache-2.0 */
/*
 * made: results made up for tests that look at no values: a name around bytes that are anything, and all digests right.
 */
#ifndef TESTS_LIB_MADE_H
#define TESTS_LIB_MADE_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/state/ledger.h"

/* The least an object takes: header, frame's head, metadata with one contributor. */
enum { MADE_BYTES_MIN = 168 + 64 + 24 + 44 };

/* Makes `bytes` of memory one object, whose frame's payload is what lay there; signed with a key that nobody knows.
 * Returns its name. */
struct result_id made_result(uint32_t f, uint64_t version, uint64_t epoch, uint32_t owner, uint8_t *object,
                             size_t bytes);
/* Puts it into a ledger, too. */
struct result_id made_append(struct ledger *ledger, uint32_t f, uint64_t version, uint32_t owner, uint8_t *object,
                             size_t bytes);

#endif
