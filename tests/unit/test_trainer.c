/* SPDX-License-Identifier: Apache-2.0 */
/* trainer: how a trainer attaches, from its first message until it trains, and what is left behind when it goes on the
 * way. The test is the engine above and the trainer below (tests/lib/trainerstage.h); attaching again is tested in
 * test_resume.c, training in test_training.c. */
#include "tests/lib/testlib.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/mem.h"
#include "daemon/trainer/attachment.h"
#include "tests/lib/trainerstage.h"

/* PATIENCE_MS: for other islands to be heard. TURNED_AWAY_MS: how long a second trainer has to read why. */
enum { PATIENCE_MS = 3000, TURNED_AWAY_MS = 2000, POLLED = 8 };

static struct stage stage;

static int begin(void **state)
{
    (void)state;
    stage_open(&stage, TRAINERRUN_ISLANDS, "", "");
    return 0;
}

static int end(void **state)
{
    (void)state;
    stage_close(&stage);
    return 0;
}

static unsigned polled(void)
{
    struct pollfd items[POLLED];
    return (unsigned)trainer_poll(stage.trainer, items, POLLED);
}

/* ---- the socket ---- */

static void a_second_daemon_finds_the_place_taken(void **state)
{
    (void)state;
    struct trainer *other;
    struct trainer_conf conf = {
        .conf = &stage.conf, .spec = &stage.run.spec, .view = &stage.run.view, .events = stage.events};
    assert_fails(ERR_CONF, "another dilocod is running", trainer_new(&conf, &other));
    assert_null(other);
    stage_train(&stage, true); /* and leaves it as it is */
}

static void out_of_memory_opens_nothing(void **state)
{
    (void)state;
    struct trainer *trainer;
    struct trainer_conf conf = {
        .conf = &stage.conf, .spec = &stage.run.spec, .view = &stage.run.view, .events = stage.events};
    enum err err;
    long n = 0;
    stage.conf.run_folder = (char *)(uintptr_t)testlib_folder("trainer");
    stage.conf.worker_program = "sh";
    do {
        mem_fail_after(n++);
        err = trainer_new(&conf, &trainer);
        mem_fail_after(-1);
        assert_true(err == ERR_OK ? trainer != NULL : err == ERR_NOMEM && trainer == NULL);
    } while (err != ERR_OK);
    assert_true(n > 5);
    trainer_free(trainer);
    trainer_free(NULL);
    assert_int_not_equal(access(testlib_path(stage.conf.run_folder, "worker.sock"), F_OK), 0);
    stage.conf.run_folder = stage.conf.state_folder;
}

/* ---- registering ---- */

static void a_trainer_of_another_version_is_refused(void **state)
{
    (void)state;
    static const uint32_t versions[] = {0, IPC_VERSION - 1, IPC_VERSION + 1, UINT32_MAX};
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        struct ipc_message hello = {.type = IPC_HELLO};
        char part[64];
        hello.hello.version = versions[i];
        stage_connect(&stage);
        stage_send(&stage, &hello, -1);
        snprintf(part, sizeof part, "version %u of the daemon's interface, we speak %d", versions[i], IPC_VERSION);
        stage_hear_refusal(&stage, part);
        assert_posted(&stage, "announce");
    }
    stage_train(&stage, true); /* the next one finds the place free */
}

static void who_never_said_hello_is_refused(void **state)
{
    (void)state;
    stage_train(&stage, true); /* one that did, before */
    stage_hang_up(&stage, false);
    stage_turn(&stage);
    stage_forget(&stage);
    stage_connect(&stage);
    stage_say(&stage, IPC_REGISTERED, 0);
    stage_hear_refusal(&stage, "version 0");
    assert_posted(&stage, "announce");
}

static void who_has_no_tensors_is_refused(void **state)
{
    (void)state;
    stage_connect(&stage);
    stage_hello(&stage, 0, 0, 0, -1);
    stage_say(&stage, IPC_REGISTERED, 0);
    stage_hear_refusal(&stage, "no tensors were registered");
}

static void say_tensor(struct ipc_tensor tensor)
{
    struct ipc_message message = {.type = IPC_TENSOR};
    message.tensor = tensor;
    stage_send(&stage, &message, -1);
}

