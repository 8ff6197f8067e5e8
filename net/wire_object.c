/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layout:
 *    0  u32 magic "DLO1"        4  u8 kind    5  u8 version   6  u16 0
 *    8  u32 metadata bytes     12  u32 fragment              16  u64 frame bytes
 *   24  16 bytes run's nonce   40  u64 version it makes      48  u64 epoch
 *   56  u32 owner's id         60  u32 maker's id            64  u64 mask of shards
 *   72  32 bytes BLAKE2b over bytes 0..71, the frame's head (64 bytes), and the metadata
 *  104  64 bytes Ed25519 over "diloco result 1", zeros to 16, and that digest; contribution: zeros
 *  168  frame, then metadata:
 *       contribution: u64 tokens, u64 step, 32 bytes base hash
 *       result: u64 step, 3 u32 outer numbers, u32 contributors; for each u32 id, u64 tokens,
 *               3 singles: weight, norm, factor; 32 bytes digest
 *
 * The frame has a fixed place so that it is encoded where it is sent from. Its head holds the digest of its payload, so
 * the two digests together cover every byte and nothing is hashed twice. All metadata has fixed places too: it is read
 * where it lies, and one meaning has one form.
 */
#include "net/wire_object.h"

#include <inttypes.h>
#include <string.h>

#include "common/bytes.h"

#define OBJECT_MAGIC 0x314f4c44u /* "DLO1" */
enum {
    OBJECT_VERSION = 3,
    DIGEST_OFFSET = 72,
    SIGNATURE_OFFSET = DIGEST_OFFSET + DIGEST_BYTES,
    FRAME_HEAD_BYTES = 64,
    CONTRIBUTION_META_BYTES = 48,
    RESULT_META_BYTES = 24, /* before the contributors */
    DOMAIN_BYTES = 16,
    SINGLE_INF = 0x7f800000,
};
_Static_assert(SIGNATURE_OFFSET + IDENT_SIGNATURE_BYTES == WIRE_OBJECT_HEADER_BYTES, "the header's fields fill it");
/* More than any run trains; two of them still add up within 64 bits. */
static const uint64_t tokens_max = (uint64_t)1 << 62;

/* ---- contributors ---- */

void wire_contributor_put(uint8_t *contributors, uint32_t index, const struct wire_contributor *contributor)
{
    uint8_t *row = contributors + (size_t)index * WIRE_CONTRIBUTOR_BYTES;
    struct bytes_writer writer = bytes_writer_init(row, WIRE_CONTRIBUTOR_BYTES);
    bytes_put_u32(&writer, contributor->id);
    bytes_put_u64(&writer, contributor->tokens);
    bytes_put_u32(&writer, contributor->weight);
    bytes_put_u32(&writer, contributor->norm);
    bytes_put_u32(&writer, contributor->factor);
    bytes_put(&writer, contributor->digest.byte, DIGEST_BYTES);
}

struct wire_contributor wire_meta_contributor(const struct wire_meta *meta, uint32_t index)
{
    struct wire_contributor contributor;
    const uint8_t *row = meta->contributors + (size_t)index * WIRE_CONTRIBUTOR_BYTES;
    struct bytes_reader reader = bytes_reader_init(row, WIRE_CONTRIBUTOR_BYTES);
    contributor.id = bytes_get_u32(&reader);
    contributor.tokens = bytes_get_u64(&reader);
    contributor.weight = bytes_get_u32(&reader);
    contributor.norm = bytes_get_u32(&reader);
    contributor.factor = bytes_get_u32(&reader);
    memcpy(contributor.digest.byte, bytes_get(&reader, DIGEST_BYTES), DIGEST_BYTES);
    return contributor;
}

