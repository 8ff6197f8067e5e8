/* SPDX-License-Identifier: Apache-2.0 */
/* status: one event is one entry, whatever follows from it; the island's own faults come first; and what to do about
 * others goes by what is wrong with them. One island with all its parts, others played; or a status of nowhere. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/digest.h"
#include "common/mem.h"
#include "daemon/control/complaint_events.h"
#include "daemon/control/complaints.h"
#include "daemon/control/status.h"
#include "daemon/trainer/process.h"
#include "tests/lib/complains.h"
#include "tests/lib/look.h"

enum { D = LOOK_C + 1 };
enum { SILENT_MS = 2500, BLOCKED_MS = 60000 };

/* Time is kept account of. */
static void begin_run(const char *name, uint32_t count)
{
    look_begin_run(name, count, NULL);
    assert_ok(progress_new(&look.progress));
}

static void begin(const char *name, uint32_t count)
{
    look_begin(name, count, NULL);
    assert_ok(progress_new(&look.progress));
    played_greet(look.b, look.a);
    if (look.c != NULL)
        played_greet(look.c, look.a);
}

static const struct status *take(void)
{
    if (look.a->plan != NULL)
        progress_note(look.progress, look.a->sync, ISLE_FRAGMENTS, look.a->configs.view.count, 0, look.a->now_ms);
    return look_take();
}

/* A round of a fragment is under way from now on; our trainer goes on. */
static void contribute(uint32_t f)
{
    look_contribute(f);
    take();
}

static void beat(struct played *who)
{
    struct event event;
    who->out.heartbeat.sequence = ++who->sequence;
    who->out.heartbeat.trainer = WIRE_TRAINER_TRAINING;
    played_say(who, LOOK_A);
    isle_wait(isle_took_sync(look.a, SYNC_EV_HEARTBEAT, &event));
}

static void let_time_go_by(uint64_t ms)
{
    look.a->now_ms += ms;
    if (look.c != NULL)
        beat(look.c);
    isle_tick(look.a);
    look_train(2);
}

static void assert_events(const char *codes)
{
    char text[400] = "";
    for (uint32_t i = 0; i < look.status.complaints_count; i++)
        if (complaint_is_event(&look.status, i))
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", text[0] != '\0' ? " " : "",
                     complaint_name(look.status.complaints[i].code));
    assert_string_equal(text, codes);
}

static void assert_of(enum complaint_code code, enum complaint_code of)
{
    const struct complaint *complaint = complaint_of(&look.status, code);
    assert_non_null(complaint);
    assert_string_equal(complaint_name(look.status.complaints[complaint->of].code), complaint_name(of));
}

/* ---- others that are gone ---- */

static void the_other_one_of_two_that_is_gone_is_one_event(void **state)
{
    (void)state;
    char line[400];
    begin("events-two", 2);
    look_train(1);
    assert_int_equal(take()->complaints_count, 0);
    contribute(2);
    let_time_go_by(BLOCKED_MS + 1);
    take();
    assert_events("no-majority");
    assert_complains(&look.status, COMPLAINT_NO_MAJORITY,
                     "no round closes until b is back; island b was last heard of 60 s ago: silent");
    assert_of(COMPLAINT_AWAY, COMPLAINT_NO_MAJORITY);
    assert_of(COMPLAINT_ALONE, COMPLAINT_NO_MAJORITY);
    assert_of(COMPLAINT_BLOCKED, COMPLAINT_NO_MAJORITY);
    status_line(&look.status, line, sizeof line);
    assert_non_null(strstr(line, "; degraded: 1 of the 2 islands that vote are heard"));
    json_t *json = status_json(&look.status);
    const json_t *list = json_object_get(json, "degraded");
    for (uint32_t i = 0; i < look.status.complaints_count; i++)
        assert_string_equal(json_string_value(json_object_get(json_array_get(list, i), "of")),
                            complaint_is_event(&look.status, i) ? "" : "no-majority");
    json_decref(json);
    look_end();
}

static void one_of_three_that_is_gone_is_one_event_and_so_is_each_other_one(void **state)
{
    (void)state;
    begin("events-three", 3);
    look_train(1);
    contribute(2);
    played_beat(look.c)->fragments[2].at.contributed = 1;
    let_time_go_by(BLOCKED_MS + 1);
    take();
    assert_events("away");
    assert_of(COMPLAINT_BLOCKED, COMPLAINT_AWAY);
    look.c->out.heartbeat.fragments[2].at.contributed = 0; /* it is here, and it is not b alone that is waited for */
    beat(look.c);
    take();
    assert_events("away blocked");
    look_end();
}

