/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transport/invite.h"

#include <inttypes.h>
#include <sodium.h>
#include <string.h>

#include "common/bytes.h"
#include "net/transport/address.h"

/*
 * A token: the prefix, then in base64url without padding (RFC 4648, 5): u16 bytes in all, u8 version, u8 addresses,
 * u64 expiry, inviter's key, nonce, run_id, seed, of each address u8 length and its bytes, and the first 4 bytes of the
 * digest of all that. The sum tells a slip of the hand; it proves nothing.
 */
static const char prefix[] = "dlc1.";
enum { PREFIX_BYTES = sizeof prefix - 1, VERSION = 1, SUM_BYTES = 4, TOKEN_BYTES_MAX = 1280, LENGTH_CHARS = 3 };
enum { BASE64 = sodium_base64_VARIANT_URLSAFE_NO_PADDING };

_Static_assert((TOKEN_BYTES_MAX * 4 + 2) / 3 + PREFIX_BYTES < INVITE_TEXT_BYTES, "a token fits its text");

static struct digest labelled(const char *label, const uint8_t seed[INVITE_SEED_BYTES])
{
    struct digest_state state;
    digest_begin(&state);
    digest_add(&state, label, strlen(label) + 1);
    digest_add(&state, seed, INVITE_SEED_BYTES);
    return digest_end(&state);
}

struct digest invite_id(const struct invite *invite)
{
    return labelled("diloco invite id", invite->seed);
}

void invite_curve(const struct invite *invite, uint8_t key[IDENT_KEY_BYTES], uint8_t *secret)
{
    struct digest digest = labelled("diloco invite key", invite->seed);
    crypto_scalarmult_base(key, digest.byte);
    if (secret != NULL)
        memcpy(secret, digest.byte, sizeof digest.byte);
    sodium_memzero(&digest, sizeof digest);
}

/* ---- the token ---- */

static size_t text_length(size_t bytes)
{
    return PREFIX_BYTES + (bytes * 4 + 2) / 3;
}

enum err invite_text(const struct invite *invite, char *text)
{
    uint8_t raw[TOKEN_BYTES_MAX];
    struct bytes_writer writer = bytes_writer_init(raw, sizeof raw);
    if (invite->addresses_count < 1 || invite->addresses_count > INVITE_ADDRESSES_MAX)
        return err_set(ERR_ARG, "an invitation has 1 to %d addresses", INVITE_ADDRESSES_MAX);
    bytes_put_u16(&writer, 0);
    bytes_put_u8(&writer, VERSION);
    bytes_put_u8(&writer, (uint8_t)invite->addresses_count);
    bytes_put_u64(&writer, invite->expiry_s);
    bytes_put(&writer, invite->inviter, sizeof invite->inviter);
    bytes_put(&writer, invite->nonce, sizeof invite->nonce);
    bytes_put(&writer, invite->run_id.byte, sizeof invite->run_id.byte);
    bytes_put(&writer, invite->seed, sizeof invite->seed);
    for (uint32_t i = 0; i < invite->addresses_count; i++) {
        if (!address_good(invite->addresses[i]))
            return err_set(ERR_ARG, "\"%s\" is not host:port, as in oslo.example.org:7600", invite->addresses[i]);
        bytes_put_u8(&writer, (uint8_t)strlen(invite->addresses[i]));
        bytes_put(&writer, invite->addresses[i], strlen(invite->addresses[i]));
    }
    struct bytes_writer length = bytes_writer_init(raw, sizeof raw);
    bytes_put_u16(&length, (uint16_t)(writer.at + SUM_BYTES));
    struct digest sum = digest_of(raw, writer.at);
    bytes_put(&writer, sum.byte, SUM_BYTES);
    memcpy(text, prefix, PREFIX_BYTES);
    sodium_bin2base64(text + PREFIX_BYTES, INVITE_TEXT_BYTES - PREFIX_BYTES, raw, writer.at, BASE64);
    sodium_memzero(raw, sizeof raw);
    return ERR_OK;
}