static void a_tensor_that_makes_no_sense_is_refused(void **state)
{
    (void)state;
    static const struct ipc_tensor tensors[] = {
        {.name = "w", .dims = IPC_DIMS_MAX + 1, .layer = -1},
        {.name = "w", .dims = UINT32_MAX, .layer = -1},
        {.name = "w", .dims = 1, .shape = {5}, .layer = -2},
        {.name = "w\tx", .dims = 1, .shape = {5}, .layer = -1}, /* the plan's text is cut at these */
        {.name = "w\n", .dims = 1, .shape = {5}, .layer = -1},
    };
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        stage_connect(&stage);
        stage_hello(&stage, 0, 0, 0, -1);
        say_tensor(trainerrun_tensors[0]);
        say_tensor(tensors[i]);
        stage_hear_refusal(&stage, "makes no sense");
        assert_posted(&stage, "announce");
    }
}

static void tensors_are_offered_as_they_were_said(void **state)
{
    (void)state;
    uint32_t count;
    struct ipc_tensor endless = {.dims = IPC_DIMS_MAX, .shape = {1, 2, 3, 4, 5, 6}, .layer = 77};
    memset(endless.name, 'w', sizeof endless.name); /* and no end */
    stage.held = 1 << EVENT_REGISTERED;
    stage_connect(&stage);
    stage_hello(&stage, 0, 0, 0, -1);
    say_tensor(trainerrun_tensors[2]);
    say_tensor(endless);
    assert_posted(&stage, "");
    stage_say(&stage, IPC_REGISTERED, 0);
    assert_posted(&stage, "registered");
    const struct ipc_tensor *tensors = attachment_tensors(stage.trainer->attachment, &count);
    assert_int_equal(count, 2);
    assert_memory_equal(&tensors[0], &trainerrun_tensors[2], sizeof *tensors);
    assert_int_equal(strlen(tensors[1].name), IPC_NAME_BYTES - 1);
    assert_int_equal(tensors[1].layer, 77);
    /* Whoever judges them borrows them: nothing changes until the answer. */
    say_tensor(trainerrun_tensors[0]);
    stage_say(&stage, IPC_REGISTERED, 0);
    assert_posted(&stage, "");
    assert_ptr_equal(attachment_tensors(stage.trainer->attachment, &count), tensors);
    assert_int_equal(count, 2);
    attachment_refuse(stage.trainer->attachment, "they are not those of the run");
    stage_hear_refusal(&stage, "they are not those of the run");
    stage_turn(&stage);
    assert_posted(&stage, "announce");
}

static void more_tensors_than_a_plan_may_have_are_refused(void **state)
{
    (void)state;
    struct ipc_message message = {.type = IPC_TENSOR};
    uint32_t count;
    message.tensor = trainerrun_tensors[0];
    stage.held = 1 << EVENT_REGISTERED;
    stage_connect(&stage);
    stage_hello(&stage, 0, 0, 0, -1);
    for (uint32_t i = 0; i < IPC_TENSORS_MAX; i++)
        stage_send(&stage, &message, -1);
    stage_hear_nothing(&stage);
    attachment_tensors(stage.trainer->attachment, &count);
    assert_int_equal(count, IPC_TENSORS_MAX);
    stage_send(&stage, &message, -1);
    stage_hear_refusal(&stage, "more than 65536 tensors");
    assert_posted(&stage, "announce");
}

/* Whoever above accepts it is wrong; what is unknown cannot be shared. */
static void nobody_is_accepted_before_the_plan_is_known(void **state)
{
    (void)state;
    stage_forget_plan(&stage);
    stage.held = 1 << EVENT_REGISTERED;
    stage_connect(&stage);
    stage_register(&stage);
    attachment_accept(stage.trainer->attachment, "");
    stage_hear_refusal(&stage, "does not know the run's tensors");
    stage_turn(&stage);
    assert_posted(&stage, "registered, announce");
    assert_int_equal(stage_memories(), 0);
}

