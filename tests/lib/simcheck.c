/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The invariants of docs/PROTOCOL.md, "Epochs", held after every event that could break them.
 *
 * The bound of what a member can do that lies about its version, its results, its copies or its seal: two results may
 * be applied, but one of them came to count only by the liar's own word; fewer honest voters acknowledged it than
 * commit. From then on the world is forked, and what has to hold is that it meets again (tests/sim/test_sync.c). Lies
 * about hashes and about results that there are not fork nothing.
 */
#include "tests/lib/simworld.h"

#include <string.h>

#include "net/sync/sync_core.h"

static uint32_t copies_of(const struct sim_result *result, bool honest)
{
    const struct config *config = &sim_config(sim->decided[result->epoch])->config;
    uint32_t copies = 0;
    for (uint32_t k = 0; k < config->members_count; k++) {
        const struct config_member *member = &config->members[k];
        uint32_t i = sim_of(member->id);
        copies += member->voter && member->role != CONFIG_WITNESS && (result->acknowledged >> i & 1) != 0 &&
                  !(honest && sim_is_liar(i));
    }
    return copies;
}

/* Whether it counts, where it does, by the liar's word alone. */
static bool by_a_lie(uint32_t number)
{
    const struct sim_result *result = sim_result(number);
    bool may = sim->lie == SIM_LIE_VERSION || sim->lie >= SIM_LIE_DRAFT;
    return may && copies_of(result, true) < config_commit_quorum(&sim_config(sim->decided[result->epoch])->config);
}

static bool lied(uint32_t a, uint32_t b)
{
    return by_a_lie(a) || by_a_lie(b);
}

static void forked(void)
{
    sim_tell("a fork, by island %u", sim->liar);
    sim->tally.forks += !sim->forked;
    sim->forked = true;
}

static void fork_or_fail(uint32_t i, uint32_t f, uint64_t version, uint32_t s, uint32_t a, uint32_t b)
{
    SIM_HOLDS(sim->forked || lied(a, b),
              "I1: island %u: result %u (owner %u, epoch %llu) of fragment %u version %llu shard %u, where there is "
              "result %u (owner %u, epoch %llu); lie %d of island %u\n",
              i, b, sim_result(b)->owner, (unsigned long long)sim_result(b)->epoch, f, (unsigned long long)version, s,
              a, sim_result(a)->owner, (unsigned long long)sim_result(a)->epoch, (int)sim->lie, sim->liar);
    forked();
}

/* The first time that a result of this shard is applied: no work in it is in another one. */
static void count_work(uint32_t f, uint64_t version, uint32_t s)
{
    const struct sim_result *result = sim_result(sim->truth[f][version][s]);
    for (uint32_t k = 0; k < sim->n && !sim->forked; k++) {
        if ((result->contributors >> k & 1) == 0 || (sim->copied && k == sim->liar))
            continue;
        SIM_HOLDS(sim_from(result, k, s) >= sim->upto[f][s][k],
                  "fragment %u shard %u version %llu counts work of island %u twice\n", f, s,
                  (unsigned long long)version, k);
        sim->upto[f][s][k] = sim_to(result, k);
    }
}

void sim_check_applied(uint32_t i, uint32_t f, uint64_t version)
{
    for (uint32_t s = 0; s < sim->shards_counts[f]; s++) {
        uint32_t *truth = &sim->truth[f][version][s], applied = sim_commit(&sim->island[i].disk, f, version)[s];
        if (*truth == 0) {
            *truth = applied;
            count_work(f, version, s);
        }
        if (*truth == applied)
            continue;
        fork_or_fail(i, f, version, s, *truth, applied);
        sim->split = true;
    }
}

void sim_check_hash(uint32_t i, uint32_t f)
{
    struct sim_island *island = &sim->island[i];
    uint64_t version = island->version[f];
    if (!sim->hash_known[f][version]) {
        sim->hash[f][version] = island->hash[f];
        sim->hash_known[f][version] = true;
    }
    SIM_HOLDS(sim->flips || sim->forked || digest_equal(&sim->hash[f][version], &island->hash[f]),
              "island %u has another version %llu of fragment %u\n", i, (unsigned long long)version, f);
}

