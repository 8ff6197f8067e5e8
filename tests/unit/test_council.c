/* council: who is lost and who comes back is decided by a majority that says so, and by no less; what is forged is
 * passed over; what cannot be made durable is not told. Islands with all their parts on loopback, or one of them among
 * played ones; the clock is the test's. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/mem.h"
#include "daemon/peers/council.h"
#include "tests/lib/isle.h"
#include "tests/lib/played.h"

enum { A, B, C, ISLANDS };
enum { TICK_MS = 250, AWAY_MS = 3000, LONG_MS = 10000, BEATS_MS = 1500 };

static struct isle_run *run;
static struct isle *isle[ISLANDS];   /* NULL: it is played, or not there */
static struct played *play[ISLANDS]; /* likewise */

/* Version 0 of every fragment is there, the same everywhere. */
static void know_states(struct isle *one, uint64_t version)
{
    for (uint32_t f = 0; f < ISLE_FRAGMENTS; f++) {
        struct digest hash = digest_of(&f, sizeof f);
        rounds_begin(one->rounds, f, &hash);
        sync_restore(one->sync, f, version, &hash);
    }
}

static void open_isle(uint32_t i, uint64_t version)
{
    isle[i] = isle_open(run, i, NULL, 0);
    isle[i]->engine = true;
    for (uint32_t k = 0; k < ISLANDS; k++)
        if (k != i && isle[k] != NULL)
            isle[i]->now_ms = isle[k]->now_ms;
    isle_know_plan(isle[i]);
    if (isle[i]->rounds != NULL)
        know_states(isle[i], version);
}

static void close_isle(uint32_t i)
{
    isle_close(isle[i]);
    isle[i] = NULL;
}

static void begin(const char *name)
{
    run = isle_run_new(name, ISLANDS, NULL);
    for (uint32_t i = 0; i < ISLANDS; i++)
        isle_listen(run, i);
}

static void begin_all(const char *name)
{
    begin(name);
    for (uint32_t i = 0; i < ISLANDS; i++)
        open_isle(i, 0);
}

/* Island a with all its parts, b and c played. */
static void begin_played(const char *name)
{
    run = isle_run_new(name, ISLANDS, NULL);
    for (uint32_t i = B; i < ISLANDS; i++)
        play[i] = played_open(run, i, 0, NULL);
    open_isle(A, 0);
    for (uint32_t i = B; i < ISLANDS; i++)
        played_greet(play[i], isle[A]);
}

static void end(void)
{
    for (uint32_t i = 0; i < ISLANDS; i++) {
        if (isle[i] != NULL)
            close_isle(i);
        if (play[i] != NULL)
            played_close(play[i]);
        play[i] = NULL;
    }
    isle_run_free(run);
}

/* ---- time ---- */

/* Enough turns for what is under way on loopback. */
static void settle(void)
{
    for (int k = 0; k < 3; k++)
        isle_turn_all();
}

static bool heard_lately(uint32_t i, uint32_t k)
{
    struct peer_info info = peers_info(isle[i]->peers, k);
    return !info.up || isle[i]->now_ms <= info.heard_ms + BEATS_MS;
}

static void pass(uint64_t ms)
{
    for (uint64_t at = 0; at < ms; at += TICK_MS) {
        for (uint32_t i = 0; i < ISLANDS; i++)
            if (isle[i] != NULL) {
                isle[i]->now_ms += TICK_MS;
                isle_tick(isle[i]);
                isle[i]->seen_count = 0; /* nobody looks at them */
            }
        settle();
        for (uint32_t i = 0; i < ISLANDS; i++)
            for (uint32_t k = 0; k < ISLANDS; k++)
                if (i != k && isle[i] != NULL && isle[k] != NULL)
                    isle_wait(heard_lately(i, k)); /* however slow this machine is: time is the test's */
    }
}

static uint64_t epoch_of(uint32_t i)
{
    return isle[i]->charter.view.epoch;
}

static const struct view_member *member(uint32_t i, uint32_t of)
{
    return &isle[i]->charter.view.members[of];
}

static void all_meet(void)
{
    for (uint32_t i = 0; i < ISLANDS; i++)
        for (uint32_t k = 0; k < ISLANDS; k++)
            if (isle[i] != NULL && isle[k] != NULL && i != k)
                isle_wait(peers_info(isle[i]->peers, k).up);
    pass(1000); /* heartbeats */
}

