/* SPDX-License-Identifier: Apache-2.0 */
/* What a run of many members costs each of them while nothing happens: a voter's membership, in a process of its own,
 * with heartbeats as often as the daemon gets them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "common/mem.h"
#include "net/membership/membership.h"
#include "net/sync/sync.h"
#include "tests/bench/bench.h"
#include "tests/lib/roster.h"
#include "tests/lib/testlib.h"

/* As the daemon does: it looks ten times a second, and every other island says a heartbeat a second. */
enum { TICK_MS = 100, BEAT_MS = 1000, SECONDS = 20, FRAGMENTS = 24, SHARDS = 64 };

struct crowd {
    struct config_log *config_log;
    struct view view;
    struct sync *sync;
    struct membership *membership;
    struct voting_disk disk;
    uint32_t count, ids[VIEW_SLOTS_MAX], shards[FRAGMENTS];
    uint64_t now_ms;
};

static void send_nowhere(void *user, uint32_t slot, uint32_t type, const uint8_t *bytes, size_t bytes_count)
{
    (void)user, (void)slot, (void)type, (void)bytes, (void)bytes_count;
}

static void save_vote(void *user, const struct paxos_vote *vote, uint64_t number)
{
    struct crowd *crowd = user;
    crowd->disk.vote = *vote;
    (void)number;
}

static enum err no_proof(void *user, uint32_t id, uint8_t **bytes, size_t *bytes_count)
{
    (void)user, (void)id, (void)bytes, (void)bytes_count;
    return ERR_NOTFOUND;
}

static void tell_nobody(void *user, const struct membership_news *news)
{
    (void)user, (void)news;
}

static void begin(struct crowd *crowd, uint32_t count)
{
    static const struct membership_io host = {
        .send = send_nowhere, .save_vote = save_vote, .load_evidence = no_proof, .tell = tell_nobody};
    static struct ident ours, one;
    struct config config = roster_config(count);
    struct view_changes changes;
    struct digest hash = digest_of("a", 1);
    *crowd = (struct crowd){.count = count, .disk = {.incarnation = 1}, .now_ms = 1000};
    for (uint32_t i = 0; i < count; i++) {
        assert_ok(ident_generate(&one));
        ours = i == 0 ? one : ours;
        memcpy(config.members[i].key, one.key, sizeof one.key);
        config.members[i].incarnation = i + 1;
        crowd->ids[i] = roster_id(i);
    }
    assert_ok(config_log_new(&crowd->config_log));
    roster_add(crowd->config_log, &config);
    assert_ok(view_init(NULL, 0, &crowd->view));
    assert_ok(view_update(&crowd->view, config_log_last(crowd->config_log), config_log_last_digest(crowd->config_log),
                          ours.key, &changes));
    for (uint32_t f = 0; f < FRAGMENTS; f++)
        crowd->shards[f] = SHARDS;
    struct sync_conf conf = {.config_log = crowd->config_log,
                             .fragments_count = FRAGMENTS,
                             .shards_counts = crowd->shards,
                             .view = roster_view(crowd->config_log, 0, crowd->ids, count)};
    assert_ok(sync_new(&conf, &crowd->sync));
    for (uint32_t f = 0; f < FRAGMENTS; f++)
        sync_restore(crowd->sync, f, 7, &hash);
    assert_ok(membership_new(&(struct membership_conf){.view = &crowd->view,
                                                       .config_log = crowd->config_log,
                                                       .ident = &ours,
                                                       .disk = &crowd->disk,
                                                       .host = &host,
                                                       .user = crowd},
                             &crowd->membership));
    assert_ok(membership_plan_known(crowd->membership, crowd->sync, FRAGMENTS, crowd->shards));
    assert_ok(membership_begin(crowd->membership, crowd->now_ms));
    static struct wire_heartbeat beat = {.taking_part = true, .fragments_count = FRAGMENTS};
    for (uint32_t f = 0; f < FRAGMENTS; f++)
        beat.fragments[f] = (struct wire_fragment){
            .fragment = f, .at = {.version = 7, .contributed = 7, .hash_known = true, .hash = hash}};
    for (uint32_t i = 1; i < count; i++) {
        membership_up(crowd->membership, i, true, crowd->now_ms);
        sync_step(crowd->sync, &(struct sync_event){.type = SYNC_EV_PEER_UP, .member = i}, crowd->now_ms);
        sync_step(crowd->sync, &(struct sync_event){.type = SYNC_EV_HEARTBEAT, .member = i, .beat = &beat},
                  crowd->now_ms);
        for (struct sync_action action; sync_action(crowd->sync, &action);)
            continue;
    }
}

static void end(struct crowd *crowd)
{
    membership_free(crowd->membership);
    sync_free(crowd->sync);
    view_free(&crowd->view);
    config_log_free(crowd->config_log);
}

/* A share of one core: of membership alone, without reading, checking and answering heartbeats. */
static double share(struct crowd *crowd)
{
    static struct wire_heartbeat beat;
    const struct bitset nobody = {{0}};
    uint64_t taken_ns = 0, last_ms = crowd->now_ms + SECONDS * 1000;
    beat.taking_part = true;
    for (; crowd->now_ms < last_ms; crowd->now_ms += TICK_MS) {
        uint64_t began_ns = env_thread_cpu_ns();
        uint32_t many = crowd->count * TICK_MS / BEAT_MS, first = (uint32_t)(crowd->now_ms / TICK_MS) * many;
        for (uint32_t k = 0; k < many; k++) {
            uint32_t member = 1 + (first + k) % (crowd->count - 1);
            beat.incarnation = member + 1;
            beat.step++;
            membership_heard(crowd->membership, member, &beat, crowd->now_ms);
        }
        membership_tick(crowd->membership, &nobody, crowd->now_ms);
        taken_ns += env_thread_cpu_ns() - began_ns;
    }
    return (double)taken_ns / 1e9 / SECONDS;
}

void bench_members(json_t *summary)
{
    static const uint32_t counts[] = {8, 64, 256, 1024};
    static struct crowd crowd;
    json_t *rows = json_object();
    printf("\nmembers  a voter of an idle run of so many: share of one core that membership takes\n");
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        char name[16];
        begin(&crowd, counts[i]);
        double of_a_core = share(&crowd);
        end(&crowd);
        printf("         %4u  %.3f %%\n", counts[i], 100 * of_a_core);
        snprintf(name, sizeof name, "%u", counts[i]);
        json_object_set_new(rows, name, json_real(of_a_core));
    }
    json_object_set_new(summary, "members", rows);
}
