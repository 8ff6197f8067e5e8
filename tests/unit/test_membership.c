/* SPDX-License-Identifier: Apache-2.0 */
/* membership: a forged message is passed over; nothing is told before it is durable; a request of one is decided by
 * all; an island whose disk is in doubt waits. */
#include "tests/lib/testlib.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/membership/config_store.h"
#include "daemon/membership/membership_host.h"
#include "net/config/config_deal.h"
#include "net/config/config_orders.h"
#include "net/config/config_proof.h"
#include "net/config/endorsement.h"
#include "tests/lib/isle.h"
#include "tests/lib/endorsed.h"
#include "tests/lib/overhear.h"
#include "tests/lib/played.h"
#include "tests/lib/sitting.h"

enum { TURN_MS = 1000 };

/* ---- what is decided ---- */

static void send_decided(const struct config *config, const struct ident *first, const struct ident *second,
                         uint32_t count)
{
    struct paxos_message message = {.type = WIRE_DECIDED};
    struct config_vote votes[2] = {{.id = B, .ballot = 7}, {.id = C, .ballot = 7}};
    uint8_t *bytes;
    size_t bytes_count;
    assert_ok(config_pack(config, &bytes, &bytes_count));
    struct digest digest = config_digest(bytes, bytes_count);
    config_vote_sign(first, config->nonce, config->epoch, 7, &digest, votes[0].signature);
    config_vote_sign(second, config->nonce, config->epoch, 7, &digest, votes[1].signature);
    message.bytes = bytes;
    message.bytes_count = bytes_count;
    message.votes = votes;
    message.votes_count = count;
    played_say_epoch(sitting_played[B], A, &message);
    mem_free(bytes);
    played_settle(sitting_played[B], A, WIRE_HELLO);
    isle_wait(jobs_pending(sitting_isle[A]->jobs) == 0); /* had it been good, it would be on its way to disk */
}

static void a_configuration_without_a_majoritys_votes_is_passed_over(void **state)
{
    (void)state;
    static const uint32_t owners[] = {A, B}, voters[] = {B, C};
    struct ident other;
    sitting_begin_played("membership-forged");
    const struct ident *idents[] = {&sitting_run->idents[B], &sitting_run->idents[C]};
    assert_ok(ident_generate(&other));
    struct config config = isle_next_config(sitting_isle[A]);
    isle_set_owners(&config, owners, 2, CONFIG_AWAY);
    config.members[C].voter = true;
    config.members[C].losses++;
    config_deal_next(config_log_last(sitting_isle[A]->configs.config_log), 0, &config);
    endorsed(config_log_last(sitting_isle[A]->configs.config_log), &config, voters, idents, 2);
    send_decided(&config, &sitting_run->idents[B], &sitting_run->idents[C], 0);
    send_decided(&config, &sitting_run->idents[B], &sitting_run->idents[C], 1);
    send_decided(&config, &sitting_run->idents[B], &other, 2);
    send_decided(&config, &sitting_run->idents[B], &sitting_run->idents[B], 2); /* one cannot vote for two */
    assert_int_equal(sitting_epoch(A), 0);
    config.epoch++; /* votes for another configuration */
    send_decided(&config, &sitting_run->idents[B], &sitting_run->idents[C], 2);
    assert_int_equal(sitting_epoch(A), 0);
    config.epoch--;
    send_decided(&config, &sitting_run->idents[B], &sitting_run->idents[C], 2);
    assert_int_equal(sitting_epoch(A), 1);
    assert_int_equal(config_log_last(sitting_isle[A]->configs.config_log)->members[C].losses, 1);
    /* It is kept: who starts again knows it. */
    sitting_close(A);
    sitting_open(A, 0);
    assert_int_equal(sitting_epoch(A), 1);
    config_deinit(&config);
    sitting_end();
}

/* Where it is taken at once, the connection ends before the word is out. */
static void who_is_off_the_roster_is_told_before_it_is_taken(void **state)
{
    (void)state;
    struct paxos_message told = {0};
    static const uint32_t owners[] = {A, B};
    sitting_begin_played("membership-farewell");
    struct config config = isle_next_config(sitting_isle[A]);
    struct order order = {.kind = ORDER_REVOKE, .signer = A, .subject = C, .number = 1};
    order_sign(&sitting_run->idents[A], config.nonce, &order);
    assert_ok(config_order_apply(config_log_last(sitting_isle[A]->configs.config_log), &config, &order));
    isle_set_owners(&config, owners, 2, CONFIG_OWNER);
    config_deal_next(config_log_last(sitting_isle[A]->configs.config_log), 0, &config);
    send_decided(&config, &sitting_run->idents[B], &sitting_run->idents[C], 2);
    isle_wait(played_heard_epoch(sitting_played[C], &told));
    assert_int_equal(told.type, WIRE_DECIDED);
    assert_int_equal(sitting_epoch(A), 0);
    sitting_pass(400);
    assert_int_equal(sitting_epoch(A), 1);
    wire_paxos_deinit(&told);
    config_deinit(&config);
    sitting_end();
}

/* As who is off the roster: nobody lets its key in after that. */
static void whose_key_changes_is_told_before_it_is_taken(void **state)
{
    (void)state;
    struct paxos_message told = {0};
    struct ident next;
    sitting_begin_played("membership-rekey");
    const struct config *first = config_log_last(sitting_isle[A]->configs.config_log);
    struct config config = isle_next_config(sitting_isle[A]);
    const struct config_member *as = config_member(first, C);
    struct member_word word = {.number = as->word + 1, .uplink = as->uplink, .owner_choice = as->owner_choice};
    snprintf(word.address, sizeof word.address, "%s", as->address);
    assert_ok(ident_generate(&next));
    member_word_state_next(&next, as->key, config.nonce, C, &word);
    member_word_sign(&sitting_run->idents[C], config.nonce, C, &word);
    assert_ok(config_word_apply(first, &config, C, &word));
    config_deal_next(first, 0, &config);
    send_decided(&config, &sitting_run->idents[B], &sitting_run->idents[C], 2);
    isle_wait(sitting_epoch(A) == 1);
    config_deinit(&config);
    while (played_heard_epoch(sitting_played[C], &told))
        wire_paxos_deinit(&told);
    const struct config *stated = config_log_last(sitting_isle[A]->configs.config_log);
    config = isle_next_config(sitting_isle[A]);
    struct order order = {.kind = ORDER_REKEY, .signer = A, .subject = C, .number = 1, .epoch = 1};
    memcpy(order.key, next.key, sizeof order.key);
    order_sign(&sitting_run->idents[A], config.nonce, &order);
    assert_ok(config_order_apply(stated, &config, &order));
    config_deal_next(stated, 0, &config);
    send_decided(&config, &sitting_run->idents[B], &sitting_run->idents[C], 2);
    isle_wait(played_heard_epoch(sitting_played[C], &told));
    assert_int_equal(told.type, WIRE_DECIDED);
    assert_int_equal(sitting_epoch(A), 1);
    sitting_pass(400);
    assert_int_equal(sitting_epoch(A), 2);
    wire_paxos_deinit(&told);
    config_deinit(&config);
    sitting_end();
}

