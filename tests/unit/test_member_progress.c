/* SPDX-License-Identifier: Apache-2.0 */
/* member_progress: whom somebody put out of the run stays out as long as its trainer stands, whoever it is that
 * proposes. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <string.h>

#include "common/digest.h"
#include "common/mem.h"
#include "net/membership/member_progress.h"
#include "net/membership/change_requests.h"
#include "net/membership/order_pool.h"
#include "tests/lib/sample_configs.h"

enum { A, B, C, ISLANDS };

static struct config_log *config_log;
static struct view view;
static struct member_progress progress;
static struct change_requests requests;
static struct order_pool *orders;
static struct voting_disk disk;
static uint64_t now_ms;

static void take_config(struct config config)
{
    struct view_changes changes;
    struct digest digest = configs_digest(&config);
    assert_ok(config_log_add(config_log, &config, &digest));
    assert_ok(view_update(&view, config_log_last(config_log), &digest, configs_ident(A)->key, &changes));
    member_progress_begin(&progress, now_ms);
    change_requests_fulfil(&requests, &progress, config_log_last(config_log));
}

static enum err number(void *user, uint64_t least, uint64_t *out)
{
    assert_null(user);
    *out = least;
    return ERR_OK;
}

/* We are a, and hear the others. */
static void begin_by(struct config config)
{
    now_ms = 1000;
    disk = (struct voting_disk){.doubt = VOTE_SURE};
    assert_ok(config_log_new(&config_log));
    assert_ok(view_init(NULL, 0, &view));
    assert_ok(member_progress_init(&view, config_log, &disk, &progress));
    memset(&requests, 0, sizeof requests);
    assert_ok(order_pool_new(&(struct order_pool_conf){.number = number}, &orders));
    take_config(config);
    assert_int_equal(view.self, A);
    for (uint32_t i = B; i < config.members_count; i++)
        progress.seat[i].up = true;
}

static void begin(void)
{
    begin_by(configs_first(ISLANDS, false));
}

static void end(void)
{
    member_progress_deinit(&progress);
    order_pool_free(orders);
    view_free(&view);
    config_log_free(config_log);
}

/* What an island's heartbeat says of its trainer, which is at this step. */
static void trains(uint32_t i, uint64_t step)
{
    struct wire_heartbeat beat = {.taking_part = true, .step = step};
    if (i == A)
        member_progress_said(&progress, &beat, now_ms);
    else
        member_progress_heard(&progress, i, &beat, now_ms);
}

static void is_away(uint32_t i)
{
    struct config next = configs_next(config_log_last(config_log));
    next.members[i].role = CONFIG_AWAY;
    take_config(next);
}

/* By an order, of which nothing but the kind is looked at here. */
static void is_put_out(uint32_t i)
{
    struct config next = configs_next(config_log_last(config_log));
    next.members[i].role = CONFIG_AWAY;
    if (next.orders == NULL)
        assert_ok(mem_new(1, sizeof *next.orders, "orders", &next.orders));
    next.orders[0] = (struct order){.kind = ORDER_EVICT, .subject = next.members[i].id, .number = 1};
    next.orders_count = 1;
    take_config(next);
}

static void gather(struct change_request **all, uint32_t *count)
{
    static struct wanted_changes wanted;
    assert_ok(change_requests_wanted(&progress, orders, WANTED_REASONS, &wanted));
    assert_ok(change_requests_gather(&requests, &progress, &wanted, all, count));
}

static void who_was_put_out_stays_out_while_its_trainer_stands(void **state)
{
    (void)state;
    for (uint32_t i = A; i < ISLANDS; i++) {
        begin();
        trains(i, 7);
        is_put_out(i);
        for (uint32_t k = A; k < ISLANDS; k++)
            assert_int_equal(member_progress_kept_out(&progress, k), k == i);
        now_ms += 1000;
        trains(i, 8); /* on its way before it stood */
        for (int k = 0; k < 60; k++) {
            now_ms += 1000;
            trains(i, 8);
            assert_true(member_progress_kept_out(&progress, i));
        }
        trains(i, 9);
        assert_false(member_progress_kept_out(&progress, i));
        end();
    }
}

/* Trainers stand by order: that says nothing of one. */
static void in_a_paused_run_nobody_is_kept_out(void **state)
{
    (void)state;
    begin();
    trains(B, 7);
    is_put_out(B);
    assert_true(member_progress_kept_out(&progress, B));
    struct config next = configs_next(config_log_last(config_log));
    next.paused = true;
    take_config(next);
    assert_false(member_progress_kept_out(&progress, B));
    end();
}

/* Somebody else, who knows better or less, let it in. */
static void who_is_in_again_is_not_put_out_for_what_was(void **state)
{
    (void)state;
    for (uint32_t i = A; i < ISLANDS; i++) {
        begin();
        trains(i, 7);
        is_put_out(i);
        assert_true(member_progress_kept_out(&progress, i));
        struct config next = configs_next(config_log_last(config_log));
        next.members[i].role = CONFIG_OWNER;
        take_config(next);
        trains(i, 7);
        assert_false(member_progress_kept_out(&progress, i));
        end();
    }
}

