/* SPDX-License-Identifier: Apache-2.0 */
/*
 * member_word: what a member says of itself for the next configuration, with its signature: nobody can say it for it.
 *
 * A word counts when its number is above that of the member's last word in a configuration; a configuration names the
 * signature of each word that is new in it. It is said as the member of an id, which no other member has ever had, so
 * that a word counts no more when its key is admitted anew. A word may state a new key, which signs beside the old
 * one: nobody states a key that is not there. It takes an order to make it the member's (net/config/order.h). Pure.
 * Bytes come from strangers.
 */
#ifndef NET_TRANSPORT_MEMBER_WORD_H
#define NET_TRANSPORT_MEMBER_WORD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/deal.h"
#include "common/err.h"
#include "net/transport/address.h"
#include "net/transport/ident.h"

enum {
    MEMBER_WORD_NONCE_BYTES = 16,  /* of a run: WIRE_NONCE_BYTES */
    MEMBER_WORD_OWNER_CHOICES = 5, /* enum config_owner_choice */
};

struct member_word {
    uint64_t number;             /* from 1 */
    char address[ADDRESS_BYTES]; /* "host:port"; "": it dials the others */
    uint64_t uplink;             /* bit/s, above 0 */
    uint8_t owner_choice;        /* enum config_owner_choice */
    uint32_t units; /* windows that its trainer draws in a step from data that all islands share; 0: none */
    bool draining;  /* it is about to leave the run, or has left it */
    /* The key that it would have instead of its own, with that key's signature; zeros: it keeps its own. */
    uint8_t next_key[IDENT_KEY_BYTES];
    uint8_t next_signature[IDENT_SIGNATURE_BYTES];
    uint8_t signature[IDENT_SIGNATURE_BYTES];
};
/* Numbers are below it. */
#define MEMBER_WORD_NUMBER_MAX ((uint64_t)1 << 63)

/* The id of a newcomer, which has none yet: its word counts by the order that admits it alone. */
#define MEMBER_WORD_NEWCOMER UINT32_MAX

/* Whether the word states a new key. */
bool member_word_has_next(const struct member_word *word);
/* Puts the key of `next` into the word, with its signature: that of a member of this id and `key`. To be called when
 * the number is there, and before member_word_sign(), which signs this, too. */
void member_word_state_next(const struct ident *next, const uint8_t key[IDENT_KEY_BYTES],
                            const uint8_t nonce[MEMBER_WORD_NONCE_BYTES], uint32_t id, struct member_word *word);
void member_word_sign(const struct ident *ident, const uint8_t nonce[MEMBER_WORD_NONCE_BYTES], uint32_t id,
                      struct member_word *word);
/* Whether the owner of `key` said it, in this run, as member `id`; and, where it states a new key, the owner of that.
 */
bool member_word_signed(const uint8_t *key, const uint8_t nonce[MEMBER_WORD_NONCE_BYTES], uint32_t id,
                        const struct member_word *word);
/* Limits, not the signature. ERR_PROTO names the field. */
ERR_MUST_CHECK enum err member_word_check(const struct member_word *word);
/* Whether both say the same, whatever their numbers. */
bool member_word_same(const struct member_word *left, const struct member_word *right);

#endif
