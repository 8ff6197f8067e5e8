/* SPDX-License-Identifier: Apache-2.0 */
/* libdiloco against a daemon played by the test: what goes out of the tensors, what comes in and how, and that a step
 * never waits for the other side. */
#include "tests/lib/testlib.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/ipc.h"
#include "tests/lib/counterpart.h"
#include "tests/lib/late.h"
#include "worker/libdiloco/aside.h"
#include "worker/libdiloco/diloco.h"

/* ---- cases ---- */

static void snapshots_go_out_and_anchors_come_in_as_they_count(void **state)
{
    (void)state;
    begin();
    fragment->due_step = 2;
    assert_int_equal(train(1), DILOCO_OK);
    assert_int_equal(ipc_word(fragment), IPC_FREE);
    assert_int_equal(train(1), DILOCO_OK);
    assert_int_equal(ipc_word(fragment), IPC_SNAPSHOT);
    assert_hears(IPC_TAKEN);
    assert_int_equal(fragment->snapshot_step, 2);
    assert_int_equal(fragment->snapshot_tokens, 20);
    for (int i = 0; i < COUNT; i++)
        assert_true(ipc_area(shm, fragment)[i] == (float)i + 2);
    /* Some of it counted, some missed its round, some was void. */
    static const struct ipc_range ranges[] = {
        {0, 100, IPC_MIX, 0}, {100, 300, IPC_SHIFT, 0}, {300, VALUES, IPC_RESET, 0}};
    fragment->due_step = UINT64_MAX;
    bring_anchor(1, 1000, ranges, 3);
    assert_int_equal(train(5), DILOCO_OK); /* step 3: overlap is over */
    assert_int_equal(ipc_word(fragment), IPC_FREE);
    assert_hears(IPC_MIXED);
    for (int i = 0; i < COUNT; i++) {
        float live = (float)i + 7, base = (float)i;
        float want = i < 100 ? 0.25f * live + 0.75f * 1000 : i < 300 ? live + (1000 - base) : 1000;
        assert_true(tensor[i] == want);
    }
    assert_int_equal(fragment->base, 1);
    assert_int_equal(fragment->base_version, 1);
    assert_true(ipc_base(shm, fragment)[7] == 1000);
    end();
}

/* Step 2 and step 4 are due, and the anchor is 1000: everywhere the same outer gradient counts once. */
static void work_on_its_way_for_an_interval_is_set_aside(void **state)
{
    static const struct ipc_range ranges[] = {
        {0, 100, IPC_MIX, 0}, {100, 300, IPC_SHIFT, 0}, {300, VALUES, IPC_RESET, 0}};
    for (int eager = 0; eager < 2; eager++) {
        make_conf = (struct ipc_shm){.overlap = 2,
                                     .set_aside = 1,
                                     .eager_fresh = eager ? 1 : 0,
                                     .eager_past = 0.5 * eager,
                                     .eager_decay = 0.5 * eager};
        begin();
        fragment->eager_share = 0.5;
        fragment->due_step = 2;
        train(1);
        train(1);
        assert_int_equal(ipc_word(fragment), IPC_SNAPSHOT);
        for (int i = 0; i < COUNT; i++) {
            assert_true(ipc_area(shm, fragment)[i] == (float)i + 2);
            assert_true(tensor[i] == (float)i + (eager ? 1 : 0));
        }
        train(1);
        fragment->eager_share = 0.25; /* of the mean that comes: the estimate goes by the share it was made with */
        bring_anchor(1, 1000, ranges, 3);
        fragment->due_step = 4;
        train(1);
        assert_int_equal(ipc_word(fragment), IPC_SNAPSHOT);
        assert_int_equal(fragment->base_version, 1);
        for (int i = 0; i < COUNT; i++) {
            float moved = i < 100 ? 2 : i < 300 ? 4 : 0; /* 2 of the last interval, and 2 that were not counted */
            float past = i < 100 && eager ? -2 : 0;
            assert_true(ipc_base(shm, fragment)[i] == 1000);
            assert_true(ipc_area(shm, fragment)[i] == 1000 + moved);
            assert_true(tensor[i] == 1000 + (eager ? 0.25f * moved - 0.125f * past : 0));
        }
        end();
    }
    make_conf = (struct ipc_shm){.overlap = 1, .mix = 0.25};
    (void)state;
}

