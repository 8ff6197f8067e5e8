/* SPDX-License-Identifier: Apache-2.0 */
/*
 * roster: view records as tests of the protocol core need them: a few members whose ids are not their slots, so that
 * who takes one for the other is seen, and one record after the other.
 *
 * Members have names and no keys: record_follows() holds for these records, record_check() does not
 * (tests/lib/sample_records has such, and what else is put into any record). A helper that fails fails the running
 * test. Records are owned by the caller until roster_add() takes them.
 */
#ifndef TESTS_LIB_ROSTER_H
#define TESTS_LIB_ROSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "net/config/chain.h"
#include "net/config/record.h"
#include "net/sync/sync_types.h"

/* The id of the member that a test calls `number`. */
uint32_t roster_id(uint32_t number);
uint32_t roster_number(uint32_t id);

/* Record 0: members 0 to count - 1. All of them are owners and vote up to SHARDMAP_OWNERS_MAX, the others contribute;
 * the map is among all owners. */
struct record roster_record(uint32_t count);
/* Record e + 1 that says what the last one of the chain says, without its carried results. */
struct record roster_next(const struct chain *chain);
/* Another member at its end; `number` is above all others'. */
void roster_join(struct record *record, uint32_t number, enum record_role role);
void roster_role(struct record *record, uint32_t number, enum record_role role, bool voter);
/* Gives every slot of the map to these (numbers), in equal parts; everyone keeps what it has as far as that goes. */
void roster_map(struct record *record, const uint32_t *numbers, uint32_t count);
/* Likewise, to all of role RECORD_OWNER. */
void roster_map_owners(struct record *record);
/* Carries a result for the version after the start, in its place. */
void roster_carry(struct record *record, uint32_t fragment, uint32_t number, uint64_t epoch, uint64_t shards,
                  const struct digest *digest);
/* Puts it at the end of the chain, which takes it over. */
void roster_add(struct chain *chain, struct record *record);

/* What the last record says, as seen by the member in slot `self`; `ids`: by slot, of those on the roster as far as the
 * daemon knows, borrowed. */
struct sync_view roster_view(const struct chain *chain, uint32_t self, const uint32_t *ids, uint32_t slots);

#endif
