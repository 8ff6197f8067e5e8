/* SPDX-License-Identifier: Apache-2.0 */
/* status: what it says of epochs: who is lost and who is not there at all, who votes, what the next configuration waits
 * for, and whether this island has a say. One island with all its parts, others played; the configurations are the
 * test's. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/mem.h"
#include "daemon/control/status.h"
#include "daemon/membership/membership_host.h"
#include "tests/lib/complains.h"
#include "tests/lib/look.h"

static void assert_remedy(enum complaint_code code, const char *remedy)
{
    const struct complaint *complaint = complaint_of(look_take(), code);
    assert_non_null(complaint);
    if (strstr(complaint->remedy, remedy) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", complaint->remedy, remedy);
}

static void a_member_that_is_lost_is_so_and_rounds_do_not_wait_for_it(void **state)
{
    (void)state;
    look_begin("status-lost", 3, NULL);
    played_greet(look.b, look.a);
    assert_complains(look_take(), COMPLAINT_AWAY, "island c was not heard of yet");
    assert_silent(look_take(), COMPLAINT_LOST);
    assert_string_equal(config_role_name(look.status.peers[LOOK_C].member->as.role), "owner");
    struct config config = isle_next_config(look.a);
    isle_set_owners(&config, (const uint32_t[]){LOOK_A, LOOK_B}, 2, CONFIG_AWAY);
    isle_adopt(look.a, &config);
    assert_complains(look_take(), COMPLAINT_LOST, "island c is lost: the run goes on without it");
    assert_silent(look_take(), COMPLAINT_AWAY);
    assert_silent(look_take(), COMPLAINT_NO_MAJORITY);
    assert_int_equal(look.status.islands, 3);
    played_greet(look.c, look.a); /* it is back, and will take part again */
    assert_silent(look_take(), COMPLAINT_LOST);
    look_end();
}

/* Of three that vote one is lost for good, beside a contributor with all that the run has: while two are there they can
 * take it in. */
static void while_a_majority_lives_one_that_could_vote_is_named(void **state)
{
    (void)state;
    enum { D = LOOK_C + 1 };
    look_begin_run("status-promote", 4, NULL);
    struct played *d = played_open(look.run, D, 0, NULL);
    look_open();
    played_greet(look.b, look.a);
    played_greet(d, look.a);
    struct config config = isle_next_config(look.a);
    isle_set_owners(&config, (const uint32_t[]){LOOK_A, LOOK_B}, 2, CONFIG_AWAY);
    config.members[LOOK_C].voter = true;
    config.members[D].role = CONFIG_CONTRIBUTOR;
    isle_adopt(look.a, &config);
    assert_complains(look_take(), COMPLAINT_LOST, "island c is lost: the run goes on without it");
    assert_null(strstr(complaint_of(look_take(), COMPLAINT_LOST)->remedy, "owner d")); /* it would come by itself */
    config = isle_next_config(look.a);
    config.members[D].contributor = true;
    isle_adopt(look.a, &config);
    assert_remedy(COMPLAINT_LOST, "2 of 3 that vote are left, and one more loss stops the run");
    assert_remedy(COMPLAINT_LOST, "owner d");
    config = isle_next_config(look.a);
    config.members[LOOK_C].voter = false; /* two vote, and one more loss stops them as it would have anyway */
    isle_adopt(look.a, &config);
    assert_null(strstr(complaint_of(look_take(), COMPLAINT_LOST)->remedy, "owner d"));
    played_close(d);
    look_end();
}

static void one_that_gives_orders_alone_is_told_to_let_another(void **state)
{
    (void)state;
    look_begin("status-orders", 3, NULL);
    assert_string_equal(look_take()->epoch.orders_advice, "");
    struct config config = isle_next_config(look.a);
    config.members[LOOK_B].operates = false;
    isle_adopt(look.a, &config);
    assert_non_null(strstr(look_take()->epoch.orders_advice, "one island alone gives orders to the run"));
    config = isle_next_config(look.a); /* whatever else could be better */
    config.members[LOOK_C].voter = false;
    isle_adopt(look.a, &config);
    assert_non_null(strstr(look_take()->epoch.advice, "two islands vote"));
    assert_non_null(strstr(look.status.epoch.orders_advice, "one island alone gives orders to the run"));
    look_end();
}

