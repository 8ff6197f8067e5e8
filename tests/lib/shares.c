#include "tests/lib/shares.h"

#include "tests/lib/testlib.h"

struct plan_shard shares_run(const struct replica *replica, uint32_t f, uint32_t member)
{
    struct plan_share share;
    replica_share(replica, f, member, &share);
    assert_true(share.runs_count <= 1);
    return share.runs_count > 0 ? share.run[0] : (struct plan_shard){0};
}

uint32_t shares_first(const struct replica *replica, uint32_t f, uint32_t member)
{
    struct plan_share share;
    uint32_t first = 0;
    replica_share(replica, f, member, &share);
    while (first < PLAN_SHARDS_MAX && !bitset_has(&share.shards, first))
        first++;
    return first;
}
