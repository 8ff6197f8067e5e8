/* SPDX-License-Identifier: Apache-2.0 */
/* owner and the sync core's rules around it: no round is left waiting for a contribution that will not come again, and
 * none is reduced twice. */
#include "tests/lib/testlib.h"

#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "net/sync/owner.h"
#include "net/sync/sync.h"
#include "tests/lib/roster.h"

static const struct owner_rule everyone = {0}, two_of_three = {.quorum = 2, .grace_ms = 100};

static enum owner_order step(struct owner *owner, const struct owner_rule *rule, enum owner_event event,
                             uint32_t member)
{
    return owner_step(owner, rule, &(struct owner_input){.event = event, .member = member});
}

static enum owner_order check(struct owner *owner, const struct owner_rule *rule, uint64_t waiting, uint64_t now_ms)
{
    struct bitset missing = bitset_of_word(waiting);
    bitset_remove_all(&missing, &owner->have);
    bitset_remove_all(&missing, &owner->refused);
    return owner_step(
        owner, rule,
        &(struct owner_input){
            .event = OWNER_CHECK, .missing = !bitset_empty(&missing), .grace_ms = rule->grace_ms, .now_ms = now_ms});
}

static void a_round_goes_through_its_states(void **state)
{
    (void)state;
    struct owner owner = owner_init(4);
    assert_int_equal(owner.round, 5);
    assert_int_equal(check(&owner, &everyone, 0, 0), OWNER_NOTHING); /* nobody has contributed */
    step(&owner, &everyone, OWNER_CONTRIBUTED, 0);
    assert_int_equal(check(&owner, &everyone, 2, 0), OWNER_NOTHING); /* member 1 may still */
    assert_int_equal(check(&owner, &everyone, 0, 0), OWNER_REDUCE);
    assert_int_equal(check(&owner, &everyone, 0, 0), OWNER_NOTHING);
    assert_int_equal(step(&owner, &everyone, OWNER_REDUCED, 0), OWNER_STORE);
    assert_int_equal(step(&owner, &everyone, OWNER_STORED, 0), OWNER_PUBLISH);
    assert_int_equal(owner.round, 6);
    assert_int_equal(bitset_word(&owner.have), 0);
}

static struct owner reducing_two_of_three(void)
{
    struct owner owner = owner_init(0);
    step(&owner, &two_of_three, OWNER_CONTRIBUTED, 0);
    step(&owner, &two_of_three, OWNER_CONTRIBUTED, 1);
    assert_int_equal(check(&owner, &two_of_three, 4, 1), OWNER_NOTHING);
    assert_int_equal(check(&owner, &two_of_three, 4, 101), OWNER_REDUCE);
    return owner;
}

static void a_late_refusal_does_not_order_a_second_reduction(void **state)
{
    (void)state;
    struct owner owner = reducing_two_of_three();
    step(&owner, &two_of_three, OWNER_REFUSED, 2);
    assert_int_equal(owner.state, OWNER_REDUCING);
    assert_int_equal(check(&owner, &two_of_three, 0, 500), OWNER_NOTHING);
    assert_int_equal(step(&owner, &two_of_three, OWNER_REDUCED, 0), OWNER_STORE);
}

/* An island that contributed from a wrong base, was told so and mended itself may be the only one left to close a
 * round. */
static void one_that_mended_itself_is_taken(void **state)
{
    (void)state;
    const struct owner_rule all = {0};
    struct owner owner = owner_init(4);
    step(&owner, &all, OWNER_REFUSED, 2);
    assert_int_equal(check(&owner, &all, 4, 10), OWNER_NOTHING); /* nothing is there to reduce */
    step(&owner, &all, OWNER_CONTRIBUTED, 2);
    assert_int_equal(bitset_word(&owner.refused), 0);
    assert_int_equal(check(&owner, &all, 4, 20), OWNER_REDUCE);
}