/* Its heartbeat is heard. */
static void say_and_wait(struct played *who)
{
    struct event event;
    played_say(who, LOOK_A);
    isle_wait(isle_took_sync(look.a, SYNC_EV_HEARTBEAT, &event));
}

/* As their heartbeats say, for long enough. */
static void beat_apart(bool b_says_so)
{
    for (int k = 0; k < 20; k++) {
        struct wire_heartbeat *beat = played_beat(look.c);
        beat->silent_count = 1;
        beat->silent[0] = look.a->configs.view.members[LOOK_B].as.id;
        say_and_wait(look.c);
        look.a->now_ms += 250;
        beat = played_beat(look.b);
        beat->silent_count = b_says_so;
        beat->silent[0] = look.a->configs.view.members[LOOK_C].as.id;
        say_and_wait(look.b);
        isle_tick(look.a);
    }
}

/* B and c hear us, and do not hear each other: everybody is told, and who it is that stands back. */
static void who_stands_back_is_told_with_whom_it_does_not_hear(void **state)
{
    (void)state;
    look_begin("status-partitioned", 3, NULL);
    played_greet(look.b, look.a);
    played_greet(look.c, look.a);
    beat_apart(false); /* one way, or c blames b for its results: nobody else can tell */
    assert_complains(look_take(), COMPLAINT_PARTITIONED,
                     "island c does not hear island b, or gets no result of it: c stands back");
    beat_apart(true);
    assert_complains(look_take(), COMPLAINT_PARTITIONED, "islands c and b do not hear each other: c stands back");
    assert_silent(look_take(), COMPLAINT_LOST);
    look_end();
}

/* As peers_tick() has it, who makes no result is silent: it is no line that has to be mended. */
static void who_is_heard_and_makes_no_result_is_told_as_such(void **state)
{
    (void)state;
    struct bitset silent = {{0}};
    look_begin("status-blame", 3, NULL);
    played_greet(look.b, look.a);
    played_greet(look.c, look.a);
    bitset_add(&silent, LOOK_C);
    for (int k = 0; k < 16; k++) {
        look.a->now_ms += 250;
        membership_host_tick(look.a->host, &silent, false, look.a->now_ms);
    }
    assert_complains(look_take(), COMPLAINT_PARTITIONED,
                     "island c is heard, and makes no result of its shards: c stands back");
    assert_remedy(COMPLAINT_PARTITIONED, "look at its daemon, disk and memory");
    look_end();
}

static void a_slot_that_is_nobodys_is_not_shown(void **state)
{
    (void)state;
    look_begin("status-slot", 3, NULL);
    played_greet(look.c, look.a);
    struct config config = isle_next_config(look.a);
    isle_set_owners(&config, (const uint32_t[]){LOOK_A, LOOK_C}, 2, CONFIG_AWAY);
    config.members[LOOK_B] = config.members[LOOK_C]; /* b's key has left the roster */
    config.members_count = 2;
    isle_adopt(look.a, &config);
    assert_int_equal(look.a->configs.view.count, 3);
    assert_silent(look_take(), COMPLAINT_AWAY);
    assert_silent(look_take(), COMPLAINT_ALONE);
    assert_int_equal(look_take()->islands, 2);
    assert_int_equal(look.status.islands_up, 2);
    json_t *json = status_json_peers(&look.status);
    assert_int_equal(json_array_size(json_object_get(json, "peers")), 2);
    json_decref(json);
    look_end();
}

