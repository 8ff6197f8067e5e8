/* The protocol's core among a few members whose words the test chooses: what is believed, what is waited for, what is
 * asked of whom. tests/sim has the whole of it; here is each rule alone. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "common/digest.h"
#include "net/sync.h"

enum { MEMBERS_MAX = 5, ACTIONS_MAX = 256 };

static struct sync *sync;
static uint64_t now_ms;
static struct wire_fragment said[MEMBERS_MAX]; /* what each says of fragment 0 */
static bool takes_part[MEMBERS_MAX];
static struct sync_action got[ACTIONS_MAX]; /* what the last event ordered */
static size_t got_count;

static struct digest hash_named(char name, uint64_t version)
{
    return digest_of((char[]){name, (char)version}, 2);
}

static void happens(struct sync_event event)
{
    got_count = 0;
    sync_step(sync, &event, now_ms);
    while (sync_action(sync, &got[got_count]))
        assert_true(++got_count < ACTIONS_MAX);
}

static void tick(uint64_t later_ms)
{
    now_ms += later_ms;
    happens((struct sync_event){.type = SYNC_EV_TICK});
}

static const struct sync_action *ordered(enum sync_action_type type)
{
    for (size_t i = 0; i < got_count; i++)
        if (got[i].type == type)
            return &got[i];
    return NULL;
}

static const struct sync_action *reported(enum sync_report what)
{
    for (size_t i = 0; i < got_count; i++)
        if (got[i].type == SYNC_DO_REPORT && got[i].report == what)
            return &got[i];
    return NULL;
}

static void hear(uint32_t member)
{
    static struct wire_heartbeat beat;
    beat.taking_part = takes_part[member];
    beat.fragments_count = 1;
    beat.fragments[0] = said[member];
    happens((struct sync_event){.type = SYNC_EV_HEARTBEAT, .member = member, .beat = &beat});
}

static void comes_up(uint32_t member)
{
    happens((struct sync_event){.type = SYNC_EV_PEER_UP, .member = member});
}

static void goes_away(uint32_t member)
{
    happens((struct sync_event){.type = SYNC_EV_PEER_DOWN, .member = member});
}

/* We are member `self` of `count`, at `version` with hash 'a'; all are up and say the same of themselves. Members whose
 * bit is in `owners` own a shard of the one fragment. */
static void among(uint32_t count, uint32_t self, uint64_t owners, uint64_t version, struct owner_rule rule)
{
    struct bitset shards = bitset_of_word(owners);
    struct digest hash = hash_named('a', version);
    struct sync_conf conf = {
        .self = self, .members_count = count, .fragments_count = 1, .shards = &shards, .rule = rule};
    now_ms = 1000;
    assert_ok(sync_new(&conf, &sync));
    sync_restore(sync, 0, version, &hash, &(struct bitset){{0}});
    for (uint32_t i = 0; i < count; i++) {
        takes_part[i] = true;
        said[i] = (struct wire_fragment){.version = version, .hash = hash, .hash_known = true};
        if (i == self)
            continue;
        comes_up(i);
        hear(i);
    }
}

/* It has made versions up to this one since. */
static void is_at(uint32_t member, uint64_t version)
{
    said[member] = (struct wire_fragment){.version = version, .hash = hash_named('a', version), .hash_known = true};
}

static void contributes(uint32_t member, uint64_t version)
{
    happens((struct sync_event){.type = SYNC_EV_CONTRIBUTION, .member = member, .version = version});
}

static void we_contribute(void)
{
    happens((struct sync_event){.type = SYNC_EV_TRAINER_UP, .version = sync_own(sync, 0).version});
    happens((struct sync_event){.type = SYNC_EV_SNAPSHOT});
    happens((struct sync_event){.type = SYNC_EV_ENCODED});
}

static int ends(void **state)
{
    (void)state;
    sync_free(sync);
    sync = NULL;
    return 0;
}

static struct wire_key result_key(uint64_t version, uint32_t shard)
{
    return (struct wire_key){.kind = WIRE_RESULT, .version = version, .owner = shard, .island = shard};
}