/* It is refused, or the daemon lost it: what was set aside is not, and no estimate remains. */
static void work_set_aside_comes_back_when_its_snapshot_is_off(void **state)
{
    (void)state;
    for (int eager = 0; eager < 2; eager++)
        for (int nan = 0; nan < 2; nan++) {
            make_conf =
                (struct ipc_shm){.overlap = 2, .set_aside = 1, .eager_fresh = 0.5 * eager, .eager_past = 0.25 * eager};
            begin();
            fragment->due_step = 2;
            train(1);
            if (nan)
                tensor[5] = NAN;
            train(1);
            assert_int_equal(ipc_word(fragment), IPC_SNAPSHOT);
            fragment->due_step = 4;
            daemon_moves(IPC_SNAPSHOT, IPC_FREE);
            train(1);
            train(1);
            assert_int_equal(ipc_word(fragment), IPC_SNAPSHOT);
            for (int i = 0; i < COUNT; i++)
                assert_true(ipc_area(shm, fragment)[i] == (float)i + (nan ? 2 : 4));
            end();
        }
    make_conf = (struct ipc_shm){.overlap = 1, .mix = 0.25};
}

/* One island alone, whose average is its own work: after every round the anchor holds all work but the last interval's,
 * once, whatever share of it stays in the tensors. */
static void work_set_aside_counts_once(void **state)
{
    (void)state;
    for (float keep = 0; keep < 1; keep += 0.25f) {
        struct aside_rule rule = {.keep = keep};
        float live = 0, base = 0, aside = 0, area = 0;
        for (int round = 0; round < 20; round++) {
            if (round > 0) {
                aside_in(&rule, &live, &base, &area, &aside, NULL, true, 1);
                base = area;
            }
            assert_true(fabsf(base - (float)round) < 1e-3f);
            live += 1;
            if (round == 0) /* the first snapshot follows the first interval */
                live = 1;
            area = live; /* the mean of one: the next anchor */
            aside_out(&rule, &live, &base, &aside, NULL, 1);
        }
    }
}

/* By hand: D = -2, E = 8, of which half and a quarter are taken ahead; one more step of 1; an anchor 3 further on. */
static void an_estimate_comes_and_goes_with_its_past(void **state)
{
    (void)state;
    const struct aside_rule rule = {.fresh = 0.5f, .past = 0.25f, .decay = 0.5f};
    for (int how = 0; how < 4; how++) {
        float live = 12, base = 10, anchor = 13, aside, past = 8;
        aside_out(&rule, &live, &base, &aside, &past, 1);
        assert_true(aside == 2 && live == 10 + 0.5f * 2 - 0.25f * 8);
        live += 1;
        if (how < 2)
            aside_in(&rule, &live, &base, &anchor, &aside, &past, how == 0, 1);
        else
            aside_off(&rule, &live, &aside, &past, how == 2, 1);
        static const float lives[4] = {10 + 1 + 3, 10 + 1 + 3 + 2, 10 + 1 + 2, 10 + 1};
        assert_true(live == lives[how]);
        assert_true(past == (how == 0 ? 0.5f * 8 - 2 : 8));
    }
}

static void a_late_anchor_is_taken_in_when_it_comes(void **state)
{
    (void)state;
    begin();
    fragment->due_step = 1;
    assert_int_equal(train(1), DILOCO_OK);
    fragment->due_step = UINT64_MAX;
    for (int i = 0; i < 50; i++)
        assert_int_equal(train(1), DILOCO_OK); /* it trains on */
    assert_int_equal(ipc_word(fragment), IPC_SNAPSHOT);
    bring_anchor(1, 2000, &(struct ipc_range){0, VALUES, IPC_MIX, 0}, 1);
    assert_int_equal(train(0), DILOCO_OK);
    assert_true(tensor[3] == 0.25f * 54 + 0.75f * 2000);
    /* Refused: it comes back free, and the next due step takes a new one. */
    fragment->due_step = 60;
    for (int i = 52; i < 60; i++)
        assert_int_equal(train(0), DILOCO_OK);
    assert_int_equal(ipc_word(fragment), IPC_SNAPSHOT);
    fragment->due_step = 62;
    daemon_moves(IPC_SNAPSHOT, IPC_FREE);
    assert_int_equal(train(0), DILOCO_OK);
    assert_int_equal(ipc_word(fragment), IPC_FREE);
    assert_int_equal(train(0), DILOCO_OK);
    assert_int_equal(ipc_word(fragment), IPC_SNAPSHOT);
    end();
}