/* Its word was signed by the key before, and comes again by the new one, maybe with the same number. */
static void who_has_another_key_has_said_nothing_yet(void **state)
{
    (void)state;
    begin();
    progress.seat[B].said = progress.seat[C].said = true;
    take_config(configs_next(config_log_last(config_log)));
    assert_true(progress.seat[B].said && progress.seat[C].said);
    struct config next = configs_next(config_log_last(config_log));
    memcpy(next.members[B].next_key, configs_ident(40)->key, IDENT_KEY_BYTES);
    take_config(next);
    assert_true(progress.seat[B].said && progress.seat[C].said);
    next = configs_next(config_log_last(config_log));
    assert_ok(mem_new(1, sizeof *next.orders, "orders", &next.orders));
    next.orders[0] = (struct order){.kind = ORDER_REKEY, .signer = A, .subject = B, .number = 1};
    memcpy(next.orders[0].key, configs_ident(40)->key, IDENT_KEY_BYTES);
    next.orders_count = 1;
    memcpy(next.members[B].key, configs_ident(40)->key, IDENT_KEY_BYTES);
    memset(next.members[B].next_key, 0, IDENT_KEY_BYTES);
    take_config(next);
    assert_false(progress.seat[B].said);
    assert_true(progress.seat[C].said);
    end();
}

static void who_is_back_catches_up_unless_somebody_wishes_otherwise(void **state)
{
    (void)state;
    begin();
    assert_false(change_requests_catches_up(&requests, &progress, B)); /* it takes part */
    bitset_add(&progress.lost, B);
    is_away(B);
    assert_false(change_requests_catches_up(&requests, &progress, B));
    bitset_remove(&progress.lost, B);
    assert_true(change_requests_catches_up(&requests, &progress, B));
    progress.seat[B].up = false;
    assert_false(change_requests_catches_up(&requests, &progress, B));
    progress.seat[B].up = true;
    struct seat *seat = &progress.seat[B];
    seat->said = true;
    bool *const against[] = {&seat->broke_word, &seat->word.draining, &seat->disk_fails};
    for (size_t k = 0; k < sizeof against / sizeof against[0]; k++) {
        *against[k] = true;
        assert_false(change_requests_catches_up(&requests, &progress, B));
        *against[k] = false;
    }
    trains(B, 7);
    member_progress_put_out(&progress, B);
    assert_false(change_requests_catches_up(&requests, &progress, B)); /* its trainer stands */
    end();
}

/* Of itself: it hears a majority, which hears it. */
static void who_is_alone_does_not_take_itself_for_back(void **state)
{
    (void)state;
    begin();
    bitset_add(&progress.lost, A);
    is_away(A);
    bitset_remove(&progress.lost, A);
    assert_true(change_requests_catches_up(&requests, &progress, A));
    progress.seat[B].up = progress.seat[C].up = false;
    assert_false(change_requests_catches_up(&requests, &progress, A));
    end();
}

static void tick(uint64_t ms)
{
    now_ms += ms;
    progress.now_ms = now_ms;
}

/* It hangs, say, so that nobody hears it, and its away time is not over. */
static void whom_an_order_puts_out_goes_though_nobody_hears_it(void **state)
{
    (void)state;
    begin();
    struct order what = {.kind = ORDER_EVICT, .subject = view.members[C].as.id};
    struct change_request *all;
    uint32_t count;
    progress.seat[C].up = false;
    gather(&all, &count);
    assert_int_equal(count, ISLANDS - 1); /* of c nothing is known */
    mem_free(all);
    assert_ok(order_pool_give(orders, configs_ident(A), config_log_last(config_log), view.members[A].as.id, &what,
                              now_ms, NULL));
    gather(&all, &count);
    assert_int_equal(count, ISLANDS);
    assert_true(all[C].unheard);
    mem_free(all);
    end();
}

/* It is out for as long as it drains; then it may come back, though nothing else has changed. */
static void who_was_evicted_while_it_drained_comes_back_when_it_resumes(void **state)
{
    (void)state;
    begin();
    progress.seat[B].said = true;
    progress.seat[B].word.draining = true;
    is_put_out(B);
    trains(B, 1);
    tick(6000);
    trains(B, 2); /* it does not hang */
    assert_false(member_progress_kept_out(&progress, B));
    assert_false(change_requests_catches_up(&requests, &progress, B));
    progress.seat[B].word.draining = false;
    assert_true(change_requests_catches_up(&requests, &progress, B));
    end();
}

