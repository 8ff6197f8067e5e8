/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transport/member_word.h"

#include <inttypes.h>
#include <string.h>

#include "common/bytes.h"

/* What is signed begins with this, so that it is a signature of nothing else. */
static const char label[] = "diloco member word";
enum { SIGNED_BYTES_MAX = sizeof label + MEMBER_WORD_NONCE_BYTES + 4 + 8 + 8 + 2 + 4 + ADDRESS_BYTES };

/* Label with its zero, nonce, id u32, number u64, uplink u64, owner choice u8, draining u8, units u32, address with its
 * zero. */
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
    bytes_put(&writer, word->address, strlen(word->address) + 1);
    return writer.at;
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
    return ident_signed(key, message, bytes, word->signature);
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
    return ERR_OK;
}

bool member_word_same(const struct member_word *left, const struct member_word *right)
{
    return left->uplink == right->uplink && left->owner_choice == right->owner_choice &&
           left->draining == right->draining && left->units == right->units &&
           strcmp(left->address, right->address) == 0;
}