static void a_refused_one_hears_why_and_the_next_is_judged_anew(void **state)
{
    (void)state;
    char reason[2 * IPC_TEXT_BYTES];
    memset(reason, 'x', sizeof reason - 1);
    reason[sizeof reason - 1] = '\0';
    memcpy(reason, "another model", strlen("another model"));
    stage.refusal = reason; /* longer than a message */
    stage_connect(&stage);
    stage_register(&stage);
    stage_hear_refusal(&stage, "another modelxx");
    assert_posted(&stage, "registered, announce");
    assert_int_equal(stage_memories(), 0);
    stage.refusal = NULL;
    stage_train(&stage, true);
}

static void what_no_trainer_says_ends_the_attachment(void **state)
{
    (void)state;
    static const enum ipc_type types[] = {IPC_WELCOME, IPC_REFUSED, IPC_GO, IPC_WAKE, IPC_LEAVE};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        stage_connect(&stage);
        stage_say(&stage, types[i], 0);
        stage_hear_refusal(&stage, "a message that a trainer does not send");
        assert_posted(&stage, "announce");
    }
    stage_train(&stage, true);
    stage_say(&stage, IPC_GO, 0);
    stage_hear_refusal(&stage, "a message that a trainer does not send");
    assert_posted(&stage, "down 0, down 1, down 2, announce");
}

static void a_fragment_that_does_not_exist_ends_the_attachment(void **state)
{
    (void)state;
    static const enum ipc_type types[] = {IPC_TAKEN, IPC_MIXED, IPC_SETTLED, IPC_REPORT};
    static const uint32_t fragments[] = {TRAINERRUN_FRAGMENTS, UINT32_MAX};
    stage_forget_plan(&stage);
    stage_connect(&stage);
    stage_say(&stage, IPC_TAKEN, 0); /* nothing is known of fragments yet */
    stage_say(&stage, IPC_TAKEN, 1);
    stage_hear_refusal(&stage, "a fragment that does not exist");
    assert_posted(&stage, "announce");
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        stage_train(&stage, i == 0);
        stage_say(&stage, types[i], fragments[i % 2]);
        stage_hear_refusal(&stage, "a fragment that does not exist");
        assert_posted(&stage, "down 0, down 1, down 2, announce");
    }
}

static void bytes_that_are_no_message_end_the_attachment(void **state)
{
    (void)state;
    struct ipc_message message = {.type = IPC_TYPES};
    char long_one[sizeof message + 1] = {0};
    const struct {
        const void *bytes;
        size_t count;
    } cases[] = {{"x", 1}, {&message, sizeof message}, {&message, sizeof message - 1}, {long_one, sizeof long_one}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        stage_connect(&stage);
        assert_int_equal(send(stage.socket, cases[i].bytes, cases[i].count, 0), cases[i].count);
        stage_turn(&stage);
        stage_hear_refusal(&stage, i == 3 ? "" : "no trainer message");
        assert_posted(&stage, "announce");
    }
}

static void what_is_said_before_its_time_is_passed_over(void **state)
{
    (void)state;
    static const enum ipc_type types[] = {IPC_INITIAL, IPC_TAKEN, IPC_MIXED, IPC_REPORT, IPC_SETTLED, IPC_FINISHED};
    stage_connect(&stage);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        stage_say(&stage, types[i], 0);
    stage_register(&stage);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        stage_say(&stage, types[i], 0);
    assert_posted(&stage, "registered"); /* it waits for peers */
    stage_hear_nothing(&stage);
    assert_false(trainer_info(stage.trainer).counted);
    assert_int_equal(trainer_info(stage.trainer).report_ms, 0);
}

/* ---- a second one ---- */

static bool hung_up(int fd)
{
    struct ipc_message message;
    int none;
    enum err err = ipc_recv(fd, &message, &none);
    assert_true(err == ERR_AGAIN || err == ERR_CLOSED);
    return err == ERR_CLOSED;
}

static void assert_turned_away(int fd)
{
    struct ipc_message message;
    char part[64];
    int none;
    assert_ok(ipc_recv(fd, &message, &none));
    assert_int_equal(message.type, IPC_REFUSED);
    snprintf(part, sizeof part, "the trainer with pid %d is attached already", (int)getpid());
    assert_non_null(strstr(message.text, part));
}