static void pass_until_epoch(uint32_t i, uint64_t epoch)
{
    for (int k = 0; epoch_of(i) < epoch && k < 20; k++)
        pass(1000);
    assert_int_equal(epoch_of(i), epoch);
    for (uint32_t k = 0; k < ISLANDS; k++)
        if (isle[k] != NULL)
            isle_wait(epoch_of(k) >= epoch); /* it is on its way */
}

/* ---- who is lost, and comes back ---- */

static void whom_a_majority_does_not_hear_is_lost_and_comes_back_by_itself(void **state)
{
    (void)state;
    begin_all("council-lost");
    all_meet();
    pass(LONG_MS / 2);
    assert_int_equal(epoch_of(A), 0); /* nothing is to be decided */
    close_isle(C);
    pass(AWAY_MS - 1000);
    assert_int_equal(epoch_of(A), 0);
    pass_until_epoch(A, 1);
    pass(1000);
    for (uint32_t i = A; i <= B; i++) {
        assert_int_equal(epoch_of(i), 1);
        assert_int_equal(member(i, C)->role, RECORD_AWAY);
        assert_int_equal(member(i, A)->role, RECORD_OWNER);
        struct chain_part parts[CHAIN_PARTS_MAX];
        uint32_t count = parts_of(&isle[i]->parts, 0, 1, parts);
        for (uint32_t p = 0; p < count; p++)
            assert_int_not_equal(parts[p].owner, C);
    }
    pass(LONG_MS);
    assert_int_equal(epoch_of(A), 1); /* once is enough */
    open_isle(C, 0);
    assert_int_equal(epoch_of(C), 0);
    pass_until_epoch(A, 2);
    pass(1000);
    for (uint32_t i = 0; i < ISLANDS; i++) {
        assert_int_equal(epoch_of(i), 2); /* and it has learned of epoch 1 */
        assert_int_equal(member(i, C)->role, RECORD_OWNER);
        assert_true(digest_equal(chain_last_digest(isle[i]->charter.chain), chain_last_digest(isle[A]->charter.chain)));
    }
    end();
}

/* C is silent to a alone: it is not lost, but it stands back, and stays back until a hears it again. */
static void whom_one_alone_does_not_hear_stands_back(void **state)
{
    (void)state;
    begin("council-one");
    play[C] = played_open(run, C, 0, NULL);
    open_isle(A, 0);
    open_isle(B, 0);
    isle_wait(peers_info(isle[A]->peers, B).up && peers_info(isle[B]->peers, A).up);
    played_greet(play[C], isle[B]);
    bool silent = false;
    for (int k = 0; k < LONG_MS / 1000; k++) {
        played_beat(play[C]);
        played_say(play[C], B);
        pass(1000);
        while (played_heard(play[C])) {
        }
        silent |= council_silent(peers_council(isle[A]->peers), C);
    }
    assert_false(silent);
    assert_false(peers_info(isle[A]->peers, C).up);
    for (uint32_t i = A; i <= B; i++) {
        assert_int_equal(epoch_of(i), 1); /* once is enough */
        assert_int_equal(member(i, A)->role, RECORD_OWNER);
        assert_int_equal(member(i, B)->role, RECORD_OWNER);
        assert_int_equal(member(i, C)->role, RECORD_AWAY);
        assert_true(member(i, C)->voter);
    }
    end();
}

/* C dies; a misses it a while before b does. It is never a, whose uplink is slower, that has to stand back. */
static void who_dies_puts_nobody_back(void **state)
{
    (void)state;
    run = isle_run_new("council-dies", ISLANDS, NULL);
    run->uplinks[C] = 2 * run->uplinks[A];
    for (uint32_t i = 0; i < ISLANDS; i++)
        isle_listen(run, i);
    play[C] = played_open(run, C, 0, NULL);
    open_isle(A, 0);
    open_isle(B, 0);
    isle_wait(peers_info(isle[A]->peers, B).up && peers_info(isle[B]->peers, A).up);
    for (uint32_t i = A; i <= B; i++)
        played_greet(play[C], isle[i]);
    for (int k = 0; k < 6; k++) {
        for (uint32_t to = A; to <= B && (to == B || k < 4); to++) {
            played_beat(play[C]);
            played_say(play[C], to);
        }
        pass(500);
        while (played_heard(play[C])) {
        }
    }
    pass_until_epoch(A, 1);
    pass(1000);
    for (uint32_t i = A; i <= B; i++) {
        assert_int_equal(epoch_of(i), 1);
        assert_int_equal(member(i, A)->role, RECORD_OWNER);
        assert_int_equal(member(i, B)->role, RECORD_OWNER);
        assert_int_equal(member(i, C)->role, RECORD_AWAY);
    }
    end();
}