static void the_end_and_an_order_to_leave_are_told(void **state)
{
    (void)state;
    begin();
    shm->steps = 3;
    assert_int_equal(train(0), DILOCO_OK);
    assert_int_equal(train(0), DILOCO_OK);
    assert_int_equal(train(0), DILOCO_STOP);
    shm->steps = 100;
    assert_int_equal(train(0), DILOCO_OK);
    atomic_store(&shm->leave, 1); /* the message was lost */
    assert_int_equal(train(0), DILOCO_STOP);
    end();
}

/* Nobody reads: reports are dropped, what matters is kept in order and goes out later. */
static void a_step_never_waits_for_the_daemon(void **state)
{
    (void)state;
    begin();
    for (int i = 0; i < 5000; i++)
        assert_int_equal(train(0), DILOCO_OK);
    fragment->due_step = 5001;
    assert_int_equal(train(0), DILOCO_OK);
    assert_int_equal(ipc_word(fragment), IPC_SNAPSHOT);
    struct ipc_message message;
    int fd, reports = 0;
    bool taken = false;
    assert_int_equal(fcntl(connection, F_SETFL, O_NONBLOCK), 0);
    for (int turn = 0; turn < 3; turn++) {
        while (ipc_recv(connection, &message, &fd) == ERR_OK) {
            reports += message.type == IPC_REPORT;
            taken |= message.type == IPC_TAKEN;
        }
        assert_int_equal(train(0), DILOCO_OK);
    }
    assert_true(taken);
    assert_in_range(reports, 1, 4000); /* the socket's buffer was full long before */
    end();
}

/* Connects and introduces itself; nobody has accepted yet. */
static void come_back(void)
{
    close(connection);
    assert_int_equal(train(0), DILOCO_OK);
    for (int i = 0; i < 40 && diloco_attached(d) == 0; i++) {
        usleep(50000);
        assert_int_equal(train(0), DILOCO_OK);
    }
}

/* The words are the daemon's to read while a connection is made anew. */
static void attaching_again_takes_no_waiting_and_changes_no_word(void **state)
{
    (void)state;
    begin();
    come_back();
    fragment->due_step = 2;
    assert_int_equal(train(0), DILOCO_OK);
    assert_int_equal(ipc_word(fragment), IPC_FREE);
    hear_introduction(SESSION);
    assert_int_equal(train(0), DILOCO_OK);
    assert_int_equal(ipc_word(fragment), IPC_FREE);
    say_welcome(true);
    assert_int_equal(train(0), DILOCO_OK);
    assert_int_equal(ipc_word(fragment), IPC_SNAPSHOT);
    assert_hears(IPC_TAKEN);
    end();
}

static bool tells(const struct ipc_machine *wanted)
{
    return memcmp(&greeting.machine, wanted, sizeof *wanted) == 0;
}

/* To a daemon that comes later, too, whatever has become of the caller's struct and the name in it. */
static void what_it_runs_on_is_told_to_every_daemon(void **state)
{
    (void)state;
    static const struct ipc_machine nothing;
    struct ipc_machine all = {.device = "NVIDIA H100",
                              .ranks = 4,
                              .tensor_parallel = 2,
                              .memory_bytes = 41,
                              .memory_total_bytes = 80,
                              .flops_per_token = 6e9,
                              .peak_flops = 4e15};
    char name[] = "NVIDIA H100";
    begin();
    assert_true(tells(&nothing));
    end();
    machine = (struct diloco_machine){.size = sizeof machine,
                                      .device = name,
                                      .ranks = 4,
                                      .tensor_parallel = 2,
                                      .memory_bytes = 41,
                                      .memory_total_bytes = 80,
                                      .flops_per_token = 6e9,
                                      .peak_flops = 4e15};
    strcpy(trainer_name, "a trainer");
    begin();
    assert_true(tells(&all));
    assert_string_equal(greeting.trainer, "a trainer");
    memset(name, 'x', sizeof name - 1);
    memset(trainer_name, 'x', sizeof trainer_name - 1);
    machine.ranks = 1;
    greeting = (struct ipc_hello){0};
    come_back();
    hear_introduction(SESSION);
    assert_true(tells(&all));
    assert_string_equal(greeting.trainer, "a trainer");
    end();
    machine = (struct diloco_machine){0};
}