/* Nobody asked for it. */
static void who_was_lost_comes_back_at_once(void **state)
{
    (void)state;
    for (uint32_t i = A; i < ISLANDS; i++) {
        begin();
        trains(i, 7);
        bitset_add(&progress.lost, i);
        is_away(i);
        assert_false(member_progress_kept_out(&progress, i));
        end();
    }
}

/* Whoever was away when the configuration was made, be it the member itself, has not seen that it was lost. */
static void who_was_lost_unseen_comes_back_at_once(void **state)
{
    (void)state;
    for (uint32_t i = A; i < ISLANDS; i++) {
        begin();
        trains(i, 7);
        struct config next = configs_next(config_log_last(config_log));
        next.members[i].role = CONFIG_AWAY;
        next.members[i].losses++;
        take_config(next);
        assert_false(member_progress_kept_out(&progress, i));
        end();
    }
}

/* Nobody wished that either: its configuration waits until it has caught up, its trainer may be as quick as it likes.
 * But one may have been asked to go beside that. */
static void whose_disk_is_in_doubt_was_not_put_out(void **state)
{
    (void)state;
    for (uint32_t i = A; i < ISLANDS; i++) {
        for (int asked = 0; asked < 2; asked++) {
            struct wire_heartbeat beat = {.taking_part = true, .step = 7, .in_doubt = true, .incarnation = 77};
            begin();
            if (i == A)
                disk.doubt = VOTE_DOUBT;
            else
                member_progress_heard(&progress, i, &beat, now_ms);
            member_progress_said(&progress, &beat, now_ms);
            if (asked != 0)
                is_put_out(i);
            else
                is_away(i);
            assert_int_equal(member_progress_kept_out(&progress, i), asked != 0);
            end();
        }
    }
}

/* One of two owners whose line is cut stands back, when that has lasted: until then one of them may be gone, which the
 * others need time to miss. */
static void an_owner_stands_back_when_it_has_lasted(void **state)
{
    (void)state;
    const struct bitset nobody = {{0}};
    begin();
    uint64_t begun_ms = now_ms;
    bool partitioned = false;
    for (; !partitioned && now_ms < begun_ms + 60000; now_ms += 100) {
        struct wire_heartbeat beat = {.taking_part = true, .silent_count = 1, .silent = {view.members[C].as.id}};
        member_progress_heard(&progress, B, &beat, now_ms);
        member_progress_tick(&progress, &nobody, now_ms);
        partitioned = member_progress_partitioned(&progress, B) || member_progress_partitioned(&progress, C);
    }
    assert_true(partitioned);
    assert_false(member_progress_partitioned(&progress, B) &&
                 member_progress_partitioned(&progress, C)); /* the run keeps one of them */
    assert_in_range(now_ms - begun_ms, 3000, 4000);
    struct wire_heartbeat beat = {.taking_part = true};
    member_progress_heard(&progress, B, &beat, now_ms);
    member_progress_tick(&progress, &nobody, now_ms + 1000);
    assert_false(member_progress_partitioned(&progress, B) || member_progress_partitioned(&progress, C));
    end();
}

/* For a witness nobody stands back: it makes no results. */
static void who_stands_back_is_cut_off_from_an_owner(void **state)
{
    (void)state;
    enum { WITNESS = B, D = ISLANDS };
    const struct bitset nobody = {{0}};
    struct config config = configs_first(4, false);
    config.members[WITNESS].role = CONFIG_WITNESS;
    begin_by(config);
    for (uint64_t end_ms = now_ms + 5000; now_ms < end_ms; now_ms += 100) {
        const struct wire_heartbeat beat = {
            .taking_part = true, .silent_count = 2, .silent = {view.members[WITNESS].as.id, view.members[C].as.id}};
        member_progress_heard(&progress, D, &beat, now_ms);
        member_progress_tick(&progress, &nobody, now_ms);
    }
    assert_true(member_progress_partitioned(&progress, D));
    assert_int_equal(member_progress_partitioned_from(&progress, D), C);
    end();
}

/* Then the one that stayed is gone: at no moment are both out, or nobody would own anything. */
static void nobody_stands_back_for_one_that_is_just_lost(void **state)
{
    (void)state;
    struct bitset deaf = {{0}};
    begin();
    uint64_t begun_ms = now_ms;
    uint32_t stays = VIEW_NOBODY;
    for (; now_ms < begun_ms + 10000; now_ms += 10) {
        for (uint32_t i = B; i <= C; i++) {
            struct wire_heartbeat beat = {
                .taking_part = true, .silent_count = 1, .silent = {view.members[B + C - i].as.id}};
            member_progress_heard(&progress, i, &beat, now_ms);
        }
        if (now_ms == begun_ms + 5010) {
            stays = member_progress_partitioned(&progress, B) ? C : B;
            assert_true(member_progress_partitioned(&progress, B + C - stays));
            bitset_add(&deaf, stays);
        }
        member_progress_tick(&progress, &deaf, now_ms);
        bool lost = stays != VIEW_NOBODY && member_progress_silent(&progress, stays);
        assert_int_equal(lost, now_ms >= begun_ms + 5010);
        assert_false(lost && member_progress_partitioned(&progress, B + C - stays));
    }
    end();
}