/* ---- votes ---- */

static void say_prepare(uint32_t from, uint32_t counter)
{
    struct paxos_message prepare = {.type = WIRE_PREPARE, .epoch = 1, .ballot = (uint64_t)counter << 32 | from};
    played_say_epoch(sitting_played[from], A, &prepare);
    played_settle(sitting_played[from], A, WIRE_HELLO);
}

/* How many configurations b is sent for so many messages. */
static int configs_for(const struct paxos_message *message, int times)
{
    struct paxos_message heard;
    int count = 0;
    for (int i = 0; i < times; i++) {
        played_say_epoch(sitting_played[B], A, message);
        played_settle(sitting_played[B], A, WIRE_HELLO);
        while (played_heard_epoch(sitting_played[B], &heard)) {
            count += heard.type == WIRE_DECIDED;
            wire_paxos_deinit(&heard);
        }
    }
    return count;
}

/* Each is read from the disk. */
static void configurations_that_nobody_asked_for_are_rare(void **state)
{
    (void)state;
    const struct paxos_message older = {.type = WIRE_PREPARE, .epoch = 1, .ballot = (uint64_t)1 << 32 | B};
    const struct paxos_message question = {.type = WIRE_CONFIG_LOG, .epoch = 0};
    sitting_begin_played("membership-rare");
    struct config config = isle_next_config(sitting_isle[A]);
    send_decided(&config, &sitting_run->idents[B], &sitting_run->idents[C], 2);
    assert_int_equal(sitting_epoch(A), 1);
    (void)configs_for(&question, 1); /* and what it was told when it was decided */
    assert_int_equal(configs_for(&older, 30), 1);
    sitting_isle[A]->now_ms += 59000;
    assert_int_equal(configs_for(&older, 5), 0);
    sitting_isle[A]->now_ms += 1000;
    assert_int_equal(configs_for(&older, 5), 1);
    assert_int_equal(configs_for(&question, 30), 10); /* who asks is answered, as often as it needs */
    sitting_isle[A]->now_ms += 250;
    assert_int_equal(configs_for(&question, 30), 2);
    config_deinit(&config);
    sitting_end();
}

/* What changes nothing, whatever it says, costs nobody a look at a signature. */
static void what_nobody_asked_for_is_not_checked(void **state)
{
    (void)state;
    struct config_vote vote = {.id = B, .ballot = 7};
    uint8_t *bytes;
    size_t count;
    sitting_begin_played("membership-unasked");
    struct config config = isle_next_config(sitting_isle[A]);
    assert_ok(config_pack(&config, &bytes, &count));
    struct paxos_message accepted = {.type = WIRE_ACCEPTED, .epoch = 1, .ballot = 7};
    struct paxos_message accept = {.type = WIRE_ACCEPT, .epoch = 1, .ballot = (uint64_t)1 << 32 | C};
    struct paxos_message promise = {.type = WIRE_PROMISE, .epoch = 1, .ballot = 7, .accepted = 7, .sealed = true};
    struct paxos_message later = {.type = WIRE_ACCEPTED, .epoch = 9, .ballot = 7};
    accepted.digest = later.digest = config_digest(bytes, count);
    config_vote_sign(&sitting_run->idents[B], config.nonce, 1, 7, &accepted.digest, vote.signature);
    memcpy(accepted.signature, vote.signature, sizeof accepted.signature);
    memcpy(later.signature, vote.signature, sizeof later.signature);
    accept.bytes = promise.bytes = bytes;
    accept.bytes_count = promise.bytes_count = count;
    played_settle(sitting_played[B], A, WIRE_HELLO);
    uint64_t before = ident_checks();
    for (int i = 0; i < 5; i++) {
        played_say_epoch(sitting_played[B], A, &accepted);
        played_say_epoch(sitting_played[B], A, &later);
        played_say_epoch(sitting_played[B], A, &accept);
        played_say_epoch(sitting_played[B], A, &promise);
        played_settle(sitting_played[B], A, WIRE_HELLO);
    }
    assert_int_equal(ident_checks() - before, 0);
    assert_int_equal(membership_sealed_ms(sitting_isle[A]->membership), 0);
    mem_free(bytes);
    config_deinit(&config);
    sitting_end();
}

static void a_vote_that_cannot_be_kept_is_not_given_until_it_can(void **state)
{
    (void)state;
    struct paxos_message answer;
    char aside[400];
    sitting_begin_played("membership-disk");
    snprintf(aside, sizeof aside, "%s-aside", sitting_isle[A]->conf.state_folder);
    assert_int_equal(rename(sitting_isle[A]->conf.state_folder, aside), 0);
    say_prepare(B, 1);
    sitting_pass(500);
    played_settle(sitting_played[B], A, WIRE_HELLO);
    assert_false(played_heard_epoch(sitting_played[B], &answer));
    assert_true(membership_sealed_ms(sitting_isle[A]->membership) > 0); /* but nothing is acknowledged any more */
    assert_int_equal(rename(aside, sitting_isle[A]->conf.state_folder), 0);
    sitting_pass(500);
    isle_wait(played_heard_epoch(sitting_played[B], &answer));
    assert_int_equal(answer.type, WIRE_PROMISE);
    assert_int_equal(answer.ballot, (uint64_t)1 << 32 | B);
    wire_paxos_deinit(&answer);
    assert_int_equal(vote_last(sitting_isle[A]->vote)->promised, (uint64_t)1 << 32 | B);
    sitting_end();
}

/* A voter signs what it knows itself: nothing of who is heard and well, whoever asks; and of who is gone, with the
 * others, all that it takes. */
