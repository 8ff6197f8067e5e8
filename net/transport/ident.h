/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ident: an island's identity: one Ed25519 key pair (RFC 8032). The island signs with it, and the CURVE key pair of its
 * connections follows from it (the birational map of RFC 7748, 4.1), so an island has one public key.
 *
 * Public keys are written in base64url without padding (RFC 4648, 5): 43 characters. The secret stands in a file that
 * its owner alone can read; one that others can read is refused. Pure but for that file; any thread.
 */
#ifndef NET_TRANSPORT_IDENT_H
#define NET_TRANSPORT_IDENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"

enum {
    IDENT_KEY_BYTES = 32,
    IDENT_TEXT_BYTES = 44, /* of a public key, with the zero at its end */
    IDENT_SECRET_BYTES = 64,
    IDENT_SIGNATURE_BYTES = 64,
};

struct ident {
    char public_text[IDENT_TEXT_BYTES];
    uint8_t key[IDENT_KEY_BYTES];
    uint8_t secret[IDENT_SECRET_BYTES]; /* seed and public key, as libsodium keeps them */
    uint8_t curve_key[IDENT_KEY_BYTES]; /* of its connections */
    uint8_t curve_secret[IDENT_KEY_BYTES];
};

/* A new key pair. */
ERR_MUST_CHECK enum err ident_generate(struct ident *ident);

/* Writes a key file with mode 0600; refuses to replace one that exists (ERR_STATE). */
ERR_MUST_CHECK enum err ident_save(const struct ident *ident, const char *path);
/* The same, by root, for another user, whose it is before the secret is in it. It is given away by its descriptor, so
 * that a user who may write to the folder can have no other file given away. ERR_IO: it cannot be given; none is left.
 */
ERR_MUST_CHECK enum err ident_save_for(const struct ident *ident, const char *path, uid_t user, gid_t group);

/* ERR_NOTFOUND, ERR_CONF (not a key file, or readable by others), with the remedy. */
ERR_MUST_CHECK enum err ident_load(const char *path, struct ident *ident);

/* `text` holds IDENT_TEXT_BYTES. Also for keys of connections. */
void ident_text(const uint8_t *key, char *text);
/* The key by which the island's connections are known. ERR_CONF: `key` is no public key. */
ERR_MUST_CHECK enum err ident_curve(const uint8_t *key, uint8_t *curve_key);

/* Orders public keys by the connection key that follows from them; 0: two islands with these would have one. A point
 * and its mirror image do (both spell one y, RFC 8032 5.1.2). Of keys that ident_curve() takes. */
int ident_compare(const uint8_t *left, const uint8_t *right);

/* Signs `bytes` of `message`, with IDENT_SIGNATURE_BYTES. A signed message names its kind in its first bytes, so that
 * no signature of one thing is one of another. */
void ident_sign(const struct ident *ident, const void *message, size_t bytes, uint8_t *signature);
/* Whether it is that island's signature of this message. */
bool ident_signed(const uint8_t *key, const void *message, size_t bytes, const uint8_t *signature);
/* How many signatures this thread has checked so far: what members' messages cost is counted by it. */
uint64_t ident_checks(void);
/* How many of these were none. */
uint64_t ident_checks_failed(void);

#endif