/* It makes no result, and what it would acknowledge it cannot keep: as good as lost, to itself as well. */
static void whose_disk_keeps_nothing_is_as_good_as_lost(void **state)
{
    (void)state;
    for (uint32_t i = A; i < ISLANDS; i++) {
        for (int fails = 1; fails >= 0; fails--) {
            struct wire_heartbeat beat = {.taking_part = true, .disk_fails = fails != 0};
            struct change_request *all;
            uint32_t count;
            begin();
            disk = (struct voting_disk){.doubt = VOTE_FRESH, .incarnation = 1};
            if (i == A)
                member_progress_said(&progress, &beat, now_ms);
            else
                member_progress_heard(&progress, i, &beat, now_ms);
            assert_int_equal(member_progress_voters_heard(&progress), ISLANDS);
            assert_int_equal(member_progress_voters_able(&progress), ISLANDS - fails);
            gather(&all, &count);
            assert_int_equal(count, ISLANDS);
            for (uint32_t k = A; k < ISLANDS; k++)
                assert_int_equal(all[k].silent, k == i && fails != 0);
            mem_free(all);
            end();
        }
    }
}

/* Each turn costs an epoch: what it says is believed at once when it keeps nothing, and of the other only so many. */
static void a_disk_that_fails_by_turns_is_believed_now_and_then(void **state)
{
    (void)state;
    uint32_t mended = 0, tries = 0;
    begin();
    for (uint64_t end_ms = now_ms + 3600 * 1000; now_ms < end_ms; now_ms += 2000, tries++) {
        member_progress_heard(&progress, B, &(struct wire_heartbeat){.taking_part = true, .disk_fails = true}, now_ms);
        assert_true(member_progress_disk_fails(&progress, B));
        member_progress_heard(&progress, B, &(struct wire_heartbeat){.taking_part = true}, now_ms + 1000);
        mended += !member_progress_disk_fails(&progress, B);
        if (tries < 4)
            assert_int_equal(mended, tries + 1);
    }
    assert_in_range(mended, 8, 10); /* an hour */
    end();
}

/* By which name the next configuration would have the disk of b. */
static uint64_t to_be_named(void)
{
    struct change_request *all;
    uint32_t count;
    gather(&all, &count);
    uint64_t incarnation = all[B].incarnation;
    mem_free(all);
    return incarnation;
}

/* What it says from before a configuration may be of the disk before the one that this configuration names. */
static void an_older_word_names_no_disk(void **state)
{
    (void)state;
    enum { FIRST = 77, SECOND = 78, LONG_MS = 10000 };
    struct wire_heartbeat beat = {.taking_part = true, .in_doubt = true, .incarnation = FIRST};
    const struct bitset nobody = {{0}};
    begin();
    member_progress_heard(&progress, B, &beat, now_ms);
    assert_int_equal(to_be_named(), view.members[B].as.incarnation); /* it may find that it was never in doubt */
    member_progress_tick(&progress, &nobody, now_ms += LONG_MS);
    assert_int_equal(to_be_named(), FIRST);
    struct config next = configs_next(config_log_last(config_log));
    next.members[B].incarnation = SECOND;
    take_config(next);
    member_progress_tick(&progress, &nobody, now_ms += LONG_MS);
    assert_int_equal(to_be_named(), SECOND);
    beat.epoch = view.epoch;
    member_progress_heard(&progress, B, &beat, now_ms);
    member_progress_tick(&progress, &nobody, now_ms += LONG_MS);
    assert_int_equal(to_be_named(), FIRST);
    end();
}

/* As the member's heartbeat says it of the only fragment there is. */
static void says(uint32_t i, uint64_t version, const struct digest *hash)
{
    static struct wire_heartbeat beat;
    beat = (struct wire_heartbeat){.fragments_count = 1};
    beat.fragments[0] = (struct wire_fragment){.at.version = version, .at.hash_known = hash != NULL};
    if (hash != NULL)
        beat.fragments[0].at.hash = *hash;
    sync_step(progress.sync, &(struct sync_event){.type = SYNC_EV_HEARTBEAT, .member = i, .beat = &beat}, now_ms);
    for (struct sync_action action; sync_action(progress.sync, &action);)
        ;
}