static void what_came_during_a_failed_reduction_counts(void **state)
{
    (void)state;
    struct owner owner = reducing_two_of_three();
    step(&owner, &two_of_three, OWNER_CONTRIBUTED, 2);
    assert_int_equal(bitset_word(&owner.have), 3);
    step(&owner, &two_of_three, OWNER_DROPPED, 1);
    assert_int_equal(owner.state, OWNER_COLLECTING);
    assert_int_equal(bitset_word(&owner.have), 1 | 4);
    assert_int_equal(bitset_word(&owner.refused), 2);
    assert_int_equal(check(&owner, &two_of_three, 7, 600), OWNER_REDUCE); /* nobody else can come */
}

static void a_round_that_is_over_marks_nobody(void **state)
{
    (void)state;
    struct owner owner = reducing_two_of_three();
    owner_step(&owner, &two_of_three, &(struct owner_input){.event = OWNER_ADVANCED, .version = 1});
    assert_int_equal(owner.round, 2);
    step(&owner, &two_of_three, OWNER_CONTRIBUTED, 2); /* to the new round */
    step(&owner, &two_of_three, OWNER_DROPPED, 0);     /* the old reduction failed */
    assert_int_equal(owner.state, OWNER_COLLECTING);
    assert_int_equal(bitset_word(&owner.refused), 0);
    assert_int_equal(bitset_word(&owner.have), 4);
}

/* Grace is counted from the contribution that made the quorum, and again from the one that makes it again. */
static void a_quorum_that_is_lost_is_waited_for_anew(void **state)
{
    (void)state;
    struct owner owner = reducing_two_of_three();
    step(&owner, &two_of_three, OWNER_DROPPED, 1);
    assert_int_equal(check(&owner, &two_of_three, 15, 150), OWNER_NOTHING);
    step(&owner, &two_of_three, OWNER_CONTRIBUTED, 2);
    assert_int_equal(check(&owner, &two_of_three, 15, 200), OWNER_NOTHING);
    assert_int_equal(check(&owner, &two_of_three, 15, 299), OWNER_NOTHING);
    assert_int_equal(check(&owner, &two_of_three, 15, 300), OWNER_REDUCE);
}

/* A new epoch: what came was for other shards, and what a job brings is of no use. */
static void a_new_epoch_begins_the_round_anew(void **state)
{
    (void)state;
    for (int jobs = 0; jobs < 3; jobs++) {
        struct owner owner = reducing_two_of_three();
        struct owner_input begun = {.event = OWNER_BEGUN, .version = 0};
        if (jobs == 0)
            step(&owner, &two_of_three, OWNER_DROPPED, 1);
        if (jobs == 2)
            assert_int_equal(step(&owner, &two_of_three, OWNER_REDUCED, 0), OWNER_STORE);
        step(&owner, &two_of_three, OWNER_CONTRIBUTED, 2);
        owner_step(&owner, &two_of_three, &begun);
        assert_int_equal(owner.round, 1);
        assert_true(bitset_empty(&owner.have) && bitset_empty(&owner.refused) && bitset_empty(&owner.late));
        if (jobs > 0)
            assert_int_equal(step(&owner, &two_of_three, jobs == 1 ? OWNER_REDUCED : OWNER_STORED, 0), OWNER_NOTHING);
        assert_int_equal(owner.state, OWNER_COLLECTING);
        assert_int_equal(owner.round, 1);
        assert_true(bitset_empty(&owner.have));
        step(&owner, &two_of_three, OWNER_CONTRIBUTED, 0);
        step(&owner, &two_of_three, OWNER_CONTRIBUTED, 1);
        assert_int_equal(check(&owner, &two_of_three, 0, 1000), OWNER_REDUCE);
    }
    /* The round after it was ours already, and its result does not stand. */
    struct owner owner = owner_init(4);
    owner_step(&owner, &everyone, &(struct owner_input){.event = OWNER_BEGUN, .version = 3});
    assert_int_equal(owner.round, 4);
}

/* ---- the sync core ---- */

static struct config_log *config_log;

/* Our core, of member 0 among `count`, in an epoch whose configuration is `config`: slots are numbers. */
static struct sync *sync_among(uint32_t count, uint32_t fragments, struct owner_rule rule, struct config *config)
{
    static uint32_t ids[128], shards_counts[8];
    struct sync *sync;
    for (uint32_t i = 0; i < count; i++)
        ids[i] = roster_id(i);
    for (uint32_t f = 0; f < fragments; f++)
        shards_counts[f] = SHARDMAP_SLOTS;
    assert_ok(config_log_new(&config_log));
    roster_add(config_log, config);
    struct sync_conf conf = {.config_log = config_log,
                             .fragments_count = fragments,
                             .shards_counts = shards_counts,
                             .rule = rule,
                             .view = roster_view(config_log, 0, ids, count)};
    assert_ok(sync_new(&conf, &sync));
    return sync;
}