static void two_that_vote_are_told_what_a_loss_would_mean(void **state)
{
    (void)state;
    look_begin("status-two", 2, NULL);
    played_greet(look.b, look.a);
    struct played_trainer *trainer = played_trainer_open(look.a);
    played_trainer_start(trainer);
    assert_int_equal(look_take()->complaints_count, 0); /* nothing is wrong */
    played_trainer_close(trainer);
    assert_non_null(strstr(look.status.epoch.advice, "two islands vote: if one is lost, no round closes"));
    look_end();
    look_begin("status-three", 3, NULL);
    assert_string_equal(look_take()->epoch.advice, "");
    look_end();
}

/* Two islands and a witness may lose any of the three, so there is nothing to advise. */
static void a_witness_that_is_away_is_no_island(void **state)
{
    (void)state;
    look.witness = true;
    look_begin("status-witness", 3, NULL);
    look.witness = false;
    played_greet(look.b, look.a);
    assert_string_equal(look_take()->epoch.advice, "");
    assert_complains(look_take(), COMPLAINT_AWAY, "island c was not heard of yet");
    assert_non_null(strstr(complaint_of(look_take(), COMPLAINT_AWAY)->remedy, "rounds go on without the witness"));
    assert_silent(look_take(), COMPLAINT_NO_MAJORITY);
    struct config config = isle_next_config(look.a);
    isle_set_owners(&config, (const uint32_t[]){LOOK_A}, 1, CONFIG_AWAY);
    isle_adopt(look.a, &config); /* b is lost, and one copy is enough; but without the witness nobody could let b in */
    assert_string_equal(look_take()->epoch.advice, "");
    assert_complains(look_take(), COMPLAINT_NO_MAJORITY, "1 of the 2 that vote are heard, no majority: rounds close");
    played_greet(look.c, look.a);
    assert_silent(look_take(), COMPLAINT_NO_MAJORITY);
    look_end();
}

/* It has no state, so that it is behind nobody and blocked by nobody; and no trainer is missing. */
static void of_itself_a_witness_says_that_it_is_one(void **state)
{
    (void)state;
    look.run = isle_run_new("status-as-witness", 3, NULL);
    look.run->witness = true;
    look.c = NULL;
    look.b = played_open(look.run, LOOK_A, 0, NULL);
    isle_listen(look.run, LOOK_C);
    look.a = isle_open(look.run, LOOK_C, NULL, 0);
    isle_know_plan(look.a);
    look.a->engine = true;
    assert_complains(look_take(), COMPLAINT_NO_MAJORITY, "1 of the 3 islands that vote are heard");
    assert_null(strstr(complaint_of(look_take(), COMPLAINT_NO_MAJORITY)->remedy, "training"));
    played_greet(look.b, look.a);
    struct wire_fragment row = {.at.version = 41, .at.hash = digest_of("x", 1), .at.hash_known = true};
    struct wire_heartbeat beat = {.fragments_count = 1, .fragments = {row}};
    isle_step(look.a, &(struct sync_event){.type = SYNC_EV_HEARTBEAT, .member = 0, .beat = &beat});
    assert_true(look_take()->witness);
    assert_int_equal(look.status.version_max, 41);
    assert_false(look.status.anchors_known);
    assert_int_equal(look.status.fragments_count, ISLE_FRAGMENTS);
    assert_silent(look_take(), COMPLAINT_BEHIND);
    assert_silent(look_take(), COMPLAINT_BLOCKED);
    assert_silent(look_take(), COMPLAINT_NOT_ATTACHED);
    json_t *json = status_json(&look.status);
    assert_string_equal(json_string_value(json_object_get(json, "role")), "witness");
    json_decref(json);
    look_end();
}

static void too_few_that_vote_are_told_and_that_nothing_is_lost(void **state)
{
    (void)state;
    look_begin("status-majority", 3, NULL);
    assert_complains(look_take(), COMPLAINT_NO_MAJORITY, "1 of the 3 islands that vote are heard, no majority");
    assert_non_null(strstr(complaint_of(look_take(), COMPLAINT_NO_MAJORITY)->remedy, "nothing of it is lost"));
    played_greet(look.b, look.a);
    assert_silent(look_take(), COMPLAINT_NO_MAJORITY);
    assert_int_equal(look.status.epoch.voters, 3);
    assert_int_equal(look.status.epoch.voters_heard, 2);
    look_end();
}