/* Of one fragment, which we hold at `version`. */
static struct sync *know_plan(uint64_t version, const struct digest *hash)
{
    static const uint32_t shards[] = {1};
    static uint32_t ids[ISLANDS];
    struct sync *sync;
    struct sync_conf conf = {.config_log = config_log, .fragments_count = 1, .shards_counts = shards};
    conf.view.slots = config_log_last(config_log)->members_count;
    for (uint32_t i = A; i < conf.view.slots; i++) {
        ids[i] = view.members[i].as.id;
        bitset_add(&conf.view.members, i);
        bitset_add(&conf.view.keepers, i);
    }
    conf.view.epoch = view.epoch;
    conf.view.self = A;
    conf.view.ids = ids;
    conf.view.commit_quorum = config_commit_quorum(config_log_last(config_log));
    assert_ok(sync_new(&conf, &sync));
    sync_restore(sync, 0, version, hash);
    assert_ok(member_progress_plan_known(&progress, sync, 1));
    return sync;
}

/* The same number is not the same state: of another one nothing goes on. */
static void who_holds_another_state_of_the_version_has_not_caught_up(void **state)
{
    (void)state;
    const struct digest run = digest_of("run", 3), own = digest_of("own", 3);
    begin();
    struct sync *sync = know_plan(0, &run);
    sync_step(sync, &(struct sync_event){.type = SYNC_EV_PEER_UP, .member = B}, now_ms);
    says(B, 0, NULL);
    assert_false(member_progress_caught_up(&progress, B));
    says(B, 0, &own);
    assert_false(member_progress_caught_up(&progress, B));
    says(B, 0, &run);
    assert_true(member_progress_caught_up(&progress, B));
    sync_free(sync);
    end();
}

static bool wants_change(uint64_t at_ms)
{
    progress.now_ms = at_ms;
    bitset_add(&progress.lost, B);
    return change_requests_change(&requests, &progress, orders);
}

/* Others hear b, and do not agree that it is lost: then they have their turn. */
static void what_came_to_nothing_is_no_reason_again_at_once(void **state)
{
    (void)state;
    const struct digest run = digest_of("run", 3);
    struct change_request *all;
    uint32_t count;
    begin();
    struct sync *sync = know_plan(0, &run);
    assert_true(wants_change(now_ms));
    for (uint64_t tries = 1; tries <= 3; tries++) {
        gather(&all, &count); /* we compose */
        mem_free(all);
        now_ms += 100000;
        take_config(configs_next(config_log_last(config_log)));
        assert_false(wants_change(now_ms));
        assert_false(wants_change(now_ms + (2000u << tries) - 1));
        assert_true(wants_change(now_ms + (2000u << tries)));
    }
    now_ms += 100000;
    take_config(configs_next(config_log_last(config_log))); /* another one's says nothing of our reasons */
    assert_false(wants_change(now_ms + 1));
    progress.seat[C].said = true;
    progress.seat[C].word = (struct member_word){.number = 9, .uplink = 99, .draining = true};
    member_word_sign(configs_ident(C), config_log_last(config_log)->nonce, view.members[C].as.id,
                     &progress.seat[C].word);
    assert_true(wants_change(now_ms + 1)); /* another reason */
    sync_free(sync);
    end();
}

/* We compose, and this is decided: our own proposal, or another's. It says nothing new. */
static void decide_idle(bool ours)
{
    struct change_request *all;
    uint32_t count;
    gather(&all, &count);
    mem_free(all);
    now_ms += 100000;
    struct config next = configs_next(config_log_last(config_log)), other = configs_next(config_log_last(config_log));
    other.steps++;
    struct digest proposed = configs_digest(ours ? &next : &other);
    change_requests_proposed(&requests, &proposed);
    config_deinit(&other);
    const struct config *before = config_log_last(config_log);
    uint64_t epoch = before->epoch;
    take_config(next);
    order_pool_begin(orders, configs_ident(A), config_log_at(config_log, epoch), config_log_last(config_log), now_ms);
}

/* Whoever proposes first may leave it out: that says nothing of what comes of it by a proposal of ours. */
static void an_order_that_another_one_left_out_is_a_reason_again_at_once(void **state)
{
    (void)state;
    const struct digest run = digest_of("run", 3);
    const struct order longer = {.kind = ORDER_STEPS, .value = 4321};
    begin();
    struct sync *sync = know_plan(0, &run);
    const struct config *config = config_log_last(config_log);
    assert_ok(order_pool_give(orders, configs_ident(A), config, view.members[A].as.id, &longer, now_ms, NULL));
    assert_true(wants_change(now_ms));
    for (int times = 0; times < 5; times++) {
        decide_idle(false);
        assert_true(wants_change(now_ms + 1));
    }
    decide_idle(true); /* it comes to nothing by our own as well */
    assert_false(wants_change(now_ms + 1));
    assert_true(wants_change(now_ms + 4000));
    sync_free(sync);
    end();
}

/* Its word of another number than the configuration's; `draining`: else it says the same. */
static void says_by(uint32_t i, uint64_t number, bool draining)
{
    const struct config *config = config_log_last(config_log);
    const struct config_member *as = &config->members[i];
    struct member_word word = {.number = number,
                               .uplink = as->uplink,
                               .owner_choice = as->owner_choice,
                               .draining = draining,
                               .units = as->units};
    snprintf(word.address, sizeof word.address, "%s", as->address);
    member_word_sign(configs_ident(i), config->nonce, as->id, &word);
    progress.seat[i].said = true;
    progress.seat[i].word = word;
}