static void a_second_trainer_is_told_and_the_first_goes_on(void **state)
{
    (void)state;
    assert_int_equal(polled(), 1);
    stage_train(&stage, true);
    assert_int_equal(polled(), 3); /* who comes, what it says, and whether its process lives */
    int second = stage_dial(&stage);
    stage_turn(&stage);
    assert_turned_away(second);
    assert_int_equal(polled(), 2); /* one at a time */
    int third = stage_dial(&stage);
    stage_tick(&stage, TURNED_AWAY_MS - 1);
    assert_false(hung_up(second)); /* it has time to read it */
    assert_false(hung_up(third));
    stage_tick(&stage, 1);
    assert_true(hung_up(second));
    assert_turned_away(third);
    close(second);
    close(third);
    assert_posted(&stage, "");
    stage_hear_nothing(&stage);
    stage_take_snapshot(&stage, 0, 6, 10, 1);
    assert_posted(&stage, "snapshot 0");
}

static void whoever_comes_when_the_first_has_just_gone_is_the_next(void **state)
{
    (void)state;
    stage_train(&stage, true);
    stage_hang_up(&stage, false);
    stage_connect(&stage); /* before the daemon has seen the end of the first */
    stage_turn(&stage);
    assert_posted(&stage, "down 0, down 1, down 2, announce");
    stage_hear_nothing(&stage);
    stage_register(&stage);
    assert_posted(&stage, "registered");
    stage_hear(&stage, IPC_WELCOME);
}

/* ---- being welcomed ---- */

static void the_first_of_a_run_waits_for_other_islands_but_not_long(void **state)
{
    (void)state;
    for (int heard = 0; heard < 2; heard++) {
        stage_connect(&stage);
        stage_register(&stage);
        stage_tick(&stage, PATIENCE_MS - 1);
        stage_hear_nothing(&stage);
        assert_int_equal(trainer_phase(stage.trainer), TRAINER_STARTING);
        stage.peers_heard = heard != 0;
        stage_tick(&stage, heard != 0 ? 0 : 1);
        assert_true(stage_hear(&stage, IPC_WELCOME).welcome.need_initial);
        stage_close(&stage);
        stage_open(&stage, TRAINERRUN_ISLANDS, "", "");
    }
}

static void where_the_run_has_begun_nobody_waits_and_no_tensors_are_asked_for(void **state)
{
    (void)state;
    trainerrun_restore(&stage.run, 1, 0); /* one fragment is enough: the others come from islands that have them */
    stage_connect(&stage);
    stage_register(&stage);
    assert_false(stage_hear(&stage, IPC_WELCOME).welcome.need_initial);
    stage_close(&stage);
    stage_open(&stage, TRAINERRUN_ISLANDS, "", "");
    trainerrun_hear(&stage.run, 2, 2, 1, true); /* nothing here, and another island has taken a step */
    stage_connect(&stage);
    stage_register(&stage);
    assert_false(stage_hear(&stage, IPC_WELCOME).welcome.need_initial);
}

/* Another island at version 0 has no more than its trainer's tensors, which should be the same. */
static void initial_tensors_elsewhere_are_no_run_that_has_begun(void **state)
{
    (void)state;
    for (uint32_t f = 0; f < TRAINERRUN_FRAGMENTS; f++)
        trainerrun_hear(&stage.run, 2, f, 0, true);
    stage.peers_heard = true;
    stage_connect(&stage);
    stage_register(&stage);
    stage_tick(&stage, 1);
    assert_true(stage_hear(&stage, IPC_WELCOME).welcome.need_initial);
}

static void who_joins_brings_no_initial_tensors(void **state)
{
    (void)state;
    for (int away = 0; away < 2; away++) {
        stage.run.view.members[stage.run.view.self].as.role = away != 0 ? CONFIG_AWAY : CONFIG_OBSERVER;
        stage_connect(&stage);
        stage_register(&stage);
        stage_tick(&stage, 2 * PATIENCE_MS);
        stage_hear_nothing(&stage);
        trainerrun_hear(&stage.run, 2, 1, 0, true);
        stage_tick(&stage, 1);
        assert_false(stage_hear(&stage, IPC_WELCOME).welcome.need_initial);
        assert_true(attachment_without_initial(stage.trainer->attachment));
        stage_close(&stage);
        stage_open(&stage, TRAINERRUN_ISLANDS, "", "");
    }
}