bool wire_meta_find(const struct wire_meta *meta, uint32_t id, struct wire_contributor *out)
{
    uint32_t begin = 0, end = meta->contributors_count;
    while (begin < end) {
        uint32_t middle = begin + (end - begin) / 2;
        struct wire_contributor contributor = wire_meta_contributor(meta, middle);
        if (contributor.id == id) {
            if (out != NULL)
                *out = contributor;
            return true;
        }
        if (contributor.id < id)
            begin = middle + 1;
        else
            end = middle;
    }
    return false;
}

/* ---- writing ---- */

static size_t meta_bytes_of(uint32_t kind, uint32_t contributors)
{
    return kind == WIRE_CONTRIBUTION ? CONTRIBUTION_META_BYTES
                                     : RESULT_META_BYTES + (size_t)contributors * WIRE_CONTRIBUTOR_BYTES;
}

size_t wire_object_bytes_max(size_t frame_bytes, uint32_t contributors)
{
    size_t meta = meta_bytes_of(WIRE_RESULT, contributors);
    return WIRE_OBJECT_HEADER_BYTES + frame_bytes + (meta > CONTRIBUTION_META_BYTES ? meta : CONTRIBUTION_META_BYTES);
}

uint8_t *wire_object_frame(uint8_t *object)
{
    return object + WIRE_OBJECT_HEADER_BYTES;
}

static size_t frame_head_bytes(size_t frame_bytes)
{
    return frame_bytes < FRAME_HEAD_BYTES ? frame_bytes : FRAME_HEAD_BYTES;
}

static struct digest stub_digest(const uint8_t *object, size_t head_bytes, const uint8_t *meta, size_t meta_bytes)
{
    struct digest_state state;
    digest_begin(&state);
    digest_add(&state, object, DIGEST_OFFSET);
    digest_add(&state, object + WIRE_OBJECT_HEADER_BYTES, head_bytes);
    digest_add(&state, meta, meta_bytes);
    return digest_end(&state);
}

static struct digest object_digest(const uint8_t *object, size_t frame_bytes, size_t meta_bytes)
{
    return stub_digest(object, frame_head_bytes(frame_bytes), object + WIRE_OBJECT_HEADER_BYTES + frame_bytes,
                       meta_bytes);
}

/* What an owner signs: nothing else that it signs begins like this. */
static void message_of(const struct digest *digest, uint8_t message[DOMAIN_BYTES + DIGEST_BYTES])
{
    static const char domain[DOMAIN_BYTES] = "diloco result 1";
    memcpy(message, domain, DOMAIN_BYTES);
    memcpy(message + DOMAIN_BYTES, digest->byte, DIGEST_BYTES);
}

static void put_meta(uint32_t kind, const struct wire_meta *meta, uint8_t *out, size_t bytes)
{
    struct bytes_writer writer = bytes_writer_init(out, bytes);
    if (kind == WIRE_CONTRIBUTION) {
        bytes_put_u64(&writer, meta->tokens);
        bytes_put_u64(&writer, meta->step);
        bytes_put(&writer, meta->base_hash.byte, DIGEST_BYTES);
        return;
    }
    bytes_put_u64(&writer, meta->step);
    for (int i = 0; i < WIRE_OUTER_NUMBERS; i++)
        bytes_put_u32(&writer, meta->outer[i]);
    bytes_put_u32(&writer, meta->contributors_count);
    if (meta->contributors_count > 0)
        bytes_put(&writer, meta->contributors, (size_t)meta->contributors_count * WIRE_CONTRIBUTOR_BYTES);
}

static void put_header(const struct wire_object *what, size_t meta_bytes, size_t frame_bytes, uint8_t *object)
{
    struct bytes_writer writer = bytes_writer_init(object, WIRE_OBJECT_HEADER_BYTES);
    bytes_put_u32(&writer, OBJECT_MAGIC);
    bytes_put_u8(&writer, (uint8_t)what->key.kind);
    bytes_put_u8(&writer, OBJECT_VERSION);
    bytes_put_u16(&writer, 0);
    bytes_put_u32(&writer, (uint32_t)meta_bytes);
    bytes_put_u32(&writer, what->key.fragment);
    bytes_put_u64(&writer, frame_bytes);
    bytes_put(&writer, what->nonce, WIRE_NONCE_BYTES);
    bytes_put_u64(&writer, what->key.version);
    bytes_put_u64(&writer, what->key.epoch);
    bytes_put_u32(&writer, what->key.owner);
    bytes_put_u32(&writer, what->key.island);
    bytes_put_u64(&writer, what->shards);
}