/* Opens a, and lets a boot forget its mark in between. */
static void open_in_doubt(void)
{
    char mark[300];
    look.a = isle_open(look.run, LOOK_A, NULL, 0);
    isle_close(look.a);
    snprintf(mark, sizeof mark, "%s/s-a/vote.mark", look.run->folder);
    assert_int_equal(unlink(mark), 0);
    look.run->doubt = true;
    look.a = isle_open(look.run, LOOK_A, NULL, 0);
}

static void a_disk_in_doubt_is_told_and_has_no_vote(void **state)
{
    (void)state;
    look_begin_run("status-doubt", 3, NULL);
    look.a = isle_open(look.run, LOOK_A, NULL, 0);
    assert_silent(look_take(), COMPLAINT_DOUBT);
    assert_true(look.status.epoch.votes);
    isle_close(look.a);
    open_in_doubt();
    assert_complains(look_take(), COMPLAINT_DOUBT,
                     "this island has no vote, for its disk is in doubt: this machine was started again");
    assert_false(look.status.epoch.votes);
    look_end();
}

/* They are heard for as long as a doubt takes to count: b, whose disk is in doubt, and c, if at all, whose may be. */
static void beat_for_long(bool c_in_doubt, bool with_c)
{
    for (int k = 0; k < 10; k++) {
        look.a->now_ms += 250;
        played_beat(look.b)->in_doubt = true;
        say_and_wait(look.b);
        if (with_c) {
            played_beat(look.c)->in_doubt = c_in_doubt;
            say_and_wait(look.c);
        }
        isle_tick(look.a);
    }
}

/* Power was lost everywhere, and one is not back: two of three are heard, and nothing moves all the same. */
static void whose_disks_are_in_doubt_are_no_majority(void **state)
{
    (void)state;
    look_begin_run("status-doubts", 3, NULL);
    open_in_doubt();
    played_greet(look.b, look.a);
    beat_for_long(true, false);
    assert_complains(look_take(), COMPLAINT_NO_MAJORITY,
                     "2 of the 3 islands that vote are heard, but the disks of 2 are in doubt");
    assert_complains(look_take(), COMPLAINT_NO_MAJORITY,
                     "no round closes until c is back; island c was not heard of yet");
    assert_remedy(COMPLAINT_NO_MAJORITY, "with the disks that they had");
    assert_remedy(COMPLAINT_DOUBT, "it votes again when a majority that is, or all that vote, are here");
    assert_remedy(COMPLAINT_AWAY, "nobody can be taken for lost, and rounds stand");
    assert_int_equal(look.status.epoch.voters_heard, 2);
    assert_int_equal(look.status.epoch.voters_sure, 0);
    played_greet(look.c, look.a);
    beat_for_long(true, true);
    assert_complains(look_take(), COMPLAINT_NO_MAJORITY,
                     "3 of the 3 islands that vote are heard, but the disks of 3 are in doubt");
    assert_remedy(COMPLAINT_NO_MAJORITY, "nothing to do");
    assert_remedy(COMPLAINT_DOUBT, "nothing to do");
    look_end();
}

/* It has the only vote, and the other one would know whether it still has it. */
static void a_lone_voter_in_doubt_tells_whom_it_waits_for(void **state)
{
    (void)state;
    look_begin_run("status-lone", 2, NULL);
    open_in_doubt();
    struct config config = isle_next_config(look.a);
    isle_set_owners(&config, (const uint32_t[]){LOOK_A}, 1, CONFIG_AWAY);
    config.members[LOOK_B].role = CONFIG_AWAY;
    config.members[LOOK_B].voter = false;
    isle_adopt(look.a, &config);
    assert_complains(look_take(), COMPLAINT_NO_MAJORITY, "whether the run went on without them would be known to b");
    assert_remedy(COMPLAINT_NO_MAJORITY, "for half a minute, then it goes on alone");
    assert_remedy(COMPLAINT_DOUBT, "or in half a minute");
    look_end();
}

