#include "daemon/state/state_object.h"

#include <inttypes.h>
#include <string.h>

#include "common/bytes.h"
#include "common/mem.h"
#include "outer_opt/vhash.h"

/* 0 u32 magic "DLT3"  4 u32 fragment  8 u64 version  16 u64 step  24 u64 values  32 hash  64 u64 rows of what is
 * counted  72 u64 rows of the certificate  80 zeros  128 anchor, then momentum, then the rows of what is counted
 * (counted.h), then the certificate (net/vouch.h) */
#define STATE_MAGIC 0x33544c44u
enum { STATE_HEADER = 128, STATE_CERTIFICATE = 72, STATE_ZEROS = STATE_HEADER - 80 };

static uint64_t arrays_of(struct replica *replica, uint32_t f)
{
    return replica_momentum(replica, f) != NULL ? 2 : 1;
}

static uint64_t values_bytes(struct replica *replica, const struct plan *plan, uint32_t f)
{
    return arrays_of(replica, f) * plan->fragments[f].values_count * sizeof(float);
}

uint64_t state_object_bytes(struct replica *replica, const struct plan *plan, uint32_t f)
{
    return STATE_HEADER + values_bytes(replica, plan, f) + counted_bytes(replica_counted(replica, f));
}

uint64_t state_object_bytes_max(struct replica *replica, const struct plan *plan, uint32_t f, uint32_t members)
{
    return STATE_HEADER + values_bytes(replica, plan, f) +
           (uint64_t)members * COUNTED_ROWS_OF_ONE_MAX * COUNTED_ROW_BYTES + vouch_bytes(RECORD_VOTERS_MAX);
}

void state_object_make(struct replica *replica, const struct plan *plan, uint32_t f, const struct store_fragment *state,
                       uint8_t *out)
{
    uint64_t count = plan->fragments[f].values_count;
    struct bytes_writer writer = bytes_writer_init(out, state_object_bytes(replica, plan, f));
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
    counted_pack(replica_counted(replica, f), out + writer.at);
}

void state_object_certify(uint8_t *object, uint64_t bytes, const struct vouch_certificate *certificate)
{
    struct bytes_writer writer = bytes_writer_init(object + STATE_CERTIFICATE, sizeof(uint64_t));
    bytes_put_u64(&writer, certificate->count);
    vouch_pack(certificate, object + bytes);
}

static enum err hash_of(const float *values, uint64_t count, uint64_t arrays, uint32_t f, uint64_t version,
                        const struct digest *counted, struct digest *hash)
{
    size_t leaves = vhash_leaves((size_t)count);
    struct digest *digests;
    TRY(mem_new((size_t)arrays * leaves, sizeof *digests, "a version hash", &digests));
    for (size_t i = 0; i < arrays * leaves; i++)
        digests[i] = vhash_leaf(values + i / leaves * count, (size_t)count, i % leaves);
    struct digest root = vhash_root(f, version, (size_t)count, digests, arrays == 2 ? digests + leaves : NULL);
    *hash = counted_hash_of(&root, counted);
    mem_free(digests);
    return ERR_OK;
}

/* The hash is the one that this version has: voters say so; or, of initial tensors, about which nobody votes, its
 * sender said so before. */
static enum err check_hash(const struct state_expected *expected, uint32_t f, const struct digest *hash,
                           const uint8_t *rows, size_t rows_bytes)
{
    const struct vouch_subject subject = {
        .nonce = expected->nonce, .fragment = f, .version = expected->version, .hash = *hash};
    struct vouch_certificate certificate;
    TRY(vouch_unpack(rows, rows_bytes, &certificate));
    if (expected->version > 0)
        return vouch_check(expected->rule, &subject, &certificate, expected->excused);
    if (expected->hash != NULL && !digest_equal(expected->hash, hash))
        return err_set(ERR_PROTO, "it is not the one that island announced");
    return ERR_OK;
}

/* Where in an object its lists lie. */
struct lists {
    const uint8_t *counted, *certificate;
    size_t counted_bytes, certificate_bytes;
};

/* What the header says, as far as it needs no hash. */
static enum err open_object(struct replica *replica, const struct plan *plan, uint32_t f,
                            const struct state_expected *expected, const uint8_t *object, uint64_t bytes,
                            struct store_fragment *state, struct lists *lists)
{
    struct bytes_reader reader = bytes_reader_init(object, bytes);
    uint32_t magic = bytes_get_u32(&reader);
    uint32_t fragment = bytes_get_u32(&reader);
    state->version = bytes_get_u64(&reader);
    state->step = bytes_get_u64(&reader);
    uint64_t count = bytes_get_u64(&reader);
    const uint8_t *announced = bytes_get(&reader, DIGEST_BYTES);
    uint64_t counted = bytes_get_u64(&reader), vouches = bytes_get_u64(&reader);
    const uint8_t *zeros = bytes_get(&reader, STATE_ZEROS);
    uint64_t fixed = STATE_HEADER + values_bytes(replica, plan, f), rest = bytes >= fixed ? bytes - fixed : 0;
    bool fits = bytes >= fixed && vouches <= RECORD_VOTERS_MAX && rest >= vouch_bytes((uint32_t)vouches);
    rest -= fits ? vouch_bytes((uint32_t)vouches) : 0;
    if (zeros == NULL || memcmp(zeros, (uint8_t[STATE_ZEROS]){0}, STATE_ZEROS) != 0 || magic != STATE_MAGIC ||
        fragment != f || count != plan->fragments[f].values_count || !fits || rest % COUNTED_ROW_BYTES != 0 ||
        counted != rest / COUNTED_ROW_BYTES || state->version != expected->version)
        return err_set(ERR_PROTO, "not this state of this fragment");
    if (state->step > expected->steps) /* the hash does not cover it */
        return err_set(ERR_PROTO, "step %" PRIu64 " of a run of %" PRIu64, state->step, expected->steps);
    memcpy(state->hash.byte, announced, DIGEST_BYTES);
    *lists = (struct lists){.counted = object + fixed,
                            .counted_bytes = (size_t)rest,
                            .certificate = object + fixed + rest,
                            .certificate_bytes = vouch_bytes((uint32_t)vouches)};
    return ERR_OK;
}

enum err state_object_install(struct replica *replica, const struct plan *plan, uint32_t f,
                              const struct state_expected *expected, const uint8_t *object, uint64_t bytes,
                              struct store_fragment *state)
{
    struct lists lists = {0};
    struct digest hash;
    uint64_t count = plan->fragments[f].values_count;
    TRY(open_object(replica, plan, f, expected, object, bytes, state, &lists));
    const float *values = (const float *)(const void *)(object + STATE_HEADER);
    const struct digest counted_hash = counted_digest(lists.counted, lists.counted_bytes);
    TRY(hash_of(values, count, arrays_of(replica, f), f, state->version, &counted_hash, &hash));
    if (!digest_equal(&state->hash, &hash))
        return err_set(ERR_PROTO, "its values are not those of its hash");
    TRY(check_hash(expected, f, &hash, lists.certificate, lists.certificate_bytes));
    struct counted counted = {0};
    TRY(counted_unpack(lists.counted, lists.counted_bytes, &counted));
    counted_clear(replica_counted(replica, f));
    *replica_counted(replica, f) = counted;
    memcpy(replica_anchor(replica, f), values, count * sizeof *values);
    if (replica_momentum(replica, f) != NULL)
        memcpy(replica_momentum(replica, f), values + count, count * sizeof *values);
    return ERR_OK;
}