static enum err typed_wrong(void)
{
    return err_set(ERR_CONF, "the token was typed wrong: its sum does not fit; copy it anew");
}

/* The bytes, whole and with the sum that fits. */
static enum err decode(const char *text, size_t length, uint8_t raw[TOKEN_BYTES_MAX], size_t *bytes)
{
    uint8_t begin[LENGTH_CHARS];
    size_t got;
    if (strncmp(text, prefix, PREFIX_BYTES) != 0)
        return err_set(ERR_CONF, "that is no token: one begins with %s, as dilococtl invite prints it", prefix);
    if (length < PREFIX_BYTES + LENGTH_CHARS)
        return err_set(ERR_CONF, "the token is cut short: copy all of it");
    /* Three characters are two bytes and two bits, which belong to the third byte. */
    char first[LENGTH_CHARS + 2] = {text[PREFIX_BYTES], text[PREFIX_BYTES + 1], text[PREFIX_BYTES + 2], 'A', '\0'};
    if (sodium_base642bin(begin, sizeof begin, first, LENGTH_CHARS + 1, NULL, &got, NULL, BASE64) != 0)
        return typed_wrong();
    size_t want = begin[0] | (size_t)begin[1] << 8;
    if (want > TOKEN_BYTES_MAX || length > text_length(want))
        return typed_wrong();
    if (length < text_length(want))
        return err_set(ERR_CONF, "the token is cut short: %zu of %zu characters; copy all of it", length,
                       text_length(want));
    if (sodium_base642bin(raw, TOKEN_BYTES_MAX, text + PREFIX_BYTES, length - PREFIX_BYTES, NULL, bytes, NULL,
                          BASE64) != 0 ||
        *bytes != want || want <= SUM_BYTES)
        return typed_wrong();
    *bytes -= SUM_BYTES;
    struct digest sum = digest_of(raw, *bytes);
    return memcmp(sum.byte, raw + *bytes, SUM_BYTES) == 0 ? ERR_OK : typed_wrong();
}

static void take_bytes(struct bytes_reader *reader, uint8_t *out, size_t count)
{
    const uint8_t *from = bytes_get(reader, count);
    if (from != NULL)
        memcpy(out, from, count);
}

static bool take_addresses(struct bytes_reader *reader, struct invite *invite)
{
    for (uint32_t i = 0; i < invite->addresses_count; i++) {
        size_t bytes = bytes_get_u8(reader); /* below WIRE_ADDRESS_BYTES */
        take_bytes(reader, (uint8_t *)invite->addresses[i], bytes);
        if (reader->failed || strlen(invite->addresses[i]) != bytes || !address_good(invite->addresses[i]))
            return false;
    }
    return true;
}

enum err invite_parse(const char *text, struct invite *invite)
{
    static const char blanks[] = " \t\r\n";
    uint8_t raw[TOKEN_BYTES_MAX], curve_key[IDENT_KEY_BYTES];
    size_t bytes;
    *invite = (struct invite){.addresses_count = 0};
    text += strspn(text, blanks);
    size_t length = strlen(text);
    while (length > 0 && strchr(blanks, text[length - 1]) != NULL)
        length--;
    TRY(decode(text, length, raw, &bytes));
    struct bytes_reader reader = bytes_reader_init(raw, bytes);
    (void)bytes_get_u16(&reader);
    uint8_t version = bytes_get_u8(&reader);
    if (version != VERSION)
        return err_set(ERR_CONF, "a token of version %d; this program knows version %d: install the same release",
                       version, VERSION);
    invite->addresses_count = bytes_get_u8(&reader);
    invite->expiry_s = bytes_get_u64(&reader);
    take_bytes(&reader, invite->inviter, sizeof invite->inviter);
    take_bytes(&reader, invite->nonce, sizeof invite->nonce);
    take_bytes(&reader, invite->run_id.byte, sizeof invite->run_id.byte);
    take_bytes(&reader, invite->seed, sizeof invite->seed);
    bool good = invite->addresses_count >= 1 && invite->addresses_count <= INVITE_ADDRESSES_MAX &&
                take_addresses(&reader, invite) && !reader.failed && bytes_left(&reader) == 0 &&
                ident_curve(invite->inviter, curve_key) == ERR_OK;
    sodium_memzero(raw, sizeof raw);
    if (good)
        return ERR_OK;
    *invite = (struct invite){.addresses_count = 0};
    return err_set(ERR_CONF, "that is no token: what it holds makes no sense");
}