static bool is_reason(uint64_t at_ms)
{
    progress.now_ms = at_ms;
    return change_requests_change(&requests, &progress, orders);
}

static void take_word_of(uint32_t i, uint64_t number)
{
    struct config next = configs_next(config_log_last(config_log));
    next.members[i].word = number;
    take_config(next);
}

/* A key that was taken back before any configuration had it may be ordered until one has the later word. Yet whoever
 * says ever higher numbers, as a disk does that keeps none, brings about few epochs. */
static void who_says_the_same_again_is_heard_now_and_then(void **state)
{
    (void)state;
    const struct digest run = digest_of("run", 3);
    uint64_t number = 1;
    uint32_t count = 0;
    begin();
    struct sync *sync = know_plan(0, &run);
    says_by(B, number, false); /* who has said none yet says no other by this */
    assert_false(is_reason(now_ms + 30000));
    says_by(B, ++number, false);
    assert_false(is_reason(now_ms + 29999));
    assert_true(is_reason(now_ms + 30000));
    for (uint64_t end_ms = now_ms + 3600000; now_ms < end_ms; now_ms += 1000) {
        if (!is_reason(now_ms))
            continue;
        take_word_of(B, number);
        assert_false(is_reason(now_ms + 30000)); /* it has it */
        says_by(B, ++number, false);
        count++;
        if (count < 4)
            assert_true(is_reason(now_ms + 30000));
    }
    assert_in_range(count, 9, 10);
    assert_false(is_reason(now_ms));
    says_by(B, ++number, true); /* nor does that keep it from what it says anew */
    assert_true(is_reason(now_ms));
    sync_free(sync);
    end();
}

/* When a doubt ends: it is the same configuration. */
static void an_epoch_that_begins_anew_is_counted_once(void **state)
{
    (void)state;
    struct member_word *word;
    begin();
    word = &progress.seat[C].word;
    progress.seat[C].said = true;
    for (uint32_t times = 1; times <= 2; times++) {
        *word = (struct member_word){.number = 9, .uplink = 99};
        assert_int_equal(change_requests_left_out(&progress, orders), times - 1);
        take_config(configs_next(config_log_last(config_log)));
        assert_int_equal(requests.idle, times);
        assert_int_equal(change_requests_left_out(&progress, orders), times);
        change_requests_fulfil(&requests, &progress, config_log_last(config_log));
        assert_int_equal(requests.idle, times);
        assert_int_equal(change_requests_left_out(&progress, orders), times);
    }
    end();
}

/* Its word of this epoch has not come yet; for two seconds it is waited for. */
static void what_a_disk_in_doubt_is_is_not_guessed(void **state)
{
    (void)state;
    const struct digest run = digest_of("run", 3);
    begin();
    struct sync *sync = know_plan(0, &run);
    take_config(configs_next(config_log_last(config_log)));
    progress.seat[C].doubt_ms = 1;
    progress.seat[C].epoch = view.epoch - 1;
    assert_false(wants_change(now_ms + 1999));
    progress.seat[C].epoch = view.epoch;
    assert_true(wants_change(now_ms + 1999));
    progress.seat[C].epoch = view.epoch - 1;
    assert_true(wants_change(now_ms + 2000));
    sync_free(sync);
    end();
}

static struct config_member expected(uint32_t i)
{
    struct config next;
    struct change_request *all;
    uint32_t count;
    assert_ok(change_requests_expect(&requests, &progress, orders, &next, &all, &count));
    struct config_member member = next.members[i];
    config_deinit(&next);
    mem_free(all);
    return member;
}

/* Named as it was, it would have a vote that it cannot give: the others endorse that it comes when they know its disk.
 */
static void one_that_has_just_said_that_its_disk_is_in_doubt_is_not_let_in(void **state)
{
    (void)state;
    enum { OTHER = 77, LONG_MS = 10000 };
    const struct digest run = digest_of("run", 3);
    const struct bitset nobody = {{0}};
    struct wire_heartbeat beat = {.incarnation = OTHER};
    struct config config = configs_first(ISLANDS, false);
    config.members[B].role = CONFIG_AWAY;
    config.members[B].voter = false;
    begin_by(config);
    struct sync *sync = know_plan(0, &run);
    sync_step(sync, &(struct sync_event){.type = SYNC_EV_PEER_UP, .member = B}, now_ms);
    says(B, 0, &run);
    beat.incarnation = view.members[B].as.incarnation;
    member_progress_heard(&progress, B, &beat, now_ms);
    member_progress_tick(&progress, &nobody, now_ms += LONG_MS);
    assert_int_equal(expected(B).role, CONFIG_OWNER);
    beat = (struct wire_heartbeat){.incarnation = OTHER, .in_doubt = true};
    member_progress_heard(&progress, B, &beat, now_ms);
    assert_int_not_equal(expected(B).role, CONFIG_OWNER);
    member_progress_tick(&progress, &nobody, now_ms += LONG_MS);
    assert_int_equal(expected(B).role, CONFIG_OWNER);
    assert_int_equal(expected(B).incarnation, OTHER);
    sync_free(sync);
    end();
}

