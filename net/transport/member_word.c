/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transport/member_word.h"

#include <inttypes.h>
#include <string.h>

#include "common/bytes.h"

/* What is signed begins with this, so that it is a signature of nothing else. */
static const char label[] = "diloco member word";
static const char next_label[] = "diloco new key"; /* and what the new key signs with this */
enum {
    SIGNED_BYTES_MAX = sizeof label + MEMBER_WORD_NONCE_BYTES + 4 + 8 + 8 + 2 + 4 + IDENT_KEY_BYTES + ADDRESS_BYTES,
    NEXT_BYTES = sizeof next_label + MEMBER_WORD_NONCE_BYTES + 4 + 8 + 2 * IDENT_KEY_BYTES,
};

/* Label with its zero, nonce, id u32, number u64, uplink u64, owner choice u8, draining u8, units u32, new key or
 * zeros, address with its zero. */
static size_t put_signed(const uint8_t nonce[MEMBER_WORD_NONCE_BYTES], uint32_t id, const struct member_word *word,
                         uint8_t *out)
{
    struct bytes_writer writer = bytes_writer_init(out, SIGNED_BYTES_MAX);
    bytes_put(&writer, label, sizeof label);
    bytes_put(&writer, nonce, MEMBER_WORD_NONCE_BYTES);
    bytes_put_u32(&writer, id);
    bytes_put_u64(&writer, word->number);
    bytes_put_u64(&writer, word->uplink);
    bytes_put_u8(&writer, word->owner_choice);
    bytes_put_u8(&writer, word->draining);
    bytes_put_u32(&writer, word->units);
    bytes_put(&writer, word->next_key, sizeof word->next_key);
    bytes_put(&writer, word->address, strlen(word->address) + 1);
    return writer.at;
}

/* Label with its zero, nonce, id u32, number u64, key, new key. */
static void put_next(const uint8_t nonce[MEMBER_WORD_NONCE_BYTES], uint32_t id, const uint8_t *key,
                     const struct member_word *word, uint8_t out[NEXT_BYTES])
{
    struct bytes_writer writer = bytes_writer_init(out, NEXT_BYTES);
    bytes_put(&writer, next_label, sizeof next_label);
    bytes_put(&writer, nonce, MEMBER_WORD_NONCE_BYTES);
    bytes_put_u32(&writer, id);
    bytes_put_u64(&writer, word->number);
    bytes_put(&writer, key, IDENT_KEY_BYTES);
    bytes_put(&writer, word->next_key, sizeof word->next_key);
}

bool member_word_has_next(const struct member_word *word)
{
    static const uint8_t none[IDENT_KEY_BYTES];
    return memcmp(word->next_key, none, sizeof none) != 0;
}

void member_word_state_next(const struct ident *next, const uint8_t key[IDENT_KEY_BYTES],
                            const uint8_t nonce[MEMBER_WORD_NONCE_BYTES], uint32_t id, struct member_word *word)
{
    uint8_t message[NEXT_BYTES];
    memcpy(word->next_key, next->key, sizeof word->next_key);
    put_next(nonce, id, key, word, message);
    ident_sign(next, message, sizeof message, word->next_signature);
}

void member_word_sign(const struct ident *ident, const uint8_t nonce[MEMBER_WORD_NONCE_BYTES], uint32_t id,
                      struct member_word *word)
{
    uint8_t message[SIGNED_BYTES_MAX];
    ident_sign(ident, message, put_signed(nonce, id, word, message), word->signature);
}

bool member_word_signed(const uint8_t *key, const uint8_t nonce[MEMBER_WORD_NONCE_BYTES], uint32_t id,
                        const struct member_word *word)
{
    uint8_t message[SIGNED_BYTES_MAX];
    size_t bytes = put_signed(nonce, id, word, message);
    if (!ident_signed(key, message, bytes, word->signature))
        return false;
    if (!member_word_has_next(word))
        return true;
    uint8_t stated[NEXT_BYTES];
    put_next(nonce, id, key, word, stated);
    return ident_signed(word->next_key, stated, sizeof stated, word->next_signature);
}

enum err member_word_check(const struct member_word *word)
{
    if (word->number == 0 || word->number >= MEMBER_WORD_NUMBER_MAX)
        return err_set(ERR_PROTO, "a member's word of number %" PRIu64, word->number);
    if (memchr(word->address, '\0', sizeof word->address) == NULL ||
        (word->address[0] != '\0' && !address_good(word->address)))
        return err_set(ERR_PROTO, "a member's word with an address that is not host:port");
    if (word->uplink == 0)
        return err_set(ERR_PROTO, "a member's word with an uplink of 0");
    if (word->owner_choice >= MEMBER_WORD_OWNER_CHOICES)
        return err_set(ERR_PROTO, "a member's word with owner choice %u", (unsigned)word->owner_choice);
    if (word->units > DEAL_UNITS_MAX)
        return err_set(ERR_PROTO, "a member's word with %" PRIu32 " units of data", word->units);
    uint8_t curve_key[IDENT_KEY_BYTES];
    if (member_word_has_next(word) && ident_curve(word->next_key, curve_key) != ERR_OK)
        return err_set(ERR_PROTO, "a member's word with a new key that is no public key");
    return ERR_OK;
}

bool member_word_same(const struct member_word *left, const struct member_word *right)
{
    return left->uplink == right->uplink && left->owner_choice == right->owner_choice &&
           left->draining == right->draining && left->units == right->units &&
           memcmp(left->next_key, right->next_key, sizeof left->next_key) == 0 &&
           strcmp(left->address, right->address) == 0;
}
