/*
 * state_object: a fragment's whole state (anchor and momentum at a version, and what they count) as bytes, for an
 * island whose own is wrong or missing. It carries the signatures of voters for its hash (net/vouch.h): whoever sends
 * it need not be believed. Verified by its hash, and that by them, before anything is replaced.
 */
#ifndef DAEMON_STATE_STATE_OBJECT_H
#define DAEMON_STATE_STATE_OBJECT_H

#include <stdint.h>

#include "common/err.h"
#include "daemon/state/replica.h"
#include "daemon/state/store.h"
#include "net/vouch.h"

/* Size of the object of fragment `f`, without a certificate. */
uint64_t state_object_bytes(struct replica *replica, const struct plan *plan, uint32_t f);
/* The largest that it may be among so many members, with a certificate. */
uint64_t state_object_bytes_max(struct replica *replica, const struct plan *plan, uint32_t f, uint32_t members);
/* Writes it into `out`, which has as many bytes as state_object_bytes() says. */
void state_object_make(struct replica *replica, const struct plan *plan, uint32_t f, const struct store_fragment *state,
                       uint8_t *out);

/* Puts the certificate of its hash behind an object of `bytes`, in memory with vouch_bytes(certificate->count) more.
 * Version 0 has none. */
void state_object_certify(uint8_t *object, uint64_t bytes, const struct vouch_certificate *certificate);

/* What a state that comes in has to be. */
struct state_expected {
    uint64_t version;
    uint64_t steps;                /* of the run: no state is of a later step */
    const uint8_t *nonce;          /* of the run */
    const struct vouch_rule *rule; /* who has to vouch for a version above 0 */
    uint32_t excused;              /* as in vouch_check() */
    const struct digest *hash;     /* of version 0, for which nobody vouches: as its sender says; NULL: not known */
};
/* Checks and takes it over. ERR_PROTO: not such an object, its values are not those of its hash, or it is not what is
 * expected; the replica is then as it was. */
ERR_MUST_CHECK enum err state_object_install(struct replica *replica, const struct plan *plan, uint32_t f,
                                             const struct state_expected *expected, const uint8_t *object,
                                             uint64_t bytes, struct store_fragment *state);

#endif
