/* SPDX-License-Identifier: Apache-2.0 */
/*
 * records: view records as tests need them: members with keys, one record after the other.
 *
 * A helper that fails fails the running test. record_deinit() what these return.
 */
#ifndef TESTS_LIB_SAMPLE_RECORDS_H
#define TESTS_LIB_SAMPLE_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/transport/ident.h"
#include "net/config/record.h"

enum { RECORDS_IDENTS = 80 };
/* The key of member `id`, the same for the whole process. */
const struct ident *records_ident(uint32_t id);

/* Record 0 of a run of so many owners, by the names of m0, m1 …, with equal slots, and of a witness behind them. */
struct record records_first(uint32_t owners, bool witness);
/* Record e + 1 that says what record e says. */
struct record records_next(const struct record *record);
struct digest records_digest(const struct record *record);

/* Puts another member at its end, of an id that nobody had, with nothing but a role and a vote where the role has one.
 * Borrowed until the next change. */
struct record_member *records_row(struct record *record, uint32_t id, enum record_role role);
/* Likewise, of the next id, with a name and a key. Borrowed until the next change. */
struct record_member *records_add(struct record *record, enum record_role role);
/* Makes everyone of these ids, `count` of them, an owner of as many slots, in this order, and nobody else. */
void records_map(struct record *record, const uint32_t *ids, uint32_t count);
void records_start(struct record *record, uint32_t fragment, uint64_t version);
/* Carries a result for the version after the start, in its place. */
void records_carry(struct record *record, uint32_t fragment, uint32_t owner, uint64_t epoch, uint64_t shards);
/* Carries this one, in its place. */
void records_carry_one(struct record *record, const struct part_result *carried);
/* The vote of member `id` for a record. */
struct record_vote records_vote(uint32_t id, const struct record *record, uint64_t ballot);

#endif
