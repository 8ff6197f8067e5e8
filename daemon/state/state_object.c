/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/state/state_object.h"

#include <inttypes.h>
#include <string.h>

#include "common/bytes.h"
#include "common/mem.h"
#include "outer_opt/vhash.h"

/* 0 u32 magic "DLT4"  4 u32 fragment  8 u64 version  16 u64 step  24 u64 values  32 hash  64 u64 rows of what is
 * counted  72 u64 rows of the certificate  80 zeros  128 the body: anchor, then momentum, then the rows of what is
 * counted (dedup.h); then the certificate (net/config/certificate.h). A head: the same 128 bytes, the certificate, the
 * leaves. */
#define STATE_MAGIC 0x34544c44u
enum { STATE_CERTIFICATE = 72, STATE_ZEROS = STATE_HEADER_BYTES - 80 };

uint64_t state_object_bytes(struct replica *replica, uint32_t f)
{
    return STATE_HEADER_BYTES + replica_state_bytes(replica, f) + dedup_bytes(replica_counted(replica, f));
}

static uint64_t body_bytes_max(const struct replica *replica, uint32_t f, uint32_t members)
{
    return replica_state_bytes(replica, f) + (uint64_t)members * DEDUP_ROWS_OF_ONE_MAX * DEDUP_ROW_BYTES;
}

uint64_t state_head_bytes_max(struct replica *replica, uint32_t f, uint32_t members)
{
    return STATE_HEADER_BYTES + certificate_bytes(CONFIG_VOTERS_MAX) +
           (uint64_t)digest_tree_leaves(body_bytes_max(replica, f, members)) * DIGEST_BYTES;
}

void state_object_make(struct replica *replica, const struct plan *plan, uint32_t f, const struct store_fragment *state,
                       uint8_t *out)
{
    uint64_t count = plan->fragments[f].values_count;
    struct bytes_writer writer = bytes_writer_init(out, state_object_bytes(replica, f));
    bytes_put_u32(&writer, STATE_MAGIC);
    bytes_put_u32(&writer, f);
    bytes_put_u64(&writer, state->version);
    bytes_put_u64(&writer, state->step);
    bytes_put_u64(&writer, count);
    bytes_put(&writer, state->hash.byte, DIGEST_BYTES);
    bytes_put_u64(&writer, replica_counted(replica, f)->count);
    bytes_put_u64(&writer, 0); /* state_object_certify() */
    bytes_put(&writer, (uint8_t[STATE_ZEROS]){0}, STATE_ZEROS);
    bytes_put(&writer, replica_anchor(replica, f), count * sizeof(float));
    if (replica_momentum(replica, f) != NULL)
        bytes_put(&writer, replica_momentum(replica, f), count * sizeof(float));
    dedup_pack(replica_counted(replica, f), out + writer.at);
}

void state_object_certify(uint8_t *object, uint64_t bytes, const struct certificate *certificate)
{
    struct bytes_writer writer = bytes_writer_init(object + STATE_CERTIFICATE, sizeof(uint64_t));
    bytes_put_u64(&writer, certificate->count);
    certificate_pack(certificate, object + bytes);
}

/* ---- what comes in ---- */

/* The hash is the one that this version has: voters say so; or, of initial tensors, about which nobody votes, its
 * sender said so before. ERR_AGAIN: more of them may still say so. */
static enum err check_hash(const struct state_expected *expected, uint32_t f, const struct digest *hash,
                           const uint8_t *rows, size_t rows_bytes, struct certificate *certificate)
{
    const struct certificate_subject subject = {
        .nonce = expected->nonce, .fragment = f, .version = expected->version, .hash = *hash};
    TRY(certificate_unpack(rows, rows_bytes, certificate));
    if (expected->version > 0 && expected->heard != NULL)
        certificates_complete(expected->heard, &subject, certificate);
    if (expected->version > 0) {
        enum err err = certificate_check(expected->rule, &subject, certificate, expected->excused);
        bool may_come = err != ERR_OK && !certificate_forged(expected->rule, &subject, certificate);
        return may_come ? ERR_AGAIN : err;
    }
    if (expected->hash != NULL && !digest_equal(expected->hash, hash))
        return err_set(ERR_PROTO, "it is not the one that island announced");
    return ERR_OK;
}

