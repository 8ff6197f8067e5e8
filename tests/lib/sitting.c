/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/sitting.h"

#include "tests/lib/testlib.h"

#include "common/digest.h"

/* The clock's step, and how late a heartbeat may be. */
enum { TICK_MS = 250, BEATS_MS = 1500 };

struct isle_run *sitting_run;
struct isle *sitting_isle[ISLANDS];
struct played *sitting_played[ISLANDS];

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

/* What is on its way to disk is there, and then enough turns for what is under way on loopback. */
static void settle(void)
{
    for (uint32_t i = 0; i < ISLANDS; i++)
        if (sitting_isle[i] != NULL)
            isle_wait(jobs_pending(sitting_isle[i]->jobs) == 0);
    for (int k = 0; k < 3; k++)
        isle_turn_all();
}

static bool heard_lately(uint32_t i, uint32_t k)
{
    struct peer_info info = peers_info(sitting_isle[i]->peers, k);
    return !info.up || sitting_isle[i]->now_ms <= info.heard_ms + BEATS_MS;
}

void sitting_pass(uint64_t ms)
{
    for (uint64_t at = 0; at < ms; at += TICK_MS) {
        for (uint32_t i = 0; i < ISLANDS; i++)
            if (sitting_isle[i] != NULL) {
                sitting_isle[i]->now_ms += TICK_MS;
                isle_tick(sitting_isle[i]);
                sitting_isle[i]->seen_count = 0; /* nobody looks at them */
            }
        settle();
        for (uint32_t i = 0; i < ISLANDS; i++)
            for (uint32_t k = 0; k < ISLANDS; k++)
                if (i != k && sitting_isle[i] != NULL && sitting_isle[k] != NULL)
                    isle_wait(heard_lately(i, k)); /* however slow this machine is: time is the test's */
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
