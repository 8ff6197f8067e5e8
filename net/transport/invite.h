/* SPDX-License-Identifier: Apache-2.0 */
/*
 * invite: the token that lets a newcomer in, and an island's table of those it has given out.
 *
 * A token says where to knock, whose key answers there, of which run, until when, and a one-time secret; from it follow
 * the CURVE key pair with which its holder may knock, and the id by which the invitation is known. Only the token has
 * the secret: the inviter remembers id and public key. A token is redeemed by one key, once; asked again by the same
 * key the answer is the same, since it may have been lost. Pure: time, in seconds since 1970, and randomness are the
 * caller's. Tokens and bytes come from strangers.
 */
#ifndef NET_TRANSPORT_INVITE_H
#define NET_TRANSPORT_INVITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"
#include "net/transport/ident.h"
#include "net/transport/wire_join.h"

enum {
    INVITE_ADDRESSES_MAX = 4,
    INVITE_SEED_BYTES = 32,
    INVITE_TEXT_BYTES = 2048, /* with the zero at its end */
    INVITE_NOTE_BYTES = 64,
    INVITES_MAX = 64, /* open at a time */
    INVITES_BYTES_MAX = 12 + IDENT_KEY_BYTES + INVITES_MAX * (170 + WIRE_NAME_BYTES) + DIGEST_BYTES,
};

struct invite {
    char addresses[INVITE_ADDRESSES_MAX][WIRE_ADDRESS_BYTES]; /* "host:port" */
    uint32_t addresses_count;                                 /* at least 1 */
    uint8_t inviter[IDENT_KEY_BYTES];                         /* public key of who answers there */
    uint8_t nonce[WIRE_NONCE_BYTES];                          /* of the run */
    struct digest run_id;                                     /* of its run spec */
    uint64_t expiry_s;
    uint8_t seed[INVITE_SEED_BYTES]; /* secret */
};

/* ---- the token ---- */

/* Into `text` (INVITE_TEXT_BYTES). ERR_ARG: no address, or one that is none. */
ERR_MUST_CHECK enum err invite_text(const struct invite *invite, char *text);
/* Blanks and line ends around it do not matter. ERR_CONF says which: no token, one that is cut short, one that was
 * typed wrong. Whether it is expired, or known to whoever gave it, is not seen here. */
ERR_MUST_CHECK enum err invite_parse(const char *text, struct invite *invite);

struct digest invite_id(const struct invite *invite);
/* The key pair of the connection with which it is redeemed; `secret` may be NULL. */
void invite_curve(const struct invite *invite, uint8_t key[IDENT_KEY_BYTES], uint8_t *secret);

/* ---- those that were given out ---- */

/* As what its guest comes in. AUTO: as the run decides when it comes. */
enum invite_as { INVITE_AUTO, INVITE_OWNER, INVITE_CONTRIBUTOR, INVITE_AS };

struct invite_row {
    struct digest id;
    uint8_t curve_key[IDENT_KEY_BYTES]; /* of the connection with which it is redeemed */
    uint64_t expiry_s;
    char note[INVITE_NOTE_BYTES]; /* for people */
    char island[WIRE_NAME_BYTES]; /* the only one that it lets in; "": any */
    uint8_t as;                   /* enum invite_as */
    bool redeemed;
    uint8_t by[IDENT_KEY_BYTES]; /* redeemed: by whom */
};

/* In order of making. Empty when zeroed. */
struct invites {
    uint8_t inviter[IDENT_KEY_BYTES]; /* that the tokens name: the island's key when it gave them out */
    struct invite_row rows[INVITES_MAX];
    uint32_t count;
};

/* `island` is a name, or ""; `note` is cut to INVITE_NOTE_BYTES, and to printable ASCII. ERR_STATE: as many as can be
 * are open, or this one is. */
ERR_MUST_CHECK enum err invites_add(struct invites *invites, const struct invite *invite, enum invite_as as,
                                    const char *island, const char *note);
/* NULL: there is none. */
const struct invite_row *invites_find(const struct invites *invites, const struct digest *id);
/* By the key of a connection. */
const struct invite_row *invites_of(const struct invites *invites, const uint8_t curve_key[IDENT_KEY_BYTES]);
/* `*row` (may be NULL) is the revoked one. ERR_NOTFOUND. */
ERR_MUST_CHECK enum err invites_revoke(struct invites *invites, const struct digest *id, struct invite_row *row);
/* Forgets one that is past its time at `now_s`, which `*row` (may be NULL) then is; false: there is none. */
bool invites_expire(struct invites *invites, uint64_t now_s, struct invite_row *row);

/* Redeems this invitation for `key`; from now on no other key may use it. `*again`: it has been before, and what it was
 * told is to be told again. ERR_NOTFOUND: unknown here, or revoked; ERR_STATE: past its time, or redeemed by another
 * key. The text is fit to be a refusal's reason. */
ERR_MUST_CHECK enum err invites_redeem(struct invites *invites, const struct digest *id,
                                       const uint8_t key[IDENT_KEY_BYTES], uint64_t now_s, bool *again);
/* It could not be admitted after all: the invitation is open again. */
void invites_reopen(struct invites *invites, const struct digest *id);

/* For a file (docs/FORMATS.md): into `out` (INVITES_BYTES_MAX); returns the length. */
size_t invites_pack(const struct invites *invites, uint8_t *out);
/* ERR_CORRUPT: `*invites` is empty. */
ERR_MUST_CHECK enum err invites_unpack(const void *bytes, size_t bytes_count, struct invites *invites);

#endif
