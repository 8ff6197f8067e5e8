/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/sitting.h"

#include "tests/lib/testlib.h"

#include "common/digest.h"

/* The clock's step; hops of what is asked and answered within it; and how late a heartbeat may be of those who meet. */
enum { TICK_MS = 250, HOP_MS = 5, HOPS = 4, MEET_MS = 1500 };

struct isle_run *sitting_run;
struct isle *sitting_isle[ISLANDS];
struct played *sitting_played[ISLANDS];
static uint64_t opened_ms[ISLANDS];

/* Version 0 of every fragment is there, the same everywhere. */
static void know_states(struct isle *one, uint64_t version)
{
    for (uint32_t f = 0; f < ISLE_FRAGMENTS; f++) {
        struct digest hash = digest_of(&f, sizeof f);
        round_context_begin(one->rounds->context, f, &hash);
        sync_restore(one->sync, f, version, &hash);
    }
}

void sitting_open(uint32_t i, uint64_t version)
{
    sitting_isle[i] = isle_open(sitting_run, i, NULL, 0);
    sitting_isle[i]->engine = true;
    for (uint32_t k = 0; k < ISLANDS; k++)
        if (k != i && sitting_isle[k] != NULL)
            sitting_isle[i]->now_ms = sitting_isle[k]->now_ms;
    opened_ms[i] = sitting_isle[i]->now_ms;
    isle_know_plan(sitting_isle[i]);
    if (sitting_isle[i]->rounds != NULL)
        know_states(sitting_isle[i], version);
}

void sitting_close(uint32_t i)
{
    isle_close(sitting_isle[i]);
    sitting_isle[i] = NULL;
}

void sitting_begin(const char *name)
{
    sitting_run = isle_run_new(name, ISLANDS, NULL);
    for (uint32_t i = 0; i < ISLANDS; i++)
        isle_listen(sitting_run, i);
}

void sitting_begin_all(const char *name)
{
    sitting_begin(name);
    for (uint32_t i = 0; i < ISLANDS; i++)
        sitting_open(i, 0);
}

/* Island a with all its parts, b and c played. */
void sitting_begin_played(const char *name)
{
    sitting_run = isle_run_new(name, ISLANDS, NULL);
    for (uint32_t i = B; i < ISLANDS; i++)
        sitting_played[i] = played_open(sitting_run, i, 0, NULL);
    sitting_open(A, 0);
    for (uint32_t i = B; i < ISLANDS; i++)
        played_greet(sitting_played[i], sitting_isle[A]);
}

void sitting_end(void)
{
    for (uint32_t i = 0; i < ISLANDS; i++) {
        if (sitting_isle[i] != NULL)
            sitting_close(i);
        if (sitting_played[i] != NULL)
            played_close(sitting_played[i]);
        sitting_played[i] = NULL;
    }
    isle_run_free(sitting_run);
}

/* ---- time ---- */

static bool talk(uint32_t i, uint32_t k)
{
    return i != k && sitting_isle[i] != NULL && sitting_isle[k] != NULL && peers_info(sitting_isle[i]->peers, k).up &&
           peers_info(sitting_isle[k]->peers, i).up;
}

static bool meets(uint32_t i)
{
    return sitting_isle[i]->now_ms <= opened_ms[i] + MEET_MS;
}

/* A heartbeat has come since time moved. Those who meet have more: where a greeting is lost the next one comes with the
 * test's time. */
static bool heard_now(uint32_t i, uint32_t k)
{
    uint64_t late_ms = meets(i) || meets(k) ? MEET_MS : 0;
    return !talk(i, k) || sitting_isle[i]->now_ms <= peers_info(sitting_isle[i]->peers, k).heard_ms + late_ms;
}

static void move(uint64_t ms, bool tick)
{
    for (uint32_t i = 0; i < ISLANDS; i++)
        if (sitting_isle[i] != NULL) {
            sitting_isle[i]->now_ms += ms;
            if (tick)
                isle_tick(sitting_isle[i]);
            sitting_isle[i]->seen_count = 0; /* nobody looks at them */
        }
    for (uint32_t i = 0; i < ISLANDS; i++)
        if (sitting_isle[i] != NULL)
            isle_wait(jobs_pending(sitting_isle[i]->jobs) == 0);
}

/* What was said until now is heard, however slow this machine is: each sends a heartbeat after it, and connections
 * keep their order. */
static void hop(void)
{
    bool talked[ISLANDS][ISLANDS];
    for (uint32_t i = 0; i < ISLANDS; i++)
        for (uint32_t k = 0; k < ISLANDS; k++)
            talked[i][k] = talk(i, k);
    move(HOP_MS, false);
    for (uint32_t i = 0; i < ISLANDS; i++)
        if (sitting_isle[i] != NULL) {
            peers_announce(sitting_isle[i]->peers);
            isle_turn(sitting_isle[i]);
        }
    for (uint32_t i = 0; i < ISLANDS; i++)
        for (uint32_t k = 0; k < ISLANDS; k++)
            if (talked[i][k])
                isle_wait(heard_now(i, k));
}

void sitting_pass(uint64_t ms)
{
    for (uint64_t at = 0; at < ms; at += TICK_MS) {
        move(TICK_MS - HOPS * HOP_MS, true);
        for (int k = 0; k < HOPS; k++)
            hop();
    }
}

uint64_t sitting_epoch(uint32_t i)
{
    return sitting_isle[i]->configs.view.epoch;
}

const struct view_member *sitting_member(uint32_t i, uint32_t of)
{
    return &sitting_isle[i]->configs.view.members[of];
}

void sitting_meet(void)
{
    for (uint32_t i = 0; i < ISLANDS; i++)
        for (uint32_t k = 0; k < ISLANDS; k++)
            if (sitting_isle[i] != NULL && sitting_isle[k] != NULL && i != k)
                isle_wait(peers_info(sitting_isle[i]->peers, k).up);
    sitting_pass(1000); /* heartbeats */
}

void sitting_pass_until_epoch(uint32_t i, uint64_t epoch)
{
    for (int k = 0; sitting_epoch(i) < epoch && k < 20; k++)
        sitting_pass(1000);
    assert_int_equal(sitting_epoch(i), epoch);
    for (uint32_t k = 0; k < ISLANDS; k++)
        if (sitting_isle[k] != NULL)
            isle_wait(sitting_epoch(k) >= epoch); /* it is on its way */
}

/* Islands a and b, and a witness. */
void sitting_begin_with_witness(const char *name)
{
    sitting_run = isle_run_new(name, ISLANDS, NULL);
    sitting_run->witness = true;
    for (uint32_t i = 0; i < ISLANDS; i++)
        isle_listen(sitting_run, i);
    for (uint32_t i = 0; i < ISLANDS; i++)
        sitting_open(i, 0);
    sitting_meet();
}