static void one_that_would_not_talk_is_the_event(void **state)
{
    (void)state;
    begin_run("events-refused", 2);
    look.a = isle_open(look.run, LOOK_A, NULL, 0);
    isle_know_plan(look.a);
    look.a->engine = true;
    look_train(1);
    played_hello(look.b)->run_id.byte[0] ^= 1;
    played_say(look.b, LOOK_A);
    isle_wait(peers_info(look.a->peers, LOOK_B).refused);
    take();
    assert_events("refused");
    assert_of(COMPLAINT_NO_MAJORITY, COMPLAINT_REFUSED);
    assert_of(COMPLAINT_ALONE, COMPLAINT_REFUSED);
    look_end();
}

/* ---- ourselves ---- */

static void our_own_faults_come_first(void **state)
{
    (void)state;
    static char text[400];
    begin_run("events-own", 2);
    const char *program = testlib_file(look.run->folder, "trainer", "#!/bin/sh\nexit 3\n");
    assert_int_equal(chmod(program, 0755), 0);
    snprintf(text, sizeof text, "worker.program=%s", program);
    struct conf_override overrides[] = {{text}, {"worker.autostart=no"}};
    look.a = isle_open(look.run, LOOK_A, overrides, 2);
    assert_ok(trainer_join(look.a->trainer, look.a->now_ms));
    isle_wait(trainer_phase(look.a->trainer) == TRAINER_RESTARTING);
    take();
    assert_events("restarting no-majority");
    look_end();
}

/* It is what its people asked for; the next one that is not is told. */
static void a_trainer_that_was_asked_to_leave_is_nothing_wrong(void **state)
{
    (void)state;
    static char text[400];
    bool killed;
    begin_run("events-leave", 1);
    const char *program = testlib_file(look.run->folder, "trainer", "#!/bin/sh\nexec sleep 100\n");
    assert_int_equal(chmod(program, 0755), 0);
    snprintf(text, sizeof text, "worker.program=%s", program);
    struct conf_override overrides[] = {{text}, {"worker.autostart=no"}};
    look.a = isle_open(look.run, LOOK_A, overrides, 2);
    take();
    assert_events("stopped"); /* nobody has asked for anything */
    assert_ok(trainer_join(look.a->trainer, look.a->now_ms));
    assert_ok(trainer_leave_now(look.a->trainer, &killed));
    isle_wait(!process_running(look.a->trainer->process));
    assert_int_equal(take()->phase, TRAINER_STOPPED);
    assert_events("");
    look_end();
}

/* ---- the same batches ---- */

static struct alike *alike;

/* Our trainer has this loss at this step, and b says that its own has that one. */
static void both_train(uint64_t step, double ours, double theirs)
{
    struct event event;
    played_trainer_say(look.trainer, &(struct ipc_message){.type = IPC_REPORT,
                                                           .report = {.step = step, .tokens = step, .loss = ours}});
    look.b->out.heartbeat.sequence = ++look.b->sequence;
    look.b->out.heartbeat.trainer = WIRE_TRAINER_TRAINING;
    look.b->out.heartbeat.step = step;
    memcpy(&look.b->out.heartbeat.loss, &theirs, sizeof theirs);
    played_say(look.b, LOOK_A);
    isle_wait(isle_took_sync(look.a, SYNC_EV_HEARTBEAT, &event));
    alike_note(alike, &look.a->configs.view, look.a->peers, look.a->trainer);
}

static bool is_told(void)
{
    struct status_conf conf = isle_status_conf(look.a);
    conf.alike = alike;
    status_deinit(&look.status);
    assert_ok(status_take(&conf, look.a->now_ms, &look.status));
    return complaint_of(&look.status, COMPLAINT_SAME_BATCHES) != NULL;
}

static double loss_at(uint64_t step)
{
    return 2 + 0.001 * (double)(step * 7919 % 1000);
}