/* Nobody else was there, so what it has not made nobody has. */
static void a_new_disk_votes_where_its_island_is_alone_and_has_made_nothing(void **state)
{
    (void)state;
    static const struct voting_disk fresh = {.doubt = VOTE_FRESH, .incarnation = 9};
    static const struct voting_disk older = {.doubt = VOTE_DOUBT, .incarnation = 9};
    const struct digest hash = digest_of("run", 3);
    for (uint32_t islands = 1; islands <= 2; islands++)
        for (uint64_t version = 0; version <= 1; version++) {
            struct config config = configs_first(islands, false);
            config.members[A].incarnation = 0;
            begin_by(config);
            progress.disk = &fresh;
            assert_false(member_progress_doubt_is_over(&progress)); /* what it holds is not known yet */
            struct sync *sync = know_plan(version, &hash);
            assert_int_equal(member_progress_doubt_is_over(&progress), islands == 1 && version == 0);
            progress.disk = &older;
            assert_false(member_progress_doubt_is_over(&progress));
            sync_free(sync);
            end();
        }
}

/* ---- a voter whose disk is in doubt ---- */

/* The island is up, and what its heartbeat says of its epoch. */
static void is_heard(uint32_t i, uint64_t epoch)
{
    member_progress_up(&progress, i, true);
    member_progress_heard(&progress, i, &(struct wire_heartbeat){.epoch = epoch}, now_ms);
}

/* We have the only vote, our disk is in doubt, and b was in this role. */
static struct sync *begin_alone(enum config_role other)
{
    static const struct voting_disk older = {.doubt = VOTE_DOUBT, .incarnation = 9};
    const struct digest hash = digest_of("run", 3);
    struct config config = configs_first(2, false);
    config.members[A].role = other == CONFIG_AWAY ? CONFIG_AWAY : CONFIG_OWNER;
    config.members[B].role = (uint8_t)other;
    config.members[B].voter = false;
    begin_by(config);
    progress.disk = &older;
    member_progress_up(&progress, B, false);
    return know_plan(3, &hash);
}

static void pass(uint64_t ms, uint64_t tick_ms)
{
    static const struct bitset nobody = {{0}};
    for (uint64_t until_ms = now_ms + ms; now_ms < until_ms;) {
        now_ms += tick_ms;
        member_progress_tick(&progress, &nobody, now_ms);
    }
}

/* Its disk may have forgotten that the other one has the vote by now. */
static void who_votes_alone_asks_the_others_for_a_while(void **state)
{
    (void)state;
    static const enum config_role roles[] = {CONFIG_CONTRIBUTOR, CONFIG_OBSERVER, CONFIG_DRAINING, CONFIG_AWAY};
    for (size_t k = 0; k < sizeof roles / sizeof roles[0]; k++) {
        struct sync *sync = begin_alone(roles[k]);
        pass(28000, 500);
        assert_false(member_progress_majority_in_doubt(&progress));
        const struct bitset awaited = member_progress_awaited(&progress);
        assert_true(bitset_has(&awaited, B));
        member_progress_up(&progress, B, true); /* it has said nothing yet */
        assert_false(member_progress_majority_in_doubt(&progress));
        is_heard(B, 1);
        assert_false(member_progress_majority_in_doubt(&progress));
        is_heard(B, 0);
        assert_true(member_progress_majority_in_doubt(&progress));
        member_progress_up(&progress, B, false);
        member_progress_up(&progress, B, true); /* it may have gone on meanwhile */
        assert_false(member_progress_majority_in_doubt(&progress));
        pass(3600 * 1000, 3600 * 1000); /* the machine slept */
        assert_false(member_progress_majority_in_doubt(&progress));
        pass(1000, 500);
        assert_true(member_progress_majority_in_doubt(&progress)); /* it may be gone for good */
        sync_free(sync);
        end();
    }
}

/* Two who vote are here, and power was lost at both: who contributes, and is not, need not come back. */
static void two_who_vote_wait_for_nobody_else(void **state)
{
    (void)state;
    const struct digest hash = digest_of("run", 3);
    static const struct voting_disk older = {.doubt = VOTE_DOUBT, .incarnation = 9};
    struct config config = configs_first(3, false);
    config.members[C].role = CONFIG_CONTRIBUTOR;
    config.members[C].voter = false;
    begin_by(config);
    progress.disk = &older;
    member_progress_up(&progress, C, false);
    struct sync *sync = know_plan(3, &hash);
    sync_step(sync, &(struct sync_event){.type = SYNC_EV_PEER_UP, .member = B}, now_ms);
    assert_false(member_progress_majority_in_doubt(&progress));
    says(B, 3, &hash);
    is_heard(B, 0);
    assert_true(member_progress_majority_in_doubt(&progress));
    sync_free(sync);
    end();
}