/* Whom we asked for a result of this shard; UINT32_MAX: nobody. */
static uint32_t asked_for(uint32_t shard)
{
    for (size_t i = 0; i < got_count; i++)
        if (got[i].type == SYNC_DO_FETCH && got[i].key.kind == WIRE_RESULT && got[i].key.owner == shard)
            return got[i].member;
    return UINT32_MAX;
}

/* ---- a result that exists is not made again ---- */

/* Our disk is older than what we had published; who has it takes no part any more, so the round does not wait for it.
 */
static void a_result_that_somebody_shows_is_not_made_again(void **state)
{
    (void)state;
    for (int by_version = 0; by_version < 2; by_version++) {
        among(3, 0, 1, 4, (struct owner_rule){0});
        takes_part[2] = false;
        if (by_version)
            is_at(2, 5);
        else
            bitset_add(&said[2].results, 0);
        hear(2);
        contributes(1, 5);
        assert_null(ordered(SYNC_DO_REDUCE));
        tick(100);
        assert_null(ordered(SYNC_DO_REDUCE));
        tick(10000);
        assert_null(ordered(SYNC_DO_REDUCE));
        assert_int_equal(asked_for(0), 2);
        goes_away(2); /* with it the result, but it will be back */
        tick(10000);
        assert_null(ordered(SYNC_DO_REDUCE));
        ends(NULL);
    }
}

/* It is seen only while the new one is being made. */
static void a_result_that_turns_up_stops_the_one_being_made(void **state)
{
    (void)state;
    among(3, 0, 1, 4, (struct owner_rule){.quorum = 1, .grace_ms = 0});
    contributes(1, 5);
    assert_non_null(ordered(SYNC_DO_REDUCE));
    bitset_add(&said[2].results, 0);
    hear(2);
    happens((struct sync_event){.type = SYNC_EV_REDUCED});
    assert_null(ordered(SYNC_DO_STORE));
    tick(100);
    tick(10000);
    assert_int_equal(asked_for(0), 2);
    happens((struct sync_event){.type = SYNC_EV_STORED, .version = 5, .member = 2});
    assert_int_equal(sync_owner(sync, 0)->round, 6);
    ends(NULL);
}

/* A mean that came too late is not stored, and one that was stored too late is not sent. */
static void a_reduction_that_is_over_is_not_published(void **state)
{
    (void)state;
    for (int storing = 0; storing < 2; storing++) {
        among(3, 0, 1, 4, (struct owner_rule){.quorum = 1, .grace_ms = 0});
        contributes(1, 5);
        if (storing)
            happens((struct sync_event){.type = SYNC_EV_REDUCED});
        happens((struct sync_event){.type = SYNC_EV_STORED, .version = 5, .member = 2});
        assert_null(ordered(SYNC_DO_SEND)); /* it is not the one that our own job is at */
        assert_int_equal(sync_owner(sync, 0)->round, 6);
        happens((struct sync_event){.type = storing ? SYNC_EV_STORED : SYNC_EV_REDUCED, .version = 5});
        assert_null(ordered(SYNC_DO_STORE));
        assert_null(ordered(SYNC_DO_SEND));
        assert_int_equal(sync_owner(sync, 0)->round, 6);
        assert_int_equal(sync_owner(sync, 0)->state, OWNER_COLLECTING);
        ends(NULL);
    }
}

/* ---- who is waited for ---- */

static void being_away_is_no_abstention(void **state)
{
    (void)state;
    among(3, 0, 1, 4, (struct owner_rule){0});
    goes_away(2);
    contributes(1, 5);
    assert_null(ordered(SYNC_DO_REDUCE));
    tick(60000);
    assert_null(ordered(SYNC_DO_REDUCE));
    ends(NULL);
}

static void one_that_was_not_heard_is_waited_for(void **state)
{
    (void)state;
    among(3, 0, 1, 4, (struct owner_rule){0});
    takes_part[2] = false;
    hear(2);
    comes_up(2); /* again: what it said before is void */
    contributes(1, 5);
    tick(60000);
    assert_null(ordered(SYNC_DO_REDUCE));
    hear(2);
    assert_non_null(ordered(SYNC_DO_REDUCE));
    ends(NULL);
}