/* One of three was started again: the others are a majority, and name its disk anew. */
static void one_disk_in_doubt_leaves_a_majority(void **state)
{
    (void)state;
    look_begin_run("status-one-doubt", 3, NULL);
    look.a = isle_open(look.run, LOOK_A, NULL, 0);
    played_greet(look.b, look.a);
    played_greet(look.c, look.a);
    beat_for_long(false, true);
    assert_silent(look_take(), COMPLAINT_NO_MAJORITY);
    assert_int_equal(look.status.epoch.voters_sure, 2);
    look_end();
}

static void in_a_minority_nobody_is_taken_for_lost(void **state)
{
    (void)state;
    look_begin("status-minority", 3, NULL);
    assert_complains(look_take(), COMPLAINT_NO_MAJORITY,
                     "no round closes until one of b, c is back; island b was not heard of yet");
    assert_remedy(COMPLAINT_AWAY, "nobody can be taken for lost, and rounds stand");
    played_greet(look.b, look.a);
    assert_remedy(COMPLAINT_AWAY, "rounds wait for its shards, until a majority of those that vote takes it for lost");
    look_end();
}

/* It was away when it was revoked, so it has no configuration that says so: b and c have another key for it, or none.
 */
static void whom_most_do_not_let_in_is_told_that_it_was_probably_revoked(void **state)
{
    (void)state;
    look.run = isle_run_new("status-revoked", 3, NULL);
    struct ident ours = look.run->idents[LOOK_A], other;
    assert_ok(ident_generate(&other));
    look.b = look.c = NULL;
    look.run->idents[LOOK_A] = other;
    look.b = played_open(look.run, LOOK_B, 0, NULL);
    isle_listen(look.run, LOOK_C);
    look.run->idents[LOOK_A] = ours;
    look.a = isle_open(look.run, LOOK_A, NULL, 0);
    isle_wait(peers_info(look.a->peers, LOOK_B).unadmitted);
    assert_complains(look_take(), COMPLAINT_REFUSED, "it does not admit our key");
    assert_remedy(COMPLAINT_REFUSED, "compare the keys");
    assert_silent(look_take(), COMPLAINT_NOT_ADMITTED); /* one alone may have another key itself */
    isle_close(look.a);
    look.run->idents[LOOK_A] = other;
    look.c = played_open(look.run, LOOK_C, 0, NULL);
    look.run->idents[LOOK_A] = ours;
    look.a = isle_open(look.run, LOOK_A, NULL, 0);
    isle_wait(peers_info(look.a->peers, LOOK_B).unadmitted && peers_info(look.a->peers, LOOK_C).unadmitted);
    assert_complains(look_take(), COMPLAINT_NOT_ADMITTED, "2 of the 2 other islands do not know this island's key");
    assert_remedy(COMPLAINT_NOT_ADMITTED, "probably revoked; if so: dilococtl reset");
    assert_silent(look_take(), COMPLAINT_REFUSED);
    assert_silent(look_take(), COMPLAINT_AWAY);
    assert_silent(look_take(), COMPLAINT_ALONE);
    assert_silent(look_take(), COMPLAINT_NO_MAJORITY);
    look_end();
}

/* Before its model is known it cannot vote, which is as it should be. */
static void a_new_run_has_nothing_to_complain_of(void **state)
{
    (void)state;
    look_begin_run("status-new", 1, NULL);
    look.run->doubt = true;
    look.a = isle_open(look.run, LOOK_A, NULL, 0);
    assert_silent(look_take(), COMPLAINT_DOUBT);
    assert_silent(look_take(), COMPLAINT_NO_MAJORITY);
    assert_false(look.status.epoch.votes);
    look_end();
}