/* A fixed seed on both: all losses agree, and nobody adds anything. */
static void who_trains_the_same_batches_is_told(void **state)
{
    (void)state;
    begin("events-alike", 2);
    assert_ok(alike_new(&alike));
    look_train(1);
    played_beat(look.b);
    for (uint64_t step = 2; step < 11; step++) {
        both_train(step, loss_at(step), loss_at(step) * (1 + 1e-7));
        assert_false(is_told());
    }
    both_train(11, loss_at(11), loss_at(11));
    assert_true(is_told());
    assert_complains(&look.status, COMPLAINT_SAME_BATCHES,
                     "this island and island b train the same batches: in the last 10 reports their losses agree");
    both_train(12, loss_at(12), loss_at(12) * (1 + 1e-5)); /* five digits */
    assert_false(is_told());
    for (uint64_t step = 13; step < 30; step++) /* of a loss that never changes it tells nothing */
        both_train(step, 2.5, 2.5);
    assert_false(is_told());
    both_train(30, loss_at(30), 0); /* nor of one that is not said */
    assert_false(is_told());
    for (uint64_t step = 31; step < 45; step++)
        both_train(step, loss_at(step), loss_at(step));
    assert_true(is_told());
    assert_ok(trainer_leave(look.a->trainer, &(struct trainer_leaving){0}));
    alike_note(alike, &look.a->configs.view, look.a->peers, look.a->trainer);
    assert_false(is_told()); /* one of them does not train any more */
    alike_free(alike);
    look_end();
}

/* B is ahead: what it said is compared when we have come there. */
static void whoever_is_ahead_is_compared_later(void **state)
{
    (void)state;
    begin("events-ahead", 2);
    assert_ok(alike_new(&alike));
    look_train(1);
    played_beat(look.b);
    for (uint64_t step = 20; step < 32; step++) {
        both_train(step - 18, 1, loss_at(step)); /* ours are at 2 to 13, and others */
        look.b->out.heartbeat.step = step;
        look.b->out.heartbeat.sequence = ++look.b->sequence;
        struct event event;
        played_say(look.b, LOOK_A);
        isle_wait(isle_took_sync(look.a, SYNC_EV_HEARTBEAT, &event));
        alike_note(alike, &look.a->configs.view, look.a->peers, look.a->trainer);
    }
    assert_false(is_told());
    for (uint64_t step = 20; step < 32; step++) {
        struct ipc_report report = {.step = step, .tokens = step, .loss = loss_at(step)};
        played_trainer_say(look.trainer, &(struct ipc_message){.type = IPC_REPORT, .report = report});
    }
    alike_note(alike, &look.a->configs.view, look.a->peers, look.a->trainer);
    assert_true(is_told());
    alike_free(alike);
    look_end();
}

/* ---- of nowhere ---- */

static struct view_member members[4];
static struct status_peer rows[4];
static struct view view = {.members = members, .count = 4, .self = LOOK_A};
static struct runspec spec = {.late = RUNSPEC_MERGE};
static const struct dconf conf;
static const struct status_conf from = {.view = &view, .spec = &spec, .conf = &conf};

/* Four islands that vote, of which so many are heard. */
static void imagine(uint32_t heard)
{
    static struct complaint complaints[100];
    look.status = (struct status){.from = &from, .phase = TRAINER_TRAINING, .complaints = complaints, .islands = 4};
    look.status.deaf = "";
    look.status.islands_up = heard;
    look.status.epoch = (struct status_epoch){
        .voters = 4, .voters_heard = heard, .voters_sure = heard, .majority = heard > 2, .doubt = "", .unkept = ""};
    for (uint32_t i = 0; i < 4; i++) {
        members[i] = (struct view_member){.used = true, .as.voter = true, .as.role = CONFIG_OWNER, .as.address = ""};
        snprintf(members[i].as.name, sizeof members[i].as.name, "%c", "abcd"[i]);
        rows[i] =
            (struct status_peer){.member = &members[i], .self = i == LOOK_A, .up = i < heard, .note = "", .fault = ""};
    }
    look.status.peers = rows;
}

static void forget(void)
{
    look.status = (struct status){.from = NULL};
}

static const char *remedy_of(enum complaint_code code)
{
    const struct complaint *complaint = complaint_of(&look.status, code);
    assert_non_null(complaint);
    return complaint->remedy;
}

/* Neither half is a majority, and the people there should know what would make one. */
static void two_halves_are_told_that_a_witness_helps(void **state)
{
    (void)state;
    imagine(2);
    complaints_all(&look.status);
    assert_events("no-majority");
    assert_complains(&look.status, COMPLAINT_NO_MAJORITY,
                     "2 of the 4 islands that vote are heard, no majority: no round "
                     "closes until one of c, d is back");
    assert_non_null(strstr(remedy_of(COMPLAINT_NO_MAJORITY), "with a witness one half would go on"));
    imagine(1); /* it would not */
    complaints_all(&look.status);
    assert_null(strstr(remedy_of(COMPLAINT_NO_MAJORITY), "witness"));
    imagine(2); /* there is one already */
    members[D].as.role = CONFIG_WITNESS;
    complaints_all(&look.status);
    assert_null(strstr(remedy_of(COMPLAINT_NO_MAJORITY), "with a witness"));
    forget();
}