/* Its trainer is gone, but what it had sent before is on its way. */
static void what_was_contributed_is_waited_for(void **state)
{
    (void)state;
    among(3, 0, 1, 4, (struct owner_rule){0});
    said[2].contributed = 5;
    takes_part[2] = false;
    hear(2);
    contributes(1, 5);
    tick(60000);
    assert_null(ordered(SYNC_DO_REDUCE));
    contributes(2, 5);
    assert_non_null(ordered(SYNC_DO_REDUCE));
    ends(NULL);
}

static void a_contribution_to_another_round_is_passed_over(void **state)
{
    (void)state;
    struct wire_key key = {.kind = WIRE_CONTRIBUTION, .version = 4, .owner = 0, .island = 1};
    among(2, 0, 1, 4, (struct owner_rule){0});
    assert_int_equal(sync_wants(sync, &key, 1), SYNC_NOT_NEEDED);
    contributes(1, 4);
    assert_null(ordered(SYNC_DO_REDUCE));
    assert_true(bitset_empty(&sync_owner(sync, 0)->have));
    key.version = 6;
    assert_int_equal(sync_wants(sync, &key, 1), SYNC_NOT_YET);
    contributes(1, 6);
    assert_true(bitset_empty(&sync_owner(sync, 0)->have));
    ends(NULL);
}

static void another_base_is_told(void **state)
{
    (void)state;
    struct digest ours = hash_named('a', 4), other = hash_named('b', 4);
    among(2, 0, 1, 4, (struct owner_rule){0});
    assert_true(sync_base_agrees(sync, 0, 5, &ours));
    assert_false(sync_base_agrees(sync, 0, 5, &other));
    assert_true(sync_base_agrees(sync, 0, 6, &other)); /* not known yet */
    ends(NULL);
}

/* ---- fetching results ---- */

static void a_silent_holder_is_not_asked_for_ever(void **state)
{
    (void)state;
    uint64_t asked = 0;
    among(4, 3, 7, 4, (struct owner_rule){0});
    for (uint32_t i = 0; i < 3; i++) {
        is_at(i, 5);
        hear(i);
    }
    for (int k = 0; k < 6; k++) {
        for (int t = 0; t < 25; t++) {
            tick(100);
            if (asked_for(1) == UINT32_MAX)
                continue;
            assert_true(asked != 0 || asked_for(1) == 1); /* its owner first */
            asked |= (uint64_t)1 << asked_for(1);
        }
    }
    assert_int_equal(asked, 7);
    ends(NULL);
}

static void a_result_comes_from_its_owner(void **state)
{
    (void)state;
    struct wire_key key = result_key(5, 1);
    among(4, 3, 7, 4, (struct owner_rule){0});
    assert_int_equal(sync_wants(sync, &key, 1), SYNC_WANT);
    assert_int_equal(sync_wants(sync, &key, 0), SYNC_NOT_NEEDED);
    /* Another one says that it holds it: nobody but the owner is asked while that is there, and has none. */
    bitset_add(&said[0].results, 1);
    hear(0);
    for (int t = 0; t < 100; t++) {
        tick(100);
        assert_int_equal(asked_for(1), UINT32_MAX);
    }
    assert_int_equal(sync_wants(sync, &key, 0), SYNC_NOT_NEEDED);
    /* While the owner is away, whoever was asked may bring it, and nobody else. */
    goes_away(1);
    tick(2000);
    assert_int_equal(asked_for(1), 0);
    assert_int_equal(sync_wants(sync, &key, 0), SYNC_WANT);
    assert_int_equal(sync_wants(sync, &key, 2), SYNC_NOT_NEEDED);
    ends(NULL);
}

/* ---- what one member says ---- */