static void a_voter_agrees_that_who_is_gone_goes_and_to_nothing_else(void **state)
{
    (void)state;
    struct paxos_message answer;
    sitting_begin_played("membership-agrees");
    say_prepare(B, 1);
    sitting_pass(100);
    isle_wait(played_heard_epoch(sitting_played[B], &answer));
    assert_int_equal(answer.type, WIRE_PROMISE);
    assert_true(answer.sealed);
    assert_int_equal(answer.endorsements_count, 0);
    wire_paxos_deinit(&answer);
    sitting_end();
    sitting_begin_all("membership-gone");
    sitting_meet();
    sitting_close(C);
    sitting_pass_until_epoch(A, 1);
    const struct config *config = config_log_last(sitting_isle[A]->configs.config_log);
    assert_int_equal(config->members[C].role, CONFIG_AWAY);
    assert_int_equal(config->endorsements_count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(config->endorsements[i].member, C);
        assert_int_equal(config->endorsements[i].says, CONFIG_LEAVES);
        assert_int_equal(config->endorsements[i].signer, i);
    }
    sitting_end();
}

/* ---- what a proposer waits for ---- */

/* C is silent, and B is there, hears nothing of C, and has not promised: so much time passes. */
static void pass_beside_b(uint64_t ms)
{
    for (uint64_t at = 0; at < ms; at += 250) {
        struct wire_heartbeat *beat = played_beat(sitting_played[B]);
        beat->incarnation = sitting_member(A, B)->as.incarnation;
        beat->silent_count = 1;
        beat->silent[0] = C;
        played_say(sitting_played[B], A);
        played_settle(sitting_played[B], A, WIRE_HELLO); /* it has come, as has what was said to B */
        sitting_pass(250);
    }
}

/* B hears a message of A's of this type, of a ballot above `ballot`; within so long. */
static bool hear_of_a(enum wire_paxos_type type, uint64_t ballot, uint64_t ms, struct paxos_message *message)
{
    for (uint64_t at = 0; at <= ms; at += 250) {
        while (played_heard_epoch(sitting_played[B], message)) {
            if (message->type == type && message->ballot > ballot)
                return true;
            wire_paxos_deinit(message);
        }
        pass_beside_b(250);
    }
    return false;
}

/* `agrees`: that C goes, which is lost, and A as an owner, which makes no result. */
static void promise_of_b(uint64_t ballot, bool agrees)
{
    struct config_endorsement leaves[2] = {{.member = A, .says = CONFIG_LEAVES}, {.member = C, .says = CONFIG_LEAVES}};
    const struct paxos_message promise = {.type = WIRE_PROMISE,
                                          .epoch = 1,
                                          .ballot = ballot,
                                          .sealed = true,
                                          .incarnation = sitting_member(A, B)->as.incarnation,
                                          .endorsements = leaves,
                                          .endorsements_count = agrees ? 2 : 0};
    for (int k = 0; k < 2; k++)
        endorsement_sign(&sitting_run->idents[B], config_log_last(sitting_isle[A]->configs.config_log)->nonce, 1,
                         ballot, &leaves[k]);
    played_say_epoch(sitting_played[B], A, &promise);
    played_settle(sitting_played[B], A, WIRE_HELLO);
}

/* What the others agree to they sign anew in each ballot: one that comes to nothing leaves no less time to the next. */
static void each_ballot_waits_for_what_is_agreed_to_in_it(void **state)
{
    (void)state;
    struct paxos_message heard;
    struct config config;
    sitting_begin_played("membership-ballots");
    assert_true(hear_of_a(WIRE_PREPARE, 0, 20000, &heard));
    uint64_t first = heard.ballot, second;
    wire_paxos_deinit(&heard);
    promise_of_b(first, false);
    pass_beside_b(500);
    for (uint32_t i = B; i <= C; i++) {
        const struct paxos_message reject = {.type = WIRE_REJECT, .epoch = 1, .ballot = first + ((uint64_t)2 << 32)};
        played_say_epoch(sitting_played[i], A, &reject);
        played_settle(sitting_played[i], A, WIRE_HELLO);
    }
    assert_true(hear_of_a(WIRE_PREPARE, first, 10000, &heard));
    second = heard.ballot;
    wire_paxos_deinit(&heard);
    pass_beside_b(3000);
    promise_of_b(second, false);
    assert_false(hear_of_a(WIRE_ACCEPT, 0, 750, &heard)); /* without C there is not enough yet */
    promise_of_b(second, true);
    assert_true(hear_of_a(WIRE_ACCEPT, 0, 2000, &heard));
    assert_ok(config_read(heard.bytes, heard.bytes_count, &config));
    assert_int_equal(config.members[C].role, CONFIG_AWAY);
    config_deinit(&config);
    wire_paxos_deinit(&heard);
    sitting_end();
}

/* Flushes wait while the test holds them; how many there were of a vote. */
static pthread_mutex_t disk = PTHREAD_MUTEX_INITIALIZER;
static atomic_int votes_flushed;

int fsync(int fd)
{
    char link[64], path[400];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t got = readlink(link, path, sizeof path - 1);
    path[got > 0 ? got : 0] = '\0';
    pthread_mutex_lock(&disk);
    pthread_mutex_unlock(&disk);
    votes_flushed += strstr(path, "state-a/vote.new") != NULL;
    return (int)syscall(SYS_fsync, fd);
}

/* And of votes that come meanwhile only the newest is worth a flush. */
static void a_disk_that_takes_its_time_holds_back_the_vote_and_nothing_else(void **state)
{
    (void)state;
    struct paxos_message answer;
    sitting_begin_played("membership-slow");
    pthread_mutex_lock(&disk);
    votes_flushed = 0;
    for (uint32_t counter = 1; counter <= 3; counter++) {
        sitting_isle[A]->now_ms += TURN_MS; /* ballots that come faster are passed over */
        say_prepare(B, counter);
    }
    played_settle(sitting_played[B], A, WIRE_HELLO); /* the loop answers */
    assert_int_equal(votes_flushed, 0);
    assert_false(played_heard_epoch(sitting_played[B], &answer));
    assert_int_equal(vote_last(sitting_isle[A]->vote)->promised, (uint64_t)3 << 32 | B);
    pthread_mutex_unlock(&disk);
    for (uint64_t ballot = 0; ballot != ((uint64_t)3 << 32 | B);) {
        isle_wait(played_heard_epoch(sitting_played[B], &answer));
        assert_int_equal(answer.type, WIRE_PROMISE);
        ballot = answer.ballot;
        wire_paxos_deinit(&answer);
    }
    assert_int_equal(votes_flushed, 2);
    sitting_end();
}

