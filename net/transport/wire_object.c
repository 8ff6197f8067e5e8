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
 *               4 singles: weight, norm, factor, cosine; 32 bytes digest
 *       both, where shards of a contribution are not alike, for each span: u32 id, single weight, u64 mask of shards,
 *               u64 tokens
 *
 * The frame has a fixed place so that it is encoded where it is sent from. Its head holds the digest of its payload, so
 * the two digests together cover every byte and nothing is hashed twice. All metadata has fixed places too: it is read
 * where it lies, and one meaning has one form.
 */
#include "net/transport/wire_object.h"

#include <inttypes.h>
#include <string.h>

#include "common/bytes.h"

#define OBJECT_MAGIC 0x314f4c44u /* "DLO1" */
enum {
    DIGEST_OFFSET = 72,
    SIGNATURE_OFFSET = DIGEST_OFFSET + DIGEST_BYTES,
    FRAME_HEAD_BYTES = 64,
    CONTRIBUTION_META_BYTES = 48, /* before the spans */
    RESULT_META_BYTES = 24,       /* before the contributors */
    DOMAIN_BYTES = 16,
    SINGLE_INF = 0x7f800000,
};
#define SINGLE_SIGN 0x80000000u
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
    bytes_put_u32(&writer, contributor->cosine);
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
    contributor.cosine = bytes_get_u32(&reader);
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

/* ---- spans ---- */

static struct wire_span span_at(const struct wire_meta *meta, uint32_t index)
{
    const uint8_t *row = meta->spans + (size_t)index * WIRE_SPAN_BYTES;
    struct bytes_reader reader = bytes_reader_init(row, WIRE_SPAN_BYTES);
    struct wire_span span = {.id = bytes_get_u32(&reader)};
    span.weight = bytes_get_u32(&reader);
    span.shards = bytes_get_u64(&reader);
    span.tokens = bytes_get_u64(&reader);
    return span;
}

uint32_t wire_spans_put(uint8_t *spans, uint32_t count, uint32_t room, uint32_t id, uint64_t shards,
                        const uint64_t tokens[WIRE_SHARDS_MAX], const uint32_t *weights)
{
    struct bytes_writer writer =
        bytes_writer_init(spans + (size_t)count * WIRE_SPAN_BYTES, (size_t)(room - count) * WIRE_SPAN_BYTES);
    uint32_t at = count;
    for (uint32_t s = 0; s < WIRE_SHARDS_MAX && at < room; s++) {
        uint64_t alike = 0;
        for (uint32_t k = s; (shards >> s & 1) != 0 && k < WIRE_SHARDS_MAX; k++)
            if (tokens[k] == tokens[s] && (weights == NULL || weights[k] == weights[s]))
                alike |= shards & (uint64_t)1 << k;
        if (alike == 0)
            continue;
        bytes_put_u32(&writer, id);
        bytes_put_u32(&writer, weights != NULL ? weights[s] : 0);
        bytes_put_u64(&writer, alike);
        bytes_put_u64(&writer, tokens[s]);
        shards &= ~alike;
        at++;
    }
    return shards == 0 && at - count >= 2 ? at : count;
}

bool wire_meta_span(const struct wire_meta *meta, uint32_t id, uint32_t shard, struct wire_span *out)
{
    for (uint32_t i = 0; i < meta->spans_count; i++) {
        *out = span_at(meta, i);
        if (out->id == id && (out->shards >> shard & 1) != 0)
            return true;
    }
    return false;
}

/* ---- writing ---- */

static size_t meta_bytes_of(uint32_t kind, uint32_t contributors, uint32_t spans)
{
    size_t before = kind == WIRE_CONTRIBUTION ? CONTRIBUTION_META_BYTES
                                              : RESULT_META_BYTES + (size_t)contributors * WIRE_CONTRIBUTOR_BYTES;
    return before + (size_t)spans * WIRE_SPAN_BYTES;
}

