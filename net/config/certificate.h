/* SPDX-License-Identifier: Apache-2.0 */
/*
 * certificate: signatures of voters for the hash of a fragment's version: our own, those heard from others, and the
 * certificate that goes with a state, so that its receiver need not believe its sender.
 *
 * Full voters sign the hash of each version they come to; a witness has none to sign. A version is certified when as
 * many of them have signed one hash as must hold a result before it counts (config_commit_quorum()): of the version's
 * epoch, or of the newest configuration. Pure; owns its memory. Signatures come from strangers: they are kept as they
 * come, and checked when they are needed, once.
 */
#ifndef NET_CONFIG_CERTIFICATE_H
#define NET_CONFIG_CERTIFICATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"
#include "net/config/config_log.h"
#include "net/transport/ident.h"
#include "net/config/config.h"

#define CERTIFICATE_NOBODY UINT32_MAX
enum {
    CERTIFICATE_KEPT = 4,       /* versions of a fragment, of each voter */
    CERTIFICATE_ROW_BYTES = 72, /* packed */
    CERTIFICATE_OTHERS_MAX = 64,
};

/* The subject of a signature: version `version`, above 0, of a fragment has this hash. */
struct certificate_subject {
    const uint8_t *nonce; /* of the run, CONFIG_NONCE_BYTES; borrowed */
    uint32_t fragment;
    uint64_t version;
    struct digest hash;
};
void certificate_row_sign(const struct ident *ident, const struct certificate_subject *subject,
                          uint8_t signature[IDENT_SIGNATURE_BYTES]);
bool certificate_row_good(const uint8_t *key, const struct certificate_subject *subject,
                          const uint8_t signature[IDENT_SIGNATURE_BYTES]);

/* ---- the signatures needed ---- */

struct certificate_key {
    uint32_t id; /* whose it is */
    uint8_t key[IDENT_KEY_BYTES];
};
struct certificate_voter {
    uint32_t id;
    uint8_t key[IDENT_KEY_BYTES];  /* in the quorum's configuration */
    uint8_t last[IDENT_KEY_BYTES]; /* in the newest, if it is a member: it may have signed again with that */
};
/* The full voters of one configuration, and how many of them it takes. */
struct certificate_quorum {
    uint32_t needed, count;
    struct certificate_voter voters[CONFIG_VOTERS_MAX];
};
/* Each of the two is enough: the newest configuration's first, then that of the version's epoch, if it is another and
 * known. `others`: further keys that voters of the two may have signed the version with, which count nowhere, but which
 * an honest sender may have signatures by: those that they left since they can have come to it (where that is not
 * known, all that they left), and the one that they state, which a configuration that is not known here may have given
 * them. A copy, so that any thread may use it. */
struct certificate_rule {
    uint32_t count, others_count;
    struct certificate_quorum quorums[2];
    struct certificate_key others[CERTIFICATE_OTHERS_MAX];
    bool more_others; /* than there is room for: nobody can say of a signature that it is by none of them */
};
void certificate_rule_of(const struct config_log *config_log, uint32_t fragment, uint64_t version,
                         struct certificate_rule *out);

/* ---- a certificate ---- */

struct certificate_row {
    uint32_t id;
    uint8_t signature[IDENT_SIGNATURE_BYTES];
};
struct certificate {
    uint32_t count;
    struct certificate_row rows[CONFIG_VOTERS_MAX];
};
/* Whether it proves the subject: rows that count nowhere do no harm, and no voter counts twice. `excused`: a voter of
 * the newest configuration that counts as having signed although its signature is missing; CERTIFICATE_NOBODY: none. At
 * least one real signature is needed in any case. ERR_PROTO names the lack. */
ERR_MUST_CHECK enum err certificate_check(const struct certificate_rule *rule,
                                          const struct certificate_subject *subject,
                                          const struct certificate *certificate, uint32_t excused);

/* Whether a row names a voter of the rule and the signature is not that voter's, by any key that it may have signed the
 * version with: no honest sender sends one. */
bool certificate_forged(const struct certificate_rule *rule, const struct certificate_subject *subject,
                        const struct certificate *certificate);

size_t certificate_bytes(uint32_t count);
/* Into `out`, certificate_bytes(certificate->count). */
void certificate_pack(const struct certificate *certificate, uint8_t *out);
/* ERR_PROTO: no such bytes, or too many. */
ERR_MUST_CHECK enum err certificate_unpack(const uint8_t *bytes, size_t bytes_count, struct certificate *certificate);

/* ---- signatures, ours and those of others ---- */

struct certificates_conf {
    const struct config_log *config_log; /* borrowed, as is what follows */
    const struct ident *ident;           /* ours */
    const uint8_t *nonce;                /* of the run */
    uint32_t id;                         /* ours */
    uint32_t fragments_count;
};

/* Memory: 128 bytes for each full voter of the two newest configurations and each of its last CERTIFICATE_KEPT versions
 * of a fragment, taken as they come: 46 KiB for three voters and 32 fragments. */
struct certificates;
/* `conf` is copied. ERR_NOMEM. */
ERR_MUST_CHECK enum err certificates_new(const struct certificates_conf *conf, struct certificates **out);
/* NULL is fine. */
void certificates_free(struct certificates *certificates);
/* The config log has another newest configuration: forgets the signatures of members that no longer vote, and
 * how many of theirs were none. */
void certificates_begin_epoch(struct certificates *certificates);

/* A member says that it signed this. Kept only of voters, and only if there is memory: it is said again. */
void certificates_heard(struct certificates *certificates, uint32_t id, const struct certificate_subject *subject,
                        const uint8_t signature[IDENT_SIGNATURE_BYTES]);
/* How many of those that a member said it signed were found since the last call to be no signatures of its: of no key
 * that it has, states, or left lately (config_other_key()). They are checked when they are needed. Call it for each
 * full voter once in a while. Of NULL none. */
uint32_t certificates_take_false(struct certificates *certificates, uint32_t id);
/* Our own signature, made once for a version. False: we are no full voter, or there is no memory. */
bool certificates_own(struct certificates *certificates, uint32_t fragment, uint64_t version, const struct digest *hash,
                      uint8_t signature[IDENT_SIGNATURE_BYTES]);
/* All good signatures of it that are known here, of voters of the newest configuration and of the version's own. */
void certificates_known(struct certificates *certificates, const struct certificate_subject *subject,
                        struct certificate *out);
/* Puts the signatures known here before the rows of a certificate that somebody sent: the receiver may hear a voter
 * that the sender does not hear. Rows of voters that are known here already are left out. */
void certificates_complete(struct certificates *certificates, const struct certificate_subject *subject,
                           struct certificate *certificate);

#endif