static void end(struct sync *sync)
{
    sync_free(sync);
    config_log_free(config_log);
    config_log = NULL;
}

static struct sync *new_sync(void)
{
    struct config config = roster_config(2);
    return sync_among(2, 2, everyone, &config);
}

/* Our own result of version `version` is on the disk. */
static struct sync_event stored(uint32_t fragment, uint64_t version)
{
    return (struct sync_event){.type = SYNC_EV_STORED, .fragment = fragment, .version = version, .owner = roster_id(0)};
}

static struct wire_key contribution_key(uint32_t from)
{
    return (struct wire_key){.kind = WIRE_CONTRIBUTION, .version = 1, .owner = roster_id(0), .island = roster_id(from)};
}

/* Takes the event in and drains what it orders; returns how many of those are of this type. */
static unsigned ordered(struct sync *sync, struct sync_event event, uint64_t now_ms, enum sync_action_type type)
{
    struct sync_action action;
    unsigned count = 0;
    sync_step(sync, &event, now_ms);
    while (sync_action(sync, &action))
        count += action.type == type;
    return count;
}

static void happens(struct sync *sync, struct sync_event event, uint64_t now_ms)
{
    (void)ordered(sync, event, now_ms, SYNC_DO_REPORT);
}

static unsigned tick(struct sync *sync, uint64_t now_ms, enum sync_action_type type)
{
    return ordered(sync, (struct sync_event){.type = SYNC_EV_TICK}, now_ms, type);
}

static void hear(struct sync *sync, uint64_t version0, uint64_t version1, const struct digest *hash, uint64_t now_ms)
{
    static struct wire_heartbeat beat;
    memset(&beat, 0, sizeof beat);
    beat.taking_part = true;
    beat.fragments_count = 2;
    for (uint32_t f = 0; f < 2; f++)
        beat.fragments[f] = (struct wire_fragment){
            .fragment = f, .at.version = f == 0 ? version0 : version1, .at.hash = *hash, .at.hash_known = true};
    happens(sync, (struct sync_event){.type = SYNC_EV_PEER_UP, .member = 1}, now_ms);
    happens(sync, (struct sync_event){.type = SYNC_EV_HEARTBEAT, .member = 1, .beat = &beat}, now_ms);
}

/* ---- adaptive grace: three members, a quorum of one, ours the only shard ---- */

static struct sync *quorum_of_one(void)
{
    static struct wire_heartbeat beat = {
        .taking_part = true, .fragments_count = 1, .fragments = {{.at.hash_known = false}}};
    struct config config = roster_config(3);
    roster_role(&config, 1, CONFIG_CONTRIBUTOR, false);
    roster_role(&config, 2, CONFIG_CONTRIBUTOR, false);
    roster_map_owners(&config);
    struct sync *sync = sync_among(3, 1, (struct owner_rule){.quorum = 1, .grace_ms = 1000}, &config);
    sync_restore(sync, 0, 0, &(struct digest){{0}});
    for (uint32_t i = 1; i < 3; i++) {
        happens(sync, (struct sync_event){.type = SYNC_EV_PEER_UP, .member = i}, 1);
        happens(sync, (struct sync_event){.type = SYNC_EV_HEARTBEAT, .member = i, .beat = &beat}, 1);
    }
    return sync;
}

/* One round: member 1 contributes at once, member 2 `late_ms` later, or never if that is 0. Returns how long the round
 * took, and ends it. */