static void a_minority_decides_nothing(void **state)
{
    (void)state;
    char text[200];
    begin_all("council-minority");
    all_meet();
    close_isle(B);
    close_isle(C);
    pass(2 * LONG_MS);
    assert_int_equal(epoch_of(A), 0);
    uint32_t heard;
    assert_int_equal(council_voters(peers_council(isle[A]->peers), &heard), 3);
    assert_int_equal(heard, 1);
    council_waits(peers_council(isle[A]->peers), text, sizeof text);
    assert_string_equal(text, ""); /* it has not even begun */
    end();
}

/* ---- a witness ---- */

/* Islands a and b, and a witness. */
static void begin_with_witness(const char *name, bool new_disks)
{
    run = isle_run_new(name, ISLANDS, NULL);
    run->witness = true;
    run->doubt = new_disks;
    for (uint32_t i = 0; i < ISLANDS; i++)
        isle_listen(run, i);
    for (uint32_t i = 0; i < ISLANDS; i++)
        open_isle(i, 0);
    all_meet();
}

static void beside_a_witness_one_goes_on(void **state)
{
    (void)state;
    begin_with_witness("council-witness", false);
    close_isle(B);
    pass(LONG_MS / 2);
    pass_until_epoch(A, 1);
    assert_int_equal(member(A, B)->role, RECORD_AWAY);
    assert_int_equal(member(C, C)->role, RECORD_WITNESS);
    assert_true(member(A, C)->voter && !member(A, B)->voter);
    assert_int_equal(charter_sync_view(&isle[A]->charter, true).certifying, 1);
    open_isle(B, 0);
    isle_wait(peers_info(isle[A]->peers, B).up && peers_info(isle[C]->peers, B).up);
    for (int k = 0; member(A, B)->role != RECORD_OWNER && k < 20; k++)
        pass(1000);
    assert_int_equal(member(A, B)->role, RECORD_OWNER);
    assert_true(member(A, B)->voter && member(A, C)->voter);
    end();
}

/* Without the witness the record would be no other, and nobody proposes one. */
static void a_witness_that_is_lost_costs_no_epoch(void **state)
{
    (void)state;
    begin_with_witness("council-witness-lost", false);
    close_isle(C);
    pass(LONG_MS);
    assert_true(council_silent(peers_council(isle[A]->peers), C));
    assert_int_equal(epoch_of(A), 0);
    assert_int_equal(council_sealed_ms(peers_council(isle[A]->peers)), 0);
    end();
}

/* Whether b hears within so many seconds that a proposes a record. Both others say that they do not hear a, which hears
 * them: who makes no result is named so, too. */
static bool a_proposes_within(int seconds)
{
    struct wire_epoch message;
    bool proposes = false;
    for (int k = 0; k < 2 * seconds && !proposes; k++) {
        for (uint32_t from = B; from <= C; from++) {
            struct wire_heartbeat *beat = played_beat(play[from]);
            beat->silent[beat->silent_count++] = A;
            played_say(play[from], A);
        }
        pass(500);
        played_settle(play[B], A, WIRE_HELLO);
        while (played_heard_epoch(play[B], &message)) {
            proposes |= message.type == WIRE_PREPARE;
            wire_epoch_deinit(&message);
        }
    }
    return proposes;
}

static void who_makes_no_result_gives_its_shards_away_itself(void **state)
{
    (void)state;
    begin_played("council-yields");
    assert_false(a_proposes_within(2)); /* a line that is back looks the same at first */
    assert_true(a_proposes_within(5));
    end();
}