enum err wire_object_seal(const struct wire_object *what, const struct wire_meta *meta, const struct ident *ident,
                          uint8_t *object, size_t frame_bytes, size_t *object_bytes, struct digest *digest)
{
    uint32_t kind = what->key.kind;
    if (kind != WIRE_CONTRIBUTION && kind != WIRE_RESULT)
        return err_set(ERR_ARG, "a %s is no object of this form", wire_kind_name(kind));
    if ((kind == WIRE_RESULT) != (ident != NULL))
        return err_set(ERR_ARG, "a result is signed, and a contribution is not");
    if (meta->contributors_count > WIRE_CONTRIBUTORS_MAX)
        return err_set(ERR_ARG, "%" PRIu32 " contributors", meta->contributors_count);
    size_t meta_bytes = meta_bytes_of(kind, meta->contributors_count);
    put_header(what, meta_bytes, frame_bytes, object);
    put_meta(kind, meta, object + WIRE_OBJECT_HEADER_BYTES + frame_bytes, meta_bytes);
    *object_bytes = WIRE_OBJECT_HEADER_BYTES + frame_bytes + meta_bytes;
    *digest = object_digest(object, frame_bytes, meta_bytes);
    memcpy(object + DIGEST_OFFSET, digest->byte, DIGEST_BYTES);
    memset(object + SIGNATURE_OFFSET, 0, IDENT_SIGNATURE_BYTES);
    if (ident != NULL) {
        uint8_t message[DOMAIN_BYTES + DIGEST_BYTES];
        message_of(digest, message);
        ident_sign(ident, message, sizeof message, object + SIGNATURE_OFFSET);
    }
    return ERR_OK;
}

/* ---- reading ---- */

/* A name that an object can have: of what its kind leaves no choice in there is one form. */
static enum err check_name(const struct wire_object *what)
{
    const struct wire_key *key = &what->key;
    if (key->kind != WIRE_CONTRIBUTION && key->kind != WIRE_RESULT)
        return err_set(ERR_PROTO, "an object of unknown kind %" PRIu32, key->kind);
    if (key->fragment >= WIRE_PLAN_FRAGMENTS_MAX || key->version == 0 || what->shards == 0)
        return err_set(ERR_PROTO, "a %s of fragment %" PRIu32 " that makes version %" PRIu64 " of no shard that is",
                       wire_kind_name(key->kind), key->fragment, key->version);
    if (key->kind == WIRE_RESULT && key->island != key->owner)
        return err_set(ERR_PROTO, "a result that island %" PRIu32 " made for owner %" PRIu32, key->island, key->owner);
    return ERR_OK;
}