static void an_epoch_that_is_being_decided_for_long_is_told_with_what_it_waits_for(void **state)
{
    (void)state;
    look_begin("status-sealed", 3, NULL);
    played_greet(look.b, look.a);
    struct paxos_message prepare = {.type = WIRE_PREPARE, .epoch = 1, .ballot = (uint64_t)1 << 32 | LOOK_B}, answer;
    played_say_epoch(look.b, LOOK_A, &prepare);
    isle_wait(played_heard_epoch(look.b, &answer));
    assert_int_equal(answer.type, WIRE_PROMISE);
    wire_paxos_deinit(&answer);
    look.a->now_ms += 2000;
    assert_silent(look_take(), COMPLAINT_SEALED);
    look.a->now_ms += 500;
    assert_complains(look_take(), COMPLAINT_SEALED, "decided for 2 s; it waits for island b, which proposes it");
    assert_int_equal(look.status.epoch.sealed_ms, 2500);
    struct config config = isle_next_config(look.a);
    isle_adopt(look.a, &config);
    assert_silent(look_take(), COMPLAINT_SEALED);
    assert_int_equal(look.status.epoch.sealed_ms, 0);
    look_end();
}

static void be_sealed_by_b(void)
{
    struct paxos_message prepare = {.type = WIRE_PREPARE, .epoch = 1, .ballot = (uint64_t)1 << 32 | LOOK_B}, answer;
    played_say_epoch(look.b, LOOK_A, &prepare);
    isle_wait(played_heard_epoch(look.b, &answer));
    wire_paxos_deinit(&answer);
}

/* Where the others do without this island, rounds do not wait for what it is sealed for. */
static void rounds_that_close_do_not_wait_for_the_next_epoch(void **state)
{
    (void)state;
    struct digest hash = digest_of("x", 1);
    look_begin("status-closing", 3, NULL);
    assert_ok(progress_new(&look.progress));
    played_greet(look.b, look.a);
    for (uint32_t f = 0; f < ISLE_FRAGMENTS; f++)
        sync_restore(look.a->sync, f, 5, &hash);
    progress_note(look.progress, look.a->sync, ISLE_FRAGMENTS, 3, 0, look.a->now_ms);
    be_sealed_by_b();
    look.a->now_ms += 3000;
    assert_complains(look_take(), COMPLAINT_SEALED, "the next epoch is being decided for 3 s");
    sync_restore(look.a->sync, 0, 6, &hash);
    progress_note(look.progress, look.a->sync, ISLE_FRAGMENTS, 3, 0, look.a->now_ms);
    look.a->now_ms += 1000;
    assert_complains(look_take(), COMPLAINT_SEALED, "a requested change of members has not been decided for 4 s");
    assert_remedy(COMPLAINT_SEALED, "rounds close all the same");
    look_end();
}

/* A full disk, for one: it is this island that nothing is decided for, not those that can be heard. */
static void a_vote_that_cannot_be_kept_is_told_with_what_its_disk_says(void **state)
{
    (void)state;
    char aside[400];
    look_begin("status-unkept", 3, NULL);
    played_greet(look.b, look.a);
    assert_silent(look_take(), COMPLAINT_DISK);
    snprintf(aside, sizeof aside, "%s-aside", look.a->conf.state_folder);
    assert_int_equal(rename(look.a->conf.state_folder, aside), 0);
    struct paxos_message prepare = {.type = WIRE_PREPARE, .epoch = 1, .ballot = (uint64_t)1 << 32 | LOOK_B};
    played_say_epoch(look.b, LOOK_A, &prepare);
    isle_wait(membership_host_unkept(look.a->host)[0] != '\0');
    look.a->now_ms += 100;
    assert_complains(look_take(), COMPLAINT_DISK, "what is decided cannot be kept: ");
    assert_non_null(strstr(look.status.epoch.waits, "this island's disk: "));
    assert_int_equal(rename(aside, look.a->conf.state_folder), 0);
    isle_tick(look.a);
    isle_wait(membership_host_unkept(look.a->host)[0] == '\0');
    assert_silent(look_take(), COMPLAINT_DISK);
    assert_string_equal(look.status.epoch.waits, "island b, which proposes it");
    look_end();
}