static void assert_hears(bool any, bool most, bool most_know_ours)
{
    struct key_turns_heard heard = member_progress_hears(&progress);
    assert_int_equal(heard.any, any);
    assert_int_equal(heard.most, most);
    assert_int_equal(heard.most_know_ours, most_know_ours);
}

/* With which of our keys others know us: who is an epoch ahead may know of another one. */
static void who_is_heard_may_know_no_later_epoch(void **state)
{
    (void)state;
    struct wire_heartbeat beat = {.epoch = 0};
    begin();
    assert_hears(true, true, false); /* they are up, and have said nothing yet */
    member_progress_heard(&progress, B, &beat, now_ms);
    assert_hears(true, true, false); /* one alone may say so */
    member_progress_heard(&progress, C, &beat, now_ms);
    assert_hears(true, true, true);
    beat.epoch = 1;
    member_progress_heard(&progress, C, &beat, now_ms);
    assert_hears(true, true, false);
    member_progress_up(&progress, C, false);
    assert_hears(true, false, false); /* one of two is not most */
    member_progress_up(&progress, B, false);
    assert_hears(false, false, false);
    member_progress_up(&progress, B, true);
    member_progress_up(&progress, C, true); /* what they said before they were away may be over */
    assert_hears(true, true, false);
    end();
}

/* Who has no vote stands in for nobody; but where nobody else votes. */
static void who_has_no_vote_is_not_most(void **state)
{
    (void)state;
    struct wire_heartbeat beat = {.epoch = 0};
    for (uint32_t voters = 1; voters <= 2; voters++) {
        struct config config = configs_first(3, false);
        for (uint32_t i = voters; i < 3; i++) {
            config.members[i].role = CONFIG_CONTRIBUTOR;
            config.members[i].voter = false;
        }
        begin_by(config);
        member_progress_up(&progress, B, false);
        member_progress_heard(&progress, C, &beat, now_ms);
        assert_hears(true, voters == 1, voters == 1);
        member_progress_up(&progress, B, true);
        member_progress_heard(&progress, B, &beat, now_ms);
        assert_hears(true, true, true);
        end();
    }
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_heard_may_know_no_later_epoch),
        cmocka_unit_test(who_has_no_vote_is_not_most),
        cmocka_unit_test(who_was_put_out_stays_out_while_its_trainer_stands),
        cmocka_unit_test(in_a_paused_run_nobody_is_kept_out),
        cmocka_unit_test(who_is_in_again_is_not_put_out_for_what_was),
        cmocka_unit_test(who_has_another_key_has_said_nothing_yet),
        cmocka_unit_test(who_is_back_catches_up_unless_somebody_wishes_otherwise),
        cmocka_unit_test(who_is_alone_does_not_take_itself_for_back),
        cmocka_unit_test(whom_an_order_puts_out_goes_though_nobody_hears_it),
        cmocka_unit_test(who_was_evicted_while_it_drained_comes_back_when_it_resumes),
        cmocka_unit_test(who_was_lost_comes_back_at_once),
        cmocka_unit_test(who_was_lost_unseen_comes_back_at_once),
        cmocka_unit_test(whose_disk_is_in_doubt_was_not_put_out),
        cmocka_unit_test(an_owner_stands_back_when_it_has_lasted),
        cmocka_unit_test(who_stands_back_is_cut_off_from_an_owner),
        cmocka_unit_test(nobody_stands_back_for_one_that_is_just_lost),
        cmocka_unit_test(whose_disk_keeps_nothing_is_as_good_as_lost),
        cmocka_unit_test(a_disk_that_fails_by_turns_is_believed_now_and_then),
        cmocka_unit_test(what_came_to_nothing_is_no_reason_again_at_once),
        cmocka_unit_test(an_order_that_another_one_left_out_is_a_reason_again_at_once),
        cmocka_unit_test(an_epoch_that_begins_anew_is_counted_once),
        cmocka_unit_test(who_says_the_same_again_is_heard_now_and_then),
        cmocka_unit_test(what_a_disk_in_doubt_is_is_not_guessed),
        cmocka_unit_test(an_older_word_names_no_disk),
        cmocka_unit_test(who_holds_another_state_of_the_version_has_not_caught_up),
        cmocka_unit_test(one_that_has_just_said_that_its_disk_is_in_doubt_is_not_let_in),
        cmocka_unit_test(a_new_disk_votes_where_its_island_is_alone_and_has_made_nothing),
        cmocka_unit_test(who_votes_alone_asks_the_others_for_a_while),
        cmocka_unit_test(two_who_vote_wait_for_nobody_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
