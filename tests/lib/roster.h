/* SPDX-License-Identifier: Apache-2.0 */
/*
 * roster: configurations as tests of the protocol core need them: a few members whose ids are not their slots, so that
 * who takes one for the other is seen, and one configuration after the other.
 *
 * Members have names and no keys: config_follows() holds for these configurations, config_check() does not
 * (tests/lib/sample_configs has such, and what else is put into any configuration). A helper that fails fails the
 * running test. Configurations are owned by the caller until roster_add() takes them.
 */
#ifndef TESTS_LIB_ROSTER_H
#define TESTS_LIB_ROSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "net/config/config_log.h"
#include "net/config/config.h"
#include "net/sync/sync_types.h"

/* The id of the member that a test calls `number`. */
uint32_t roster_id(uint32_t number);
uint32_t roster_number(uint32_t id);

/* Configuration 0: members 0 to count - 1. All of them are owners and vote up to SHARDMAP_OWNERS_MAX, the others
 * contribute; the map is among all owners. */
struct config roster_config(uint32_t count);
/* Configuration e + 1 that says what the last one of the config log says, without its carried results. */
struct config roster_next(const struct config_log *config_log);
/* Another member at its end; `number` is above all others'. */
void roster_join(struct config *config, uint32_t number, enum config_role role);
void roster_role(struct config *config, uint32_t number, enum config_role role, bool voter);
/* Gives every slot of the map to these (numbers), in equal parts; everyone keeps what it has as far as that goes. */
void roster_map(struct config *config, const uint32_t *numbers, uint32_t count);
/* Likewise, to all of role CONFIG_OWNER. */
void roster_map_owners(struct config *config);
/* Carries a result for the version after the start, in its place. */
void roster_carry(struct config *config, uint32_t fragment, uint32_t number, uint64_t epoch, uint64_t shards,
                  const struct digest *digest);
/* Puts it at the end of the config log, which takes it over. */
void roster_add(struct config_log *config_log, struct config *config);

/* What the last configuration says, as seen by the member in slot `self`; `ids`: by slot, of those on the roster as far
 * as the daemon knows, borrowed. */
struct sync_view roster_view(const struct config_log *config_log, uint32_t self, const uint32_t *ids, uint32_t slots);

#endif