/* `stub`: what follows the header is the frame's head alone, and the metadata. */
static enum err read_header(const uint8_t *object, size_t object_bytes, bool stub, struct wire_object *what,
                            size_t *meta_bytes, size_t *frame_bytes)
{
    struct bytes_reader reader = bytes_reader_init(object, object_bytes);
    memset(what, 0, sizeof *what);
    uint32_t magic = bytes_get_u32(&reader);
    what->key.kind = bytes_get_u8(&reader);
    unsigned version = bytes_get_u8(&reader);
    unsigned zero = bytes_get_u16(&reader);
    uint32_t meta = bytes_get_u32(&reader);
    what->key.fragment = bytes_get_u32(&reader);
    uint64_t frame = bytes_get_u64(&reader);
    const uint8_t *nonce = bytes_get(&reader, WIRE_NONCE_BYTES);
    what->key.version = bytes_get_u64(&reader);
    what->key.epoch = bytes_get_u64(&reader);
    what->key.owner = bytes_get_u32(&reader);
    what->key.island = bytes_get_u32(&reader);
    what->shards = bytes_get_u64(&reader);
    const uint8_t *digest = bytes_get(&reader, DIGEST_BYTES);
    const uint8_t *signature = bytes_get(&reader, IDENT_SIGNATURE_BYTES);
    if (reader.failed || magic != OBJECT_MAGIC)
        return err_set(ERR_PROTO, "not an object, or cut short");
    if (version != OBJECT_VERSION)
        return err_set(ERR_PROTO, "object of version %u; this program reads %d", version, OBJECT_VERSION);
    size_t left = bytes_left(&reader);
    uint64_t there = stub && frame > FRAME_HEAD_BYTES ? FRAME_HEAD_BYTES : frame;
    if (zero != 0 || meta > left || there != left - meta)
        return err_set(ERR_PROTO, "a %s of the wrong length", wire_kind_name(what->key.kind));
    memcpy(what->nonce, nonce, WIRE_NONCE_BYTES);
    memcpy(what->digest.byte, digest, DIGEST_BYTES);
    memcpy(what->signature, signature, IDENT_SIGNATURE_BYTES);
    *meta_bytes = meta;
    *frame_bytes = (size_t)frame;
    return check_name(what);
}

static enum err read_contribution(const uint8_t *bytes, size_t count, struct wire_meta *meta)
{
    struct bytes_reader reader = bytes_reader_init(bytes, count);
    meta->tokens = bytes_get_u64(&reader);
    meta->step = bytes_get_u64(&reader);
    const uint8_t *base_hash = bytes_get(&reader, DIGEST_BYTES);
    if (reader.failed || bytes_left(&reader) != 0)
        return err_set(ERR_PROTO, "a contribution with %zu bytes of metadata", count);
    if (meta->tokens == 0 || meta->tokens > tokens_max)
        return err_set(ERR_PROTO, "a contribution of %" PRIu64 " tokens", meta->tokens);
    memcpy(meta->base_hash.byte, base_hash, DIGEST_BYTES);
    return ERR_OK;
}

/* Whether these are bits of singles that a mean can have come of: not negative, and numbers. */
static bool sound(const struct wire_contributor *contributor)
{
    return contributor->weight < SINGLE_INF && contributor->norm < SINGLE_INF && contributor->factor <= WIRE_FACTOR_ONE;
}

static enum err read_result(const uint8_t *bytes, size_t count, struct wire_meta *meta)
{
    struct bytes_reader reader = bytes_reader_init(bytes, count);
    meta->step = bytes_get_u64(&reader);
    for (int i = 0; i < WIRE_OUTER_NUMBERS; i++)
        meta->outer[i] = bytes_get_u32(&reader);
    uint32_t contributors = bytes_get_u32(&reader);
    if (reader.failed)
        return err_set(ERR_PROTO, "a result with %zu bytes of metadata", count);
    if (contributors == 0 || contributors > WIRE_CONTRIBUTORS_MAX || count != meta_bytes_of(WIRE_RESULT, contributors))
        return err_set(ERR_PROTO, "a result of %" PRIu32 " contributors, with %zu bytes of metadata", contributors,
                       count);
    meta->contributors = bytes + RESULT_META_BYTES;
    meta->contributors_count = contributors;
    for (uint32_t i = 0, before = 0; i < contributors; i++) {
        struct wire_contributor contributor = wire_meta_contributor(meta, i);
        if (i > 0 && contributor.id <= before)
            return err_set(ERR_PROTO, "a result whose contributors are not in order");
        if (!sound(&contributor))
            return err_set(ERR_PROTO, "a result whose weights, norms or factors make no sense");
        before = contributor.id;
    }
    return ERR_OK;
}

enum err wire_object_peek(const uint8_t *object, size_t object_bytes, struct wire_object *what)
{
    size_t meta_bytes, frame_bytes;
    return read_header(object, object_bytes, false, what, &meta_bytes, &frame_bytes);
}

