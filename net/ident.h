/*
 * ident: an island's identity: a CURVE key pair (libsodium, through ZeroMQ), in text (Z85) and in a file.
 *
 * The secret file is readable by its owner alone; a file others can read is refused.
 */
#ifndef NET_IDENT_H
#define NET_IDENT_H

#include <stdint.h>

#include "common/err.h"

enum { IDENT_KEY_BYTES = 32, IDENT_TEXT_BYTES = 41 };

struct ident {
    char public_text[IDENT_TEXT_BYTES], secret_text[IDENT_TEXT_BYTES];
};

/* A new key pair. */
ERR_MUST_CHECK enum err ident_generate(struct ident *ident);

/* Writes a key file with mode 0600; refuses to replace one that exists (ERR_STATE). */
ERR_MUST_CHECK enum err ident_save(const struct ident *ident, const char *path);

/* ERR_NOTFOUND, ERR_CONF (not a key file, or readable by others), with the remedy. */
ERR_MUST_CHECK enum err ident_load(const char *path, struct ident *ident);

/* Checks a public key's text form and gives its bytes; ERR_CONF. */
ERR_MUST_CHECK enum err ident_parse(const char *text, uint8_t *key);
void ident_text(const uint8_t *key, char *text);

#endif