static void one_word_does_not_replace_a_state(void **state)
{
    (void)state;
    among(4, 3, 7, 4, (struct owner_rule){0});
    is_at(0, 4 + 17);
    hear(0);
    for (int t = 0; t < 200; t++) {
        tick(100);
        assert_int_not_equal(sync_state(sync, 0), SYNC_REPAIR);
    }
    assert_true(sync_version_max(sync, 0) <= 5);
    /* Nor does it lead the state that is fetched further than the others are. */
    is_at(1, 4 + 17);
    hear(1);
    is_at(0, (uint64_t)1 << 60);
    hear(0);
    tick(10000);
    assert_int_equal(sync_state(sync, 0), SYNC_REPAIR);
    assert_non_null(ordered(SYNC_DO_FETCH));
    assert_int_equal(ordered(SYNC_DO_FETCH)->member, 1);
    assert_int_equal(ordered(SYNC_DO_FETCH)->key.version, 21);
    ends(NULL);
}

static void not_available_is_believed_of_who_was_asked(void **state)
{
    (void)state;
    among(4, 3, 1, 4, (struct owner_rule){0});
    for (uint32_t i = 0; i < 3; i++)
        is_at(i, 6);
    hear(0);
    hear(1);
    hear(2);
    struct sync_event event = {.type = SYNC_EV_NOT_AVAILABLE, .member = 2, .key = result_key(5, 0)};
    happens(event);
    assert_int_not_equal(sync_state(sync, 0), SYNC_REPAIR); /* it was not asked */
    tick(100);
    tick(500);
    assert_int_equal(asked_for(0), 0);
    event.member = 0;
    happens(event);
    assert_int_not_equal(sync_state(sync, 0), SYNC_REPAIR); /* the others may have it */
    tick(100);
    assert_int_not_equal(asked_for(0), UINT32_MAX);
    assert_int_not_equal(asked_for(0), 0);
    event.member = asked_for(0);
    happens(event);
    tick(100);
    event.member = asked_for(0);
    assert_int_not_equal(event.member, UINT32_MAX);
    happens(event);
    tick(100);
    assert_int_equal(sync_state(sync, 0), SYNC_REPAIR); /* nobody has it: a state has to do */
    const struct sync_action *fetch = ordered(SYNC_DO_FETCH);
    assert_non_null(fetch);
    assert_int_equal(fetch->key.kind, WIRE_STATE);
    uint32_t source = fetch->member;
    event = (struct sync_event){.type = SYNC_EV_NOT_AVAILABLE, .member = (source + 1) % 3, .key = fetch->key};
    happens(event);
    tick(1000);
    assert_null(ordered(SYNC_DO_FETCH)); /* whoever said so was not asked */
    event.member = source;
    happens(event);
    tick(1000);
    assert_non_null(ordered(SYNC_DO_FETCH));
    ends(NULL);
}

/* ---- what was refused ---- */

static struct wire_key contribution_key(uint64_t version, uint32_t shard, uint32_t island)
{
    return (struct wire_key){.kind = WIRE_CONTRIBUTION, .version = version, .owner = shard, .island = island};
}

static void turned_down(uint32_t member, const struct wire_key *key)
{
    happens((struct sync_event){.type = SYNC_EV_TURNED_DOWN, .member = member, .key = *key});
}

/* Ticks until our contribution goes to somebody again; how long that took. */
static uint64_t offered_again_after(uint32_t member)
{
    for (uint64_t waited_ms = 100; waited_ms <= 200000; waited_ms += 100) {
        tick(100);
        const struct sync_action *send = ordered(SYNC_DO_SEND);
        if (send == NULL)
            continue;
        assert_int_equal(send->member, member);
        assert_int_equal(send->key.kind, WIRE_CONTRIBUTION);
        assert_int_equal(send->key.owner, member);
        return waited_ms;
    }
    return UINT64_MAX;
}