static uint64_t round_takes(struct sync *sync, uint64_t late_ms)
{
    static uint64_t now_ms = 1000;
    uint64_t begin_ms = now_ms += 5000, version = sync_own(sync, 0).version + 1;
    struct sync_event event = {.type = SYNC_EV_CONTRIBUTION, .version = version, .member = 1};
    bool closed = ordered(sync, event, now_ms, SYNC_DO_REDUCE) > 0;
    while (!closed && now_ms < begin_ms + 2000) {
        now_ms += 10;
        event.type = late_ms > 0 && now_ms == begin_ms + late_ms ? SYNC_EV_CONTRIBUTION : SYNC_EV_TICK;
        event.member = 2;
        closed = ordered(sync, event, now_ms, SYNC_DO_REDUCE) > 0;
    }
    uint64_t took_ms = now_ms - begin_ms;
    happens(sync, (struct sync_event){.type = SYNC_EV_REDUCED}, now_ms);
    happens(sync, stored(0, version), now_ms);
    happens(sync, (struct sync_event){.type = SYNC_EV_APPLIED}, now_ms);
    assert_int_equal(sync_own(sync, 0).version, version);
    return took_ms;
}

/* By hand, as RFC 6298 has it: the first lateness L has a deviation of L / 2; then the deviation takes in a quarter of
 * how far off the last one was, and after it the mean an eighth of it; 4 deviations and 50 ms are added. */
static void a_usual_lateness_is_smoothed(void **state)
{
    (void)state;
    struct grace grace = {0};
    assert_int_equal(grace_wait(&grace, 10000, false), 10000); /* nothing is known of it */
    grace_arrived(&grace, 400);
    assert_int_equal(grace_wait(&grace, 10000, false), 400 + 4 * 200 + 50);
    grace_arrived(&grace, 800); /* 400 off */
    assert_int_equal(grace_wait(&grace, 10000, false), 450 + 4 * 250 + 50);
    grace_arrived(&grace, 50); /* 400 off, the other way */
    assert_int_equal(grace_wait(&grace, 10000, false), 400 + 4 * 287 + 50);
    grace = (struct grace){.known = true, .late_ms = 1000, .deviation_ms = 10};
    assert_int_equal(grace_wait(&grace, 1000, false), 1000); /* as late as may be */
    assert_int_equal(grace_wait(&grace, 999, false), 0);
}

static void lateness_doubles_and_never_comes_round(void **state)
{
    (void)state;
    struct grace grace = {0};
    uint64_t before_ms = 0;
    for (uint64_t missed = 1; missed <= 300; missed++) {
        grace_missed(&grace, 10);
        assert_true(grace.late_ms == 2 * before_ms || missed == 1 || missed > 30);
        assert_true(grace.late_ms >= before_ms);
        assert_int_equal(grace_wait(&grace, 60000, false), grace.late_ms > 60000 ? 0 : grace.late_ms + 50);
        before_ms = grace.late_ms;
    }
    assert_true(before_ms > 60000);
    grace_arrived(&grace, 100); /* it is back, and nothing of that remains */
    assert_int_equal(grace_wait(&grace, 60000, false), 100 + 4 * 50 + 50);
}

static void fragments_take_turns_to_probe(void **state)
{
    (void)state;
    for (uint64_t at = 0; at < 40; at++) {
        unsigned fragments = 0, rounds = 0;
        for (uint32_t k = 0; k < 8; k++) {
            fragments += grace_probes(k, at);
            rounds += grace_probes(3, at + k);
        }
        assert_int_equal(fragments, 1);
        assert_int_equal(rounds, 1);
    }
}

/* Of two that are left, or one. */
static void a_quorum_is_at_most_those_who_take_part(void **state)
{
    (void)state;
    struct config config = roster_config(3);
    for (uint32_t there = 3; there >= 1; there--) {
        if (there < 3)
            roster_role(&config, there, CONFIG_AWAY, there == 2);
        roster_map_owners(&config);
        for (uint32_t set = 0; set <= 4; set++) {
            struct config copy;
            assert_ok(config_copy(&config, &copy));
            struct sync *sync = sync_among(3, 1, (struct owner_rule){.quorum = set, .grace_ms = 50}, &copy);
            assert_int_equal(sync_quorum(sync), set < there ? set : there);
            end(sync);
        }
    }
    config_deinit(&config);
}

