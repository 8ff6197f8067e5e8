/* SPDX-License-Identifier: Apache-2.0 */
/*
 * owners: which owners of a configuration have slots of its map, and how many: nobody's choice, but a function of its
 * members and of the map before. Pure integer arithmetic.
 *
 * Those who would own do, the steadiest and fastest first; who would rather not, where nobody would; who cannot be
 * dialled, where nobody else can own. Slots are shared out by uplink, and everyone keeps what it had as far as that
 * goes. An uplink is its member's own word, and who has the slots averages the model: so it counts for no more than
 * OWNERS_NEXT times the largest that another owner states, and than OWNERS_MEDIANS times the owners' median, the lower
 * of two. Of three owners, one that says whatever it likes has half of the slots at most, of five a third; two of five
 * that do so together have less than three quarters, and it takes more than half of the owners to move that bound.
 */
#ifndef NET_CONFIG_OWNERS_H
#define NET_CONFIG_OWNERS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "net/config/config.h"

enum { OWNERS_NEXT = 2, OWNERS_MEDIANS = 4 };

/* Whether a member is to own: yes; it would rather not, and does where nobody would; or none can dial it, and it does
 * only where nobody else can, since others that cannot be dialled would never get its results; or it is not to, by
 * order. */
enum shyness { SHY_WILLING, SHY_RATHER_NOT, SHY_UNREACHED, SHYNESSES, SHY_NEVER = SHYNESSES };

/* `islands`: owners_islands() of the configuration: two islands that cannot be dialled never meet, so of more than two
 * those that can be own. */
enum shyness owners_shyness(const struct config_member *member, uint32_t islands);
/* Members that train. */
uint32_t owners_islands(const struct config *config);
/* Whether `a` is to own rather than `b`. */
bool owners_sooner(const struct config_member *a, const struct config_member *b);
/* Whether it was lost so often lately that it owns nothing where enough others do (owners_enough()). */
bool owners_unsteady(const struct config_member *member);
bool owners_enough(uint32_t steady);

/* Makes the map of a configuration, in which the map before stands, from its members of role CONFIG_OWNER. */
void owners_share_out(struct config *config);
/* Whether the map of `next` is the one that follows from its members and the map of `previous`. ERR_PROTO. */
ERR_MUST_CHECK enum err owners_follow(const struct config *previous, const struct config *next);

#endif