/* It drains, and the others do not answer. */
static void a_change_request_that_nobody_decides_is_told_as_one(void **state)
{
    (void)state;
    look_begin_run("status-request", 3, NULL);
    open_in_doubt();
    isle_know_plan(look.a);
    look.a->engine = true;
    played_greet(look.b, look.a);
    peers_drain(look.a->peers, true);
    for (int k = 0; k < 4; k++) {
        look.a->now_ms += 250;
        isle_tick(look.a);
    }
    assert_true(look_take()->epoch.requested_ms > 0);
    assert_int_equal(look.status.epoch.sealed_ms, 0);
    assert_string_equal(look.status.epoch.waits, "those that vote, of which this island is none now");
    assert_silent(look_take(), COMPLAINT_SEALED);
    for (int k = 0; k < 42; k++) { /* 10.5 s */
        played_beat(look.b);
        played_say(look.b, LOOK_A);
        played_settle(look.b, LOOK_A, WIRE_HELLO);
        look.a->now_ms += 250;
        isle_tick(look.a);
    }
    assert_complains(look_take(), COMPLAINT_SEALED, "a requested change of members has not been decided for 1");
    look_end();
}

static void adopt_role(uint32_t slot, enum config_role role)
{
    struct config config = isle_next_config(look.a);
    uint32_t owners[ISLE_MAX], count = 0;
    for (uint32_t i = 0; i < look.run->count; i++)
        if (i != slot)
            owners[count++] = i;
    isle_set_owners(&config, owners, count, role);
    config.members[slot].role = (uint8_t)role;
    isle_adopt(look.a, &config);
}

/* By an order: what it says besides is not looked at here. */
static void adopt_eviction(uint32_t slot)
{
    struct config config = isle_next_config(look.a);
    assert_null(config.orders);
    assert_ok(mem_new(1, sizeof *config.orders, "orders", &config.orders));
    config.orders[0] = (struct order){.kind = ORDER_EVICT, .subject = config.members[slot].id, .number = 1};
    config.orders_count = 1;
    config.members[slot].role = CONFIG_AWAY;
    isle_adopt(look.a, &config);
}

/* What people have to do something about is a complaint: one that was put out, or drained. */
static void an_island_that_takes_no_part_says_so_itself(void **state)
{
    (void)state;
    look_begin("status-no-part", 3, NULL);
    played_greet(look.b, look.a);
    played_greet(look.c, look.a);
    assert_silent(look_take(), COMPLAINT_NO_PART);
    struct wire_heartbeat stands = {.taking_part = true, .step = 7};
    membership_beat(look.a->membership, &stands, look.a->now_ms);
    adopt_eviction(LOOK_A);
    assert_complains(look_take(), COMPLAINT_NO_PART,
                     "this island takes no part: by the configuration of epoch 1 it was lost or evicted");
    assert_remedy(COMPLAINT_NO_PART, "it comes back by itself");
    assert_false(look.status.peers[LOOK_A].catches_up);
    stands.taking_part = false; /* nothing hangs: it is let in when it has caught up */
    membership_beat(look.a->membership, &stands, look.a->now_ms);
    assert_silent(look_take(), COMPLAINT_NO_PART);
    assert_true(look.status.peers[LOOK_A].catches_up);
    adopt_role(LOOK_C, CONFIG_AWAY);
    assert_silent(look_take(), COMPLAINT_NO_PART);
    peers_drain(look.a->peers, true);
    assert_silent(look_take(), COMPLAINT_NO_PART); /* it is not decided yet */
    adopt_role(LOOK_A, CONFIG_DRAINING);
    assert_silent(look_take(), COMPLAINT_NO_PART); /* it left as its people asked: nothing is wrong */
    peers_drain(look.a->peers, false);
    assert_silent(look_take(), COMPLAINT_NO_PART); /* it comes back */
    look_end();
}