size_t wire_object_bytes_max(size_t frame_bytes, uint64_t shards, uint32_t contributors)
{
    uint32_t own = 0;
    for (; shards != 0; shards &= shards - 1)
        own++;
    own = own > 1 ? own : 0; /* a single shard is like itself */
    uint64_t spans = (uint64_t)contributors * own;
    size_t result = meta_bytes_of(WIRE_RESULT, contributors, spans < WIRE_SPANS_MAX ? (uint32_t)spans : WIRE_SPANS_MAX);
    size_t contribution = meta_bytes_of(WIRE_CONTRIBUTION, 0, own);
    return WIRE_OBJECT_HEADER_BYTES + frame_bytes + (result > contribution ? result : contribution);
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
    } else {
        bytes_put_u64(&writer, meta->step);
        for (int i = 0; i < WIRE_OUTER_NUMBERS; i++)
            bytes_put_u32(&writer, meta->outer[i]);
        bytes_put_u32(&writer, meta->contributors_count);
        if (meta->contributors_count > 0)
            bytes_put(&writer, meta->contributors, (size_t)meta->contributors_count * WIRE_CONTRIBUTOR_BYTES);
    }
    if (meta->spans_count > 0)
        bytes_put(&writer, meta->spans, (size_t)meta->spans_count * WIRE_SPAN_BYTES);
}

