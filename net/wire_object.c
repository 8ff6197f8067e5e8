/*
 * Objects: header, codec frame, metadata.
 *
 *    0  u32 magic "DLO1"   4  u8 kind   5  u8 version   6  u16 metadata bytes
 *    8  u64 frame bytes   16  32 bytes BLAKE2b over bytes 0..15, the frame's first 48 bytes, and the metadata
 *   48  frame, then metadata (ContributionMeta or ResultMeta)
 *
 * The frame has a fixed place so that it is encoded where it is sent from. Its first 48 bytes are its own header with
 * the digest of its payload, so the two digests together cover every byte and nothing is hashed twice.
 */
#include <inttypes.h>
#include <string.h>

#include "common/bytes.h"
#include "net/wire.h"
#include "net/wire.pb-c.h"

#define OBJECT_MAGIC 0x314f4c44u /* "DLO1" */
enum { OBJECT_VERSION = 1, DIGEST_OFFSET = 16, FRAME_HEAD_BYTES = 48 };
/* More than any run trains; two of them still add up within 64 bits. */
static const uint64_t tokens_max = (uint64_t)1 << 62;

size_t wire_object_bytes_max(size_t frame_bytes)
{
    return WIRE_OBJECT_HEADER_BYTES + frame_bytes + WIRE_META_BYTES_MAX;
}

uint8_t *wire_object_frame(uint8_t *object)
{
    return object + WIRE_OBJECT_HEADER_BYTES;
}

static struct digest object_digest(const uint8_t *object, size_t frame_bytes, size_t meta_bytes)
{
    const uint8_t *frame = object + WIRE_OBJECT_HEADER_BYTES;
    struct digest_state state;
    digest_begin(&state);
    digest_add(&state, object, DIGEST_OFFSET);
    digest_add(&state, frame, frame_bytes < FRAME_HEAD_BYTES ? frame_bytes : FRAME_HEAD_BYTES);
    digest_add(&state, frame + frame_bytes, meta_bytes);
    return digest_end(&state);
}

static size_t pack_contribution(const struct wire_meta *meta, uint8_t *out)
{
    Diloco__ContributionMeta proto = DILOCO__CONTRIBUTION_META__INIT;
    proto.tokens = meta->tokens;
    proto.step = meta->step;
    proto.base_hash = (ProtobufCBinaryData){.len = DIGEST_BYTES, .data = (uint8_t *)(uintptr_t)meta->base_hash.byte};
    return out != NULL ? diloco__contribution_meta__pack(&proto, out)
                       : diloco__contribution_meta__get_packed_size(&proto);
}

static size_t pack_result(const struct wire_meta *meta, uint8_t *out)
{
    Diloco__ResultMeta proto = DILOCO__RESULT_META__INIT;
    Diloco__Contributor rows[WIRE_MEMBERS_MAX];
    Diloco__Contributor *pointers[WIRE_MEMBERS_MAX];
    for (uint32_t i = 0; i < meta->contributors_count; i++) {
        diloco__contributor__init(&rows[i]);
        rows[i].island = meta->contributors[i].island;
        rows[i].tokens = meta->contributors[i].tokens;
        pointers[i] = &rows[i];
    }
    proto.step = meta->step;
    proto.n_contributors = meta->contributors_count;
    proto.contributors = pointers;
    proto.n_outer = WIRE_OUTER_NUMBERS;
    proto.outer = (uint32_t *)(uintptr_t)meta->outer;
    return out != NULL ? diloco__result_meta__pack(&proto, out) : diloco__result_meta__get_packed_size(&proto);
}

struct digest wire_object_digest(const uint8_t *object)
{
    struct digest digest;
    memcpy(digest.byte, object + DIGEST_OFFSET, DIGEST_BYTES);
    return digest;
}

enum err wire_object_seal(uint32_t kind, const struct wire_meta *meta, uint8_t *object, size_t frame_bytes,
                          size_t *object_bytes)
{
    if (meta->contributors_count > WIRE_MEMBERS_MAX)
        return err_set(ERR_ARG, "%" PRIu32 " contributors", meta->contributors_count);
    size_t meta_bytes = kind == WIRE_CONTRIBUTION ? pack_contribution(meta, NULL) : pack_result(meta, NULL);
    if (meta_bytes > WIRE_META_BYTES_MAX)
        return err_set(ERR_ARG, "metadata of %zu bytes", meta_bytes);
    struct bytes_writer writer = bytes_writer_init(object, WIRE_OBJECT_HEADER_BYTES);
    bytes_put_u32(&writer, OBJECT_MAGIC);
    bytes_put_u8(&writer, (uint8_t)kind);
    bytes_put_u8(&writer, OBJECT_VERSION);
    bytes_put_u16(&writer, (uint16_t)meta_bytes);
    bytes_put_u64(&writer, frame_bytes);
    uint8_t *after = object + WIRE_OBJECT_HEADER_BYTES + frame_bytes;
    if (kind == WIRE_CONTRIBUTION)
        pack_contribution(meta, after);
    else
        pack_result(meta, after);
    *object_bytes = WIRE_OBJECT_HEADER_BYTES + frame_bytes + meta_bytes;
    struct digest digest = object_digest(object, frame_bytes, meta_bytes);
    bytes_put(&writer, digest.byte, DIGEST_BYTES);
    return ERR_OK;
}