/* What the first bytes say. */
struct header {
    struct store_fragment state;
    uint64_t rows, certificates;
};

/* As far as it needs no hash: nothing behind it has been looked at, and no memory taken. */
static enum err read_header(const struct plan *plan, uint32_t f, const struct state_expected *expected,
                            const uint8_t *bytes, uint64_t bytes_count, struct header *header)
{
    struct bytes_reader reader = bytes_reader_init(bytes, bytes_count);
    uint32_t magic = bytes_get_u32(&reader);
    uint32_t fragment = bytes_get_u32(&reader);
    header->state.version = bytes_get_u64(&reader);
    header->state.step = bytes_get_u64(&reader);
    uint64_t count = bytes_get_u64(&reader);
    const uint8_t *announced = bytes_get(&reader, DIGEST_BYTES);
    header->rows = bytes_get_u64(&reader);
    header->certificates = bytes_get_u64(&reader);
    const uint8_t *zeros = bytes_get(&reader, STATE_ZEROS);
    if (zeros == NULL || memcmp(zeros, (uint8_t[STATE_ZEROS]){0}, STATE_ZEROS) != 0 || magic != STATE_MAGIC ||
        fragment != f || count != plan->fragments[f].values_count || header->certificates > CONFIG_VOTERS_MAX ||
        header->rows > (uint64_t)WIRE_MEMBERS_MAX * DEDUP_ROWS_OF_ONE_MAX || header->state.version != expected->version)
        return err_set(ERR_PROTO, "not this state of this fragment");
    if (header->state.step > expected->steps)
        return err_set(ERR_PROTO, "step %" PRIu64 " of a run of %" PRIu64, header->state.step, expected->steps);
    memcpy(header->state.hash.byte, announced, DIGEST_BYTES);
    return ERR_OK;
}

/* Whether the body of this tree is that of the header's hash. */
static enum err check_tree(const struct plan *plan, uint32_t f, bool momentum, const struct header *header,
                           const struct digest *tree)
{
    const struct vhash_subject subject = {.fragment = f,
                                          .momentum = momentum,
                                          .version = header->state.version,
                                          .step = header->state.step,
                                          .count = plan->fragments[f].values_count,
                                          .rows = header->rows};
    const struct digest hash = vhash_root(&subject, tree);
    if (!digest_equal(&header->state.hash, &hash))
        return err_set(ERR_PROTO, "its values are not those of its hash");
    return ERR_OK;
}

enum err state_object_install(struct replica *replica, const struct plan *plan, uint32_t f,
                              const struct state_expected *expected, const uint8_t *object, uint64_t bytes,
                              struct store_fragment *state)
{
    struct header header = {.rows = 0};
    uint64_t count = plan->fragments[f].values_count, values = replica_state_bytes(replica, f);
    bool momentum = replica_momentum(replica, f) != NULL;
    TRY(read_header(plan, f, expected, object, bytes, &header));
    uint64_t body = values + header.rows * DEDUP_ROW_BYTES;
    if (bytes != STATE_HEADER_BYTES + body + certificate_bytes((uint32_t)header.certificates))
        return err_set(ERR_PROTO, "not this state of this fragment");
    const uint8_t *from = object + STATE_HEADER_BYTES;
    const struct digest tree = digest_tree(from, (size_t)body);
    TRY(check_tree(plan, f, momentum, &header, &tree));
    struct certificate certificate;
    enum err err = check_hash(expected, f, &header.state.hash, from + body,
                              certificate_bytes((uint32_t)header.certificates), &certificate);
    if (err != ERR_OK)
        return err == ERR_AGAIN ? ERR_PROTO : err;
    struct dedup counted = {0};
    TRY(dedup_unpack(from + values, (size_t)(body - values), &counted));
    dedup_clear(replica_counted(replica, f));
    *replica_counted(replica, f) = counted;
    *state = header.state;
    memcpy(replica_anchor(replica, f), from, count * sizeof(float));
    if (momentum)
        memcpy(replica_momentum(replica, f), from + count * sizeof(float), count * sizeof(float));
    return ERR_OK;
}

