/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_log: the configurations that this island knows, in order; and from them the epoch of a version and the parts
 * that make it.
 *
 * A part is what one owner makes of one fragment's version: its shards travel as one object. Configurations of epochs
 * whose results nobody asks for any more may be forgotten from the front. Pure; owns its configurations.
 *
 * Owns: who takes part in an epoch: configurations, their order, the slots of members; certificates of states.
 * Called by: daemon, daemon/control, daemon/ctl, daemon/membership, daemon/peers, daemon/rounds, daemon/state,
 * daemon/trainer, daemon/transfer, net/membership, net/sync.
 * Never includes: common/env.h, common/fsio.h, net/sync/, net/membership/, net/transfer/, <pthread.h>, <sys/socket.h>,
 * <time.h>, <unistd.h>, <zmq.h>.
 */
#ifndef NET_CONFIG_CONFIG_LOG_H
#define NET_CONFIG_CONFIG_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"
#include "net/config/config.h"
#include "net/config/config_proof.h"

struct version_part {
    struct result_id id; /* of its result; the digest only of a carried one, else zeros */
    uint64_t shards;     /* mask */
    bool carried;        /* the configuration names its result */
};

struct config_log;

ERR_MUST_CHECK enum err config_log_new(struct config_log **out);
/* NULL is fine. */
void config_log_free(struct config_log *config_log);

/* Puts a configuration at the end: the first one whatever its epoch, each other one only if it follows the last
 * (config_follows()): ERR_PROTO, and the configuration stays the caller's. It is taken over otherwise, and emptied.
 * That it makes sense by itself (config_check()) and who decided it (config_proved()) is the caller's to check. */
ERR_MUST_CHECK enum err config_log_add(struct config_log *config_log, struct config *config,
                                       const struct digest *digest);
/* Forgets the configurations before `epoch`; the last one stays. */
void config_log_forget(struct config_log *config_log, uint64_t epoch);

/* The newest; NULL: there is none. Borrowed until the next config_log_add() or config_log_forget(). */
const struct config *config_log_last(const struct config_log *config_log);
const struct digest *config_log_last_digest(const struct config_log *config_log);
/* NULL: not known, or forgotten. */
const struct config *config_log_at(const struct config_log *config_log, uint64_t epoch);

/* The epoch to which a version of a fragment belongs: the last one whose start is below it. False: it is before the
 * configurations that are known. Version 0 belongs to the first one known, where that starts from it. */
bool config_log_epoch(const struct config_log *config_log, uint32_t fragment, uint64_t version, uint64_t *epoch);

/* The parts of a version (above 0): carried ones first, in order of owner, then epoch; then those that the version's
 * own epoch makes, in order of owner. They are disjoint and cover all shards. `shards_count`: the fragment's. Returns
 * how many; 0: not known here, or nobody owns anything and nothing is carried. Beside carried ones, what nobody owns is
 * a part of SHARDMAP_NOBODY: the carried ones have to be shown when the next configuration is decided, or it never is.
 */
enum { VERSION_PARTS_MAX = SHARDMAP_SLOTS };
uint32_t config_log_parts(const struct config_log *config_log, uint32_t fragment, uint32_t shards_count,
                          uint64_t version, struct version_part parts[VERSION_PARTS_MAX]);

#endif
