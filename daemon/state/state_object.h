/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state_object: a fragment's whole state (anchor and momentum at a version, and what they count) as bytes, for an
 * island whose own is wrong or missing. It carries the signatures of voters for its hash (net/config/certificate.h):
 * its sender need not be believed. The hash is checked by these, and the state by its hash, before anything is
 * replaced.
 *
 * Its *body* is what the hash covers by a digest tree; its *head* is all else, and the tree's leaves: so a body whose
 * head is there can come in pieces, from anyone, each piece checked as it comes (net/transfer/piece_picker.h).
 */
#ifndef DAEMON_STATE_STATE_OBJECT_H
#define DAEMON_STATE_STATE_OBJECT_H

#include <stdint.h>

#include "common/err.h"
#include "daemon/state/replica.h"
#include "daemon/state/store.h"
#include "net/config/certificate.h"

enum { STATE_HEADER_BYTES = 128 }; /* of an object, before its body */

/* Size of the object of fragment `f`, without a certificate. */
uint64_t state_object_bytes(struct replica *replica, uint32_t f);
/* Writes it into `out`, which has as many bytes as state_object_bytes() says. */
void state_object_make(struct replica *replica, const struct plan *plan, uint32_t f, const struct store_fragment *state,
                       uint8_t *out);

/* Puts the certificate of its hash behind an object of `bytes`, in memory with certificate_bytes(certificate->count)
 * more. Version 0 has none. */
void state_object_certify(uint8_t *object, uint64_t bytes, const struct certificate *certificate);

/* What a state that comes in has to be. */
struct state_expected {
    uint64_t version;
    uint64_t steps;                      /* the most that the run has had: no state is of a later step */
    const uint8_t *nonce;                /* of the run */
    const struct certificate_rule *rule; /* the voters that have to certify a version above 0 */
    uint32_t excused;                    /* as in certificate_check() */
    struct certificates *heard;          /* further signatures known here; NULL: none */
    const struct digest *hash;           /* of version 0, which nobody certifies: as its sender says; NULL: not known */
};
/* Checks and takes it over. ERR_PROTO: not such an object, its values are not those of its hash, or it is not the
 * expected one; the replica is then as it was. */
ERR_MUST_CHECK enum err state_object_install(struct replica *replica, const struct plan *plan, uint32_t f,
                                             const struct state_expected *expected, const uint8_t *object,
                                             uint64_t bytes, struct store_fragment *state);

/* A copy of a state for others, in the caller's memory. */
struct served_state {
    uint32_t f;
    struct store_fragment state;
    uint8_t *object; /* without a certificate */
    uint64_t bytes;
    struct digest *leaves; /* state_object_leaves() of them */
};

/* ---- heads ---- */

/* Of an object without a certificate: how many leaves its body has, and the digests of some. */
size_t state_object_leaves(uint64_t bytes);
void state_object_digest(const uint8_t *object, uint64_t bytes, size_t first, size_t end, struct digest *leaves);
/* ERR_PROTO: all its leaves are not those of the state's hash: it was damaged here. */
ERR_MUST_CHECK enum err state_object_check(struct replica *replica, const struct plan *plan, uint32_t f,
                                           const struct store_fragment *state, uint64_t bytes,
                                           const struct digest *leaves);
/* The head of an object of so many bytes, without its own certificate. */
uint64_t state_head_bytes(uint64_t object_bytes, const struct certificate *certificate);
void state_head_make(const uint8_t *object, uint64_t object_bytes, const struct digest *leaves,
                     const struct certificate *certificate, uint8_t *out);

/* The largest that a head may be among so many members. */
uint64_t state_head_bytes_max(struct replica *replica, uint32_t f, uint32_t members);

struct state_head {
    struct digest hash;
    uint64_t body_bytes, object_bytes;
    size_t leaves_count;
    const uint8_t *leaves;          /* DIGEST_BYTES each; in the head's memory */
    struct certificate certificate; /* with the signatures known here */
};
/* Checks all of a head: its leaves are those of its hash, and that is the version's. Nothing is taken on trust, and no
 * memory taken. ERR_PROTO; ERR_AGAIN: all that is wrong is that too few signatures of voters are known yet. */
ERR_MUST_CHECK enum err state_head_open(struct replica *replica, const struct plan *plan, uint32_t f,
                                        const struct state_expected *expected, uint32_t members, const uint8_t *bytes,
                                        uint64_t bytes_count, struct state_head *head);
/* Lays down all but the body in `object`, head->object_bytes; the body comes behind STATE_HEADER_BYTES. */
void state_head_begin(const uint8_t *bytes, const struct state_head *head, uint8_t *object);

#endif