/* By a job, beside everything else. */
static void old_configurations_are_put_together(void **state)
{
    (void)state;
    enum { PACK = 256 };
    struct config_entry first, found;
    char path[400];
    sitting_begin_played("membership-tidy");
    const char *folder = sitting_isle[A]->conf.state_folder;
    assert_ok(config_store_read(folder, 0, &first));
    for (uint64_t epoch = 1; epoch <= PACK; epoch++)
        assert_ok(config_store_copy(folder, epoch, &first));
    snprintf(path, sizeof path, "%s/config-%012u", folder, PACK - 1);
    membership_host_tidy(sitting_isle[A]->host, PACK);
    isle_wait(jobs_pending(sitting_isle[A]->jobs) == 0);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_ok(config_store_read(folder, PACK - 1, &found));
    assert_memory_equal(found.bytes, first.bytes, first.bytes_count);
    config_entry_free(&found);
    config_entry_free(&first);
    sitting_end();
}

static void store(uint32_t i, uint32_t f, uint32_t owner)
{
    struct digest hash = digest_of(&owner, sizeof owner);
    isle_step(
        sitting_isle[i],
        &(struct sync_event){
            .type = SYNC_EV_STORED, .fragment = f, .member = SYNC_NOBODY, .owner = owner, .version = 1, .hash = hash});
}

/* Whether island a tells the others that it holds the owner's result. */
static bool acknowledges(uint32_t f, uint32_t owner)
{
    const struct version_part *parts;
    struct digest digest;
    bool acknowledged = false;
    uint32_t count = sync_parts(sitting_isle[A]->sync, f, &parts);
    for (uint32_t p = 0; p < count; p++)
        if (parts[p].id.owner == owner && sync_held(sitting_isle[A]->sync, f, p, &digest, &acknowledged))
            return acknowledged;
    return false;
}

static void a_seal_names_what_was_held_and_nothing_is_acknowledged_after_it(void **state)
{
    (void)state;
    struct paxos_message answer;
    sitting_begin_played("membership-seal");
    store(A, 3, B);
    assert_true(acknowledges(3, B));
    say_prepare(B, 1);
    isle_wait(played_heard_epoch(sitting_played[B], &answer));
    assert_int_equal(answer.type, WIRE_PROMISE);
    assert_true(answer.sealed);
    assert_int_equal(answer.rows_count, ISLE_FRAGMENTS);
    for (uint32_t f = 0; f < ISLE_FRAGMENTS; f++) {
        const struct holding *row = &answer.rows[f];
        assert_int_equal(row->held_count, f == 3 ? 1 : 0);
        assert_true(row->version == 0 && row->hash_known);
    }
    struct digest hash = digest_of(&(uint32_t){B}, sizeof(uint32_t));
    assert_int_equal(answer.rows[3].held[0].id.owner, B);
    assert_true(digest_equal(&answer.rows[3].held[0].id.digest, &hash));
    wire_paxos_deinit(&answer);
    store(A, 4, C);
    assert_false(acknowledges(4, C));
    assert_true(acknowledges(3, B)); /* what was said is not taken back */
    /* A lower ballot is turned down, and a higher one gets its answer. */
    say_prepare(C, 1);
    isle_wait(played_heard_epoch(sitting_played[C], &answer));
    assert_int_equal(answer.type, WIRE_PROMISE);
    wire_paxos_deinit(&answer);
    say_prepare(B, 1);
    isle_wait(played_heard_epoch(sitting_played[B], &answer));
    assert_int_equal(answer.type, WIRE_REJECT);
    wire_paxos_deinit(&answer);
    sitting_end();
}

/* B promises, and shows this result of fragment 3 as well. */
static void promise_and_show(uint64_t ballot, const struct part_result *result)
{
    const struct holding row = {.fragment = 3, .held = result, .held_count = 1};
    const struct paxos_message promise = {.type = WIRE_PROMISE,
                                          .epoch = 1,
                                          .ballot = ballot,
                                          .sealed = true,
                                          .incarnation = sitting_member(A, B)->as.incarnation,
                                          .rows = &row,
                                          .rows_count = 1};
    played_say_epoch(sitting_played[B], A, &promise);
    played_settle(sitting_played[B], A, WIRE_HELLO);
}

/* A draft is made anew with all that comes, and each would say it. */
static void two_results_of_one_part_are_told_so_often_at_most(void **state)
{
    (void)state;
    struct paxos_message heard;
    const struct version_part *parts;
    struct part_result shown = {.id = {.fragment = 3, .owner = B, .version = 1, .digest = digest_of("another", 7)}};
    sitting_begin_played("membership-two-results");
    store(A, 3, B);
    uint32_t count = sync_parts(sitting_isle[A]->sync, 3, &parts);
    for (uint32_t p = 0; p < count; p++)
        if (parts[p].id.owner == B)
            shown.shards = parts[p].shards;
    assert_true(shown.shards != 0);
    assert_true(hear_of_a(WIRE_PREPARE, 0, 20000, &heard));
    overhear_begin();
    for (int k = 0; k < 2 * LOG_LINES_OF_ONE; k++) {
        promise_and_show(heard.ballot, &shown);
        pass_beside_b(250);
    }
    const char *log = overhear_end();
    assert_int_equal(overhear_count(log, "two results of one part of island b are shown"), LOG_LINES_OF_ONE);
    wire_paxos_deinit(&heard);
    sitting_end();
}

/* ---- orders and words ---- */