/* One copy certifies, so that island a goes on alone; to let b in again it needs the witness, and does not stop for
 * what nobody can decide. */
static void who_cannot_decide_does_not_seal_itself(void **state)
{
    (void)state;
    begin_with_witness("council-witness-both", false);
    close_isle(B);
    pass(LONG_MS / 2);
    pass_until_epoch(A, 1);
    close_isle(C);
    pass(LONG_MS);
    open_isle(B, 0);
    isle_wait(peers_info(isle[A]->peers, B).up && peers_info(isle[B]->peers, A).up);
    pass(LONG_MS);
    assert_int_equal(epoch_of(A), 1);
    assert_int_equal(council_sealed_ms(peers_council(isle[A]->peers)), 0);
    open_isle(C, 0);
    isle_wait(peers_info(isle[A]->peers, C).up);
    for (int k = 0; member(A, B)->role != RECORD_OWNER && k < 20; k++)
        pass(1000);
    assert_int_equal(member(A, B)->role, RECORD_OWNER);
    end();
}

/* ---- what is decided ---- */

static void send_decided(const struct record *record, const struct ident *first, const struct ident *second,
                         uint32_t count)
{
    struct wire_epoch message = {.type = WIRE_DECIDED};
    struct record_vote votes[2] = {{.id = B, .ballot = 7}, {.id = C, .ballot = 7}};
    uint8_t *bytes;
    size_t bytes_count;
    assert_ok(record_pack(record, &bytes, &bytes_count));
    struct digest digest = record_digest(bytes, bytes_count);
    record_vote_sign(first, record->nonce, record->epoch, 7, &digest, votes[0].signature);
    record_vote_sign(second, record->nonce, record->epoch, 7, &digest, votes[1].signature);
    message.decided.record = bytes;
    message.decided.record_bytes = bytes_count;
    message.decided.votes = votes;
    message.decided.votes_count = count;
    played_say_epoch(play[B], A, &message);
    mem_free(bytes);
    played_settle(play[B], A, WIRE_HELLO);
}

static void a_record_without_a_majoritys_votes_is_passed_over(void **state)
{
    (void)state;
    struct ident other;
    begin_played("council-forged");
    assert_ok(ident_generate(&other));
    struct record record = isle_next_record(isle[A]);
    record.steps++;
    send_decided(&record, &run->idents[B], &run->idents[C], 0);
    send_decided(&record, &run->idents[B], &run->idents[C], 1);
    send_decided(&record, &run->idents[B], &other, 2);
    send_decided(&record, &run->idents[B], &run->idents[B], 2); /* one cannot vote for two */
    assert_int_equal(epoch_of(A), 0);
    record.epoch++; /* votes for another record */
    send_decided(&record, &run->idents[B], &run->idents[C], 2);
    assert_int_equal(epoch_of(A), 0);
    record.epoch--;
    send_decided(&record, &run->idents[B], &run->idents[C], 2);
    assert_int_equal(epoch_of(A), 1);
    assert_int_equal(chain_last(isle[A]->charter.chain)->steps, record.steps);
    /* It is kept: who starts again knows it. */
    close_isle(A);
    open_isle(A, 0);
    assert_int_equal(epoch_of(A), 1);
    record_deinit(&record);
    end();
}

/* ---- votes ---- */

static void say_prepare(uint32_t from, uint32_t counter)
{
    struct wire_epoch prepare = {.type = WIRE_PREPARE, .epoch = 1, .ballot = (uint64_t)counter << 32 | from};
    played_say_epoch(play[from], A, &prepare);
    played_settle(play[from], A, WIRE_HELLO);
}

static void a_vote_that_cannot_be_kept_is_not_given_until_it_can(void **state)
{
    (void)state;
    struct wire_epoch answer;
    char aside[400];
    begin_played("council-disk");
    snprintf(aside, sizeof aside, "%s-aside", isle[A]->conf.state_folder);
    assert_int_equal(rename(isle[A]->conf.state_folder, aside), 0);
    say_prepare(B, 1);
    pass(500);
    played_settle(play[B], A, WIRE_HELLO);
    assert_false(played_heard_epoch(play[B], &answer));
    assert_true(council_sealed_ms(peers_council(isle[A]->peers)) > 0); /* but nothing is acknowledged any more */
    assert_int_equal(rename(aside, isle[A]->conf.state_folder), 0);
    pass(500);
    isle_wait(played_heard_epoch(play[B], &answer));
    assert_int_equal(answer.type, WIRE_PROMISE);
    assert_int_equal(answer.ballot, (uint64_t)1 << 32 | B);
    wire_epoch_deinit(&answer);
    assert_int_equal(vote_last(isle[A]->vote)->promised, (uint64_t)1 << 32 | B);
    end();
}