/* Its people and ours hear at the same time what is to be done. */
static void a_newcomer_that_cannot_be_talked_to_is_told_for_a_minute(void **state)
{
    (void)state;
    imagine(4);
    look.status.refused.newcomer = "it speaks protocol version 9, we speak 2";
    look.status.refused.newcomer_ms = 5000;
    look.status.now_ms = 64999;
    complaints_all(&look.status);
    assert_complains(&look.status, COMPLAINT_REFUSED,
                     "a newcomer with a token was refused: it speaks protocol version 9");
    assert_non_null(strstr(remedy_of(COMPLAINT_REFUSED), "install the same release"));
    look.status.complaints_count = 0;
    look.status.now_ms++;
    complaints_all(&look.status);
    assert_silent(&look.status, COMPLAINT_REFUSED);
    forget();
}

static void only_whose_word_is_false_is_to_be_revoked(void **state)
{
    (void)state;
    static const struct {
        enum peer_fault kind;
        bool revoke;
    } kinds[] = {{PEER_FAULT_LATE, false}, {PEER_FAULT_STUCK, false}, {PEER_FAULT_FALSE, true}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        imagine(4);
        rows[LOOK_B].fault = "something is wrong";
        rows[LOOK_B].fault_kind = kinds[i].kind;
        complaints_all(&look.status);
        assert_complains(&look.status, COMPLAINT_FAULT, "island b: something is wrong");
        assert_int_equal(strstr(remedy_of(COMPLAINT_FAULT), "revoke") != NULL, kinds[i].revoke);
    }
    forget();
}

/* It is no fault of its own, and passes. */
static void one_that_is_fast_is_warned_of(void **state)
{
    (void)state;
    imagine(4);
    spec.weight_max = 4;
    rows[LOOK_B].too_fast = true;
    complaints_all(&look.status);
    assert_complains(&look.status, COMPLAINT_TOO_FAST, "island b trains, as it says, more than 4 times (weight_max)");
    assert_silent(&look.status, COMPLAINT_FAULT);
    assert_null(strstr(remedy_of(COMPLAINT_TOO_FAST), "revoke"));
    assert_non_null(strstr(remedy_of(COMPLAINT_TOO_FAST), "owner NAME"));
    rows[LOOK_B].too_fast = false;
    look.status.complaints_count = 0;
    complaints_all(&look.status);
    assert_silent(&look.status, COMPLAINT_TOO_FAST);
    forget();
}

static void all_about_one_that_is_late_is_one_event(void **state)
{
    (void)state;
    imagine(4);
    look.status.trainer.training = true;
    spec.interval = 10;
    rows[LOOK_B] = (struct status_peer){.member = &members[LOOK_B],
                                        .up = true,
                                        .note = "",
                                        .fault = "late",
                                        .fault_kind = PEER_FAULT_LATE,
                                        .training = true,
                                        .own_step = 100,
                                        .missed = 5,
                                        .too_late = true};
    complaints_all(&look.status);
    assert_events("fault");
    assert_of(COMPLAINT_SLOW_PEER, COMPLAINT_FAULT);
    assert_of(COMPLAINT_MISSED, COMPLAINT_FAULT);
    rows[LOOK_B].fault = "";
    look.status.complaints_count = 0;
    complaints_all(&look.status);
    assert_events("missed");
    spec.interval = 0;
    forget();
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_other_one_of_two_that_is_gone_is_one_event),
        cmocka_unit_test(one_of_three_that_is_gone_is_one_event_and_so_is_each_other_one),
        cmocka_unit_test(one_that_would_not_talk_is_the_event),
        cmocka_unit_test(our_own_faults_come_first),
        cmocka_unit_test(a_trainer_that_was_asked_to_leave_is_nothing_wrong),
        cmocka_unit_test(who_trains_the_same_batches_is_told),
        cmocka_unit_test(whoever_is_ahead_is_compared_later),
        cmocka_unit_test(two_halves_are_told_that_a_witness_helps),
        cmocka_unit_test(a_newcomer_that_cannot_be_talked_to_is_told_for_a_minute),
        cmocka_unit_test(only_whose_word_is_false_is_to_be_revoked),
        cmocka_unit_test(one_that_is_fast_is_warned_of),
        cmocka_unit_test(all_about_one_that_is_late_is_one_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