static void put_header(const struct wire_object *what, size_t meta_bytes, size_t frame_bytes, uint8_t *object)
{
    struct bytes_writer writer = bytes_writer_init(object, WIRE_OBJECT_HEADER_BYTES);
    bytes_put_u32(&writer, OBJECT_MAGIC);
    bytes_put_u8(&writer, (uint8_t)what->key.kind);
    bytes_put_u8(&writer, WIRE_OBJECT_VERSION);
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
    if (meta->spans_count > WIRE_SPANS_MAX)
        return err_set(ERR_ARG, "%" PRIu32 " spans of shards", meta->spans_count);
    size_t meta_bytes = meta_bytes_of(kind, meta->contributors_count, meta->spans_count);
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
    if (version != WIRE_OBJECT_VERSION)
        return err_set(ERR_PROTO, "object of version %u; this program reads %d", version, WIRE_OBJECT_VERSION);
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

static uint64_t lowest(uint64_t mask)
{
    return mask & (~mask + 1);
}

/* Whether another span of the same member, before this one, says the same. */
static bool said_before(const struct wire_meta *meta, uint32_t index)
{
    struct wire_span span = span_at(meta, index);
    for (uint32_t i = index; i-- > 0 && span_at(meta, i).id == span.id;)
        if (span_at(meta, i).tokens == span.tokens && span_at(meta, i).weight == span.weight)
            return true;
    return false;
}

/* That a member's spans are the shards of the object, each once, and no more of them than need be: one meaning has one
 * form. */
static enum err check_spans(const struct wire_meta *meta, uint64_t shards)
{
    struct wire_span before = {0};
    uint64_t left = 0; /* of the member's shards */
    for (uint32_t i = 0; i < meta->spans_count; i++) {
        struct wire_span span = span_at(meta, i);
        bool first = i == 0 || span.id != before.id;
        if (first && (left != 0 || (i > 0 && span.id < before.id)))
            return err_set(ERR_PROTO, "spans that lack shards, or are not in order");
        left = first ? shards : left;
        if (span.shards == 0 || (span.shards & ~left) != 0 || span.shards == shards ||
            (!first && lowest(span.shards) <= lowest(before.shards)) || said_before(meta, i))
            return err_set(ERR_PROTO, "spans of other shards, not in order, or more than need be");
        if (span.tokens == 0 || span.tokens > tokens_max || span.weight >= SINGLE_INF)
            return err_set(ERR_PROTO, "a span of %" PRIu64 " tokens, or of a weight that makes no sense", span.tokens);
        left &= ~span.shards;
        before = span;
    }
    return left == 0 ? ERR_OK : err_set(ERR_PROTO, "spans that lack shards");
}

/* The spans, behind `before` bytes of metadata. */
static enum err read_spans(const uint8_t *bytes, size_t count, size_t before, const struct wire_object *what,
                           struct wire_meta *meta)
{
    size_t spans = (count - before) / WIRE_SPAN_BYTES;
    if ((count - before) % WIRE_SPAN_BYTES != 0 || spans > WIRE_SPANS_MAX)
        return err_set(ERR_PROTO, "a %s with %zu bytes of metadata", wire_kind_name(what->key.kind), count);
    meta->spans_count = (uint32_t)spans;
    meta->spans = spans > 0 ? bytes + before : NULL;
    return check_spans(meta, what->shards);
}

static enum err read_contribution(const uint8_t *bytes, size_t count, const struct wire_object *what,
                                  struct wire_meta *meta)
{
    struct bytes_reader reader = bytes_reader_init(bytes, count);
    meta->tokens = bytes_get_u64(&reader);
    meta->step = bytes_get_u64(&reader);
    const uint8_t *base_hash = bytes_get(&reader, DIGEST_BYTES);
    if (reader.failed)
        return err_set(ERR_PROTO, "a contribution with %zu bytes of metadata", count);
    memcpy(meta->base_hash.byte, base_hash, DIGEST_BYTES);
    TRY(read_spans(bytes, count, CONTRIBUTION_META_BYTES, what, meta));
    if ((meta->tokens == 0) != (meta->spans_count > 0) || meta->tokens > tokens_max)
        return err_set(ERR_PROTO, "a contribution of %" PRIu64 " tokens, with %" PRIu32 " spans", meta->tokens,
                       meta->spans_count);
    for (uint32_t i = 0; i < meta->spans_count; i++)
        if (span_at(meta, i).id != what->key.island || span_at(meta, i).weight != 0)
            return err_set(ERR_PROTO, "a contribution with spans of another member, or with weights");
    return ERR_OK;
}

/* Whether these are bits of singles that a mean can have come of: numbers, and but for the cosine not negative. */
static bool sound(const struct wire_contributor *contributor)
{
    return contributor->weight < SINGLE_INF && contributor->norm < SINGLE_INF &&
           contributor->factor <= WIRE_FACTOR_ONE && contributor->cosine != SINGLE_SIGN &&
           (contributor->cosine & ~SINGLE_SIGN) <= WIRE_FACTOR_ONE;
}

static enum err read_result(const uint8_t *bytes, size_t count, const struct wire_object *what, struct wire_meta *meta)
{
    struct bytes_reader reader = bytes_reader_init(bytes, count);
    meta->step = bytes_get_u64(&reader);
    for (int i = 0; i < WIRE_OUTER_NUMBERS; i++)
        meta->outer[i] = bytes_get_u32(&reader);
    uint32_t contributors = bytes_get_u32(&reader);
    if (reader.failed)
        return err_set(ERR_PROTO, "a result with %zu bytes of metadata", count);
    if (contributors == 0 || contributors > WIRE_CONTRIBUTORS_MAX ||
        count < meta_bytes_of(WIRE_RESULT, contributors, 0))
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
    TRY(read_spans(bytes, count, meta_bytes_of(WIRE_RESULT, contributors, 0), what, meta));
    for (uint32_t i = 0; i < meta->spans_count; i++)
        if (!wire_meta_find(meta, span_at(meta, i).id, NULL))
            return err_set(ERR_PROTO, "a result with spans of who did not contribute");
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
        return read_result(after, meta_bytes, what, meta);
    if (memcmp(what->signature, unsigned_yet, sizeof unsigned_yet) != 0)
        return err_set(ERR_PROTO, "a contribution with a signature");
    return read_contribution(after, meta_bytes, what, meta);
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

struct result_id wire_object_result(const struct wire_object *what)
{
    return (struct result_id){.fragment = what->key.fragment,
                              .owner = what->key.owner,
                              .version = what->key.version,
                              .epoch = what->key.epoch,
                              .digest = what->digest};
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