/* ---- those that were given out ---- */

static struct invite_row *find(struct invites *invites, const struct digest *id)
{
    for (uint32_t i = 0; i < invites->count; i++)
        if (digest_equal(&invites->rows[i].id, id))
            return &invites->rows[i];
    return NULL;
}

const struct invite_row *invites_find(const struct invites *invites, const struct digest *id)
{
    for (uint32_t i = 0; i < invites->count; i++)
        if (digest_equal(&invites->rows[i].id, id))
            return &invites->rows[i];
    return NULL;
}

const struct invite_row *invites_of(const struct invites *invites, const uint8_t curve_key[IDENT_KEY_BYTES])
{
    for (uint32_t i = 0; i < invites->count; i++)
        if (memcmp(invites->rows[i].curve_key, curve_key, IDENT_KEY_BYTES) == 0)
            return &invites->rows[i];
    return NULL;
}

enum err invites_add(struct invites *invites, const struct invite *invite, enum invite_as as, const char *island,
                     const char *note)
{
    struct digest id = invite_id(invite);
    if (find(invites, &id) != NULL)
        return err_set(ERR_STATE, "this invitation is open already");
    if (invites->count == INVITES_MAX)
        return err_set(ERR_STATE, "%d invitations are open, and no more can be; revoke some", INVITES_MAX);
    struct invite_row *row = &invites->rows[invites->count++];
    *row = (struct invite_row){.id = id, .expiry_s = invite->expiry_s, .as = (uint8_t)as};
    invite_curve(invite, row->curve_key, NULL);
    memcpy(row->island, island, strnlen(island, sizeof row->island - 1));
    for (size_t i = 0; i + 1 < sizeof row->note && note[i] != '\0'; i++)
        row->note[i] = note[i] >= ' ' && note[i] <= '~' ? note[i] : '?';
    return ERR_OK;
}

static void drop_row(struct invites *invites, struct invite_row *row, struct invite_row *out)
{
    size_t after = invites->count - (size_t)(row - invites->rows) - 1;
    if (out != NULL)
        *out = *row;
    memmove(row, row + 1, after * sizeof *row);
    invites->rows[--invites->count] = (struct invite_row){.expiry_s = 0};
}

enum err invites_revoke(struct invites *invites, const struct digest *id, struct invite_row *row)
{
    struct invite_row *found = find(invites, id);
    if (found == NULL)
        return err_set(ERR_NOTFOUND, "no such invitation is open");
    drop_row(invites, found, row);
    return ERR_OK;
}

static bool is_over(const struct invite_row *row, uint64_t now_s)
{
    return now_s >= row->expiry_s;
}

bool invites_expire(struct invites *invites, uint64_t now_s, struct invite_row *row)
{
    for (uint32_t i = 0; i < invites->count; i++) {
        if (!is_over(&invites->rows[i], now_s))
            continue;
        drop_row(invites, &invites->rows[i], row);
        return true;
    }
    return false;
}

enum err invites_redeem(struct invites *invites, const struct digest *id, const uint8_t key[IDENT_KEY_BYTES],
                        uint64_t now_s, bool *again)
{
    struct invite_row *row = find(invites, id);
    *again = false;
    if (row == NULL)
        return err_set(ERR_NOTFOUND, "this invitation is not known here, or was revoked; ask for another");
    if (is_over(row, now_s))
        return err_set(ERR_STATE, "this invitation has expired; ask for another");
    if (row->redeemed && memcmp(row->by, key, sizeof row->by) != 0)
        return err_set(ERR_STATE, "this invitation was redeemed by another island; ask for another");
    *again = row->redeemed;
    row->redeemed = true;
    memcpy(row->by, key, sizeof row->by);
    return ERR_OK;
}

