#include "daemon/state/state_object.h"

#include <inttypes.h>
#include <string.h>

#include "common/bytes.h"
#include "common/mem.h"
#include "outer_opt/vhash.h"

/* 0 u32 magic "DLT1"  4 u32 fragment  8 u64 version  16 u64 step  24 u64 values  32 hash  64 anchor, then momentum */
#define STATE_MAGIC 0x31544c44u
enum { STATE_HEADER = 64 };

static uint64_t arrays_of(struct replica *replica, uint32_t f)
{
    return replica_momentum(replica, f) != NULL ? 2 : 1;
}

uint64_t state_object_bytes(struct replica *replica, const struct plan *plan, uint32_t f)
{
    return STATE_HEADER + arrays_of(replica, f) * plan->fragments[f].values_count * sizeof(float);
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
    bytes_put(&writer, replica_anchor(replica, f), count * sizeof(float));
    if (replica_momentum(replica, f) != NULL)
        bytes_put(&writer, replica_momentum(replica, f), count * sizeof(float));
}

static enum err hash_of(const float *values, uint64_t count, uint64_t arrays, uint32_t f, uint64_t version,
                        struct digest *hash)
{
    size_t leaves = vhash_leaves((size_t)count);
    struct digest *digests;
    TRY(mem_new((size_t)arrays * leaves, sizeof *digests, "a version hash", &digests));
    for (size_t i = 0; i < arrays * leaves; i++)
        digests[i] = vhash_leaf(values + i / leaves * count, (size_t)count, i % leaves);
    *hash = vhash_root(f, version, (size_t)count, digests, arrays == 2 ? digests + leaves : NULL);
    mem_free(digests);
    return ERR_OK;
}

enum err state_object_install(struct replica *replica, const struct plan *plan, uint32_t f,
                              const struct state_expected *expected, const uint8_t *object, uint64_t bytes,
                              struct store_fragment *state)
{
    struct bytes_reader reader = bytes_reader_init(object, bytes);
    uint32_t magic = bytes_get_u32(&reader);
    uint32_t fragment = bytes_get_u32(&reader);
    state->version = bytes_get_u64(&reader);
    state->step = bytes_get_u64(&reader);
    uint64_t count = bytes_get_u64(&reader);
    const uint8_t *announced = bytes_get(&reader, DIGEST_BYTES);
    if (announced == NULL || magic != STATE_MAGIC || fragment != f || count != plan->fragments[f].values_count ||
        bytes != state_object_bytes(replica, plan, f) || state->version != expected->version)
        return err_set(ERR_PROTO, "not this state of this fragment");
    if (state->step > expected->steps) /* the hash does not cover it */
        return err_set(ERR_PROTO, "step %" PRIu64 " of a run of %" PRIu64, state->step, expected->steps);
    const float *values = (const float *)(const void *)(object + STATE_HEADER);
    TRY(hash_of(values, count, arrays_of(replica, f), f, state->version, &state->hash));
    if (memcmp(announced, state->hash.byte, DIGEST_BYTES) != 0)
        return err_set(ERR_PROTO, "its values are not those of its hash");
    if (expected->hash != NULL && !digest_equal(expected->hash, &state->hash))
        return err_set(ERR_PROTO, "it is not the one that island announced");
    memcpy(replica_anchor(replica, f), values, count * sizeof *values);
    if (replica_momentum(replica, f) != NULL)
        memcpy(replica_momentum(replica, f), values + count, count * sizeof *values);
    return ERR_OK;
}
