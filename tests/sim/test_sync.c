/*
 * The protocol's state machines, N islands in virtual time under a seeded network: delay, loss, repetition, heartbeats
 * that are overtaken, links broken both ways or one way, daemons killed (some with the unflushed end of their ledger
 * lost, some with an older or an empty disk) or stopped, killed trainers, damaged memory. Held against the promises,
 * for every seed:
 *   - one truth: all islands that reach a version of a fragment have the same hash, every result is the same
 *     everywhere, and in the end all are at the same version;
 *   - no work counted twice, and none lost on islands nothing was killed on;
 *   - nobody stands still for ever;
 *   - what waits to be sent is bounded, however long a link is away.
 * A failure prints the seed; TEST_SEED=n repeats it, TEST_SEEDS=n changes how many are tried.
 */
#include "tests/lib/simworld.h"

#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "net/sync.h"

enum { WORK_MS = 60000, MORE_MS = 20000, MANY_WORK_MS = 20000, HEAL_MS = 180000 };

static uint32_t most_waiting;

static void advance(void)
{
    sim->now_ms += SIM_STEP_MS;
    sim_mend();
    if (!sim->healing)
        sim_disturb();
    sim_turn();
}

static bool at_rest(void)
{
    for (uint32_t i = 0; i < sim->n; i++) {
        for (uint32_t f = 0; f < sim->fragments; f++) {
            if (!sim->island[i].alive || !sim->island[i].trainer[f].settled ||
                sim->island[i].version[f] != sim->island[0].version[f] ||
                !digest_equal(&sim->island[i].chain[f], &sim->island[0].chain[f]))
                return false;
        }
    }
    return true;
}

static void print_world(void)
{
    for (uint32_t i = 0; i < sim->n; i++) {
        for (uint32_t f = 0; f < sim->fragments; f++) {
            const struct sim_island *island = &sim->island[i];
            const struct sim_trainer *t = &island->trainer[f];
            const struct owner *owner = sync_owner(island->sync, f);
            struct sync_peer_fragment own = sync_own(island->sync, f);
            struct bitset waiting = sync_waiting_for(island->sync, f);
            print_message("island %u fragment %u shards %llx: version %llu %s results %llx contributed %llu abstained "
                          "%llu trainer %d word %d settled %d work %llu owner %s round %llu have %llx waits for %llx\n",
                          i, f, (unsigned long long)sim->shards[f], (unsigned long long)own.version,
                          sync_state_name(sync_state(island->sync, f)), (unsigned long long)bitset_word(&own.results),
                          (unsigned long long)own.contributed, (unsigned long long)own.abstained, t->up, (int)t->word,
                          t->settled, (unsigned long long)t->work, owner_state_name(owner->state),
                          (unsigned long long)owner->round, (unsigned long long)bitset_word(&owner->have),
                          (unsigned long long)bitset_word(&waiting));
        }
    }
}

/* Every unit of work is in at most one result of a shard; on an undisturbed island, in exactly one. */
static void check_work(uint32_t f, uint32_t s)
{
    for (uint32_t i = 0; i < sim->n; i++) {
        uint64_t upto = 0;
        for (uint64_t v = 1; v < SIM_V_MAX && sim->truth[f][v][s] != 0; v++) {
            const struct sim_record *record = sim_record(sim->truth[f][v][s]);
            if ((record->contributors >> i & 1) == 0)
                continue;
            SIM_HOLDS(record->from[i] >= upto, "fragment %u shard %u version %llu counts work of island %u twice\n", f,
                      s, (unsigned long long)v, i);
            SIM_HOLDS(sim->island[i].disturbed || record->from[i] == upto,
                      "fragment %u shard %u version %llu: work of island %u is missing\n", f, s, (unsigned long long)v,
                      i);
            upto = record->to[i];
        }
        SIM_HOLDS(sim->island[i].disturbed || upto == sim->island[i].trainer[f].work,
                  "fragment %u shard %u: the last work of island %u was lost\n", f, s, i);
    }
}

static bool everyone_heard_of(uint32_t i)
{
    for (uint32_t k = 0; k < sim->n; k++)
        if (k != i && sim->island[k].greeted[i] != sim->island[i].session)
            return false;
    return true;
}