/* As drain itself suggests: then it is stopped, and some time later a configuration says that it is away. */
static void who_drained_and_is_away_is_no_complaint(void **state)
{
    (void)state;
    look_begin("status-drained", 3, NULL);
    played_greet(look.b, look.a);
    assert_complains(look_take(), COMPLAINT_AWAY, "island c");
    adopt_role(LOOK_C, CONFIG_DRAINING);
    assert_silent(look_take(), COMPLAINT_AWAY);
    assert_true(look.status.peers[LOOK_C].drained);
    adopt_role(LOOK_C, CONFIG_AWAY);
    assert_silent(look_take(), COMPLAINT_LOST);
    assert_silent(look_take(), COMPLAINT_AWAY);
    assert_int_equal(look.status.islands_drained, 1);
    json_t *json = status_json(&look.status);
    assert_int_equal(json_array_size(json_object_get(json, "left")), 1);
    assert_string_equal(json_string_value(json_array_get(json_object_get(json, "left"), 0)), "c");
    json_decref(json);
    struct config config = isle_next_config(look.a);
    isle_set_owners(&config, (const uint32_t[]){LOOK_A, LOOK_B, LOOK_C}, 3, CONFIG_OWNER);
    config.members[LOOK_C].role = CONFIG_OWNER;
    config.members[LOOK_C].voter = true;
    isle_adopt(look.a, &config); /* it took part again, and is lost now */
    adopt_role(LOOK_C, CONFIG_AWAY);
    assert_complains(look_take(), COMPLAINT_LOST, "island c is lost");
    assert_int_equal(look.status.islands_drained, 0);
    look_end();
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_member_that_is_lost_is_so_and_rounds_do_not_wait_for_it),
        cmocka_unit_test(while_a_majority_lives_one_that_could_vote_is_named),
        cmocka_unit_test(one_that_gives_orders_alone_is_told_to_let_another),
        cmocka_unit_test(who_stands_back_is_told_with_whom_it_does_not_hear),
        cmocka_unit_test(who_is_heard_and_makes_no_result_is_told_as_such),
        cmocka_unit_test(a_slot_that_is_nobodys_is_not_shown),
        cmocka_unit_test(two_that_vote_are_told_what_a_loss_would_mean),
        cmocka_unit_test(a_witness_that_is_away_is_no_island),
        cmocka_unit_test(of_itself_a_witness_says_that_it_is_one),
        cmocka_unit_test(too_few_that_vote_are_told_and_that_nothing_is_lost),
        cmocka_unit_test(a_disk_in_doubt_is_told_and_has_no_vote),
        cmocka_unit_test(whose_disks_are_in_doubt_are_no_majority),
        cmocka_unit_test(a_lone_voter_in_doubt_tells_whom_it_waits_for),
        cmocka_unit_test(one_disk_in_doubt_leaves_a_majority),
        cmocka_unit_test(in_a_minority_nobody_is_taken_for_lost),
        cmocka_unit_test(whom_most_do_not_let_in_is_told_that_it_was_probably_revoked),
        cmocka_unit_test(a_new_run_has_nothing_to_complain_of),
        cmocka_unit_test(an_epoch_that_is_being_decided_for_long_is_told_with_what_it_waits_for),
        cmocka_unit_test(rounds_that_close_do_not_wait_for_the_next_epoch),
        cmocka_unit_test(a_vote_that_cannot_be_kept_is_told_with_what_its_disk_says),
        cmocka_unit_test(a_change_request_that_nobody_decides_is_told_as_one),
        cmocka_unit_test(an_island_that_takes_no_part_says_so_itself),
        cmocka_unit_test(who_drained_and_is_away_is_no_complaint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