/* Set to more than there are, it closes a round of those who are there without the longest patience for anybody. */
static void a_quorum_of_more_than_take_part_closes_rounds(void **state)
{
    (void)state;
    struct config config = roster_config(3);
    roster_role(&config, 2, CONFIG_AWAY, false);
    roster_map_owners(&config);
    struct sync *sync = sync_among(3, 1, (struct owner_rule){.quorum = 3, .grace_ms = 0}, &config);
    struct wire_heartbeat beat = {.taking_part = true, .fragments_count = 1, .fragments = {{.at.hash_known = false}}};
    sync_restore(sync, 0, 0, &(struct digest){{0}});
    happens(sync, (struct sync_event){.type = SYNC_EV_PEER_UP, .member = 1}, 1);
    happens(sync, (struct sync_event){.type = SYNC_EV_HEARTBEAT, .member = 1, .beat = &beat}, 1);
    struct sync_event event = {.type = SYNC_EV_CONTRIBUTION, .version = 1, .member = 1};
    assert_int_equal(ordered(sync, event, 10, SYNC_DO_REDUCE), 1); /* we have no trainer: nobody else to wait for */
    end(sync);
}

static void grace_follows_how_late_an_island_usually_is(void **state)
{
    (void)state;
    struct sync *sync = quorum_of_one();
    bool too_late;
    assert_int_equal(round_takes(sync, 300), 300);
    for (int i = 0; i < 20; i++)
        assert_int_equal(round_takes(sync, 300), 300); /* waited for, though it is always late */
    uint64_t first_ms = round_takes(sync, 0);
    assert_in_range(first_ms, 350, 450); /* it should be there by now: not the whole grace */
    assert_int_equal(sync_missed(sync, 2, &too_late), 1);
    assert_false(too_late); /* it may only be a little later than it was */
    unsigned whole = 0, at_once = 0;
    for (int i = 0; i < 32; i++) {
        uint64_t took_ms = round_takes(sync, 0);
        whole += took_ms == 1000;
        at_once += took_ms <= 10;
    }
    assert_in_range(whole, 4, 6); /* one round in eight finds out whether it is back */
    assert_in_range(at_once, 26, 28);
    assert_int_equal(sync_missed(sync, 2, &too_late), 33);
    assert_true(too_late);
    for (int i = 0; i < 40; i++)
        round_takes(sync, 100);
    assert_int_equal(sync_missed(sync, 2, &too_late), 0);
    assert_false(too_late);
    assert_int_equal(round_takes(sync, 100), 100);
    end(sync);
    /* Owners whose counts differ probe in the same rounds: a version waits for each of them. */
    for (uint64_t round = 1; round < 100; round++) {
        struct grace one = {.known = true, .late_ms = 100000, .missed = round}, other = one;
        other.missed += 5;
        bool probe = grace_probes(3, round);
        assert_int_equal(grace_wait(&one, 1000, probe), probe ? 1000 : 0);
        assert_int_equal(grace_wait(&other, 1000, probe), grace_wait(&one, 1000, probe));
    }
}

static void an_island_later_than_grace_is_not_waited_for(void **state)
{
    (void)state;
    struct sync *sync = quorum_of_one();
    assert_int_equal(round_takes(sync, 1500), 1000);
    for (int i = 2; i < 8; i++)
        assert_in_range(round_takes(sync, 1500), 0, 10);
    assert_int_equal(round_takes(sync, 1500), 1000);
    end(sync);
}

static void an_early_contribution_outlives_the_start(void **state)
{
    (void)state;
    struct sync *sync = new_sync();
    struct digest hash = digest_of("a", 1);
    struct wire_key key = contribution_key(1);
    assert_int_equal(sync_wants(sync, &key, 1), SYNC_WANT);
    happens(sync, (struct sync_event){.type = SYNC_EV_CONTRIBUTION, .member = 1, .version = 1}, 1);
    sync_restore(sync, 0, 0, &hash); /* our own trainer brings its initial tensors only now */
    assert_int_equal(sync_wants(sync, &key, 1), SYNC_HAVE);
    end(sync);
}