static void the_welcome_says_who_and_where_it_is(void **state)
{
    (void)state;
    stage.peers_heard = true;
    stage_connect(&stage);
    stage_register(&stage);
    stage_tick(&stage, 1);
    struct ipc_welcome welcome = stage_hear(&stage, IPC_WELCOME).welcome;
    assert_int_equal(welcome.island_index, stage.run.view.self);
    assert_int_equal(welcome.islands_count, TRAINERRUN_ISLANDS);
    assert_string_equal(welcome.island, "bob");
    assert_false(welcome.resumed);
    assert_int_equal(welcome.bytes, lseek(stage.memfd, 0, SEEK_END));
    assert_true(welcome.session != 0 && welcome.session == stage.shm->session);
    assert_ok(ipc_shm_check(stage.shm, welcome.bytes));
    assert_int_equal(stage_memories(), 2);
}

static void out_of_memory_refuses_the_trainer_and_it_may_come_again(void **state)
{
    (void)state;
    stage_connect(&stage);
    stage_hello(&stage, 0, 0, 0, -1);
    mem_fail_after(0);
    say_tensor(trainerrun_tensors[0]);
    mem_fail_after(-1);
    stage_hear_refusal(&stage, "out of memory");
    assert_posted(&stage, "announce");
    for (long n = 0; n < 3; n++) {
        stage.peers_heard = false;
        stage_tick(&stage, 1);
        stage_connect(&stage);
        stage_register(&stage);
        stage.peers_heard = true;
        mem_fail_after(n);
        stage_tick(&stage, 1);
        mem_fail_after(-1);
        stage_hear_refusal(&stage, "out of memory");
        assert_posted(&stage, "registered, announce");
        stage_tick(&stage, 1);
        assert_int_equal(stage_memories(), 0);
    }
    stage_train(&stage, true);
}

/* ---- initial tensors ---- */

static void initial_tensors_become_the_anchor_where_there_is_none(void **state)
{
    (void)state;
    stage.peers_heard = true;
    stage_connect(&stage);
    stage_register(&stage);
    stage_tick(&stage, 1);
    stage_hear(&stage, IPC_WELCOME);
    stage_forget(&stage);
    for (uint32_t f = 0; f < TRAINERRUN_FRAGMENTS; f++)
        ipc_base(stage.shm, stage_fragment(&stage, f))[7] = (float)(10 + f);
    trainerrun_restore(&stage.run, 0, 2); /* it came from another island meanwhile */
    stage_step(&stage, &(struct sync_event){.type = SYNC_EV_LOST, .fragment = 2, .member = 0}); /* this is on its way */
    stage.held = 1 << EVENT_START;
    stage_say(&stage, IPC_INITIAL, 0);
    assert_posted(&stage, "initial 1");
    assert_true(attachment_initialising(stage.trainer->attachment));
    stage_say(&stage, IPC_INITIAL, 0); /* said twice */
    stage_tick(&stage, 1);             /* nothing starts from what is being taken over */
    assert_posted(&stage, "");
    stage_answer(&stage);
    assert_false(attachment_initialising(stage.trainer->attachment));
    assert_true(replica_anchor(stage.run.replica, 1)[7] == 11);
    assert_true(replica_anchor(stage.run.replica, 0)[7] == 0);
    stage_say(&stage, IPC_INITIAL, 0);
    stage_tick(&stage, 1);
    assert_posted(&stage, "start 0, start 1, up 0@2, up 1@0");
    stage_tick(&stage, 1);
    assert_posted(&stage, "");
    stage_step(&stage, &(struct sync_event){
                           .type = SYNC_EV_INSTALLED, .fragment = 2, .version = 3, .hash = trainerrun_hash(2, 3)});
    stage_tick(&stage, 1);
    assert_posted(&stage, "start 2, up 2@3");
    stage_tick(&stage, 1);
    assert_posted(&stage, "ready, announce");
    assert_int_equal(stage_hear(&stage, IPC_GO).go.version, 3);
}

/* ---- starting ---- */

/* Welcomed into a run of which this island holds nothing yet. */
static void begin_late(void)
{
    trainerrun_hear(&stage.run, 2, 0, 1, true);
    stage_connect(&stage);
    stage_register(&stage);
    assert_false(stage_hear(&stage, IPC_WELCOME).welcome.need_initial);
    stage_forget(&stage);
}