static void run_world(uint64_t work_ms)
{
    for (uint32_t i = 0; i < sim->n; i++)
        sim_start(i);
    while (sim->now_ms < work_ms)
        advance();
    sim->healing = true;
    sim->loss_percent = 0;
    while (sim->now_ms < work_ms + MORE_MS) /* everyone is back and has worked a little more */
        advance();
    for (uint32_t i = 0; i < sim->n; i++)
        SIM_HOLDS(everyone_heard_of(i), "island %u is not heard by everyone\n", i);
    sim->finishing = true;
    while (sim->now_ms < work_ms + HEAL_MS && !at_rest())
        advance();
    if (!at_rest())
        print_world();
    SIM_HOLDS(at_rest(), "the islands do not come to rest\n");
    for (uint32_t f = 0; f < sim->fragments; f++) {
        SIM_HOLDS(sim->island[0].version[f] > 5, "fragment %u made no progress\n", f);
        for (uint32_t s = 0; s < sim->n; s++)
            if ((sim->shards[f] >> s & 1) != 0)
                check_work(f, s);
    }
    most_waiting = sim->waiting_most > most_waiting ? sim->waiting_most : most_waiting;
}

static uint64_t some_owners(uint32_t n)
{
    uint64_t all = ~(uint64_t)0 >> (64 - n);
    uint64_t owners = (sim_below(UINT64_MAX) & all);
    return owners != 0 ? owners : all;
}

static void run_seed(uint64_t seed, uint32_t n, bool rough, uint32_t quorum)
{
    sim_begin(seed, n);
    sim->fragments = 1 + (uint32_t)sim_below(SIM_F_MAX);
    sim->loss_percent = rough ? (unsigned)sim_below(40) : 0;
    sim->kill_permille = rough ? (unsigned)sim_below(8) : 0;
    sim->quorum = quorum;
    sim->flips = rough && seed % 2 == 0;
    /* With a quorum, rounds may close over somebody who is away and has a result that its owner lost. */
    sim->disks = rough && quorum == 0 && seed % 3 != 0;
    for (uint32_t f = 0; f < sim->fragments; f++)
        sim->shards[f] = some_owners(n);
    run_world(WORK_MS);
    sim_end();
}

static unsigned first_seed(unsigned *count, unsigned initial)
{
    const char *one = getenv("TEST_SEED");
    *count = one != NULL ? 1 : testlib_seeds(initial);
    return one != NULL ? (unsigned)strtoul(one, NULL, 10) : 1;
}

static void calm_islands_agree_and_lose_nothing(void **state)
{
    (void)state;
    unsigned count, first = first_seed(&count, 20);
    for (unsigned seed = first; seed < first + count; seed++)
        for (uint32_t n = 1; n <= SIM_SMALL; n++)
            run_seed(seed, n, false, 0);
}

static void promises_hold_under_any_trouble(void **state)
{
    (void)state;
    unsigned count, first = first_seed(&count, 1000);
    for (unsigned seed = first; seed < first + count; seed++)
        run_seed(seed, 2 + seed % (SIM_SMALL - 1), true, 0);
}

static void promises_hold_with_a_quorum(void **state)
{
    (void)state;
    unsigned count, first = first_seed(&count, 500);
    for (unsigned seed = first; seed < first + count; seed++) {
        uint32_t n = 3 + seed % (SIM_SMALL - 2);
        run_seed(seed, n, true, n / 2 + 1);
    }
}

/* As many islands as a run may have. */
static void promises_hold_for_many_islands(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {16, 33, SIM_N_MAX};
    for (uint64_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        sim_begin(k + 1, sizes[k]);
        sim->fragments = 1;
        sim->loss_percent = 5;
        sim->kill_permille = 3;
        sim->shards[0] = some_owners(sizes[k]);
        run_world(MANY_WORK_MS);
        sim_end();
    }
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calm_islands_agree_and_lose_nothing),
        cmocka_unit_test(promises_hold_under_any_trouble),
        cmocka_unit_test(promises_hold_with_a_quorum),
        cmocka_unit_test(promises_hold_for_many_islands),
    };
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    print_message("at most %u objects of a fragment from one island to another\n", most_waiting);
    sim_free();
    return failures != 0;
}
