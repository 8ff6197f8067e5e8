/* SPDX-License-Identifier: Apache-2.0 */
/* engine: opened with configurations that are right and wrong, without memory at any place; run in a thread of the test
 * with a trainer that attaches through libdiloco, until a signal descriptor says stop. Every step of the trainer adds
 * one to every value, so that work lost, counted twice or mixed in wrongly is seen in the sum. */
#include "tests/lib/testlib.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <time.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/ipc.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/tensorfile.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/engine.h"
#include "daemon/keyring.h"
#include "daemon/membership/config_store.h"
#include "net/config/config_deal.h"
#include "net/config/config_orders.h"
#include "net/config/config_proof.h"
#include "tests/lib/adder.h"
#include "tests/lib/hosted.h"
#include "tests/lib/isle.h"
#include "tests/lib/overhear.h"
#include "tests/lib/patience.h"
#include "tests/lib/played.h"
#include "tests/lib/proc.h"
#include "tests/lib/sample_configs.h"

enum { A, B };
enum { TENSORS = ADDER_TENSORS, VALUES = ADDER_VALUES, STEPS = HOSTED_STEPS, ROUNDS = HOSTED_ROUNDS };

/* Of island a's checkpoint, waiting for one. */
static uint64_t version_on_disk(uint32_t f)
{
    char name[64];
    uint64_t version;
    struct tensorfile *file;
    snprintf(name, sizeof name, "state-a/fragment-%04u.safetensors", f);
    const char *path = testlib_path(hosted.run->folder, name);
    isle_wait(access(path, F_OK) == 0);
    assert_ok(tensorfile_open(path, true, &file));
    assert_ok(tensorfile_meta_u64(file, "version", &version));
    tensorfile_close(file);
    return version;
}

/* ---- a trainer through libdiloco ---- */

static struct diloco *t;

static void attach(const char *name)
{
    t = adder_attach(hosted.worker, name);
}

static void begin_training(uint64_t step)
{
    struct diloco_start go = {.size = sizeof(struct diloco_start)};
    attach("layer");
    if (diloco_begin(t, &go) != DILOCO_OK)
        fail_msg("%s", diloco_error(t));
    assert_int_equal(go.step, step);
}

static int train(int steps)
{
    return adder_train(t, steps);
}

/* ---- opening ---- */

static void assert_opens(void)
{
    assert_ok(hosted_open(A));
    hosted_close();
}

static void assert_refuses(enum err code, const char *part, const char *override)
{
    assert_ok(dconf_load(isle_conf(hosted.run, A), &(struct conf_override){override}, 1, &hosted.conf));
    assert_fails(code, part, engine_new(&hosted.conf, &hosted.engine));
    assert_null(hosted.engine);
    conf_deinit(&dconf_schema, &hosted.conf);
}

/* It would start a trainer again and again that ends at once. */
static void assert_refuses_ranks(void)
{
    const struct conf_override overrides[] = {
        {"worker.program=diloco-worker"}, {"worker.data=d"}, {"worker.autostart=yes"}, {"worker.ranks=3"}};
    assert_ok(dconf_load(isle_conf(hosted.run, A), overrides, 4, &hosted.conf));
    assert_fails(ERR_CONF, "[worker] ranks: [train] batch 8 cannot be shared out evenly among 3 ranks",
                 engine_new(&hosted.conf, &hosted.engine));
    conf_deinit(&dconf_schema, &hosted.conf);
}

static void what_is_wrong_with_a_configuration_is_said_and_nothing_stays_open(void **state)
{
    (void)state;
    const char *no_key = testlib_file(hosted.run->folder, "no-key.ini", "[run]\nname = x\nsteps = 9\n");
    const char *wrong = testlib_file(hosted.run->folder, "wrong.ini", "[run]\nname = x\nsteps = none\n");
    char text[600];
    assert_opens();
    assert_refuses(ERR_NOTFOUND, "dilococtl keygen", "island.key=no/such");
    snprintf(text, sizeof text, "island.key=%s", no_key);
    assert_refuses(ERR_CONF, "chmod 600", text);
    assert_refuses(ERR_CONF, "no/such.ini", "island.run=no/such.ini");
    snprintf(text, sizeof text, "island.run=%s", wrong);
    assert_refuses(ERR_CONF, "steps", text);
    assert_refuses_ranks();
    assert_refuses(ERR_CONF, "cannot listen there", "net.listen=nonsense:1");
    snprintf(text, sizeof text, "island.sockets=%s", hosted.run->path);
    assert_refuses(ERR_CONF, "cannot listen: ", text);
    assert_opens();
}