/* A blank island in a run that has begun here and there fetches all, whatever its trainer may bring. */
static void a_blank_island_fetches_unless_everyone_begins(void **state)
{
    (void)state;
    struct digest hash = digest_of("a", 1);
    for (int brings = 0; brings < 2; brings++) {
        struct sync *sync = new_sync();
        hear(sync, 0, 0, &hash, 1);
        sync_expect(sync, true, brings != 0);
        assert_int_equal(tick(sync, 100, SYNC_DO_FETCH), brings ? 0 : 2);
        end(sync);
    }
}

static void a_state_on_its_way_is_not_asked_for_again(void **state)
{
    (void)state;
    struct sync *sync = new_sync();
    struct digest hash = digest_of("a", 1);
    struct wire_key key;
    hear(sync, 7, 7, &hash, 1);
    assert_int_equal(tick(sync, 100, SYNC_DO_FETCH), 2);
    for (uint64_t now_ms = 200; now_ms < 120000; now_ms += 100) {
        for (uint32_t f = 0; f < 2; f++)
            if (sync_fetching_state(sync, f, &key))
                sync_state_moves(sync, f, true);
        assert_int_equal(tick(sync, now_ms, SYNC_DO_FETCH), 0);
    }
    assert_int_equal(tick(sync, 200000, SYNC_DO_FETCH), 2); /* it stands still */
    end(sync);
}

static void an_offer_during_a_reduction_is_put_off_not_refused(void **state)
{
    (void)state;
    struct sync *sync = new_sync();
    struct digest hash = digest_of("a", 1);
    struct wire_key key = contribution_key(1);
    sync_restore(sync, 0, 0, &hash);
    sync_restore(sync, 1, 0, &hash);
    hear(sync, 0, 0, &hash, 1);
    struct sync_event theirs = {.type = SYNC_EV_CONTRIBUTION, .member = 1, .version = 1};
    assert_int_equal(ordered(sync, theirs, 2, SYNC_DO_REDUCE), 1); /* we have no trainer: nobody else to wait for */
    assert_int_equal(sync_owner(sync, 0)->state, OWNER_REDUCING);
    assert_int_equal(sync_wants(sync, &key, 1), SYNC_HAVE);
    happens(sync, (struct sync_event){.type = SYNC_EV_DROPPED, .member = 1}, 3);
    assert_int_equal(sync_owner(sync, 0)->state, OWNER_COLLECTING);
    end(sync);
}

/* ---- the most that one event orders ---- */

enum { MANY = 70, FRAGMENTS = 5, OWNERS = SHARDMAP_OWNERS_MAX };

/* As many members as may own a part of every fragment; all are up, and each says that it stands `ahead` versions before
 * us. */
static struct sync *among_many(uint64_t ahead)
{
    static struct wire_heartbeat beat;
    struct digest hash = digest_of("a", 1);
    struct config config = roster_config(MANY);
    struct sync *sync = sync_among(MANY, FRAGMENTS, everyone, &config);
    memset(&beat, 0, sizeof beat);
    beat.taking_part = true;
    beat.fragments_count = FRAGMENTS;
    for (uint32_t f = 0; f < FRAGMENTS; f++) {
        sync_restore(sync, f, 1, &hash);
        beat.fragments[f] =
            (struct wire_fragment){.fragment = f, .at.version = 1 + ahead, .at.hash = hash, .at.hash_known = true};
    }
    for (uint32_t i = 1; i < MANY; i++) {
        happens(sync, (struct sync_event){.type = SYNC_EV_PEER_UP, .member = i}, 1);
        happens(sync, (struct sync_event){.type = SYNC_EV_HEARTBEAT, .member = i, .beat = &beat}, 1);
    }
    return sync;
}