static void what_was_refused_is_offered_again(void **state)
{
    (void)state;
    struct wire_key key = contribution_key(5, 1, 3);
    uint64_t last_ms = 0;
    among(4, 3, 7, 4, (struct owner_rule){0});
    we_contribute();
    assert_int_equal(offered_again_after(1), UINT64_MAX); /* it was not refused */
    for (int k = 0; k < 8; k++) {
        turned_down(1, &key);
        uint64_t waited_ms = offered_again_after(1);
        assert_in_range(waited_ms, last_ms, 61000); /* less and less often */
        last_ms = waited_ms;
    }
    assert_in_range(last_ms, 30000, 61000);
    /* Its owner has mended itself: at once. */
    turned_down(1, &key);
    said[1].hash = hash_named('b', 4);
    hear(1);
    said[1].hash = hash_named('a', 4);
    hear(1);
    assert_in_range(offered_again_after(1), 0, 200);
    ends(NULL);
}

static void a_refusal_of_something_else_means_nothing(void **state)
{
    (void)state;
    struct wire_key others[] = {contribution_key(4, 1, 3), contribution_key(5, 2, 3), contribution_key(5, 1, 0),
                                result_key(5, 1), contribution_key(5, 1, 3)};
    others[4].fragment = 1;
    among(4, 3, 7, 4, (struct owner_rule){0});
    turned_down(1, &(struct wire_key){.kind = WIRE_CONTRIBUTION, .version = 5, .owner = 1, .island = 3});
    assert_int_equal(offered_again_after(1), UINT64_MAX); /* nothing of ours is on its way */
    we_contribute();
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        turned_down(1, &others[i]);
    assert_int_equal(offered_again_after(1), UINT64_MAX);
    ends(NULL);
}

/* Whose contribution an owner refused, and took, before it found that its own state was wrong. */
static void an_owner_that_has_repaired_forgets_whom_it_refused(void **state)
{
    (void)state;
    struct digest good = hash_named('a', 4), wrong = hash_named('b', 4);
    among(3, 0, 1, 4, (struct owner_rule){0});
    sync_restore(sync, 0, 4, &wrong, &(struct bitset){{0}});
    we_contribute();
    happens((struct sync_event){.type = SYNC_EV_CONTRIBUTION_REFUSED, .member = 1, .version = 5});
    assert_true(bitset_has(&sync_owner(sync, 0)->refused, 1));
    happens((struct sync_event){.type = SYNC_EV_LOST, .member = 1});
    assert_int_equal(sync_state(sync, 0), SYNC_REPAIR);
    happens((struct sync_event){.type = SYNC_EV_INSTALLED, .version = 4, .hash = good});
    assert_true(bitset_empty(&sync_owner(sync, 0)->refused));
    assert_true(bitset_empty(&sync_owner(sync, 0)->have)); /* our own was made from the wrong state */
    contributes(2, 5);
    tick(60000);
    assert_null(ordered(SYNC_DO_REDUCE)); /* member 1 is to come again, and so are we */
    ends(NULL);
}

/* ---- whose state is right ---- */

static void says_other(uint32_t member, char name)
{
    said[member].hash = hash_named(name, said[member].version);
    hear(member);
}

static void our_disk_says(const struct digest *hash)
{
    enum sync_event_type type = hash != NULL ? SYNC_EV_REPLAYED : SYNC_EV_UNPROVEN;
    happens((struct sync_event){
        .type = type, .version = sync_own(sync, 0).version, .hash = hash ? *hash : (struct digest){{0}}});
}