static void what_one_island_orders_all_carry_out(void **state)
{
    (void)state;
    uint64_t number;
    sitting_begin_all("membership-order");
    sitting_meet();
    struct membership *membership = sitting_isle[B]->membership;
    assert_fails(ERR_STATE, "id 99 is not on the roster", membership_order(membership, ORDER_EVICT, 99, 0, NULL));
    assert_fails(ERR_PROTO, "of unknown kind 77", membership_order(membership, 77, 0, 0, NULL));
    assert_ok(membership_order(membership, ORDER_EVICT, C, 0, &number));
    assert_int_equal(number, 1);
    sitting_pass_until_epoch(A, 1);
    assert_int_equal(sitting_member(A, C)->as.role, CONFIG_AWAY);
    const struct config *config = config_log_last(sitting_isle[A]->configs.config_log);
    assert_int_equal(config->orders_count, 1);
    assert_int_equal(config->orders[0].signer, B);
    sitting_pass_until_epoch(A, 2); /* it is well, and comes back by itself */
    assert_int_equal(sitting_member(A, C)->as.role, CONFIG_OWNER);
    peers_drain(sitting_isle[C]->peers, true);
    sitting_pass_until_epoch(A, 3);
    assert_int_equal(sitting_member(A, C)->as.role, CONFIG_DRAINING);
    assert_true(sitting_member(A, C)->as.draining);
    assert_ok(membership_order(membership, ORDER_STEPS, 0, 4321, &number));
    assert_int_equal(number, 2);
    sitting_pass_until_epoch(A, 4);
    assert_int_equal(config_log_last(sitting_isle[A]->configs.config_log)->steps, 4321);
    sitting_pass(SITTING_LONG_MS);
    assert_int_equal(sitting_epoch(A), 4);
    sitting_end();
}

/* Nobody can say it for a member: who tries is told so, and what the member said stands. */
static void a_word_is_its_speaker_s(void **state)
{
    (void)state;
    sitting_begin_all("membership-word");
    sitting_meet();
    struct membership *membership = sitting_isle[A]->membership;
    struct member_word word = *membership_own_word(sitting_isle[C]->membership);
    word.draining = true;
    assert_fails(ERR_PROTO, "a word of island c that it did not sign", membership_word(membership, C, &word));
    member_word_sign(&sitting_run->idents[B], config_log_last(sitting_isle[A]->configs.config_log)->nonce, C, &word);
    assert_fails(ERR_PROTO, "that it did not sign", membership_word(membership, C, &word));
    word.uplink = 0;
    assert_fails(ERR_PROTO, "an uplink of 0", membership_word(membership, C, &word));
    sitting_pass(SITTING_LONG_MS);
    assert_int_equal(sitting_epoch(A), 0);
    sitting_end();
}

static const struct config *last(uint32_t i)
{
    return config_log_last(sitting_isle[i]->configs.config_log);
}

/* One that sends much of it hides nobody else. */
static void who_sends_a_false_order_is_named_each(void **state)
{
    (void)state;
    sitting_begin_played("membership-false-orders");
    overhear_begin();
    for (uint32_t i = B; i <= C; i++) {
        struct order order = {.kind = ORDER_REVOKE, .signer = A, .subject = B, .number = 1 + i};
        order_sign(&sitting_run->idents[i], last(A)->nonce, &order);
        struct paxos_message message = {.type = WIRE_ORDER, .order = &order};
        for (int k = 0; k < 3; k++)
            played_say_epoch(sitting_played[i], A, &message);
        order.kind = ORDER_EVICT;
        order_sign(&sitting_run->idents[i], last(A)->nonce, &order);
        played_say_epoch(sitting_played[i], A, &message);
        played_settle(sitting_played[i], A, WIRE_HELLO);
    }
    const char *log = overhear_end();
    overhear_assert_once(log, "island b sends an order that is refused, to revoke b: ");
    overhear_assert_once(log, "island b sends an order that is refused, to evict b: ");
    overhear_assert_once(log, "island c sends an order that is refused, to revoke b: ");
    sitting_end();
}

/* It would have a step more without an order. */
static void propose_longer(uint32_t i, uint32_t counter)
{
    struct paxos_message message = {.type = WIRE_ACCEPT, .epoch = 1, .ballot = (uint64_t)counter << 32 | i};
    struct config config = isle_next_config(sitting_isle[A]);
    uint8_t *bytes;
    config_deal_next(last(A), 0, &config);
    config.steps++;
    assert_ok(config_pack(&config, &bytes, &message.bytes_count));
    message.bytes = bytes;
    played_say_epoch(sitting_played[i], A, &message);
    mem_free(bytes);
    config_deinit(&config);
}

static void who_proposes_what_may_not_follow_is_named_each(void **state)
{
    (void)state;
    sitting_begin_played("membership-false-proposals");
    struct membership *membership = sitting_isle[A]->membership;
    overhear_begin();
    for (uint32_t i = B; i <= C; i++) {
        assert_false(membership_misproposed(membership, i));
        for (uint32_t k = 0; k < 3; k++)
            propose_longer(i, 5 + k);
        played_settle(sitting_played[i], A, WIRE_HELLO);
        assert_true(membership_misproposed(membership, i));
    }
    const char *log = overhear_end();
    overhear_assert_once(log, "island b proposes a configuration that may not follow ours, and is refused: "
                              "configuration 1 has what no order or word says");
    overhear_assert_once(log, "island c proposes a configuration that may not follow ours");
    for (int k = 0; k < 7; k++)
        sitting_pass(SITTING_LONG_MS);
    assert_false(membership_misproposed(membership, B));
    assert_int_equal(sitting_epoch(A), 0);
    sitting_end();
}

/* It goes, and is back, and says so each time. */
static void whose_disk_fails_again_and_again_fills_no_log(void **state)
{
    (void)state;
    sitting_begin_played("membership-disk-flaps");
    overhear_begin();
    for (int k = 0; k < LOG_LINES_OF_ONE + 5; k++) {
        played_greet(sitting_played[C], sitting_isle[A]);
        played_beat(sitting_played[C])->disk_fails = true;
        played_say(sitting_played[C], A);
        played_settle(sitting_played[C], A, WIRE_HELLO);
        sitting_pass(100);
        sitting_played[C]->out.type = WIRE_BYE;
        snprintf(sitting_played[C]->out.bye.reason, sizeof sitting_played[C]->out.bye.reason, "and back");
        played_say(sitting_played[C], A);
        isle_wait(!peers_info(sitting_isle[A]->peers, C).up);
        sitting_pass(100);
    }
    assert_int_equal(overhear_count(overhear_end(), "island c says that its disk keeps nothing"), LOG_LINES_OF_ONE);
    sitting_end();
}

/* It says that it leaves, and takes that back before anything was decided: whoever heard the first of it has no use for
 * that. */