static void two_daemons_do_not_share_a_folder_or_a_socket(void **state)
{
    (void)state;
    char text[300];
    assert_ok(hosted_open(A));
    struct engine *first = hosted.engine;
    struct dconf conf = hosted.conf;
    assert_refuses(ERR_CONF, "in use by another dilocod", "island.log=error");
    snprintf(text, sizeof text, "island.state=%s/other", hosted.run->folder);
    assert_refuses(ERR_CONF, "another dilocod is running with these sockets", text);
    hosted.engine = first;
    hosted.conf = conf;
    hosted_close();
    assert_opens();
}

static void a_damaged_plan_is_named_and_put_aside(void **state)
{
    (void)state;
    char path[300], aside[320];
    assert_ok(hosted_open(A));
    snprintf(path, sizeof path, "%s/plan.txt", hosted.conf.state_folder);
    snprintf(aside, sizeof aside, "%s.damaged", path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("nonsense", file);
    fclose(file);
    hosted_close();
    overhear_begin();
    assert_opens();
    assert_non_null(strstr(overhear_end(), path));
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(access(aside, F_OK), 0);
}

static void assert_opens_with_memory_alone(int allocations_min)
{
    enum err err = ERR_NOMEM;
    int n = 0;
    assert_ok(dconf_load(hosted_conf(A), NULL, 0, &hosted.conf));
    for (; err != ERR_OK; n++) {
        mem_fail_after(n);
        err = engine_new(&hosted.conf, &hosted.engine);
        mem_fail_after(-1);
        if (err != ERR_OK && err != ERR_NOMEM)
            fail_msg("without allocation %d: %s", n, err_text());
        assert_true((hosted.engine == NULL) == (err != ERR_OK));
    }
    print_message("%d allocations\n", n - 1);
    assert_true(n > allocations_min);
    hosted_close();
}

static void without_memory_there_is_no_engine_and_nothing_is_left(void **state)
{
    (void)state;
    assert_opens_with_memory_alone(20);
}

/* ---- how long its turns take ---- */

/* In the place of libsystemd's: the loop calls one now and then, and stands as long as a test says; the other says that
 * it ends. */
static _Atomic int notify_takes_ms;
static _Atomic bool stopping;

int sd_notify(int unset_environment, const char *text)
{
    (void)unset_environment;
    stopping = strcmp(text, "STOPPING=1") == 0;
    return 0;
}

int sd_notifyf(int unset_environment, const char *format, ...)
{
    (void)unset_environment;
    (void)format;
    proc_sleep_ms(notify_takes_ms);
    return 0;
}

static void what_holds_the_loop_up_is_measured_and_named(void **state)
{
    (void)state;
    enum { HELD_MS = 300 };
    hosted_start(A);
    isle_wait(hosted_number("uptime_s") >= 0);
    log_set_level(LOG_LEVEL_DEBUG);
    overhear_begin();
    notify_takes_ms = HELD_MS;
    isle_wait(hosted_number("loop_lag_ms_max") >= HELD_MS);
    assert_true(hosted_number("loop_lag_ms") >= HELD_MS);
    notify_takes_ms = 0;
    assert_non_null(strstr(overhear_end(), "the longest step was a sample of the status"));
    log_set_level(LOG_LEVEL_INFO);
    hosted_stop();
}

/* ---- a run ---- */

static void an_island_alone_runs_to_the_end_and_counts_every_step_once(void **state)
{
    (void)state;
    struct tensorfile *file;
    const float *values;
    hosted_start(A);
    begin_training(0);
    assert_int_equal(train(2), DILOCO_OK);
    isle_wait(hosted_says("trainer", "state", "training"));
    assert_int_equal(hosted_number("versions"), 0);
    assert_int_equal(version_on_disk(0), 0); /* what nobody else may have is kept at once */
    assert_int_equal(train(STEPS - 2), DILOCO_STOP);
    adder_assert(STEPS);
    assert_int_equal(diloco_finish(t), DILOCO_OK);
    adder_assert(STEPS);
    isle_wait(hosted_says("trainer", "state", "finished"));
    isle_wait(hosted_says(NULL, "saving", "done"));
    assert_int_equal(hosted_number("versions"), ROUNDS * TENSORS);
    assert_int_equal(hosted_number("ledger_records"), ROUNDS * TENSORS);
    assert_int_equal(hosted_number("step"), STEPS);
    diloco_detach(t);
    assert_ok(tensorfile_open(testlib_path(hosted.conf.state_folder, "anchor.safetensors"), true, &file));
    for (int i = 0; i < TENSORS; i++) {
        assert_ok(tensorfile_values(file, i == 0 ? "embed" : "layer", VALUES, &values));
        adder_assert_values(values, VALUES, STEPS);
    }
    tensorfile_close(file);
    hosted_stop();
    for (uint32_t f = 0; f < TENSORS; f++)
        assert_int_equal(version_on_disk(f), ROUNDS);
    assert_opens_with_memory_alone(100); /* with a plan, checkpoints and results to read */
    hosted_restart(A);
    assert_int_equal(hosted_number("versions"), ROUNDS * TENSORS);
    hosted_stop();
}

/* Its island abstains from that round; what it trained goes out with the next. */
static void a_snapshot_that_cannot_be_sent_is_given_back(void **state)
{
    (void)state;
    hosted_start(A);
    begin_training(0);
    assert_int_equal(train(4), DILOCO_OK);
    adder_tensor[1][7] = NAN;
    assert_int_equal(train(1), DILOCO_OK);
    adder_tensor[1][7] = adder_tensor[1][6];
    assert_int_equal(train(STEPS - 5), DILOCO_STOP);
    assert_int_equal(diloco_finish(t), DILOCO_OK);
    adder_assert(STEPS);
    assert_int_equal(hosted_number("version_max"), ROUNDS);
    assert_int_equal(hosted_number("version_min"), ROUNDS - 1);
    diloco_detach(t);
    hosted_stop();
}

static void assert_other_tensors_are_refused(void)
{
    struct diloco_start go = {.size = sizeof(struct diloco_start)};
    attach("another");
    assert_int_equal(diloco_begin(t, &go), DILOCO_REFUSED);
    assert_non_null(strstr(diloco_error(t), "its tensors are not those of the run"));
    diloco_detach(t);
}

/* Its work is in the ledger, and in the trainer's memory, which it keeps. */
static void a_daemon_that_comes_back_goes_on_with_its_trainer_and_no_other(void **state)
{
    (void)state;
    char anchors[80];
    hosted_start(A);
    begin_training(0);
    assert_int_equal(train(12), DILOCO_OK);
    isle_wait(hosted_number("versions") == 2 * TENSORS);
    json_t *status = hosted_ask("status");
    snprintf(anchors, sizeof anchors, "%s", ctl_text(status, "anchors"));
    json_decref(status);
    hosted_stop();
    hosted_restart(A);
    status = hosted_ask("status");
    assert_string_equal(ctl_text(status, "anchors"), anchors);
    assert_int_equal(ctl_integer(status, "versions"), 2 * TENSORS);
    json_decref(status);
    assert_int_equal(train(STEPS - 12), DILOCO_STOP);
    assert_int_equal(diloco_finish(t), DILOCO_OK);
    adder_assert(STEPS);
    /* A round that was due before it was attached again goes out with the next. */
    assert_in_range(hosted_number("versions"), 3 * TENSORS, ROUNDS * TENSORS);
    diloco_detach(t);
    assert_other_tensors_are_refused();
    /* A new trainer of the same begins with the anchor. */
    for (int i = 0; i < TENSORS; i++)
        memset(adder_tensor[i], 0, VALUES * sizeof *adder_tensor[i]);
    begin_training(STEPS);
    adder_assert(STEPS);
    diloco_detach(t);
    hosted_stop();
}

static void only_a_signal_to_end_ends_it(void **state)
{
    (void)state;
    hosted_start(A);
    hosted_signal(SIGHUP);
    hosted_signal(SIGUSR1);
    assert_int_equal(hosted_number("islands"), 1);
    assert_int_equal(hosted_number("islands"), 1); /* a turn later */
    hosted_signal(SIGINT);
    assert_ok(hosted_end());
    assert_int_equal(access(hosted.control, F_OK), -1);
    assert_int_equal(access(hosted.worker, F_OK), -1);
}

static const char *take_state_folder_away(void)
{
    static char aside[400];
    snprintf(aside, sizeof aside, "%s-aside", hosted.conf.state_folder);
    assert_int_equal(rename(hosted.conf.state_folder, aside), 0);
    return aside;
}

/* The plan cannot be written: what a daemon cannot go on without. */
static void what_it_cannot_go_on_without_ends_it_in_order_with_the_reason(void **state)
{
    (void)state;
    struct diloco_start go = {.size = sizeof(struct diloco_start)};
    log_set_level(LOG_LEVEL_DEBUG);
    overhear_begin();
    hosted_start(A);
    take_state_folder_away();
    attach("layer");
    assert_int_equal(diloco_begin(t, &go), DILOCO_REFUSED);
    diloco_detach(t);
    assert_int_equal(hosted_end(), ERR_NOTFOUND); /* a start would find nothing that was saved */
    assert_non_null(strstr(hosted.text, "plan"));
    log_set_level(LOG_LEVEL_INFO);
    const char *registered = strstr(overhear_end(), "event registered"); /* a trace of a run is a list of events */
    assert_true(registered != NULL && strstr(registered, "event fatal") != NULL);
}

/* With a program that takes its time to end: the loop goes on turning meanwhile. */
static void start_slow_to_end(uint32_t self)
{
    static char worker[400];
    static const struct conf_override overrides[] = {{worker}, {"worker.data=d"}, {"worker.autostart=yes"}};
    static const char text[] = "#!/bin/sh\ntrap '' TERM\n: >deaf\nwhile test ! -f go; do sleep 0.02; done\n";
    const char *program = testlib_file(hosted.run->folder, "program", "%s", text); /* it runs there */
    assert_int_equal(chmod(program, 0755), 0);
    snprintf(worker, sizeof worker, "worker.program=%s", program);
    hosted.overrides = overrides;
    hosted.overrides_count = 3;
    hosted_start(self);
    isle_wait(access(testlib_path(hosted.run->folder, "deaf"), F_OK) == 0);
}

static void assert_ended_for_its_plan(enum err err)
{
    testlib_file(hosted.run->folder, "go", "\n");
    assert_int_equal(hosted_end(), err);
    assert_non_null(strstr(hosted.text, "plan"));
}

/* The plan that could not be kept is known to no other part. */
static void who_attaches_while_it_ends_is_refused_with_the_reason(void **state)
{
    (void)state;
    struct diloco_start go = {.size = sizeof(struct diloco_start)};
    start_slow_to_end(A);
    take_state_folder_away();
    for (int k = 0; k < 2; k++) {
        attach("layer");
        assert_int_equal(diloco_begin(t, &go), DILOCO_REFUSED);
        assert_non_null(strstr(diloco_error(t), "plan"));
        diloco_detach(t);
    }
    assert_ended_for_its_plan(ERR_NOTFOUND);
}

/* ---- the loop ---- */

/* Requests that wait behind an answer which nobody reads are no reason to wake. */
static void a_client_that_does_not_read_does_not_keep_the_loop_busy(void **state)
{
    (void)state;
    enum { LOOKS = 30, LOOK_MS = 5 };
    static char requests[1 << 16];
    struct sockaddr_un address;
    hosted_start(A);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_ok(ipc_address(hosted.control, &address));
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    for (size_t i = 0; i < sizeof requests; i += 8)
        memcpy(requests + i, "status\n\n", 8);
    struct pollfd item = {.fd = fd, .events = POLLOUT};
    while (poll(&item, 1, 50) > 0 || !proc_thread_rests(hosted.tid)) { /* until nobody takes them any more */
        ssize_t put = send(fd, requests, sizeof requests, MSG_NOSIGNAL);
        assert_true(put > 0 || errno == EAGAIN);
    }
    item.events = 0;
    int rests = 0;
    for (int i = 0; i < LOOKS; i++) { /* not its time on a processor, of which others may leave it little */
        assert_int_equal(poll(&item, 1, LOOK_MS), 0);
        rests += proc_thread_rests(hosted.tid);
    }
    print_message("the loop rests at %d of %d looks\n", rests, LOOKS);
    assert_true(rests > LOOKS / 2);
    close(fd);
    hosted_stop();
}

/* ---- with another island ---- */

static struct played *other;

/* Without a share it is too slow to own anything. */
static void begin_with_another(const char *name, bool share)
{
    isle_run_free(hosted.run);
    hosted.run = isle_run_new(name, 2, NULL);
    hosted.run->disks_named = true;
    hosted.run->uplinks[A] = share ? hosted.run->uplinks[B] : 1000;
    hosted_conf(B); /* the run spec, whose digest the played one needs */
    other = played_open(hosted.run, A, 0, NULL);
}

static void greet_daemon(uint32_t self, uint32_t window_kib)
{
    played_hello(other)->window_kib = window_kib;
    played_say(other, self);
    isle_wait(played_heard_type(other, WIRE_HEARTBEAT));
    played_beat(other);
    played_say(other, self);
}

static void *train_a_round(void *unused)
{
    (void)unused;
    return train(5) == DILOCO_OK ? &hosted : NULL;
}

/* In the background, while the test plays the other island, without which no result counts. */
static void a_round_of(uint64_t version)
{
    pthread_t training;
    void *well;
    assert_int_equal(pthread_create(&training, NULL, train_a_round, NULL), 0);
    played_hold_the_same(other, B, TENSORS, version);
    assert_int_equal(pthread_join(training, &well), 0);
    assert_non_null(well);
}

/* Whoever receives it slowly must not get the bytes of the next one under its name. */
static void a_result_whose_memory_is_written_again_is_not_sent_on(void **state)
{
    (void)state;
    begin_with_another("engine-two", false);
    hosted_start(B);
    greet_daemon(B, WIRE_WINDOW_KIB_MIN);
    begin_training(0);
    played_beat(other); /* with the plan the core is new, and has heard nothing */
    played_say(other, B);
    a_round_of(1);
    struct wire_key first = {.kind = WIRE_RESULT, .fragment = 0, .version = 1, .owner = B, .island = B};
    isle_wait(played_heard_of(other, WIRE_CHUNK, &first));
    assert_true(other->chunk.bytes < other->chunk.total); /* there is more of it to come */
    a_round_of(2);
    played_say_ack(other, B, &first, 0, true);
    isle_wait(played_heard_of(other, WIRE_DONE, &first));
    assert_int_equal(other->in.done.status, WIRE_GONE);
    played_say_fetch(other, B, &first); /* from the ledger it can still be had */
    for (;;) {
        isle_wait(played_heard_type(other, WIRE_CHUNK));
        if (wire_key_equal(&other->chunk.key, &first))
            break;
        played_say_done(other, B, &other->chunk.key, WIRE_NOT_NEEDED); /* what fills the window */
    }
    diloco_detach(t);
    hosted_stop();
    played_close(other);
}

static void the_plan_of_another_island_is_taken_over_and_nonsense_is_not(void **state)
{
    (void)state;
    static const struct wire_key key = {.kind = WIRE_PLAN};
    begin_with_another("engine-plan", true);
    struct model_plan *plan = isle_model_plan(hosted.run);
    hosted_start(B);
    played_hello(other)->plan_known = true;
    other->out.hello.plan_id = plan->id;
    played_say(other, B);
    isle_wait(played_heard_of(other, WIRE_FETCH, &key));
    played_send(other, B, &key, "nonsense", 8);
    isle_wait(played_heard_of(other, WIRE_DONE, &key));
    assert_int_equal(hosted_number("fragments"), 0);
    played_send(other, B, &key, plan->text, strlen(plan->text));
    isle_wait(hosted_number("fragments") == ISLE_FRAGMENTS);
    isle_wait(played_heard_type(other, WIRE_HELLO) && other->in.hello.plan_known);
    assert_true(digest_equal(&other->in.hello.plan_id, &plan->id));
    hosted_stop();
    isle_wait(played_heard_type(other, WIRE_BYE));
    hosted_restart(B); /* it was kept */
    assert_int_equal(hosted_number("fragments"), ISLE_FRAGMENTS);
    hosted_stop();
    model_plan_free(plan);
    played_close(other);
}

static void send_plan(const struct model_plan *plan)
{
    static const struct wire_key key = {.kind = WIRE_PLAN};
    isle_wait(played_heard_of(other, WIRE_FETCH, &key));
    played_send(other, B, &key, plan->text, strlen(plan->text));
    isle_wait(played_heard_of(other, WIRE_DONE, &key));
}

/* The one that could not be kept stands in its way. */
static void no_other_plan_is_taken_while_it_ends(void **state)
{
    (void)state;
    begin_with_another("engine-end", true);
    struct model_plan *plan = isle_model_plan(hosted.run);
    start_slow_to_end(B);
    const char *aside = take_state_folder_away();
    played_hello(other)->plan_known = true;
    other->out.hello.plan_id = plan->id;
    played_say(other, B);
    played_beat(other); /* all others are heard: nobody else may know another plan */
    played_say(other, B);
    send_plan(plan);
    isle_wait(stopping);
    assert_int_equal(hosted_number("fragments"), 0);
    assert_int_equal(rename(aside, hosted.conf.state_folder), 0);
    send_plan(plan);                      /* it asks again */
    assert_ended_for_its_plan(ERR_STATE); /* what was saved is there again */
    model_plan_free(plan);
    played_close(other);
}

/* ---- another key ---- */

/* The other one tells it what both have decided. */
static void send_decided(const struct config *config, const struct ident *ours)
{
    const struct ident *idents[] = {&hosted.run->idents[A], ours};
    struct config_vote votes[2] = {{.id = A, .ballot = 7}, {.id = B, .ballot = 7}};
    struct paxos_message message = {.type = WIRE_DECIDED, .votes = votes, .votes_count = 2};
    uint8_t *bytes;
    assert_ok(config_pack(config, &bytes, &message.bytes_count));
    struct digest digest = config_digest(bytes, message.bytes_count);
    for (int i = 0; i < 2; i++)
        config_vote_sign(idents[i], config->nonce, config->epoch, 7, &digest, votes[i].signature);
    message.bytes = bytes;
    played_say_epoch(other, B, &message);
    mem_free(bytes);
}

/* It asks for another key from its start on. Returns what its configurations on disk begin with. */
static struct config ask_for(const struct ident *next)
{
    struct config_store configs;
    struct keyring keyring;
    struct config config;
    struct dconf conf;
    assert_ok(dconf_load(hosted_conf(B), NULL, 0, &conf));
    assert_ok(keyring_open(&conf, &keyring));
    assert_ok(config_store_open(&conf, &keyring, &hosted.run->spec, &configs));
    assert_ok(config_copy(config_log_last(configs.config_log), &config));
    assert_ok(ident_save(next, keyring.next_path));
    config_store_close(&configs);
    keyring_close(&keyring);
    conf_deinit(&dconf_schema, &conf);
    return config;
}

/* By its word, signed with the key that it has. */
static struct config states_key(const struct config *first, const struct ident *ours, const struct ident *next)
{
    struct config config = configs_next(first);
    const struct config_member *as = config_member(first, B);
    struct member_word word = {.number = as->word + 1,
                               .uplink = as->uplink,
                               .owner_choice = as->owner_choice,
                               .draining = as->draining,
                               .units = as->units};
    snprintf(word.address, sizeof word.address, "%s", as->address);
    member_word_state_next(next, as->key, config.nonce, B, &word);
    member_word_sign(ours, config.nonce, B, &word);
    assert_ok(config_word_apply(first, &config, B, &word));
    config_deal_next(first, 0, &config);
    return config;
}

static struct config gives_key(const struct config *stated, const struct ident *next)
{
    struct config config = configs_next(stated);
    struct order order = {.kind = ORDER_REKEY, .signer = A, .subject = B, .number = 1, .epoch = stated->epoch};
    memcpy(order.key, next->key, sizeof order.key);
    order_sign(&hosted.run->idents[A], config.nonce, &order);
    assert_ok(config_order_apply(stated, &config, &order));
    config_deal_next(stated, 0, &config);
    return config;
}

/* Nobody hears it by the key that it has, until it tries the other one, which was ordered while it was away: then it
 * hears of that. Who has not heard of it yet lets in the key before alone. */
static void who_finds_out_by_its_new_key_has_one_before(void **state)
{
    (void)state;
    struct ident next;
    begin_with_another("engine-turns", true);
    played_close(other);
    const struct ident ours = hosted.run->idents[B];
    assert_ok(ident_generate(&next));
    struct config first = ask_for(&next);
    struct config stated = states_key(&first, &ours, &next), given = gives_key(&stated, &next);
    hosted.run->idents[B] = next;
    other = played_open(hosted.run, A, 0, NULL);
    hosted.run->idents[B] = ours;
    hosted_start(B);
    played_hello(other);
    played_say(other, B);
    send_decided(&stated, &ours);
    isle_wait(hosted_number("epoch") == 1);
    send_decided(&given, &ours);
    isle_wait(hosted_number("epoch") == 2);
    struct link_member before = {.name = "b"};
    memcpy(before.key, ours.key, sizeof before.key);
    assert_ok(link_set(other->link, B, &before));
    isle_wait(!played_heard(other) && link_up(other->link, B, false));
    hosted_stop();
    played_close(other);
    config_deinit(&first);
    config_deinit(&stated);
    config_deinit(&given);
}

int main(void)
{
    assert_ok(digest_init());
    signal(SIGPIPE, SIG_IGN);
#define CASE(name) cmocka_unit_test_setup_teardown(name, hosted_begin, hosted_finish)
    const struct CMUnitTest tests[] = {
        CASE(what_is_wrong_with_a_configuration_is_said_and_nothing_stays_open),
        CASE(two_daemons_do_not_share_a_folder_or_a_socket),
        CASE(a_damaged_plan_is_named_and_put_aside),
        CASE(without_memory_there_is_no_engine_and_nothing_is_left),
        CASE(what_holds_the_loop_up_is_measured_and_named),
        CASE(an_island_alone_runs_to_the_end_and_counts_every_step_once),
        CASE(a_snapshot_that_cannot_be_sent_is_given_back),
        CASE(a_daemon_that_comes_back_goes_on_with_its_trainer_and_no_other),
        CASE(only_a_signal_to_end_ends_it),
        CASE(what_it_cannot_go_on_without_ends_it_in_order_with_the_reason),
        CASE(who_attaches_while_it_ends_is_refused_with_the_reason),
        CASE(a_client_that_does_not_read_does_not_keep_the_loop_busy),
        CASE(a_result_whose_memory_is_written_again_is_not_sent_on),
        CASE(the_plan_of_another_island_is_taken_over_and_nonsense_is_not),
        CASE(no_other_plan_is_taken_while_it_ends),
        CASE(who_finds_out_by_its_new_key_has_one_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
