/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vouch: which hash a version of a fragment has, by the signatures of those who hold it: what a voter signs, what is
 * kept of what others sign, and the certificate that goes with a state, so that who takes it over need not believe who
 * sends it.
 *
 * Voters that keep bytes sign the hash of each version they come to; a witness has none to sign. A version is vouched
 * for when so many of them signed one hash as have to hold a result before it counts (record_certifying()): of the
 * epoch that the version belongs to, or of the newest record. Pure; owns its memory. Signatures come from strangers:
 * they are kept as they come, and checked when they are needed, once.
 */
#ifndef NET_CONFIG_VOUCH_H
#define NET_CONFIG_VOUCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"
#include "net/config/chain.h"
#include "net/transport/ident.h"
#include "net/config/record.h"

#define VOUCH_NOBODY UINT32_MAX
enum {
    VOUCH_KEPT = 4,       /* versions of a fragment, of each voter */
    VOUCH_ROW_BYTES = 72, /* packed */
};

/* The subject of a signature: version `version`, above 0, of a fragment has this hash. */
struct vouch_subject {
    const uint8_t *nonce; /* of the run, RECORD_NONCE_BYTES; borrowed */
    uint32_t fragment;
    uint64_t version;
    struct digest hash;
};
void vouch_sign(const struct ident *ident, const struct vouch_subject *subject,
                uint8_t signature[IDENT_SIGNATURE_BYTES]);
bool vouch_good(const uint8_t *key, const struct vouch_subject *subject,
                const uint8_t signature[IDENT_SIGNATURE_BYTES]);

/* ---- whose signatures are needed ---- */

struct vouch_voter {
    uint32_t id;
    uint8_t key[IDENT_KEY_BYTES];
};
/* The voters of one record that keep bytes, and how many of them it takes. */
struct vouch_quorum {
    uint32_t needed, count;
    struct vouch_voter voters[RECORD_VOTERS_MAX];
};
/* Each of them is enough: the newest record's first, then the one's that the version belongs to, if that is another
 * and known. A copy, so that any thread may use it. */
struct vouch_rule {
    uint32_t count;
    struct vouch_quorum quorums[2];
};
void vouch_rule_of(const struct chain *chain, uint32_t fragment, uint64_t version, struct vouch_rule *out);

/* ---- a certificate ---- */

struct vouch {
    uint32_t id;
    uint8_t signature[IDENT_SIGNATURE_BYTES];
};
struct vouch_certificate {
    uint32_t count;
    struct vouch rows[RECORD_VOTERS_MAX];
};
/* Whether it proves the subject: rows that count nowhere do no harm, and no voter counts twice. `excused`: a voter of
 * the newest record whose own voice is missing and is taken for given; VOUCH_NOBODY: none. One that somebody really
 * gave is needed in any case. ERR_PROTO says what is missing. */
ERR_MUST_CHECK enum err vouch_check(const struct vouch_rule *rule, const struct vouch_subject *subject,
                                    const struct vouch_certificate *certificate, uint32_t excused);

/* Whether a row is said to be a voter's of the rule, and is not: nobody sends such a one who means well. */
bool vouch_forged(const struct vouch_rule *rule, const struct vouch_subject *subject,
                  const struct vouch_certificate *certificate);

size_t vouch_bytes(uint32_t count);
/* Into `out`, vouch_bytes(certificate->count). */
void vouch_pack(const struct vouch_certificate *certificate, uint8_t *out);
/* ERR_PROTO: no such bytes, or too many. */
ERR_MUST_CHECK enum err vouch_unpack(const uint8_t *bytes, size_t bytes_count, struct vouch_certificate *certificate);

/* ---- signatures, ours and those of others ---- */

struct vouches_conf {
    const struct chain *chain; /* borrowed, as is what follows */
    const struct ident *ident; /* ours */
    const uint8_t *nonce;      /* of the run */
    uint32_t id;               /* ours */
    uint32_t fragments_count;
};

/* Memory: 128 bytes for each voter of the two newest records that keeps bytes and each of its last VOUCH_KEPT versions
 * of a fragment, taken as they come: 46 KiB for three voters and 32 fragments. */
struct vouches;
/* `conf` is copied. ERR_NOMEM. */
ERR_MUST_CHECK enum err vouches_new(const struct vouches_conf *conf, struct vouches **out);
/* NULL is fine. */
void vouches_free(struct vouches *vouches);
/* The chain has another newest record: what those said who do not vote any more is forgotten. */
void vouches_begin_epoch(struct vouches *vouches);

/* A member signed this, as it says. Of who is no such voter nothing is kept; nor is it without memory, for it is said
 * again. */
void vouches_heard(struct vouches *vouches, uint32_t id, const struct vouch_subject *subject,
                   const uint8_t signature[IDENT_SIGNATURE_BYTES]);
/* Our own signature, made once for a version. False: we are no voter that keeps bytes, or there is no memory. */
bool vouches_own(struct vouches *vouches, uint32_t fragment, uint64_t version, const struct digest *hash,
                 uint8_t signature[IDENT_SIGNATURE_BYTES]);
/* All good signatures of it that are known here, of voters of the newest record and of the version's own. */
void vouches_known(struct vouches *vouches, const struct vouch_subject *subject, struct vouch_certificate *out);
/* Puts those before the certificate's rows, which somebody sent: who catches up may hear a voter that the sender does
 * not hear. Rows of voters that are known here already are left out. */
void vouches_complete(struct vouches *vouches, const struct vouch_subject *subject,
                      struct vouch_certificate *certificate);

#endif