static void a_word_that_was_taken_back_counts_no_more(void **state)
{
    (void)state;
    sitting_begin_all("membership-took-back");
    sitting_meet();
    struct membership *of_c = sitting_isle[C]->membership, *of_a = sitting_isle[A]->membership;
    struct member_word stays = *membership_own_word(of_c), leaves = stays;
    leaves.draining = true;
    membership_say(of_c, &leaves);
    leaves = *membership_own_word(of_c);
    membership_say(of_c, &stays);
    stays = *membership_own_word(of_c);
    assert_true(leaves.draining && !stays.draining && stays.number > leaves.number);
    assert_ok(membership_word(of_a, C, &stays));
    assert_ok(membership_word(of_a, C, &leaves)); /* overheard */
    sitting_pass(SITTING_LONG_MS);
    assert_int_equal(sitting_epoch(A), 0); /* nothing that it says is new */
    assert_ok(membership_order(of_a, ORDER_STEPS, 0, 4321, NULL));
    sitting_pass_until_epoch(A, 1);
    assert_true(sitting_member(A, C)->as.word == stays.number && !sitting_member(A, C)->as.draining);
    /* The same after a restart, in which it forgot what it said. */
    leaves.draining = true;
    membership_say(of_c, &leaves);
    leaves = *membership_own_word(of_c);
    assert_true(leaves.number > stays.number);
    sitting_close(C);
    sitting_open(C, 0);
    assert_true(membership_own_word(sitting_isle[C]->membership)->number > leaves.number);
    assert_false(membership_own_word(sitting_isle[C]->membership)->draining);
    sitting_end();
}

/* Once: a number that was given is on disk, and one that may have been forgotten is passed. */
static void no_number_of_an_order_is_given_twice(void **state)
{
    (void)state;
    uint64_t number;
    sitting_begin_all("membership-numbers");
    sitting_meet();
    assert_ok(membership_order(sitting_isle[B]->membership, ORDER_STEPS, 0, 4321, &number));
    assert_int_equal(number, 1);
    assert_ok(membership_withdraw(sitting_isle[B]->membership, 1));
    for (uint32_t i = A; i < ISLANDS; i++) /* nobody knows of it any more, but who has overheard it */
        sitting_close(i);
    for (uint32_t i = A; i < ISLANDS; i++)
        sitting_open(i, 0);
    sitting_meet();
    assert_int_equal(last(B)->epoch, 0);
    assert_ok(membership_order(sitting_isle[B]->membership, ORDER_STEPS, 0, 5432, &number));
    assert_int_equal(number, 2);
    for (int k = 0; last(A)->steps != 5432 && k < 200; k++)
        sitting_pass(100);
    assert_int_equal(last(A)->steps, 5432);
    sitting_meet();
    sitting_close(B);
    assert_int_equal(unlink(testlib_path(sitting_run->folder, "s-b/vote.mark")), 0);
    sitting_run->doubt = true;
    sitting_open(B, 0);
    sitting_meet();
    for (int k = 0; vote_doubt(sitting_isle[B]->vote) != VOTE_SURE && k < 200; k++)
        sitting_pass(100);
    sitting_meet();
    uint64_t epoch = last(B)->epoch;
    assert_true(epoch > 1);
    assert_ok(membership_order(sitting_isle[B]->membership, ORDER_STEPS, 0, 6543, &number));
    /* Above all that it can have given in an epoch before, and somewhere else than another incarnation begins. */
    assert_in_range(number, (epoch << 20) + 2, (epoch << 20) + (1 << 19));
    uint64_t first = number;
    assert_ok(membership_order(sitting_isle[B]->membership, ORDER_STEPS, 0, 7654, &number));
    assert_int_equal(number, first + 1);
    sitting_end();
}

/* Withdrawn where it was given, it is carried out nowhere, whoever repeats it. */
static void an_order_that_was_withdrawn_is_carried_out_nowhere(void **state)
{
    (void)state;
    uint64_t number;
    struct membership_pending pending;
    uint32_t at = 0;
    sitting_begin_all("membership-withdraw");
    sitting_meet();
    struct membership *membership = sitting_isle[B]->membership;
    assert_ok(membership_order(membership, ORDER_REVOKE, C, 0, &number));
    assert_true(membership_pending(membership, &at, &pending));
    struct order order = *pending.order;
    assert_ok(membership_withdraw(membership, number));
    at = 0;
    assert_true(membership_pending(membership, &at, &pending));
    assert_int_equal(pending.order->kind, ORDER_VOID);
    sitting_pass_until_epoch(A, 1); /* at once, so that it is sure */
    assert_true(last(A)->orders_count == 1 && last(A)->orders[0].kind == ORDER_VOID);
    assert_int_equal(last(A)->members_count, 3);
    at = 0;
    assert_false(membership_pending(membership, &at, &pending));
    assert_true(config_order_done(last(A), &order));
    sitting_pass(SITTING_LONG_MS);
    assert_int_equal(sitting_epoch(A), 1);
    sitting_end();
}

/* What nobody would accept is not proposed, wherever it comes from: here a bit flips in an order that waits. */
static void what_does_not_follow_is_proposed_to_nobody(void **state)
{
    (void)state;
    struct membership_pending pending;
    uint32_t at = 0;
    bool tried = false;
    sitting_begin_all("membership-flipped");
    sitting_meet();
    struct membership *membership = sitting_isle[A]->membership;
    assert_ok(membership_order(membership, ORDER_STEPS, 0, 4321, NULL));
    assert_true(membership_pending(membership, &at, &pending));
    ((struct order *)(uintptr_t)pending.order)->value = 4322;
    for (int k = 0; sitting_epoch(A) == 0 && k < 500; k++) {
        char waits[300];
        membership_waits(membership, waits, sizeof waits);
        tried = tried || paxos_ballot_id(vote_last(sitting_isle[A]->vote)->promised) == A;
        assert_null(strstr(waits, "to accept the next configuration"));
        sitting_pass(10);
    }
    assert_true(tried);
    assert_int_equal(last(A)->steps, 4321); /* the others have it as it was */
    sitting_end();
}

/* Its disk is full, say, and nobody else has seen it: b cannot put c out by its own word, and people are told. */
static void who_broke_its_word_is_not_put_out_by_one_who_cannot_show_it(void **state)
{
    (void)state;
    sitting_begin_all("membership-evidence-lost");
    sitting_meet();
    membership_equivocation(sitting_isle[B]->membership, C, 0, 1);
    sitting_pass(SITTING_LONG_MS);
    assert_int_equal(sitting_epoch(A), 0);
    assert_true(membership_broke_word(sitting_isle[B]->membership, C));
    sitting_end();
}

