/* SPDX-License-Identifier: Apache-2.0 */
/*
 * configurations: configurations as tests need them: members with keys, one configuration after the other.
 *
 * A helper that fails fails the running test. config_deinit() what these return.
 */
#ifndef TESTS_LIB_SAMPLE_CONFIGS_H
#define TESTS_LIB_SAMPLE_CONFIGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/config/config_proof.h"
#include "net/transport/ident.h"
#include "net/config/config.h"

enum { CONFIGS_IDENTS = 80 };
/* The key of member `id`, the same for the whole process. */
const struct ident *configs_ident(uint32_t id);

/* Configuration 0 of a run of so many owners, by the names of m0, m1 …, with equal slots, and of a witness behind them.
 * m0 is the founder. */
struct config configs_first(uint32_t owners, bool witness);
/* Configuration e + 1 that says what configuration e says. */
struct config configs_next(const struct config *config);
struct digest configs_digest(const struct config *config);

/* Puts another member at its end, of an id that nobody had, with nothing but a role and a vote where the role has one.
 * Borrowed until the next change. */
struct config_member *configs_row(struct config *config, uint32_t id, enum config_role role);
/* Likewise, of the next id, with a name and a key. Borrowed until the next change. */
struct config_member *configs_add(struct config *config, enum config_role role);
/* Makes everyone of these ids, `count` of them, an owner of as many slots, in this order, and nobody else. */
void configs_map(struct config *config, const uint32_t *ids, uint32_t count);
void configs_start(struct config *config, uint32_t fragment, uint64_t version);
/* Carries a result for the version after the start, in its place. */
void configs_carry(struct config *config, uint32_t fragment, uint32_t owner, uint64_t epoch, uint64_t shards);
/* Carries this one, in its place. */
void configs_carry_one(struct config *config, const struct part_result *carried);
/* The vote of member `id` for a configuration. */
struct config_vote configs_vote(uint32_t id, const struct config *config, uint64_t ballot);

#endif
