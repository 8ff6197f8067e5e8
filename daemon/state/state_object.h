/*
 * state_object: a fragment's whole state (anchor and momentum at a version, and what they count) as bytes, for an
 * island whose own is wrong or missing. Verified by its hash before anything is replaced.
 */
#ifndef DAEMON_STATE_STATE_OBJECT_H
#define DAEMON_STATE_STATE_OBJECT_H

#include <stdint.h>

#include "common/err.h"
#include "daemon/state/replica.h"
#include "daemon/state/store.h"

/* Size of the object of fragment `f`. */
uint64_t state_object_bytes(struct replica *replica, const struct plan *plan, uint32_t f);
/* The largest that it may be among so many members. */
uint64_t state_object_bytes_max(struct replica *replica, const struct plan *plan, uint32_t f, uint32_t members);
/* Writes it into `out`, which has that many bytes. */
void state_object_make(struct replica *replica, const struct plan *plan, uint32_t f, const struct store_fragment *state,
                       uint8_t *out);

/* What a state that comes in has to be. */
struct state_expected {
    uint64_t version;
    uint64_t steps;            /* of the run: no state is of a later step */
    const struct digest *hash; /* NULL: none is known */
};
/* Checks and takes it over. ERR_PROTO: not such an object, its values are not those of its hash, or it is not what is
 * expected; the replica is then as it was. */
ERR_MUST_CHECK enum err state_object_install(struct replica *replica, const struct plan *plan, uint32_t f,
                                             const struct state_expected *expected, const uint8_t *object,
                                             uint64_t bytes, struct store_fragment *state);

#endif