static void fragments_are_brought_as_they_become_known(void **state)
{
    (void)state;
    begin_late();
    stage_tick(&stage, 1);
    assert_posted(&stage, "");
    for (uint32_t f = 0; f < TRAINERRUN_FRAGMENTS; f++)
        replica_anchor(stage.run.replica, f)[3] = (float)(20 + f);
    stage.held = 1 << EVENT_START;
    trainerrun_restore(&stage.run, 1, 5);
    stage_tick(&stage, 1);
    stage_tick(&stage, 1);
    assert_posted(&stage, "start 1"); /* once */
    trainerrun_restore(&stage.run, 0, 1);
    stage_tick(&stage, 1);
    assert_posted(&stage, "start 0");
    stage_answer(&stage);
    assert_posted(&stage, "up 1@5, up 0@1");
    trainerrun_restore(&stage.run, 2, 0);
    stage_tick(&stage, 1);
    assert_posted(&stage, "start 2, up 2@0");
    stage_hear_nothing(&stage);
    for (uint32_t f = 0; f < TRAINERRUN_FRAGMENTS; f++) {
        assert_int_equal(stage_fragment(&stage, f)->base_version, sync_own(stage.run.sync, f).version);
        assert_true(ipc_base(stage.shm, stage_fragment(&stage, f))[3] == (float)(20 + f));
        assert_int_equal(sync_state(stage.run.sync, f), SYNC_IDLE);
    }
    stage.held = 1 << EVENT_READY;
    stage_tick(&stage, 1);
    stage_tick(&stage, 1);
    assert_posted(&stage, "ready"); /* once */
    assert_int_equal(trainer_phase(stage.trainer), TRAINER_STARTING);
    stage_answer(&stage);
    assert_int_equal(trainer_phase(stage.trainer), TRAINER_TRAINING);
}

static void who_is_far_behind_catches_up_first(void **state)
{
    (void)state;
    begin_late();
    trainerrun_restore(&stage.run, 1, 5);
    trainerrun_hear(&stage.run, 0, 1, 7, true);
    stage_tick(&stage, 1);
    assert_posted(&stage, "");
    trainerrun_restore(&stage.run, 1, 6); /* one version behind is as near as one gets while the others go on */
    stage_tick(&stage, 1);
    assert_posted(&stage, "start 1, up 1@6");
}

/* What the others are ahead by does not come, for nobody certifies it: training does not wait for that. */
static void who_cannot_catch_up_trains_all_the_same(void **state)
{
    (void)state;
    enum { STANDS_STILL_MS = 5000 };
    begin_late();
    trainerrun_restore(&stage.run, 1, 5);
    trainerrun_hear(&stage.run, 0, 1, 9, true);
    stage_tick(&stage, 1);
    stage_tick(&stage, STANDS_STILL_MS - 1);
    assert_posted(&stage, "");
    trainerrun_restore(&stage.run, 1, 6); /* it does come, slowly */
    stage_tick(&stage, 1);
    stage_tick(&stage, STANDS_STILL_MS - 1);
    assert_posted(&stage, "");
    stage_tick(&stage, 1);
    assert_posted(&stage, "start 1, up 1@6");
}

static void what_moved_on_meanwhile_is_brought_again(void **state)
{
    (void)state;
    begin_late();
    stage.applies = false;
    stage.held = 1 << EVENT_START;
    trainerrun_restore(&stage.run, 1, 5);
    stage_tick(&stage, 1);
    assert_posted(&stage, "start 1");
    stage_results(&stage, 1, &(struct bitset){{0}});
    assert_int_equal(sync_state(stage.run.sync, 1), SYNC_APPLYING);
    stage_answer(&stage);
    stage_tick(&stage, 1);
    assert_posted(&stage, "");
    stage_step(&stage, &(struct sync_event){.type = SYNC_EV_APPLIED, .fragment = 1, .hash = trainerrun_hash(1, 6)});
    stage_tick(&stage, 1);
    assert_posted(&stage, "start 1, up 1@6");
}