/* ---- heads ---- */

uint64_t state_head_bytes(uint64_t object_bytes, const struct certificate *certificate)
{
    return STATE_HEADER_BYTES + certificate_bytes(certificate->count) +
           (uint64_t)digest_tree_leaves(object_bytes - STATE_HEADER_BYTES) * DIGEST_BYTES;
}

size_t state_object_leaves(uint64_t bytes)
{
    return digest_tree_leaves(bytes - STATE_HEADER_BYTES);
}

void state_object_digest(const uint8_t *object, uint64_t bytes, size_t first, size_t end, struct digest *leaves)
{
    const uint8_t *body = object + STATE_HEADER_BYTES;
    size_t body_bytes = (size_t)(bytes - STATE_HEADER_BYTES), whole = body_bytes / DIGEST_LEAF_BYTES;
    size_t together = end < whole ? end : whole;
    if (first < together)
        digest_tree_whole(body + first * DIGEST_LEAF_BYTES, together - first, leaves + first);
    for (size_t i = first > together ? first : together; i < end; i++)
        leaves[i] = digest_tree_leaf(body, body_bytes, i);
}

enum err state_object_check(struct replica *replica, const struct plan *plan, uint32_t f,
                            const struct store_fragment *state, uint64_t bytes, const struct digest *leaves)
{
    uint64_t body = bytes - STATE_HEADER_BYTES;
    const struct header header = {.state = *state, .rows = (body - replica_state_bytes(replica, f)) / DEDUP_ROW_BYTES};
    const struct digest tree = digest_tree_root(leaves, state_object_leaves(bytes), body);
    return check_tree(plan, f, replica_momentum(replica, f) != NULL, &header, &tree);
}

void state_head_make(const uint8_t *object, uint64_t object_bytes, const struct digest *leaves,
                     const struct certificate *certificate, uint8_t *out)
{
    size_t certified = certificate_bytes(certificate->count);
    memcpy(out, object, STATE_HEADER_BYTES);
    state_object_certify(out, STATE_HEADER_BYTES, certificate);
    memcpy(out + STATE_HEADER_BYTES + certified, leaves,
           digest_tree_leaves(object_bytes - STATE_HEADER_BYTES) * DIGEST_BYTES);
}

enum err state_head_open(struct replica *replica, const struct plan *plan, uint32_t f,
                         const struct state_expected *expected, uint32_t members, const uint8_t *bytes,
                         uint64_t bytes_count, struct state_head *head)
{
    struct header header = {.rows = 0};
    TRY(read_header(plan, f, expected, bytes, bytes_count, &header));
    size_t certified = certificate_bytes((uint32_t)header.certificates);
    head->body_bytes = replica_state_bytes(replica, f) + header.rows * DEDUP_ROW_BYTES;
    head->leaves_count = digest_tree_leaves(head->body_bytes);
    head->leaves = bytes + STATE_HEADER_BYTES + certified;
    if (head->body_bytes > body_bytes_max(replica, f, members) ||
        bytes_count != STATE_HEADER_BYTES + certified + (uint64_t)head->leaves_count * DIGEST_BYTES)
        return err_set(ERR_PROTO, "not the head of this state");
    const struct digest tree =
        digest_tree_root((const struct digest *)(const void *)head->leaves, head->leaves_count, head->body_bytes);
    TRY(check_tree(plan, f, replica_momentum(replica, f) != NULL, &header, &tree));
    head->hash = header.state.hash;
    enum err err =
        check_hash(expected, f, &header.state.hash, bytes + STATE_HEADER_BYTES, certified, &head->certificate);
    head->object_bytes = STATE_HEADER_BYTES + head->body_bytes + certificate_bytes(head->certificate.count);
    return err;
}

void state_head_begin(const uint8_t *bytes, const struct state_head *head, uint8_t *object)
{
    memcpy(object, bytes, STATE_HEADER_BYTES);
    state_object_certify(object, STATE_HEADER_BYTES + head->body_bytes, &head->certificate);
}