/* C's disk is full, say, when it drains: the others decide it, and c cannot keep what they decided. */
static void what_is_decided_and_cannot_be_kept_is_told_until_it_can(void **state)
{
    (void)state;
    char aside[400], waits[300];
    sitting_begin_all("membership-unkept");
    sitting_meet();
    const struct membership_host *host = sitting_isle[C]->host;
    assert_string_equal(membership_host_unkept(host), "");
    snprintf(aside, sizeof aside, "%s-aside", sitting_isle[C]->conf.state_folder);
    assert_int_equal(rename(sitting_isle[C]->conf.state_folder, aside), 0);
    peers_drain(sitting_isle[C]->peers, true);
    sitting_pass(SITTING_LONG_MS);
    assert_true(sitting_epoch(A) > 0 && sitting_epoch(C) == 0);
    assert_non_null(strstr(membership_host_unkept(host), "cannot create"));
    membership_host_waits(host, waits, sizeof waits);
    assert_non_null(strstr(waits, "this island's disk: "));
    assert_int_equal(rename(aside, sitting_isle[C]->conf.state_folder), 0);
    for (int k = 0; sitting_epoch(C) == 0 && k < 20; k++)
        sitting_pass(1000);
    assert_true(sitting_epoch(C) > 0);
    assert_string_equal(membership_host_unkept(host), "");
    sitting_end();
}

static struct wire_join newcomer(const char *name, struct ident *ident)
{
    struct wire_join join = {.word = {.number = 1, .uplink = 1000000}};
    assert_ok(ident_generate(ident));
    snprintf(join.name, sizeof join.name, "%s", name);
    wire_join_sign(ident, config_log_last(sitting_isle[A]->configs.config_log)->nonce, &join);
    return join;
}

static void who_is_admitted_is_on_the_roster_once(void **state)
{
    (void)state;
    struct ident ident, other;
    sitting_begin_all("membership-admit");
    sitting_meet();
    struct membership *membership = sitting_isle[A]->membership;
    struct wire_join join = newcomer("delta", &ident), same = newcomer("delta", &other), taken = newcomer("b", &other),
                     unsigned_one = newcomer("epsilon", &other);
    unsigned_one.name[0] = 'E';
    assert_ok(membership_admit(membership, &join, true));
    assert_ok(membership_admit(membership, &join, true)); /* the same, once more */
    assert_fails(ERR_STATE, "an island called b is on the roster", membership_admit(membership, &taken, false));
    assert_fails(ERR_STATE, "did not sign", membership_admit(membership, &unsigned_one, false));
    snprintf(taken.name, sizeof taken.name, "beta");
    wire_join_sign(&sitting_run->idents[B], config_log_last(sitting_isle[A]->configs.config_log)->nonce, &taken);
    assert_fails(ERR_STATE, "that key is on the roster already, as island b",
                 membership_admit(membership, &taken, false));
    sitting_pass_until_epoch(B, 1);
    const struct config *config = config_log_last(sitting_isle[B]->configs.config_log);
    assert_int_equal(config->members_count, 4);
    assert_int_equal(config->members[3].id, 3);
    assert_string_equal(config->members[3].name, "delta");
    assert_true(config->members[3].contributor);
    assert_false(config->members[3].voter); /* it holds nothing yet */
    assert_fails(ERR_STATE, "an island called delta is on the roster", membership_admit(membership, &same, false));
    sitting_pass(SITTING_LONG_MS);
    assert_int_equal(sitting_epoch(B), 1);
    sitting_end();
}

/* ---- disks in doubt ---- */

static void assert_sure(uint32_t i, bool sure)
{
    assert_int_equal(vote_doubt(sitting_isle[i]->vote) == VOTE_SURE, sure);
    assert_int_equal(membership_votes(sitting_isle[i]->membership), sure);
}

static bool all_are_up(void)
{
    for (uint32_t i = 0; i < ISLANDS; i++)
        for (uint32_t k = 0; k < ISLANDS; k++)
            if (i != k && !peers_info(sitting_isle[i]->peers, k).up)
                return false;
    return true;
}

/* The first start of a run, in which nobody else is: what nobody has made, nobody can have forgotten. */
static void the_founders_first_disk_votes_at_once(void **state)
{
    (void)state;
    sitting_run = isle_run_new("membership-founder", 1, NULL);
    sitting_run->doubt = true;
    sitting_open(A, 0);
    sitting_pass(2000);
    assert_sure(A, true);
    assert_int_equal(sitting_epoch(A), 0);
    sitting_end();
}

/* It has nothing to catch up with: the next configuration names its disk. */
static void a_witness_s_new_disk_is_named_at_once(void **state)
{
    (void)state;
    sitting_begin_with_witness("membership-witness-disk");
    sitting_close(C);
    assert_int_equal(unlink(testlib_path(sitting_run->folder, "s-c/vote.mark")), 0);
    sitting_run->doubt = true;
    for (uint32_t i = A; i <= B; i++)
        store(i, 3, B); /* somebody has made something */
    sitting_open(C, 0);
    uint64_t incarnation = vote_incarnation(sitting_isle[C]->vote);
    sitting_meet();
    assert_sure(C, false);
    sitting_pass_until_epoch(A, 1);
    sitting_pass(1000);
    assert_int_equal(sitting_member(A, C)->as.incarnation, incarnation);
    assert_int_equal(sitting_member(A, C)->as.role, CONFIG_WITNESS);
    assert_sure(C, true);
    sitting_end();
}

/* What island c has on its disks. */
static void copy_home(const char *from, const char *to)
{
    static const char *const parts[] = {"state-c", "s-c"};
    for (size_t k = 0; k < sizeof parts / sizeof parts[0]; k++) {
        char command[1500];
        const char *folder = sitting_run->folder;
        snprintf(command, sizeof command, "mkdir -p '%s/%s' && rm -rf '%s/%s/%s' && cp -a '%s/%s/%s' '%s/%s/'", folder,
                 to, folder, to, parts[k], folder, from, parts[k], folder, to);
        assert_int_equal(system(command), 0);
    }
}

/* Its folder was copied, and a second daemon has begun on the copy, which a configuration names: the first one's disk
 * forgot nothing, and yet it has no vote beside that one, until it is named again itself. */