/* Island 0 of two was damaged: not the lower number is right, but what our disk confirms. */
static void nobody_is_believed_before_our_own_disk(void **state)
{
    (void)state;
    struct digest ours = hash_named('a', 4);
    among(2, 1, 3, 4, (struct owner_rule){0});
    we_contribute();
    says_other(0, 'b');
    assert_non_null(ordered(SYNC_DO_REPLAY));
    assert_int_equal(ordered(SYNC_DO_REPLAY)->version, 4);
    assert_true(sync_in_doubt(sync, 0));
    happens((struct sync_event){.type = SYNC_EV_CONTRIBUTION_REFUSED, .member = 0, .version = 5});
    tick(1000);
    assert_null(ordered(SYNC_DO_REDUCE)); /* not without the other, who may be right */
    says_other(0, 'b');
    assert_null(ordered(SYNC_DO_REPLAY)); /* once is enough */
    our_disk_says(&ours);
    assert_null(ordered(SYNC_DO_REDUCE)); /* the other asks its own disk */
    assert_false(sync_in_doubt(sync, 0));
    now_ms += 20000;
    says_other(0, 'b');
    assert_int_equal(sync_state(sync, 0), SYNC_CONTRIBUTED);
    assert_non_null(reported(SYNC_REPORT_PEER_DIVERGED));
    says_other(0, 'a'); /* it has mended itself */
    assert_non_null(ordered(SYNC_DO_REDUCE));
    assert_int_equal(sync_state(sync, 0), SYNC_CONTRIBUTED);
    ends(NULL);
}

/* Both disks confirm what they hold: that cannot be, but two that go different ways for ever would be worse. Nobody
 * closes a round before the smaller side has had time to give way, or they would part again at the next version. */
static void of_two_confirmed_states_one_is_taken_in_the_end(void **state)
{
    (void)state;
    struct digest ours = hash_named('a', 4);
    for (uint32_t self = 0; self < 2; self++) {
        among(2, self, 3, 4, (struct owner_rule){0});
        we_contribute();
        says_other(1 - self, 'b');
        happens((struct sync_event){.type = SYNC_EV_CONTRIBUTION_REFUSED, .member = 1 - self, .version = 5});
        our_disk_says(&ours);
        now_ms += 29000;
        says_other(1 - self, 'b');
        assert_int_not_equal(sync_state(sync, 0), SYNC_REPAIR);
        tick(11000);
        assert_null(ordered(SYNC_DO_REDUCE));
        says_other(1 - self, 'b');
        assert_int_equal(sync_state(sync, 0) == SYNC_REPAIR, self == 1);
        if (self == 0) {
            tick(20000);
            assert_non_null(ordered(SYNC_DO_REDUCE));
        }
        ends(NULL);
    }
}

static void who_was_damaged_mends_itself_from_its_own_disk(void **state)
{
    (void)state;
    struct digest right = hash_named('b', 4);
    among(2, 0, 3, 4, (struct owner_rule){0});
    says_other(1, 'b');
    our_disk_says(&right);
    assert_non_null(reported(SYNC_REPORT_DAMAGED));
    assert_non_null(ordered(SYNC_DO_MEND));
    assert_null(ordered(SYNC_DO_FETCH));
    assert_int_equal(sync_state(sync, 0), SYNC_REPAIR);
    tick(60000);
    assert_null(ordered(SYNC_DO_FETCH));
    happens((struct sync_event){.type = SYNC_EV_INSTALLED, .version = 4, .hash = right});
    assert_int_equal(sync_state(sync, 0), SYNC_LISTENING);
    says_other(1, 'b');
    assert_null(ordered(SYNC_DO_REPLAY));
    ends(NULL);
}

static void a_disk_that_fails_at_mending_is_no_end(void **state)
{
    (void)state;
    struct digest right = hash_named('b', 4);
    among(2, 0, 3, 4, (struct owner_rule){0});
    says_other(1, 'b');
    our_disk_says(&right);
    our_disk_says(NULL);
    tick(100);
    assert_non_null(ordered(SYNC_DO_FETCH));
    assert_int_equal(ordered(SYNC_DO_FETCH)->member, 1);
    ends(NULL);
}

/* Where disks cannot tell, more than half of the others; of equal sides the one without the lowest member at once, the
 * other one after a while, so that not both take each other's. */