static enum err open_contribution(const uint8_t *bytes, size_t count, struct wire_meta *meta)
{
    Diloco__ContributionMeta *proto = diloco__contribution_meta__unpack(NULL, count, bytes);
    if (proto == NULL)
        return err_set(ERR_PROTO, "a contribution's metadata is damaged");
    enum err err = ERR_OK;
    meta->tokens = proto->tokens;
    meta->step = proto->step;
    if (proto->base_hash.len != DIGEST_BYTES || proto->tokens == 0 || proto->tokens > tokens_max)
        err = err_set(ERR_PROTO, "a contribution of %" PRIu64 " tokens with a base hash of %zu bytes", proto->tokens,
                      proto->base_hash.len);
    else
        memcpy(meta->base_hash.byte, proto->base_hash.data, DIGEST_BYTES);
    diloco__contribution_meta__free_unpacked(proto, NULL);
    return err;
}

static enum err open_result(const uint8_t *bytes, size_t count, struct wire_meta *meta)
{
    Diloco__ResultMeta *proto = diloco__result_meta__unpack(NULL, count, bytes);
    if (proto == NULL)
        return err_set(ERR_PROTO, "a result's metadata is damaged");
    enum err err = ERR_OK;
    meta->step = proto->step;
    if (proto->n_contributors == 0 || proto->n_contributors > WIRE_MEMBERS_MAX)
        err = err_set(ERR_PROTO, "a result of %zu contributors", proto->n_contributors);
    if (err == ERR_OK && proto->n_outer != WIRE_OUTER_NUMBERS)
        err = err_set(ERR_PROTO, "a result with %zu numbers for its outer step", proto->n_outer);
    if (err == ERR_OK)
        memcpy(meta->outer, proto->outer, sizeof meta->outer);
    for (size_t i = 0; err == ERR_OK && i < proto->n_contributors; i++) {
        uint32_t island = proto->contributors[i]->island;
        if (island >= WIRE_MEMBERS_MAX || (i > 0 && island <= meta->contributors[i - 1].island))
            err = err_set(ERR_PROTO, "a result whose contributors are not in order");
        meta->contributors[i] = (struct wire_contributor){island, proto->contributors[i]->tokens};
        meta->contributors_count = (uint32_t)i + 1;
    }
    diloco__result_meta__free_unpacked(proto, NULL);
    return err;
}

enum err wire_object_open(uint32_t kind, const uint8_t *object, size_t object_bytes, struct wire_meta *meta,
                          const uint8_t **frame, size_t *frame_bytes)
{
    struct bytes_reader reader = bytes_reader_init(object, object_bytes);
    uint32_t magic = bytes_get_u32(&reader);
    unsigned found_kind = bytes_get_u8(&reader);
    unsigned version = bytes_get_u8(&reader);
    size_t meta_bytes = bytes_get_u16(&reader);
    uint64_t announced = bytes_get_u64(&reader);
    memset(meta, 0, sizeof *meta);
    if (reader.failed || object_bytes < WIRE_OBJECT_HEADER_BYTES || magic != OBJECT_MAGIC)
        return err_set(ERR_PROTO, "not an object, or cut short");
    if (version != OBJECT_VERSION)
        return err_set(ERR_PROTO, "object of version %u; this program reads %d", version, OBJECT_VERSION);
    if (found_kind != kind)
        return err_set(ERR_PROTO, "a %s where a %s is due", wire_kind_name(found_kind), wire_kind_name(kind));
    size_t body_bytes = object_bytes - WIRE_OBJECT_HEADER_BYTES;
    if (meta_bytes > WIRE_META_BYTES_MAX || meta_bytes > body_bytes || announced != body_bytes - meta_bytes)
        return err_set(ERR_PROTO, "a %s of the wrong length", wire_kind_name(kind));
    *frame = object + WIRE_OBJECT_HEADER_BYTES;
    *frame_bytes = (size_t)announced;
    struct digest digest = object_digest(object, *frame_bytes, meta_bytes);
    if (memcmp(object + DIGEST_OFFSET, digest.byte, DIGEST_BYTES) != 0)
        return err_set(ERR_PROTO, "a %s was altered: its digest does not match", wire_kind_name(kind));
    if (kind == WIRE_CONTRIBUTION)
        return open_contribution(*frame + *frame_bytes, meta_bytes, meta);
    return open_result(*frame + *frame_bytes, meta_bytes, meta);
}
