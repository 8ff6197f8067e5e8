#include "outer_opt/vhash.h"

#include "common/bytes.h"

size_t vhash_leaves(size_t count)
{
    return (count + VHASH_LEAF - 1) / VHASH_LEAF;
}

struct digest vhash_leaf(const float *values, size_t count, size_t index)
{
    size_t begin = index * VHASH_LEAF;
    size_t left = count - begin;
    return digest_of(values + begin, (left < VHASH_LEAF ? left : VHASH_LEAF) * sizeof *values);
}

struct digest vhash_root(uint32_t fragment, uint64_t version, size_t count, const struct digest *anchor_leaves,
                         const struct digest *momentum_leaves)
{
    static const char domain[16] = "diloco vhash 1";
    uint8_t head[sizeof domain + 24];
    struct bytes_writer writer = bytes_writer_init(head, sizeof head);
    bytes_put(&writer, domain, sizeof domain);
    bytes_put_u32(&writer, fragment);
    bytes_put_u32(&writer, momentum_leaves != NULL);
    bytes_put_u64(&writer, version);
    bytes_put_u64(&writer, count);
    struct digest_state state;
    digest_begin(&state);
    digest_add(&state, head, sizeof head);
    digest_add(&state, anchor_leaves, vhash_leaves(count) * sizeof *anchor_leaves);
    if (momentum_leaves != NULL)
        digest_add(&state, momentum_leaves, vhash_leaves(count) * sizeof *momentum_leaves);
    return digest_end(&state);
}
