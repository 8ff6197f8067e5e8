/*
 * recover: at start, a fragment from its last checkpoint and the ledger's results since. Blocking; before any job.
 * Private to rounds/.
 */
#ifndef DAEMON_ROUNDS_RECOVER_H
#define DAEMON_ROUNDS_RECOVER_H

#include "daemon/rounds/desk.h"

/* `*known`: the fragment has a state. `*saved`: the version that its checkpoint holds. `*results`: shards whose result
 * of the version after it the ledger holds in a form that can be applied. */
ERR_MUST_CHECK enum err recover_fragment(struct desk *desk, uint32_t f, bool *known, uint64_t *saved,
                                         struct bitset *results);

#endif