void invites_reopen(struct invites *invites, const struct digest *id)
{
    struct invite_row *row = find(invites, id);
    if (row == NULL)
        return;
    row->redeemed = false;
    memset(row->by, 0, sizeof row->by);
}

/* ---- for a file: magic, version, rows, each u32; the rows; the digest of all that ---- */

#define INVITES_MAGIC 0x56494c44u /* "DLIV" */
enum { INVITES_VERSION = 4 };

size_t invites_pack(const struct invites *invites, uint8_t *out)
{
    struct bytes_writer writer = bytes_writer_init(out, INVITES_BYTES_MAX);
    bytes_put_u32(&writer, INVITES_MAGIC);
    bytes_put_u32(&writer, INVITES_VERSION);
    bytes_put(&writer, invites->inviter, sizeof invites->inviter);
    bytes_put_u32(&writer, invites->count);
    for (uint32_t i = 0; i < invites->count; i++) {
        const struct invite_row *row = &invites->rows[i];
        bytes_put(&writer, row->id.byte, sizeof row->id.byte);
        bytes_put(&writer, row->curve_key, sizeof row->curve_key);
        bytes_put_u64(&writer, row->expiry_s);
        bytes_put(&writer, row->note, sizeof row->note);
        bytes_put(&writer, row->island, sizeof row->island);
        bytes_put_u8(&writer, row->as);
        bytes_put_u8(&writer, row->redeemed);
        bytes_put(&writer, row->by, sizeof row->by);
    }
    struct digest digest = digest_of(out, writer.at);
    bytes_put(&writer, digest.byte, sizeof digest.byte);
    return writer.at;
}

static enum err damaged(struct invites *invites)
{
    *invites = (struct invites){.count = 0};
    return err_set(ERR_CORRUPT, "the list of invitations is damaged; make those that are still wanted anew");
}

static void take_row(struct bytes_reader *reader, struct invite_row *row)
{
    take_bytes(reader, row->id.byte, sizeof row->id.byte);
    take_bytes(reader, row->curve_key, sizeof row->curve_key);
    row->expiry_s = bytes_get_u64(reader);
    take_bytes(reader, (uint8_t *)row->note, sizeof row->note);
    row->note[sizeof row->note - 1] = '\0';
    take_bytes(reader, (uint8_t *)row->island, sizeof row->island);
    row->island[sizeof row->island - 1] = '\0';
    row->as = bytes_get_u8(reader);
    row->redeemed = bytes_get_u8(reader) != 0;
    take_bytes(reader, row->by, sizeof row->by);
}

enum err invites_unpack(const void *bytes, size_t bytes_count, struct invites *invites)
{
    struct bytes_reader reader = bytes_reader_init(bytes, bytes_count);
    struct digest digest;
    *invites = (struct invites){.count = 0};
    if (bytes_get_u32(&reader) != INVITES_MAGIC || bytes_get_u32(&reader) != INVITES_VERSION)
        return damaged(invites);
    take_bytes(&reader, invites->inviter, sizeof invites->inviter);
    uint32_t count = bytes_get_u32(&reader);
    if (reader.failed || count > INVITES_MAX)
        return damaged(invites);
    for (uint32_t i = 0; i < count; i++)
        take_row(&reader, &invites->rows[i]);
    size_t covered = reader.at;
    take_bytes(&reader, digest.byte, sizeof digest.byte);
    if (reader.failed || bytes_left(&reader) != 0)
        return damaged(invites);
    struct digest is = digest_of(bytes, covered);
    if (!digest_equal(&is, &digest))
        return damaged(invites);
    invites->count = count;
    return ERR_OK;
}
