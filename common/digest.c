#include "common/digest.h"

#include <sodium.h>
#include <string.h>

_Static_assert(sizeof(struct digest_state) >= sizeof(crypto_generichash_state), "digest_state holds BLAKE2b's state");

enum err digest_init(void)
{
    if (sodium_init() < 0)
        return err_set(ERR_STATE, "libsodium cannot start: this machine gives it no randomness");
    return ERR_OK;
}

struct digest digest_of(const void *data, size_t bytes)
{
    struct digest out;
    crypto_generichash(out.byte, DIGEST_BYTES, data, bytes, NULL, 0);
    return out;
}

void digest_begin(struct digest_state *state)
{
    crypto_generichash_init((crypto_generichash_state *)(void *)state->opaque, NULL, 0, DIGEST_BYTES);
}

void digest_add(struct digest_state *state, const void *data, size_t bytes)
{
    crypto_generichash_update((crypto_generichash_state *)(void *)state->opaque, data, bytes);
}

struct digest digest_end(struct digest_state *state)
{
    struct digest out;
    crypto_generichash_final((crypto_generichash_state *)(void *)state->opaque, out.byte, DIGEST_BYTES);
    return out;
}

int digest_equal(const struct digest *left, const struct digest *right)
{
    return memcmp(left->byte, right->byte, DIGEST_BYTES) == 0;
}

char *digest_hex(const struct digest *digest, char *hex)
{
    return sodium_bin2hex(hex, DIGEST_HEX_BYTES, digest->byte, DIGEST_BYTES);
}

uint64_t digest_tag(const struct digest *digest)
{
    uint64_t tag = 0;
    for (int i = 0; i < 8; i++)
        tag |= (uint64_t)digest->byte[i] << (8 * i);
    return tag;
}