static void training_goes_on_where_the_run_is(void **state)
{
    (void)state;
    for (uint64_t version = 0; version < 2; version++) {
        stage.go_step = 100;
        for (uint32_t f = 0; f < TRAINERRUN_FRAGMENTS; f++)
            trainerrun_restore(&stage.run, f, version + f);
        stage_connect(&stage);
        stage_register(&stage);
        stage_hear(&stage, IPC_WELCOME);
        stage_tick(&stage, 1);
        stage_tick(&stage, 1);
        struct ipc_go go = stage_hear(&stage, IPC_GO).go;
        assert_int_equal(go.step, 100);
        assert_int_equal(go.version, version + 2);
        assert_int_equal(trainer_info(stage.trainer).step, 100);
        for (uint32_t f = 0; f < TRAINERRUN_FRAGMENTS; f++)
            assert_int_equal(stage_fragment(&stage, f)->due_step, trainerrun_due(f, 100));
        stage_close(&stage);
        stage_open(&stage, TRAINERRUN_ISLANDS, "", "");
    }
}

static void report(uint64_t step)
{
    struct ipc_message message = {.type = IPC_REPORT};
    message.report.step = step;
    stage_send(&stage, &message, -1);
}

/* A trainer that follows another goes on after the last step of that one, unless nothing came of it. */
static void steps_are_not_taken_twice(void **state)
{
    (void)state;
    stage_train(&stage, true);
    report(40);
    report(30);
    stage_hang_up(&stage, false);
    stage_turn(&stage);
    stage_connect(&stage);
    stage_register(&stage);
    stage_hear(&stage, IPC_WELCOME);
    stage_tick(&stage, 1);
    stage_tick(&stage, 1);
    assert_int_equal(stage_hear(&stage, IPC_GO).go.step, 0); /* version 0: everyone is at the beginning */
    stage_results(&stage, 1, &(struct bitset){{0}});
    stage_hang_up(&stage, false);
    stage_turn(&stage);
    stage.go_step = 12;
    stage_connect(&stage);
    stage_register(&stage);
    stage_hear(&stage, IPC_WELCOME);
    stage_tick(&stage, 1);
    stage_tick(&stage, 1);
    assert_int_equal(stage_hear(&stage, IPC_GO).go.step, 40);
    assert_int_equal(stage_fragment(&stage, 0)->due_step, trainerrun_due(0, 40));
}

#define on_stage(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        on_stage(a_second_daemon_finds_the_place_taken),
        on_stage(out_of_memory_opens_nothing),
        on_stage(a_trainer_of_another_version_is_refused),
        on_stage(who_never_said_hello_is_refused),
        on_stage(who_has_no_tensors_is_refused),
        on_stage(a_tensor_that_makes_no_sense_is_refused),
        on_stage(tensors_are_offered_as_they_were_said),
        on_stage(more_tensors_than_a_plan_may_have_are_refused),
        on_stage(nobody_is_accepted_before_the_plan_is_known),
        on_stage(a_refused_one_hears_why_and_the_next_is_judged_anew),
        on_stage(what_no_trainer_says_ends_the_attachment),
        on_stage(a_fragment_that_does_not_exist_ends_the_attachment),
        on_stage(bytes_that_are_no_message_end_the_attachment),
        on_stage(what_is_said_before_its_time_is_passed_over),
        on_stage(a_second_trainer_is_told_and_the_first_goes_on),
        on_stage(whoever_comes_when_the_first_has_just_gone_is_the_next),
        on_stage(the_first_of_a_run_waits_for_other_islands_but_not_long),
        on_stage(where_the_run_has_begun_nobody_waits_and_no_tensors_are_asked_for),
        on_stage(initial_tensors_elsewhere_are_no_run_that_has_begun),
        on_stage(who_joins_brings_no_initial_tensors),
        on_stage(the_welcome_says_who_and_where_it_is),
        on_stage(out_of_memory_refuses_the_trainer_and_it_may_come_again),
        on_stage(initial_tensors_become_the_anchor_where_there_is_none),
        on_stage(fragments_are_brought_as_they_become_known),
        on_stage(who_is_far_behind_catches_up_first),
        on_stage(who_cannot_catch_up_trains_all_the_same),
        on_stage(what_moved_on_meanwhile_is_brought_again),
        on_stage(training_goes_on_where_the_run_is),
        on_stage(steps_are_not_taken_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