static void store(uint32_t i, uint32_t f, uint32_t owner)
{
    struct digest hash = digest_of(&owner, sizeof owner);
    isle_step(
        isle[i],
        &(struct sync_event){
            .type = SYNC_EV_STORED, .fragment = f, .member = SYNC_NOBODY, .owner = owner, .version = 1, .hash = hash});
}

/* Whether island a tells the others that it holds the owner's result. */
static bool acknowledges(uint32_t f, uint32_t owner)
{
    const struct chain_part *parts;
    struct digest digest;
    bool acknowledged = false;
    uint32_t count = sync_parts(isle[A]->sync, f, &parts);
    for (uint32_t p = 0; p < count; p++)
        if (parts[p].owner == owner && sync_held(isle[A]->sync, f, p, &digest, &acknowledged))
            return acknowledged;
    return false;
}

static void a_seal_names_what_was_held_and_nothing_is_acknowledged_after_it(void **state)
{
    (void)state;
    struct wire_epoch answer;
    begin_played("council-seal");
    store(A, 3, B);
    assert_true(acknowledges(3, B));
    say_prepare(B, 1);
    isle_wait(played_heard_epoch(play[B], &answer));
    assert_int_equal(answer.type, WIRE_PROMISE);
    assert_true(answer.promise.sealed);
    assert_int_equal(answer.promise.rows_count, ISLE_FRAGMENTS);
    for (uint32_t f = 0; f < ISLE_FRAGMENTS; f++) {
        const struct wire_row *row = &answer.promise.rows[f];
        assert_int_equal(row->held_count, f == 3 ? 1 : 0);
        assert_true(row->version == 0 && row->hash_known);
    }
    struct digest hash = digest_of(&(uint32_t){B}, sizeof(uint32_t));
    assert_int_equal(answer.promise.rows[3].held[0].owner, B);
    assert_true(digest_equal(&answer.promise.rows[3].held[0].digest, &hash));
    wire_epoch_deinit(&answer);
    store(A, 4, C);
    assert_false(acknowledges(4, C));
    assert_true(acknowledges(3, B)); /* what was said is not taken back */
    /* A lower ballot is turned down, and a higher one gets its answer. */
    say_prepare(C, 1);
    isle_wait(played_heard_epoch(play[C], &answer));
    assert_int_equal(answer.type, WIRE_PROMISE);
    wire_epoch_deinit(&answer);
    say_prepare(B, 1);
    isle_wait(played_heard_epoch(play[B], &answer));
    assert_int_equal(answer.type, WIRE_REJECT);
    wire_epoch_deinit(&answer);
    end();
}

/* ---- wishes ---- */

/* As its hello says to all. */
static void c_drains(void)
{
    const struct council_said said = {.address = member(A, C)->address, .draining = true};
    for (uint32_t i = 0; i < ISLANDS; i++)
        council_said(peers_council(isle[i]->peers), C, &said);
}

static void what_one_island_wishes_all_decide(void **state)
{
    (void)state;
    begin_all("council-wish");
    all_meet();
    struct council *council = peers_council(isle[B]->peers);
    assert_fails(ERR_NOTFOUND, "no island of id 99", council_wish(council, WIRE_WISH_EVICT, 99, 0));
    assert_fails(ERR_ARG, "a wish of kind 4", council_wish(council, WIRE_WISH_ENROL, C, 0));
    assert_ok(council_wish(council, WIRE_WISH_EVICT, C, 7)); /* said of another epoch: it may have come back since */
    pass(3000);
    assert_int_equal(epoch_of(A), 0);
    assert_ok(council_wish(council, WIRE_WISH_EVICT, C, 0));
    pass_until_epoch(A, 1);
    assert_int_equal(member(A, C)->role, RECORD_AWAY);
    pass_until_epoch(A, 2); /* it is well, and comes back by itself */
    assert_int_equal(member(A, C)->role, RECORD_OWNER);
    c_drains();
    pass_until_epoch(A, 3);
    assert_int_equal(member(A, C)->role, RECORD_DRAINING);
    assert_ok(council_wish(council, WIRE_WISH_STEPS, 0, 4321));
    pass_until_epoch(A, 4);
    assert_int_equal(chain_last(isle[A]->charter.chain)->steps, 4321);
    pass(LONG_MS);
    assert_int_equal(epoch_of(A), 4);
    end();
}