/* Of all results of one shard, at most one ever comes to count. */
static void committed(uint32_t i, uint32_t f, uint32_t number)
{
    struct sim_result *result = (struct sim_result *)(uintptr_t)sim_result(number);
    result->committed = true;
    for (uint32_t k = 0; k < sim->n; k++) {
        const uint32_t *held = sim_ledger(&sim->island[k].disk, f, result->version);
        for (uint32_t p = 0; p < sim->places && held[p] != 0; p++) {
            const struct sim_result *other = sim_result(held[p]);
            if (held[p] != number && other->committed && (other->shards & result->shards) != 0)
                fork_or_fail(i, f, result->version, 0, held[p], number);
        }
    }
}

/* After its seal it acknowledges by the words of as many as commit that they have applied it. Of these, one may be a
 * liar's, who says so or broke its seal, and the others those of who believed it. */
static bool by_false_words(uint32_t i, uint32_t f)
{
    const struct sim_island *island = &sim->island[i];
    const struct config *config = config_log_last(island->config_log);
    uint32_t words = 0;
    for (uint32_t k = 0; k < sim->n; k++) {
        const struct config_member *member = sim_knows(i, k) ? config_member(config, sim_id(k)) : NULL;
        words += k != i && member != NULL && member->voter && member->role != CONFIG_WITNESS &&
                 sync_heard(island->sync, sim_slot(i, k), f).version > island->version[f];
    }
    return sim->lie != SIM_HONEST && island->sync->sealed && words >= config_commit_quorum(config);
}

void sim_check_acknowledged(uint32_t i, uint32_t f, uint32_t number)
{
    struct sim_result *result = (struct sim_result *)(uintptr_t)sim_result(number);
    if ((result->acknowledged >> i & 1) != 0 || result->epoch != sim->island[i].epoch)
        return;
    if (by_false_words(i, f))
        return;
    result->acknowledged |= (uint64_t)1 << i;
    sim_tell("island %u acknowledges result %u", i, number);
    const struct config *config = &sim_config(sim->decided[result->epoch])->config;
    uint32_t copies = copies_of(result, false);
    if (copies >= config_commit_quorum(config) && !result->committed)
        committed(i, f, number);
}

/* Whether the configuration of its epoch names what the shard's result of the version after the start is. */
static bool is_carried(const struct config *config, uint32_t f, uint32_t s)
{
    uint32_t count;
    const struct part_result *carried = config_carried(config, f, &count);
    for (uint32_t k = 0; k < count; k++)
        if ((carried[k].shards >> s & 1) != 0)
            return sim_number(&carried[k].id.digest) == sim->truth[f][config_start(config, f) + 1][s];
    return false;
}

/* The first version of what the island applied that the configuration does not name may count by a lie; then all that
 * was made upon it does. */
static void check_named(uint32_t i, uint32_t f, const struct config *config)
{
    const struct sim_island *island = &sim->island[i];
    uint64_t start = config_start(config, f), version = start + 1;
    bool named = true, lie = false;
    for (uint32_t s = 0; s < sim->shards_counts[f]; s++)
        named = named && is_carried(config, f, s);
    version += named;
    for (uint32_t s = 0; s < sim->shards_counts[f] && island->version[f] >= version; s++)
        lie = lie || ((named || !is_carried(config, f, s)) && by_a_lie(sim->truth[f][version][s]));
    if (lie)
        forked();
    SIM_HOLDS(island->version[f] < version || sim->forked,
              "I5: island %u is at version %llu of fragment %u, which epoch %llu, from %llu on, does not name\n", i,
              (unsigned long long)island->version[f], f, (unsigned long long)config->epoch, (unsigned long long)start);
}

void sim_check_epoch(uint32_t i)
{
    const struct sim_island *island = &sim->island[i];
    for (uint32_t f = 0; f < sim->fragments; f++)
        if (sync_known(island->sync, f) && island->step_by_step[f])
            check_named(i, f, config_log_last(island->config_log));
}
