/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dial_back: whether an island that wants to join is reached at the address that it states: another one connects to it,
 * says a challenge, and the island signs that.
 *
 * An open port is no proof: another machine may listen behind the same address. So the answer is a signature by the
 * newcomer's key over the challenge and the signature of its own question, and nobody else's, nor an older one, will
 * do. Whoever listens there is told a label and a random number, nothing more, and what it says is compared and thrown
 * away. The bytes are pure; dial_back() blocks, for a thread that may. Any thread.
 */
#ifndef NET_TRANSPORT_DIAL_BACK_H
#define NET_TRANSPORT_DIAL_BACK_H

#include <stdbool.h>
#include <stdint.h>

#include "net/transport/ident.h"
#include "net/transport/wire_join.h"

/* MS: for connecting and the answer, over all addresses of a name; HOSTS: so many of these are dialled. LOOKUP: how
 * long a name is looked up for, roughly: as long as a name server may take to answer, and once more. */
enum {
    DIAL_BACK_MS = 4000,
    DIAL_BACK_HOSTS_MAX = 4,
    DIAL_BACK_LOOKUP_S = 2,
    DIAL_CHALLENGE_BYTES = 48, /* "diloco dial back", and 32 bytes that are random */
    DIAL_ANSWER_BYTES = IDENT_SIGNATURE_BYTES,
};

/* A new one. */
void dial_challenge(uint8_t challenge[DIAL_CHALLENGE_BYTES]);
/* Whether these bytes are one. */
bool dial_challenge_good(const uint8_t challenge[DIAL_CHALLENGE_BYTES]);
/* The newcomer's answer, to who dials it for this signed JOIN of its own. */
void dial_answer(const struct ident *ident, const struct wire_join *join, const uint8_t challenge[DIAL_CHALLENGE_BYTES],
                 uint8_t answer[DIAL_ANSWER_BYTES]);
/* Whether the key of this JOIN answered so. */
bool dial_answered(const struct wire_join *join, const uint8_t challenge[DIAL_CHALLENGE_BYTES],
                   const uint8_t answer[DIAL_ANSWER_BYTES]);

/* Dials the address of its word, which is not empty, and blocks for that. `*took_ms`: how long it took. */
enum wire_dial_outcome dial_back(const struct wire_join *join, uint32_t *took_ms);

/* Whether somebody dialled, and did not reach it. */
bool dial_in_vain(uint8_t outcome);
/* For people: what came of it, as "nobody listens there (connection refused)". */
const char *dial_outcome_text(uint8_t outcome);

#endif
