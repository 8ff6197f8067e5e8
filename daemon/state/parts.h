/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parts: the parts that make a version of a fragment, each with owner, epoch and shards (net/config/config_log.h), less
 * those without values. Rounds, transfers and the trainer's tallies all ask here, and keep nothing of the answer beyond
 * a version. Pure.
 */
#ifndef DAEMON_STATE_PARTS_H
#define DAEMON_STATE_PARTS_H

#include <stdint.h>

#include "net/config/config_log.h"
#include "outer_opt/plan.h"

/* Both borrowed. */
struct parts {
    const struct plan *plan;
    const struct config_log *config_log;
};

/* The parts of a version (above 0), in an order that everybody has: index p is one's place in it, good for this version
 * and as long as no epoch begins. Those without values are left out (shards are empty only where tensors are sent
 * whole). Returns how many; 0: it is not known. */
uint32_t parts_of(const struct parts *parts, uint32_t f, uint64_t version, struct version_part out[VERSION_PARTS_MAX]);
/* Those of any version of the newest epoch in which nothing is carried. */
uint32_t parts_usual(const struct parts *parts, uint32_t f, struct version_part out[VERSION_PARTS_MAX]);

/* The one of this owner and epoch, and its index; VERSION_PARTS_MAX: there is none. */
uint32_t parts_find(const struct parts *parts, uint32_t f, uint64_t version, uint64_t epoch, uint32_t owner,
                    struct version_part *out);

/* The shards of a fragment that have values. */
uint64_t parts_filled(const struct plan *plan, uint32_t f);
/* The public key of the member that owned in that epoch; NULL: not known. Borrowed as the config log's configurations
 * are. */
const uint8_t *parts_owner_key(const struct parts *parts, uint64_t epoch, uint32_t owner);

#endif
