/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_proof: who accepted a configuration, and whether that proves that it follows the one before (docs/PROTOCOL.md,
 * "Votes"). Pure. Votes come from strangers.
 */
#ifndef NET_CONFIG_CONFIG_PROOF_H
#define NET_CONFIG_CONFIG_PROOF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"
#include "net/config/config.h"
#include "net/transport/ident.h"

struct config_vote {
    uint32_t id;
    uint64_t ballot;
    uint8_t signature[IDENT_SIGNATURE_BYTES];
};
/* Signs that `ident` accepts the configuration of this digest, which is that of `epoch`, in `ballot`. */
void config_vote_sign(const struct ident *ident, const uint8_t nonce[CONFIG_NONCE_BYTES], uint64_t epoch,
                      uint64_t ballot, const struct digest *digest, uint8_t *signature);
bool config_vote_good(const uint8_t *key, const uint8_t nonce[CONFIG_NONCE_BYTES], uint64_t epoch,
                      const struct digest *digest, const struct config_vote *vote);
/* A configuration as it was decided, kept and passed on; the first of a run has no votes. */
struct config_entry {
    uint8_t *bytes;
    size_t bytes_count;
    struct config_vote *votes;
    uint32_t votes_count;
};
/* Frees both and empties it; an empty one is fine. */
void config_entry_free(struct config_entry *entry);
/* ERR_NOMEM: `*out` is empty. */
ERR_MUST_CHECK enum err config_entry_copy(const struct config_entry *entry, struct config_entry *out);

/* Whether `votes` prove that `next`, of this digest, follows `previous`, of that: it may (config_follows()), it says
 * what orders and signed words say (config_orders_follow()), and a majority of the voters of `previous` accepted it in
 * one ballot: of several ballots, the one that most of them have votes in. At most one signature of each voter is
 * checked. Votes that count nowhere do no harm. ERR_PROTO names the lack. */
ERR_MUST_CHECK enum err config_proved(const struct config *previous, const struct digest *previous_digest,
                                      const struct config *next, const struct digest *next_digest,
                                      const struct config_vote *votes, uint32_t votes_count);

#endif
