/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signatures of a simulated world, in the place of net/transport/ident.c: a tag over key and message, which anybody
 * could make who wanted to. It takes half a microsecond instead of fifty, so that a hundred thousand worlds can be
 * tried. Nobody there forges a signature; what a member can do that has its own key, tests/lib/simliar.c does.
 */
#include "net/transport/ident.h"

#include <string.h>

#include "common/digest.h"

void ident_text(const uint8_t *key, char *text)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < IDENT_TEXT_BYTES - 1; i++)
        text[i] = digits[key[i / 2] >> 4 * (i % 2) & 15];
    text[IDENT_TEXT_BYTES - 1] = '\0';
}

enum err ident_curve(const uint8_t *key, uint8_t *curve_key)
{
    memcpy(curve_key, key, IDENT_KEY_BYTES);
    return ERR_OK;
}

int ident_compare(const uint8_t *left, const uint8_t *right)
{
    return memcmp(left, right, IDENT_KEY_BYTES);
}

static void tag(const uint8_t *key, const void *message, size_t bytes, uint8_t *signature)
{
    struct digest_state state;
    digest_begin(&state);
    digest_add(&state, key, IDENT_KEY_BYTES);
    digest_add(&state, message, bytes);
    struct digest digest = digest_end(&state);
    memset(signature, 0, IDENT_SIGNATURE_BYTES);
    memcpy(signature, digest.byte, DIGEST_BYTES);
}

void ident_sign(const struct ident *ident, const void *message, size_t bytes, uint8_t *signature)
{
    tag(ident->key, message, bytes, signature);
}

bool ident_signed(const uint8_t *key, const void *message, size_t bytes, const uint8_t *signature)
{
    uint8_t good[IDENT_SIGNATURE_BYTES];
    tag(key, message, bytes, good);
    return memcmp(good, signature, sizeof good) == 0;
}

/* Not used in a simulated world, which has keys of its own. */

enum err ident_generate(struct ident *ident)
{
    *ident = (struct ident){.public_text = ""};
    return err_set(ERR_STATE, "no key is made here");
}
