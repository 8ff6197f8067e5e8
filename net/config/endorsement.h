/* SPDX-License-Identifier: Apache-2.0 */
/*
 * endorsement: what the voters of an epoch sign of a member's vote and shards in the next one, and whether a
 * configuration has enough of it (docs/PROTOCOL.md, "Endorsements").
 *
 * A proposer alone says neither that a member is lost nor that it has come. Whoever votes, owns or contributes loses
 * that by an order, by its own word, or because a majority of the voters signed, in the ballot in which the
 * configuration was made, that it may go; likewise it gains a vote or shards, or its vote another disk. So what a
 * configuration says can be checked by anybody at any time, by itself: one that somebody has accepted can always be
 * finished. The pattern is the new-view certificate of PBFT (Castro & Liskov, 1999). Pure. Bytes come from strangers.
 */
#ifndef NET_CONFIG_ENDORSEMENT_H
#define NET_CONFIG_ENDORSEMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "net/config/config.h"
#include "net/transport/ident.h"

/* `member`, `says` and `incarnation` are there: signs them about configuration `epoch`, in `ballot`. */
void endorsement_sign(const struct ident *ident, const uint8_t nonce[CONFIG_NONCE_BYTES], uint64_t epoch,
                      uint64_t ballot, struct config_endorsement *endorsement);
bool endorsement_signed(const uint8_t *key, const uint8_t nonce[CONFIG_NONCE_BYTES], uint64_t epoch, uint64_t ballot,
                        const struct config_endorsement *endorsement);

/* What has to be endorsed of a member of `next`: whether it loses something for which there is no order or word of its
 * own, and whether it gains something. */
struct endorsement_need {
    bool leaves, comes;
};
struct endorsement_need endorsement_needed(const struct config *previous, const struct config *next,
                                           const struct config_member *member);

/* Whether a signer's word of a member counts in `next`: one that leaves by it itself has a say only in who is mute,
 * which a member is that has signed there of nobody else that it may go. Else a few that do not hear each other, and
 * one that lies to each of them, would send them all away. */
bool endorsement_counts(const struct config *previous, const struct config *next, uint32_t signer, uint32_t member,
                        enum config_endorsed says);
/* Of how many voters it takes the words: that a member goes, of a majority; that it comes, of so many full voters as
 * commit: a witness may be one that never hears it. */
uint32_t endorsement_quorum(const struct config *previous, enum config_endorsed says);

/* Whether `next` has what it needs: of each such member the good signatures of so many of the voters of `previous`,
 * and no others; voters go without another in their place only where that lowers the majority, or beside a witness
 * (rule 5); losses are counted once each, and the map is nobody's choice (net/config/owners.h). ERR_PROTO names the
 * lack. About 50 µs for each signature. */
ERR_MUST_CHECK enum err endorsements_follow(const struct config *previous, const struct config *next);

#endif