static void where_disks_cannot_tell_most_of_the_others_are_right(void **state)
{
    (void)state;
    among(4, 3, 15, 4, (struct owner_rule){0});
    says_other(0, 'b');
    our_disk_says(NULL);
    says_other(0, 'b');
    assert_int_not_equal(sync_state(sync, 0), SYNC_REPAIR); /* one of three */
    says_other(1, 'b');
    assert_int_equal(sync_state(sync, 0), SYNC_REPAIR);
    assert_non_null(reported(SYNC_REPORT_DIVERGED));
    ends(NULL);
    for (uint32_t self = 0; self < 2; self++) {
        among(2, self, 3, 4, (struct owner_rule){0});
        says_other(1 - self, 'b');
        our_disk_says(NULL);
        says_other(1 - self, 'b');
        assert_int_equal(sync_state(sync, 0) == SYNC_REPAIR, self == 1);
        now_ms += 30000;
        says_other(1 - self, 'b');
        assert_int_equal(sync_state(sync, 0), SYNC_REPAIR);
        ends(NULL);
    }
}

/* What our disk confirms gives way at once to most of all members alone. */
static void a_confirmed_state_gives_way_to_most_of_all(void **state)
{
    (void)state;
    struct digest ours = hash_named('a', 4);
    among(4, 3, 15, 4, (struct owner_rule){0});
    for (uint32_t i = 0; i < 3; i++) {
        says_other(i, 'b');
        if (i == 0)
            our_disk_says(&ours);
        says_other(i, 'b');
        assert_int_equal(sync_state(sync, 0) == SYNC_REPAIR, i == 2);
    }
    ends(NULL);
}

/* A state of a version that is over, or an answer to nothing. */
static void an_answer_too_late_means_nothing(void **state)
{
    (void)state;
    struct digest other = hash_named('c', 4);
    among(2, 1, 1, 4, (struct owner_rule){0});
    our_disk_says(&other);
    assert_int_not_equal(sync_state(sync, 0), SYNC_REPAIR);
    says_other(0, 'b');
    happens((struct sync_event){.type = SYNC_EV_STORED, .version = 5, .owner = 0, .member = 0});
    happens((struct sync_event){.type = SYNC_EV_APPLIED, .hash = hash_named('a', 5)});
    happens((struct sync_event){.type = SYNC_EV_REPLAYED, .version = 4, .hash = other});
    assert_int_not_equal(sync_state(sync, 0), SYNC_REPAIR);
    ends(NULL);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_result_that_somebody_shows_is_not_made_again, ends),
        cmocka_unit_test_teardown(a_result_that_turns_up_stops_the_one_being_made, ends),
        cmocka_unit_test_teardown(a_reduction_that_is_over_is_not_published, ends),
        cmocka_unit_test_teardown(being_away_is_no_abstention, ends),
        cmocka_unit_test_teardown(one_that_was_not_heard_is_waited_for, ends),
        cmocka_unit_test_teardown(what_was_contributed_is_waited_for, ends),
        cmocka_unit_test_teardown(a_contribution_to_another_round_is_passed_over, ends),
        cmocka_unit_test_teardown(another_base_is_told, ends),
        cmocka_unit_test_teardown(a_silent_holder_is_not_asked_for_ever, ends),
        cmocka_unit_test_teardown(a_result_comes_from_its_owner, ends),
        cmocka_unit_test_teardown(one_word_does_not_replace_a_state, ends),
        cmocka_unit_test_teardown(not_available_is_believed_of_who_was_asked, ends),
        cmocka_unit_test_teardown(what_was_refused_is_offered_again, ends),
        cmocka_unit_test_teardown(a_refusal_of_something_else_means_nothing, ends),
        cmocka_unit_test_teardown(an_owner_that_has_repaired_forgets_whom_it_refused, ends),
        cmocka_unit_test_teardown(nobody_is_believed_before_our_own_disk, ends),
        cmocka_unit_test_teardown(of_two_confirmed_states_one_is_taken_in_the_end, ends),
        cmocka_unit_test_teardown(who_was_damaged_mends_itself_from_its_own_disk, ends),
        cmocka_unit_test_teardown(a_disk_that_fails_at_mending_is_no_end, ends),
        cmocka_unit_test_teardown(where_disks_cannot_tell_most_of_the_others_are_right, ends),
        cmocka_unit_test_teardown(a_confirmed_state_gives_way_to_most_of_all, ends),
        cmocka_unit_test_teardown(an_answer_too_late_means_nothing, ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
