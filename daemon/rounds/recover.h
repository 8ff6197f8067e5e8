/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recover: a fragment from its last checkpoint and the ledger's results since: at start, and later beside the one in
 * memory, to see whether that is what it should be. Blocking. Private to rounds/.
 *
 * A version is made again only if a commit says of which results it was made, and all of these are there: results that
 * were merely received may be of a version that never came to be.
 */
#ifndef DAEMON_ROUNDS_RECOVER_H
#define DAEMON_ROUNDS_RECOVER_H

#include "daemon/rounds/desk.h"

/* At start, before any job. `*known`: the fragment has a state. `*saved`: the version that its checkpoint holds. */
ERR_MUST_CHECK enum err recover_fragment(struct desk *desk, uint32_t f, bool *known, uint64_t *saved);

/* Into `shadow` (replica_shadow()), up to `version`; on a job's thread. ERR_NOTFOUND: they do not lead there. */
ERR_MUST_CHECK enum err recover_replay(const struct desk *desk, uint32_t f, uint64_t version, struct replica *shadow,
                                       struct store_fragment *state);

#endif