/* C's disk is full, say, when it drains: the others decide it, and c cannot keep what they decided. */
static void what_is_decided_and_cannot_be_kept_is_told_until_it_can(void **state)
{
    (void)state;
    char aside[400], waits[300];
    begin_all("council-unkept");
    all_meet();
    const struct council *council = peers_council(isle[C]->peers);
    assert_string_equal(council_unkept(council), "");
    snprintf(aside, sizeof aside, "%s-aside", isle[C]->conf.state_folder);
    assert_int_equal(rename(isle[C]->conf.state_folder, aside), 0);
    c_drains();
    pass(LONG_MS);
    assert_true(epoch_of(A) > 0 && epoch_of(C) == 0);
    assert_non_null(strstr(council_unkept(council), "cannot create"));
    council_waits(council, waits, sizeof waits);
    assert_non_null(strstr(waits, "this island's disk: "));
    assert_int_equal(rename(aside, isle[C]->conf.state_folder), 0);
    for (int k = 0; epoch_of(C) == 0 && k < 20; k++)
        pass(1000);
    assert_true(epoch_of(C) > 0);
    assert_string_equal(council_unkept(council), "");
    end();
}

static struct record_member newcomer(const char *name, struct ident *ident)
{
    struct record_member as = {.uplink = 1000000, .role = RECORD_OBSERVER};
    assert_ok(ident_generate(ident));
    snprintf(as.name, sizeof as.name, "%s", name);
    memcpy(as.key, ident->key, sizeof as.key);
    return as;
}

static void who_is_enrolled_is_on_the_roster_once(void **state)
{
    (void)state;
    struct ident ident, other;
    begin_all("council-enrol");
    all_meet();
    struct council *council = peers_council(isle[A]->peers);
    struct record_member as = newcomer("delta", &ident), same = newcomer("delta", &other),
                         taken = newcomer("b", &other);
    assert_ok(council_enrol(council, &as));
    assert_ok(council_enrol(council, &as));
    assert_fails(ERR_STATE, "delta is being enrolled already", council_enrol(council, &same));
    assert_fails(ERR_STATE, "an island called b is on the roster", council_enrol(council, &taken));
    snprintf(taken.name, sizeof taken.name, "beta");
    memcpy(taken.key, run->idents[B].key, sizeof taken.key);
    assert_fails(ERR_STATE, "that key is on the roster already, as island b", council_enrol(council, &taken));
    pass_until_epoch(B, 1);
    const struct record *record = chain_last(isle[B]->charter.chain);
    assert_int_equal(record->members_count, 4);
    assert_int_equal(record->members[3].id, 3);
    assert_string_equal(record->members[3].name, "delta");
    assert_false(record->members[3].voter); /* it holds nothing yet */
    assert_ok(council_enrol(council, &as)); /* said once more: it is there */
    assert_fails(ERR_STATE, "an island called delta is on the roster", council_enrol(council, &same));
    pass(LONG_MS);
    assert_int_equal(epoch_of(B), 1);
    end();
}

/* ---- disks in doubt ---- */

static void assert_sure(uint32_t i, bool sure)
{
    assert_int_equal(vote_doubt(isle[i]->vote) == VOTE_SURE, sure);
    assert_int_equal(council_votes(peers_council(isle[i]->peers)), sure);
}