static void of_what_it_runs_on_anything_may_be_left_out(void **state)
{
    (void)state;
    char long_name[200];
    memset(long_name, 'n', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    machine = (struct diloco_machine){.size = sizeof machine};
    begin();
    assert_true(tells(&(struct ipc_machine){.ranks = 1}));
    end();
    machine.device = long_name;
    begin();
    assert_int_equal(strlen(greeting.machine.device), IPC_DEVICE_BYTES - 1);
    end();
    machine = (struct diloco_machine){0};
}

/* As of a trainer that was started when the run's last step was over: its loop makes one before it looks. */
static void there_is_no_step_beyond_the_runs_last(void **state)
{
    (void)state;
    begin();
    shm->steps = 2;
    assert_int_equal(train(1), DILOCO_OK);
    assert_int_equal(train(1), DILOCO_STOP);
    fragment->due_step = 3;
    assert_int_equal(train(1), DILOCO_STOP);
    assert_int_equal(diloco_run_step(d), 2);
    assert_int_equal(ipc_word(fragment), IPC_FREE);
    fragment->due_step = 2;
    assert_int_equal(train(1), DILOCO_STOP);
    assert_int_equal(ipc_word(fragment), IPC_SNAPSHOT);
    assert_int_equal(fragment->snapshot_step, 2);
    assert_int_equal(fragment->snapshot_tokens, 20);
    end();
}

static void the_end_leaves_the_anchor_exactly(void **state)
{
    (void)state;
    begin();
    for (int i = 0; i < COUNT; i++)
        tensor[i] = 0.1f * (float)i + 1e6f; /* live + anchor - base rounds */
    bring_anchor(1, 0.3f, &(struct ipc_range){0, VALUES, IPC_SHIFT, 0}, 1);
    say_end(true, "");
    assert_int_equal(diloco_finish(d), DILOCO_OK);
    for (int i = 0; i < COUNT; i++)
        assert_true(tensor[i] == 0.3f);
    assert_hears(IPC_MIXED);
    assert_hears(IPC_SETTLED);
    assert_hears(IPC_FINISHED);
    end();
}

/* An anchor comes of a round that we had nothing more to add to, and another; then the run is over. */
static int two_more_rounds(int slice)
{
    static const struct ipc_range all = {0, VALUES, IPC_SHIFT, 0};
    if (slice == 1 || slice == 3)
        bring_anchor((uint64_t)slice, 100 * (float)slice, &all, 1);
    if (slice == 5)
        say_end(true, "");
    return slice > 20;
}

static void the_end_is_the_runs_and_not_ours(void **state)
{
    (void)state;
    begin();
    while_waiting = two_more_rounds;
    slices = 0;
    int result = diloco_finish(d);
    while_waiting = NULL;
    assert_int_equal(result, DILOCO_OK);
    assert_int_equal(fragment->base_version, 3);
    for (int i = 0; i < COUNT; i++)
        assert_true(tensor[i] == 300);
    end();
}

static void where_the_end_is_not_known_it_is_said(void **state)
{
    (void)state;
    begin();
    say_end(false, "island cyd is away");
    assert_int_equal(diloco_finish(d), DILOCO_OPEN);
    assert_non_null(strstr(diloco_error(d), "island cyd is away"));
    assert_hears(IPC_SETTLED);
    assert_hears(IPC_FINISHED);
    end();
    begin();
    atomic_store(&shm->leave, 1);
    assert_int_equal(diloco_step(d, &(struct diloco_report){.size = sizeof(struct diloco_report), .tokens = 0}),
                     DILOCO_STOP);
    assert_int_equal(diloco_finish(d), DILOCO_OPEN); /* nobody is waited for */
    assert_non_null(strstr(diloco_error(d), "this island leaves"));
    end();
}

static int give_up(int slice)
{
    return slice == 4;
}

static int hang_up_and_give_up(int slice)
{
    if (slice == 1)
        close(connection);
    return slice == 8;
}

/* Neither while it says nothing, nor when it is gone, nor is what it said before it went still true. */
static void without_the_daemons_word_there_is_no_end(void **state)
{
    (void)state;
    begin();
    while_waiting = give_up;
    slices = 0;
    assert_int_equal(diloco_finish(d), DILOCO_INTERRUPTED);
    say_end(true, "");
    slices = 100;
    assert_int_equal(diloco_finish(d), DILOCO_OK); /* it may be tried again */
    end();
    begin();
    while_waiting = hang_up_and_give_up;
    slices = 0;
    assert_int_equal(diloco_finish(d), DILOCO_INTERRUPTED);
    end();
    begin();
    say_end(true, "");
    assert_int_equal(train(0), DILOCO_OK);
    while_waiting = give_up;
    slices = 0;
    close(connection);
    assert_int_equal(diloco_finish(d), DILOCO_INTERRUPTED);
    while_waiting = NULL;
    end();
}

/* ---- somebody else writes the word while it is the trainer's ---- */

static int move_and_scribble(void *user, const struct diloco_move *move)
{
    assert_true(move->kind == DILOCO_READ || move->kind == DILOCO_WRITE); /* it has no memory for more */
    assert_int_equal(move->size, sizeof *move);
    for (size_t r = 0; r < move->rows; r++) {
        float *live = (float *)move->tensor + move->first + r * move->columns, *host = move->host + r * move->stride;
        if (move->kind == DILOCO_READ)
            memcpy(host, live, move->columns * sizeof *host);
        else
            memcpy(live, host, move->columns * sizeof *live);
    }
    uint32_t word = ipc_word(fragment);
    if (word == IPC_COPYING || word == IPC_MIXING)
        atomic_store(&fragment->word, *(const uint32_t *)user);
    return 0;
}

static void assert_said(int result, const char *part)
{
    assert_int_equal(result, DILOCO_ERROR);
    if (strstr(diloco_error(d), part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", diloco_error(d), part);
}

static void a_word_that_somebody_else_wrote_is_an_error_and_left_as_it_is(void **state)
{
    (void)state;
    static const struct ipc_range all = {0, VALUES, IPC_MIX, 0};
    uint32_t scribble = IPC_FILLING;
    struct diloco_device before = device;
    device = (struct diloco_device){.size = sizeof device, .user = &scribble, .move = move_and_scribble};
    begin();
    fragment->due_step = 1;
    assert_said(train(1), "fragment 0: another process wrote FILLING over our COPYING");
    assert_int_equal(ipc_word(fragment), IPC_FILLING);
    end();
    begin();
    bring_anchor(1, 1000, &all, 1);
    assert_said(train(1), "fragment 0: another process wrote FILLING over our MIXING");
    assert_int_equal(ipc_word(fragment), IPC_FILLING);
    end();
    /* At the end, too: it neither waits for ever nor calls it done. */
    scribble = 77;
    begin();
    assert_int_equal(train(1), DILOCO_OK);
    assert_said(diloco_finish(d), "fragment 0: another process wrote unknown over our COPYING");
    end();
    begin();
    bring_anchor(1, 1000, &all, 1);
    assert_said(diloco_finish(d), "fragment 0: another process wrote unknown over our MIXING");
    assert_int_equal(ipc_word(fragment), 77);
    end();
    device = before;
}

/* Not waited for: no daemon will ever be there. */
/* ---- a daemon that refuses and hangs up, while the trainer is about to tell it something ---- */

static int move_and_refuse(void *user, const struct diloco_move *move)
{
    const struct ipc_message no = {.type = IPC_REFUSED, .text = "for a reason"};
    (void)user, (void)move;
    if (ipc_word(fragment) == IPC_COPYING) {
        assert_ok(ipc_send(connection, &no, -1));
        close(connection); /* with reports in it that nobody has read */
    }
    return 0;
}

static void a_refusal_is_heard_though_the_daemon_hung_up(void **state)
{
    (void)state;
    device = (struct diloco_device){.size = sizeof device, .move = move_and_refuse};
    announced.data = &device; /* not `tensor` */
    begin();
    assert_int_equal(train(1), DILOCO_OK);
    fragment->due_step = 2;
    int result = train(1);
    for (int i = 0; i < 3 && result == DILOCO_OK; i++)
        result = train(1);
    assert_int_equal(result, DILOCO_REFUSED);
    assert_non_null(strstr(diloco_error(d), "for a reason"));
    device = (struct diloco_device){0};
    announced.data = tensor;
    diloco_detach(d);
    close(listener);
    close(memfd);
    munmap(shm, SHM_BYTES);
}

/* It is not the trainer that is at it: it would wait for ever for an end of what nobody does. */
static void a_word_that_became_ours_meanwhile_is_an_error(void **state)
{
    (void)state;
    begin();
    assert_int_equal(train(1), DILOCO_OK);
    close(connection);
    assert_int_equal(train(1), DILOCO_OK);
    for (int i = 0; i < 40 && diloco_attached(d) == 0; i++) {
        usleep(50000);
        assert_int_equal(train(0), DILOCO_OK);
    }
    hear_introduction(SESSION);
    atomic_store(&fragment->word, IPC_MIXING);
    say_welcome(true);
    assert_said(train(0), "fragment 0: another process wrote MIXING into the shared memory");
    end();
}

static void a_path_too_long_for_a_socket_is_named_at_once(void **state)
{
    (void)state;
    char path[200];
    memset(path, 'a', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    struct diloco *none;
    uint64_t begin_ms = env_mono_ms();
    assert_int_equal(
        diloco_attach(
            &(struct diloco_options){.size = sizeof(struct diloco_options), .socket_path = path, .wait_ms = 60000},
            &none),
        DILOCO_ERROR);
    assert_true(env_mono_ms() - begin_ms < 10000);
    assert_null(none);
    assert_non_null(strstr(diloco_error(NULL), "choose a shorter folder"));
}

static void assert_refused(const struct diloco_tensor *wanted, const char *part)
{
    assert_said(diloco_register(d, wanted), part);
}

/* What is mixed twice would move twice as far. */
static void memory_that_belongs_to_a_tensor_is_refused_under_another_name(void **state)
{
    (void)state;
    const char *path = listen_here();
    static float values[30];
    assert_int_equal(
        diloco_attach(&(struct diloco_options){.size = sizeof(struct diloco_options), .socket_path = path}, &d),
        DILOCO_OK);
    struct diloco_tensor first = {
        .size = sizeof(struct diloco_tensor), .name = "a", .data = values + 10, .dims = 2, .shape = {2, 5}};
    struct diloco_tensor other = {
        .size = sizeof(struct diloco_tensor), .name = "b", .data = values, .dims = 1, .shape = {11}};
    assert_int_equal(diloco_register(d, &first), DILOCO_OK);
    assert_refused(&other, "tensor \"b\" shares memory with tensor \"a\"");
    other.data = values + 19;
    assert_refused(&other, "tensor \"b\" shares memory with tensor \"a\"");
    first.name = "c";
    assert_refused(&first, "tensor \"c\" shares memory with tensor \"a\"");
    other.shape[0] = 10; /* side by side they are welcome */
    other.data = values;
    assert_int_equal(diloco_register(d, &other), DILOCO_OK);
    other.name = "d";
    other.data = values + 20;
    assert_int_equal(diloco_register(d, &other), DILOCO_OK);
    diloco_detach(d);
    close(listener);
}

static void a_tensor_that_cannot_be_is_refused(void **state)
{
    (void)state;
    const char *path = listen_here();
    assert_int_equal(
        diloco_attach(&(struct diloco_options){.size = sizeof(struct diloco_options), .socket_path = path}, &d),
        DILOCO_OK);
    assert_refused(&(struct diloco_tensor){.size = sizeof(struct diloco_tensor), .name = "a", .dims = 1, .shape = {1}},
                   "tensor \"a\" has no data");
    assert_refused(
        &(struct diloco_tensor){.size = sizeof(struct diloco_tensor), .data = tensor, .dims = 1, .shape = {1}},
        "a name of at most");
    assert_refused(&(struct diloco_tensor){.size = sizeof(struct diloco_tensor),
                                           .name = "a",
                                           .data = tensor,
                                           .dims = 3,
                                           .shape = {1u << 31, 1u << 31, 1u << 31}},
                   "tensor \"a\" is larger than memory");
    diloco_detach(d);
    close(listener);
}

/* As in another process, that has no handle. */
static void draw_by_what_was_handed_out(void)
{
    struct diloco_dealing dealing = {.size = sizeof dealing};
    struct diloco_unit unit = {.size = sizeof unit}, same = {.size = sizeof same};
    assert_int_equal(diloco_dealing(d, &dealing), DILOCO_OK);
    for (uint64_t step = 1; step < 20; step++) {
        assert_int_equal(diloco_draw(d, step, 1, 2, &unit), DILOCO_OK);
        assert_int_equal(diloco_draw_by(&dealing, step, 1, 2, &same), DILOCO_OK);
        assert_memory_equal(&unit, &same, sizeof unit);
    }
    assert_int_equal(diloco_draw_by(&dealing, 1, 2, 2, &same), DILOCO_ERROR);
    memset(dealing.words, 0xff, sizeof dealing.words);
    assert_int_equal(diloco_draw_by(&dealing, 1, 0, 2, &same), DILOCO_ERROR);
    memset(dealing.words, 0, sizeof dealing.words);
    assert_int_equal(diloco_draw_by(&dealing, 1, 0, 2, &same), DILOCO_ERROR);
    assert_non_null(strstr(diloco_error(NULL), "of what deals nothing"));
    dealing.size = 1;
    assert_int_equal(diloco_dealing(d, &dealing), DILOCO_ERROR);
    assert_int_equal(diloco_draw_by(&dealing, 1, 0, 2, &same), DILOCO_ERROR);
}

/* What was heard at the last call holds, until the next one. */
static void windows_are_drawn_as_the_run_deals_them(void **state)
{
    (void)state;
    struct diloco_unit unit = {.size = sizeof unit};
    uint64_t pass, window, other;
    struct deal deal = deal_of(3, 10);
    begin();
    assert_false(diloco_deals(d));
    assert_int_equal(diloco_draw(d, 1, 0, 2, &unit), DILOCO_ERROR);
    assert_non_null(strstr(diloco_error(d), "no data is dealt"));
    deal.count = 1;
    deal.cuts[0] = (struct deal_cut){.start = {1, 100}, .units = 5, .before = 3, .own = 2};
    ipc_deal_put(shm, &deal);
    assert_false(diloco_deals(d));
    train(1);
    assert_true(diloco_deals(d));
    assert_int_equal(diloco_draw(d, 3, 1, 2, &unit), DILOCO_OK);
    assert_true(unit.dealt == 1 && unit.island == 3 && unit.position == 100 + 2 * 5 + 3 + 1);
    assert_int_equal(diloco_draw(d, 11, 0, 2, &unit), DILOCO_OK);
    assert_true(unit.dealt == 0 && unit.turn == 22 && unit.since == 0);
    assert_int_equal(diloco_draw(d, 13, 1, 2, &unit), DILOCO_OK);
    assert_true(unit.dealt == 0 && unit.turn == 27 && unit.since == 5);
    assert_int_equal(diloco_window(&unit, 8, 5, &pass, &window), DILOCO_OK); /* none is its own alone */
    assert_int_equal(pass, unit.position / 8);
    assert_int_equal(diloco_window(&unit, 4, 5, &pass, &window), DILOCO_OK);
    assert_int_equal(pass, unit.position / 4 + 1);
    assert_int_equal(diloco_draw(d, 1, 2, 2, &unit), DILOCO_ERROR);
    draw_by_what_was_handed_out();
    unit.dealt = 1;
    assert_int_equal(diloco_window(&unit, 64, 5, &pass, &window), DILOCO_OK);
    assert_true(pass == unit.position / 60 && window < 64);
    assert_int_equal(diloco_window(&unit, 64, 6, &pass, &other), DILOCO_OK);
    assert_int_not_equal(window, other);
    assert_int_equal(diloco_window(&unit, 0, 5, &pass, &window), DILOCO_ERROR);
    unit.size = 1;
    assert_int_equal(diloco_draw(d, 1, 0, 2, &unit), DILOCO_ERROR);
    assert_int_equal(diloco_window(&unit, 64, 5, &pass, &window), DILOCO_ERROR);
    assert_int_equal(diloco_draw(NULL, 1, 0, 2, &unit), DILOCO_ERROR);
    assert_false(diloco_deals(NULL));
    end();
}

static void what_is_missing_is_an_error_and_no_crash(void **state)
{
    (void)state;
    struct diloco_start start = {.size = sizeof(struct diloco_start)};
    struct diloco_report report = {.size = sizeof(struct diloco_report), .tokens = 1};
    struct diloco *none = d;
    assert_int_equal(diloco_attach(NULL, &none), DILOCO_ERROR);
    assert_null(none);
    assert_non_null(strstr(diloco_error(NULL), "options"));
    assert_int_equal(
        diloco_attach(&(struct diloco_options){.size = sizeof(struct diloco_options), .socket_path = "x"}, NULL),
        DILOCO_ERROR);
    assert_int_equal(diloco_register(NULL, &(struct diloco_tensor){.size = sizeof(struct diloco_tensor), .name = "a"}),
                     DILOCO_ERROR);
    assert_int_equal(diloco_begin(NULL, &start), DILOCO_ERROR);
    assert_int_equal(diloco_step(NULL, &report), DILOCO_ERROR);
    assert_int_equal(diloco_finish(NULL), DILOCO_ERROR);
    assert_non_null(strstr(diloco_error(NULL), "diloco_finish() without a handle"));
    assert_int_equal(diloco_run_step(NULL), 0);
    assert_int_equal(diloco_seed(NULL, 1), 0);
    assert_int_equal(diloco_attached(NULL), 0);
    diloco_detach(NULL);
    begin();
    assert_said(diloco_register(d, NULL), "diloco_register() without a tensor");
    assert_said(diloco_begin(d, NULL), "diloco_begin() without a place");
    assert_said(diloco_begin(d, &start), "diloco_begin() twice");
    assert_said(diloco_step(d, NULL), "diloco_step() without a report");
    assert_int_equal(diloco_run_step(d), 0); /* no step was taken */
    assert_int_equal(train(1), DILOCO_OK);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(snapshots_go_out_and_anchors_come_in_as_they_count),
        cmocka_unit_test(work_on_its_way_for_an_interval_is_set_aside),
        cmocka_unit_test(work_set_aside_comes_back_when_its_snapshot_is_off),
        cmocka_unit_test(work_set_aside_counts_once),
        cmocka_unit_test(an_estimate_comes_and_goes_with_its_past),
        cmocka_unit_test(a_late_anchor_is_taken_in_when_it_comes),
        cmocka_unit_test(the_end_and_an_order_to_leave_are_told),
        cmocka_unit_test(a_step_never_waits_for_the_daemon),
        cmocka_unit_test(there_is_no_step_beyond_the_runs_last),
        cmocka_unit_test(the_end_leaves_the_anchor_exactly),
        cmocka_unit_test(the_end_is_the_runs_and_not_ours),
        cmocka_unit_test(where_the_end_is_not_known_it_is_said),
        cmocka_unit_test(without_the_daemons_word_there_is_no_end),
        cmocka_unit_test(attaching_again_takes_no_waiting_and_changes_no_word),
        cmocka_unit_test(what_it_runs_on_is_told_to_every_daemon),
        cmocka_unit_test(of_what_it_runs_on_anything_may_be_left_out),
        cmocka_unit_test(a_word_that_somebody_else_wrote_is_an_error_and_left_as_it_is),
        cmocka_unit_test(memory_that_belongs_to_a_tensor_is_refused_under_another_name),
        cmocka_unit_test(a_tensor_that_cannot_be_is_refused),
        cmocka_unit_test(windows_are_drawn_as_the_run_deals_them),
        cmocka_unit_test(what_is_missing_is_an_error_and_no_crash),
        cmocka_unit_test(a_refusal_is_heard_though_the_daemon_hung_up),
        cmocka_unit_test(a_word_that_became_ours_meanwhile_is_an_error),
        cmocka_unit_test(a_path_too_long_for_a_socket_is_named_at_once),
    };
    /* What moves values, again for tensors that are elsewhere. */
    const struct CMUnitTest values[] = {
        cmocka_unit_test(snapshots_go_out_and_anchors_come_in_as_they_count),
        cmocka_unit_test(work_on_its_way_for_an_interval_is_set_aside),
        cmocka_unit_test(work_set_aside_comes_back_when_its_snapshot_is_off),
        cmocka_unit_test(a_late_anchor_is_taken_in_when_it_comes),
        cmocka_unit_test(the_end_leaves_the_anchor_exactly),
        cmocka_unit_test(a_word_that_somebody_else_wrote_is_an_error_and_left_as_it_is),
    };
    int failures = cmocka_run_group_tests_name("host memory", tests, NULL, NULL);
    for (int computes = 0; computes < 2; computes++) {
        struct late late;
        device = late_device(&late, computes == 1);
        failures +=
            cmocka_run_group_tests_name(computes ? "a device" : "one that reads and writes", values, NULL, NULL);
        bool moves = computes == 1 && getenv("TEST_FILTER") == NULL; /* a filter may leave cases that move nothing */
        failures += late.memory != 0 || late.pins != 0 || late.broken || (moves && late.moves == 0);
        late_end(&late);
    }
    return failures;
}
