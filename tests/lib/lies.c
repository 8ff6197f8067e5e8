/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/lies.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "common/bytes.h"
#include "common/mem.h"
#include "tests/lib/testlib.h"

void lie_far_ahead(struct rogue *rogue, uint32_t to, struct wire_heartbeat *beat)
{
    for (uint32_t f = 0; f < rogue->fragments; f++) {
        struct wire_fragment *row = &beat->fragments[f];
        row->at.version = rogue->heard[to][f].at.version + 1000000;
        row->at.contributed = row->at.version + 1;
        row->at.abstained = 0;
        row->at.hash_known = true;
        memset(row->at.hash.byte, 0x55, sizeof row->at.hash.byte);
    }
    beat->taking_part = true;
}

void lie_invented_draft(struct rogue *rogue, uint32_t to)
{
    uint64_t starts[ROGUE_FRAGMENTS_MAX];
    struct config_member member = {.role = CONFIG_OWNER, .voter = true, .name = "x", .uplink = 1};
    struct config config = {.epoch = rogue->heard_epoch[to] + 1,
                            .next_id = 1,
                            .founder = CONFIG_NOBODY,
                            .members = &member,
                            .members_count = 1,
                            .starts = starts,
                            .starts_count = rogue->fragments};
    struct paxos_message message = {
        .type = WIRE_PREPARE, .epoch = config.epoch, .ballot = (uint64_t)1 << 32 | rogue->self};
    uint8_t *bytes;
    size_t count;
    memcpy(member.key, rogue->ident.key, sizeof member.key);
    for (uint32_t f = 0; f < rogue->fragments; f++)
        starts[f] = rogue->heard[to][f].at.version + 1000;
    assert_ok(config_check(&config));
    assert_ok(config_pack(&config, &bytes, &count));
    message.bytes = bytes;
    message.bytes_count = count;
    rogue_say_paxos(rogue, to, &message);
    mem_free(bytes);
}

/* ---- a mirrored key ---- */

enum { SCALAR_BYTES = 32, HASH_BYTES = 64, MESSAGE_BYTES_MAX = 1024 };

/* As RFC 8032 5.1.6 has it, with the scalar of the other sign: its public key is the mirror image of the island's. */
static void sign_mirrored(const struct ident *ident, const uint8_t *key, const void *message, size_t bytes,
                          uint8_t *signature)
{
    uint8_t hash[HASH_BYTES], secret[HASH_BYTES] = {0}, scalar[SCALAR_BYTES], drawn[SCALAR_BYTES], told[SCALAR_BYTES];
    crypto_hash_sha512_state state;
    crypto_hash_sha512(hash, ident->secret, SCALAR_BYTES);
    memcpy(secret, hash, SCALAR_BYTES);
    secret[0] &= 248;
    secret[31] &= 127;
    secret[31] |= 64;
    crypto_core_ed25519_scalar_reduce(scalar, secret);
    crypto_core_ed25519_scalar_negate(scalar, scalar);
    crypto_core_ed25519_scalar_random(drawn);
    assert_int_equal(crypto_scalarmult_ed25519_base_noclamp(signature, drawn), 0);
    crypto_hash_sha512_init(&state);
    crypto_hash_sha512_update(&state, signature, SCALAR_BYTES);
    crypto_hash_sha512_update(&state, key, IDENT_KEY_BYTES);
    crypto_hash_sha512_update(&state, message, bytes);
    crypto_hash_sha512_final(&state, hash);
    crypto_core_ed25519_scalar_reduce(told, hash);
    crypto_core_ed25519_scalar_mul(told, told, scalar);
    crypto_core_ed25519_scalar_add(signature + SCALAR_BYTES, drawn, told);
}

/* What both signatures are over: docs/PROTOCOL.md, 8 and 10. */
static size_t word_message(const uint8_t *nonce, const struct member_word *word, uint8_t *out)
{
    static const char label[] = "diloco member word";
    struct bytes_writer writer = bytes_writer_init(out, MESSAGE_BYTES_MAX);
    bytes_put(&writer, label, sizeof label);
    bytes_put(&writer, nonce, WIRE_NONCE_BYTES);
    bytes_put_u32(&writer, MEMBER_WORD_NEWCOMER);
    bytes_put_u64(&writer, word->number);
    bytes_put_u64(&writer, word->uplink);
    bytes_put_u8(&writer, word->owner_choice);
    bytes_put_u8(&writer, word->draining);
    bytes_put_u32(&writer, word->units);
    bytes_put(&writer, word->next_key, sizeof word->next_key);
    bytes_put(&writer, word->address, strlen(word->address) + 1);
    return writer.at;
}

static size_t join_message(const uint8_t *nonce, const struct wire_join *join, uint8_t *out)
{
    static const char label[] = "diloco join";
    struct bytes_writer writer = bytes_writer_init(out, MESSAGE_BYTES_MAX);
    bytes_put(&writer, label, sizeof label);
    bytes_put(&writer, nonce, WIRE_NONCE_BYTES);
    bytes_put(&writer, join->invitation.byte, sizeof join->invitation.byte);
    bytes_put(&writer, join->key, sizeof join->key);
    bytes_put_u8(&writer, join->witness);
    bytes_put(&writer, join->name, strlen(join->name) + 1);
    bytes_put(&writer, join->word.signature, sizeof join->word.signature);
    return writer.at;
}

struct wire_join lie_mirrored(const struct ident *ident, const uint8_t *nonce, const char *name)
{
    uint8_t message[MESSAGE_BYTES_MAX];
    struct wire_join join = {.word = {.number = 1, .uplink = 1000000}};
    snprintf(join.name, sizeof join.name, "%s", name);
    memcpy(join.key, ident->key, sizeof join.key);
    join.key[IDENT_KEY_BYTES - 1] ^= 0x80;
    sign_mirrored(ident, join.key, message, word_message(nonce, &join.word, message), join.word.signature);
    sign_mirrored(ident, join.key, message, join_message(nonce, &join, message), join.signature);
    assert_true(wire_join_signed(&join, nonce));
    return join;
}
