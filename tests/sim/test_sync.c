/*
 * The protocol's state machines, N islands in virtual time under a seeded network: delay, loss, repetition, broken
 * links, killed daemons (some with the unflushed end of their ledger lost), killed trainers, damaged memory. Held
 * against the promises, for every seed:
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

enum { WORK_MS = 60000, HEAL_MS = 240000 };

static uint32_t most_waiting;

static void disturb(void)
{
    if (sim_below(1000) < sim->kill_permille) {
        uint32_t i = (uint32_t)sim_below(sim->n);
        if (sim->island[i].alive && sim_chance(60))
            sim_crash(i);
        else if (sim->island[i].alive)
            sim_kill_trainer(i);
    }
    if (sim_below(1000) < 2 * sim->kill_permille && sim->n > 1) {
        uint32_t a = (uint32_t)sim_below(sim->n);
        uint32_t b = (uint32_t)sim_below(sim->n);
        if (a < b)
            sim_set_link(a, b, true);
    }
}

static void mend(void)
{
    for (uint32_t i = 0; i < sim->n; i++) {
        if (!sim->island[i].alive && sim->now_ms >= sim->island[i].revive_ms)
            sim_start(i);
        if (sim->island[i].alive && sim->now_ms >= sim->island[i].trainer_up_ms)
            sim_trainers_up(i);
        for (uint32_t k = i + 1; k < sim->n; k++)
            if (sim->link_down[i][k] && (sim->healing || sim->now_ms >= sim->link_ms[i][k]))
                sim_set_link(i, k, false);
    }
}

static void advance(void)
{
    sim->now_ms += SIM_STEP_MS;
    mend();
    if (!sim->healing)
        disturb();
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
        for (uint64_t v = 1; v < SIM_V_MAX && sim->truth[f][v][s].there; v++) {
            const struct sim_record *record = &sim->truth[f][v][s];
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

static void run_seed(uint64_t seed, uint32_t n, bool rough, uint32_t quorum)
{
    memset(sim, 0, sizeof *sim);
    sim->seed = seed;
    sim->rng = env_rng_init(seed, n);
    sim->n = n;
    sim->fragments = 1 + (uint32_t)sim_below(SIM_F_MAX);
    sim->loss_percent = rough ? (unsigned)sim_below(40) : 0;
    sim->kill_permille = rough ? (unsigned)sim_below(8) : 0;
    sim->quorum = quorum;
    sim->flips = rough && seed % 2 == 0;
    for (uint32_t f = 0; f < sim->fragments; f++) {
        sim->shards[f] = (1 + sim_below(((uint64_t)1 << n) - 1));
        sim->shards[f] &= ((uint64_t)1 << n) - 1;
    }
    for (uint32_t i = 0; i < n; i++)
        sim_start(i);
    while (sim->now_ms < WORK_MS)
        advance();
    sim->healing = true;
    sim->loss_percent = 0;
    while (sim->now_ms < WORK_MS + 20000) /* everyone is back and has worked a little more */
        advance();
    sim->finishing = true;
    while (sim->now_ms < HEAL_MS && !at_rest())
        advance();
    if (!at_rest())
        print_world();
    SIM_HOLDS(at_rest(), "the islands do not come to rest\n");
    for (uint32_t f = 0; f < sim->fragments; f++) {
        SIM_HOLDS(sim->island[0].version[f] > 5, "fragment %u made no progress\n", f);
        for (uint32_t s = 0; s < n && !sim->flips; s++)
            if ((sim->shards[f] >> s & 1) != 0)
                check_work(f, s);
    }
    most_waiting = sim->waiting_most > most_waiting ? sim->waiting_most : most_waiting;
    for (uint32_t i = 0; i < n; i++)
        sync_free(sim->island[i].sync);
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
        for (uint32_t n = 1; n <= SIM_N_MAX; n++)
            run_seed(seed, n, false, 0);
}

static void promises_hold_under_any_trouble(void **state)
{
    (void)state;
    unsigned count, first = first_seed(&count, 1000);
    for (unsigned seed = first; seed < first + count; seed++)
        run_seed(seed, 2 + seed % (SIM_N_MAX - 1), true, 0);
}

static void promises_hold_with_a_quorum(void **state)
{
    (void)state;
    unsigned count, first = first_seed(&count, 500);
    for (unsigned seed = first; seed < first + count; seed++) {
        uint32_t n = 3 + seed % (SIM_N_MAX - 2);
        run_seed(seed, n, true, n / 2 + 1);
    }
}

int main(void)
{
    assert_ok(digest_init());
    sim = calloc(1, sizeof *sim);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calm_islands_agree_and_lose_nothing),
        cmocka_unit_test(promises_hold_under_any_trouble),
        cmocka_unit_test(promises_hold_with_a_quorum),
    };
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    print_message("at most %u objects of a fragment from one island to another\n", most_waiting);
    free(sim);
    return failures != 0;
}