static void of_two_disks_of_one_key_the_one_that_is_named_votes(void **state)
{
    (void)state;
    sitting_begin_all("membership-copied");
    sitting_meet();
    assert_sure(C, true);
    uint64_t first = vote_incarnation(sitting_isle[C]->vote);
    sitting_close(C);
    copy_home(".", "first");
    assert_int_equal(unlink(testlib_path(sitting_run->folder, "s-c/vote.mark")), 0);
    sitting_run->doubt = true;
    sitting_open(C, 0);
    uint64_t copy = vote_incarnation(sitting_isle[C]->vote);
    sitting_pass_until_epoch(A, 1);
    sitting_pass(1000);
    assert_true(copy != first && sitting_member(A, C)->as.incarnation == copy);
    assert_sure(C, true);
    sitting_close(C);
    copy_home("first", ".");
    sitting_open(C, 0);
    assert_int_equal(vote_incarnation(sitting_isle[C]->vote), first);
    assert_sure(C, true); /* it does not know of configuration 1 */
    for (int k = 0; sitting_epoch(C) < 1 && k < 200; k++)
        sitting_pass(20);
    assert_int_equal(sitting_epoch(C), 1);
    assert_sure(C, false);
    assert_non_null(strstr(vote_why(sitting_isle[C]->vote), "names another disk"));
    sitting_pass_until_epoch(A, 2);
    sitting_pass(1000);
    assert_true(sitting_member(A, C)->as.incarnation == first);
    assert_sure(C, true);
    sitting_end();
}

/* The configuration before the one by which it recovered names the disk before it. */
static void a_disk_that_forgot_a_configuration_is_no_copy(void **state)
{
    (void)state;
    sitting_begin_all("membership-forgot");
    sitting_meet();
    sitting_close(C);
    assert_int_equal(unlink(testlib_path(sitting_run->folder, "s-c/vote.mark")), 0);
    sitting_run->doubt = true;
    sitting_open(C, 0);
    uint64_t second = vote_incarnation(sitting_isle[C]->vote);
    sitting_pass_until_epoch(A, 1);
    sitting_pass(1000);
    assert_true(sitting_member(C, C)->as.incarnation == second);
    assert_sure(C, true);
    sitting_close(C);
    assert_int_equal(unlink(testlib_path(sitting_run->folder, "state-c/config-000000000001")), 0);
    sitting_open(C, 0);
    assert_int_equal(sitting_epoch(C), 0);
    assert_true(vote_incarnation(sitting_isle[C]->vote) == second && sitting_member(C, C)->as.incarnation != second);
    for (int k = 0; sitting_epoch(C) < 1 && k < 200; k++) {
        assert_sure(C, true);
        sitting_pass(20);
    }
    assert_int_equal(sitting_epoch(C), 1);
    assert_sure(C, true);
    sitting_end();
}

/* Others hold a version, or a result: a new disk may have been asked to keep it. The next configuration names it. */
static void a_new_disk_among_others_that_have_made_something_waits_for_a_configuration(void **state)
{
    (void)state;
    for (int what = 0; what < 2; what++) {
        sitting_begin("membership-named");
        for (uint32_t i = A; i <= B; i++)
            sitting_open(i, what == 0 ? 1 : 0);
        for (uint32_t i = A; what == 1 && i <= B; i++)
            store(i, 3, B);
        isle_wait(peers_info(sitting_isle[A]->peers, B).up && peers_info(sitting_isle[B]->peers, A).up);
        sitting_run->doubt = true;
        sitting_open(C, what == 0 ? 1 : 0);
        uint64_t incarnation = vote_incarnation(sitting_isle[C]->vote);
        isle_wait((assert_sure(C, false), all_are_up())); /* whomever it has met */
        for (int k = 0; sitting_epoch(C) < 1 && k < 100; k++) {
            assert_sure(C, false);
            sitting_pass(250);
        }
        sitting_pass_until_epoch(A, 1);
        sitting_pass(1000);
        assert_int_equal(sitting_member(A, C)->as.incarnation, incarnation);
        assert_int_equal(sitting_member(A, C)->as.role, CONFIG_OWNER);
        assert_int_equal(sitting_epoch(C), 1);
        assert_sure(C, true);
        sitting_end();
    }
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_witness_s_new_disk_is_named_at_once),
        cmocka_unit_test(a_configuration_without_a_majoritys_votes_is_passed_over),
        cmocka_unit_test(who_is_off_the_roster_is_told_before_it_is_taken),
        cmocka_unit_test(whose_key_changes_is_told_before_it_is_taken),
        cmocka_unit_test(what_nobody_asked_for_is_not_checked),
        cmocka_unit_test(configurations_that_nobody_asked_for_are_rare),
        cmocka_unit_test(a_vote_that_cannot_be_kept_is_not_given_until_it_can),
        cmocka_unit_test(a_voter_agrees_that_who_is_gone_goes_and_to_nothing_else),
        cmocka_unit_test(each_ballot_waits_for_what_is_agreed_to_in_it),
        cmocka_unit_test(two_results_of_one_part_are_told_so_often_at_most),
        cmocka_unit_test(old_configurations_are_put_together),
        cmocka_unit_test(a_disk_that_takes_its_time_holds_back_the_vote_and_nothing_else),
        cmocka_unit_test(a_seal_names_what_was_held_and_nothing_is_acknowledged_after_it),
        cmocka_unit_test(what_one_island_orders_all_carry_out),
        cmocka_unit_test(a_word_is_its_speaker_s),
        cmocka_unit_test(who_broke_its_word_is_not_put_out_by_one_who_cannot_show_it),
        cmocka_unit_test(who_sends_a_false_order_is_named_each),
        cmocka_unit_test(who_proposes_what_may_not_follow_is_named_each),
        cmocka_unit_test(whose_disk_fails_again_and_again_fills_no_log),
        cmocka_unit_test(a_word_that_was_taken_back_counts_no_more),
        cmocka_unit_test(no_number_of_an_order_is_given_twice),
        cmocka_unit_test(an_order_that_was_withdrawn_is_carried_out_nowhere),
        cmocka_unit_test(what_does_not_follow_is_proposed_to_nobody),
        cmocka_unit_test(what_is_decided_and_cannot_be_kept_is_told_until_it_can),
        cmocka_unit_test(who_is_admitted_is_on_the_roster_once),
        cmocka_unit_test(of_two_disks_of_one_key_the_one_that_is_named_votes),
        cmocka_unit_test(a_disk_that_forgot_a_configuration_is_no_copy),
        cmocka_unit_test(the_founders_first_disk_votes_at_once),
        cmocka_unit_test(a_new_disk_among_others_that_have_made_something_waits_for_a_configuration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
