/*
 * recover: a fragment from its last checkpoint and the ledger's results since: at start, and later beside the one in
 * memory, to see whether that is what it should be. Blocking. Private to rounds/.
 */
#ifndef DAEMON_ROUNDS_RECOVER_H
#define DAEMON_ROUNDS_RECOVER_H

#include "daemon/rounds/desk.h"

/* At start, before any job. `*known`: the fragment has a state. `*saved`: the version that its checkpoint holds.
 * `*results`: owners of parts whose result of the version after it the ledger holds in a form that can be applied. */
ERR_MUST_CHECK enum err recover_fragment(struct desk *desk, uint32_t f, bool *known, uint64_t *saved,
                                         struct bitset *results);

/* Into `shadow` (replica_shadow()), up to `version`; on a job's thread. ERR_NOTFOUND: they do not lead there. */
ERR_MUST_CHECK enum err recover_replay(const struct desk *desk, uint32_t f, uint64_t version, struct replica *shadow,
                                       struct store_fragment *state);

#endif