enum err wire_object_open(const uint8_t *object, size_t object_bytes, struct wire_object *what, struct wire_meta *meta,
                          const uint8_t **frame, size_t *frame_bytes)
{
    static const uint8_t unsigned_yet[IDENT_SIGNATURE_BYTES];
    size_t meta_bytes;
    memset(meta, 0, sizeof *meta);
    TRY(read_header(object, object_bytes, false, what, &meta_bytes, frame_bytes));
    struct digest digest = object_digest(object, *frame_bytes, meta_bytes);
    if (!digest_equal(&digest, &what->digest))
        return err_set(ERR_PROTO, "a %s was altered: its digest does not match", wire_kind_name(what->key.kind));
    *frame = object + WIRE_OBJECT_HEADER_BYTES;
    const uint8_t *after = *frame + *frame_bytes;
    if (what->key.kind == WIRE_RESULT)
        return read_result(after, meta_bytes, meta);
    if (memcmp(what->signature, unsigned_yet, sizeof unsigned_yet) != 0)
        return err_set(ERR_PROTO, "a contribution with a signature");
    return read_contribution(after, meta_bytes, meta);
}

/* ---- stubs ---- */

enum err wire_object_stub_bytes(const uint8_t *object, size_t object_bytes, size_t *stub_bytes)
{
    struct wire_object what;
    size_t meta_bytes, frame_bytes;
    TRY(read_header(object, object_bytes, false, &what, &meta_bytes, &frame_bytes));
    *stub_bytes = WIRE_OBJECT_HEADER_BYTES + frame_head_bytes(frame_bytes) + meta_bytes;
    return *stub_bytes <= WIRE_OBJECT_STUB_BYTES_MAX ? ERR_OK : err_set(ERR_PROTO, "an object without a stub");
}

void wire_object_stub(const uint8_t *object, size_t object_bytes, uint8_t *out)
{
    struct wire_object what;
    size_t meta_bytes, frame_bytes;
    if (read_header(object, object_bytes, false, &what, &meta_bytes, &frame_bytes) != ERR_OK)
        return;
    size_t head_bytes = WIRE_OBJECT_HEADER_BYTES + frame_head_bytes(frame_bytes);
    memcpy(out, object, head_bytes);
    memcpy(out + head_bytes, object + object_bytes - meta_bytes, meta_bytes);
}

enum err wire_object_stub_open(const uint8_t *stub, size_t stub_bytes, struct wire_object *what)
{
    size_t meta_bytes, frame_bytes;
    TRY(read_header(stub, stub_bytes, true, what, &meta_bytes, &frame_bytes));
    struct digest digest = stub_digest(stub, frame_head_bytes(frame_bytes), stub + stub_bytes - meta_bytes, meta_bytes);
    return digest_equal(&digest, &what->digest) ? ERR_OK : err_set(ERR_PROTO, "a stub that was altered");
}

enum err wire_object_is(const struct wire_object *what, const struct wire_key *key,
                        const uint8_t nonce[WIRE_NONCE_BYTES])
{
    if (memcmp(what->nonce, nonce, WIRE_NONCE_BYTES) != 0)
        return err_set(ERR_PROTO, "a %s of another run", wire_kind_name(what->key.kind));
    if (!wire_key_equal(&what->key, key))
        return err_set(ERR_PROTO, "another object than was asked for: the %s", wire_key_text(&what->key));
    return ERR_OK;
}

enum err wire_object_signed(const struct wire_object *what, const uint8_t *owner_key)
{
    uint8_t message[DOMAIN_BYTES + DIGEST_BYTES];
    message_of(&what->digest, message);
    if (what->key.kind != WIRE_RESULT || !ident_signed(owner_key, message, sizeof message, what->signature))
        return err_set(ERR_PROTO, "the %s is not signed by its owner", wire_key_text(&what->key));
    return ERR_OK;
}