static void there_is_room_for_all_that_one_event_orders(void **state)
{
    (void)state;
    /* Every part's result of every fragment is missing, our own included. */
    struct sync *sync = among_many(1);
    assert_int_equal(tick(sync, 100, SYNC_DO_FETCH), 0); /* it may be on its way */
    assert_int_equal(tick(sync, 10000, SYNC_DO_FETCH), FRAGMENTS * OWNERS);
    end(sync);
    /* All fragments are too far behind for results. */
    sync = among_many(100);
    assert_int_equal(tick(sync, 100, SYNC_DO_REPORT), FRAGMENTS);
    end(sync);
    /* A contribution goes to every owner, and later a result to everyone. */
    sync = among_many(0);
    happens(sync, (struct sync_event){.type = SYNC_EV_TRAINER_UP, .fragment = 3, .version = 1}, 2);
    assert_int_equal(ordered(sync, (struct sync_event){.type = SYNC_EV_SNAPSHOT, .fragment = 3}, 2, SYNC_DO_ENCODE), 1);
    assert_int_equal(ordered(sync, (struct sync_event){.type = SYNC_EV_ENCODED, .fragment = 3}, 2, SYNC_DO_SEND),
                     OWNERS - 1);
    struct sync_event event = {.type = SYNC_EV_CONTRIBUTION, .fragment = 3, .version = 2};
    for (event.member = 1; event.member + 1 < MANY; event.member++)
        assert_int_equal(ordered(sync, event, 3, SYNC_DO_REDUCE), 0);
    assert_int_equal(ordered(sync, event, 3, SYNC_DO_REDUCE), 1);
    assert_int_equal(ordered(sync, (struct sync_event){.type = SYNC_EV_REDUCED, .fragment = 3}, 4, SYNC_DO_STORE), 1);
    assert_int_equal(ordered(sync, stored(3, 2), 5, SYNC_DO_SEND), MANY - 1);
    end(sync);
}

static void nothing_is_published_before_it_is_stored(void **state)
{
    (void)state;
    struct sync *sync = quorum_of_one();
    struct sync_event theirs = {.type = SYNC_EV_CONTRIBUTION, .version = 1, .member = 1};
    happens(sync, theirs, 10);
    theirs.member = 2;
    assert_int_equal(ordered(sync, theirs, 10, SYNC_DO_REDUCE), 1);
    assert_int_equal(ordered(sync, (struct sync_event){.type = SYNC_EV_REDUCED}, 11, SYNC_DO_SEND), 0);
    assert_int_equal(tick(sync, 20000, SYNC_DO_SEND), 0); /* however long the disk takes */
    assert_int_equal(ordered(sync, stored(0, 1), 20001, SYNC_DO_SEND), 2);
    end(sync);
}

static void who_is_up_is_what_was_last_said(void **state)
{
    (void)state;
    struct sync *sync = new_sync();
    assert_false(sync_up(sync, 1));
    happens(sync, (struct sync_event){.type = SYNC_EV_PEER_UP, .member = 1}, 1);
    assert_true(sync_up(sync, 1));
    assert_false(sync_up(sync, 0));
    happens(sync, (struct sync_event){.type = SYNC_EV_PEER_DOWN, .member = 1}, 2);
    assert_false(sync_up(sync, 1));
    end(sync);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_round_goes_through_its_states),
        cmocka_unit_test(a_late_refusal_does_not_order_a_second_reduction),
        cmocka_unit_test(one_that_mended_itself_is_taken),
        cmocka_unit_test(what_came_during_a_failed_reduction_counts),
        cmocka_unit_test(a_round_that_is_over_marks_nobody),
        cmocka_unit_test(a_quorum_that_is_lost_is_waited_for_anew),
        cmocka_unit_test(a_new_epoch_begins_the_round_anew),
        cmocka_unit_test(a_usual_lateness_is_smoothed),
        cmocka_unit_test(lateness_doubles_and_never_comes_round),
        cmocka_unit_test(fragments_take_turns_to_probe),
        cmocka_unit_test(a_quorum_is_at_most_those_who_take_part),
        cmocka_unit_test(a_quorum_of_more_than_take_part_closes_rounds),
        cmocka_unit_test(grace_follows_how_late_an_island_usually_is),
        cmocka_unit_test(an_island_later_than_grace_is_not_waited_for),
        cmocka_unit_test(an_early_contribution_outlives_the_start),
        cmocka_unit_test(a_blank_island_fetches_unless_everyone_begins),
        cmocka_unit_test(a_state_on_its_way_is_not_asked_for_again),
        cmocka_unit_test(an_offer_during_a_reduction_is_put_off_not_refused),
        cmocka_unit_test(there_is_room_for_all_that_one_event_orders),
        cmocka_unit_test(nothing_is_published_before_it_is_stored),
        cmocka_unit_test(who_is_up_is_what_was_last_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