/* The first start of a run: what nobody has made, nobody can have forgotten. One who is not here may have. */
static void new_disks_vote_when_all_are_here_and_have_made_nothing(void **state)
{
    (void)state;
    begin("council-fresh");
    run->doubt = true;
    open_isle(A, 0);
    pass(2000);
    assert_sure(A, false);
    open_isle(B, 0);
    isle_wait(peers_info(isle[A]->peers, B).up && peers_info(isle[B]->peers, A).up);
    pass(LONG_MS);
    assert_sure(A, false);
    assert_sure(B, false);
    open_isle(C, 0);
    all_meet();
    pass(2000);
    for (uint32_t i = A; i <= C; i++)
        assert_sure(i, true);
    assert_int_equal(epoch_of(A), 0);
    end();
}

static void so_they_do_beside_a_witness(void **state)
{
    (void)state;
    begin_with_witness("council-fresh-witness", true);
    pass(2000);
    for (uint32_t i = A; i <= C; i++)
        assert_sure(i, true);
    assert_int_equal(epoch_of(A), 0);
    end();
}

/* It has nothing to catch up with: the next record names its disk. */
static void a_witness_s_new_disk_is_named_at_once(void **state)
{
    (void)state;
    begin_with_witness("council-witness-disk", false);
    close_isle(C);
    assert_int_equal(unlink(testlib_path(run->folder, "s-c/vote.mark")), 0);
    run->doubt = true;
    for (uint32_t i = A; i <= B; i++)
        store(i, 3, B); /* somebody has made something */
    open_isle(C, 0);
    uint64_t incarnation = vote_incarnation(isle[C]->vote);
    all_meet();
    assert_sure(C, false);
    pass_until_epoch(A, 1);
    pass(1000);
    assert_int_equal(member(A, C)->incarnation, incarnation);
    assert_int_equal(member(A, C)->role, RECORD_WITNESS);
    assert_sure(C, true);
    end();
}

/* Others hold a version, or a result: a new disk may have been asked to keep it. The next record names it. */
static void a_new_disk_among_others_that_have_made_something_waits_for_a_record(void **state)
{
    (void)state;
    for (int what = 0; what < 2; what++) {
        begin("council-named");
        for (uint32_t i = A; i <= B; i++)
            open_isle(i, what == 0 ? 1 : 0);
        for (uint32_t i = A; what == 1 && i <= B; i++)
            store(i, 3, B);
        isle_wait(peers_info(isle[A]->peers, B).up && peers_info(isle[B]->peers, A).up);
        run->doubt = true;
        open_isle(C, what == 0 ? 1 : 0);
        uint64_t incarnation = vote_incarnation(isle[C]->vote);
        for (int k = 0; epoch_of(C) < 1 && k < 200; k++) {
            assert_sure(C, false); /* whomever it has met */
            pass(100);
        }
        pass_until_epoch(A, 1);
        pass(1000);
        assert_int_equal(member(A, C)->incarnation, incarnation);
        assert_int_equal(member(A, C)->role, RECORD_OWNER);
        assert_int_equal(epoch_of(C), 1);
        assert_sure(C, true);
        end();
    }
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whom_a_majority_does_not_hear_is_lost_and_comes_back_by_itself),
        cmocka_unit_test(whom_one_alone_does_not_hear_stands_back),
        cmocka_unit_test(who_dies_puts_nobody_back),
        cmocka_unit_test(a_minority_decides_nothing),
        cmocka_unit_test(beside_a_witness_one_goes_on),
        cmocka_unit_test(a_witness_that_is_lost_costs_no_epoch),
        cmocka_unit_test(who_makes_no_result_gives_its_shards_away_itself),
        cmocka_unit_test(who_cannot_decide_does_not_seal_itself),
        cmocka_unit_test(so_they_do_beside_a_witness),
        cmocka_unit_test(a_witness_s_new_disk_is_named_at_once),
        cmocka_unit_test(a_record_without_a_majoritys_votes_is_passed_over),
        cmocka_unit_test(a_vote_that_cannot_be_kept_is_not_given_until_it_can),
        cmocka_unit_test(a_seal_names_what_was_held_and_nothing_is_acknowledged_after_it),
        cmocka_unit_test(what_one_island_wishes_all_decide),
        cmocka_unit_test(what_is_decided_and_cannot_be_kept_is_told_until_it_can),
        cmocka_unit_test(who_is_enrolled_is_on_the_roster_once),
        cmocka_unit_test(new_disks_vote_when_all_are_here_and_have_made_nothing),
        cmocka_unit_test(a_new_disk_among_others_that_have_made_something_waits_for_a_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
