/* SPDX-License-Identifier: Apache-2.0 */
/* engine: a start that reads what an earlier one has saved. Job threads are held where they open a checkpoint, as long
 * as a test says: meanwhile the loop turns and answers, a trainer may come, and other islands hear nothing. */
#include "tests/lib/testlib.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "common/digest.h"
#include "daemon/ctl/ctl_client.h"
#include "tests/lib/hosted.h"
#include "tests/lib/overhear.h"
#include "tests/lib/played.h"
#include "tests/lib/proc.h"

enum { A, B };
enum { TENSORS = ADDER_TENSORS, READ_ONLY = 0, ACCESS = 3 };

/* ---- what systemd hears, in the place of libsystemd ---- */

static _Atomic bool ready, stopping;

int sd_notify(int unset_environment, const char *text)
{
    (void)unset_environment;
    ready = ready || strcmp(text, "READY=1") == 0;
    stopping = stopping || strcmp(text, "STOPPING=1") == 0;
    return 0;
}

/* ---- where jobs are held ---- */

static _Atomic bool hold;
static _Atomic int held; /* threads */

/* In the place of libc's open(): of job threads alone. */
static int open_held(const char *path, int flags, unsigned mode)
{
    bool of_a_job = gettid() != getpid() && gettid() != hosted.tid;
    if (of_a_job && (flags & ACCESS) == READ_ONLY && strstr(path, "/fragment-") != NULL) {
        held++;
        while (hold)
            proc_sleep_ms(1);
        held--;
    }
    return (int)syscall(SYS_openat, -100 /* AT_FDCWD */, path, flags, mode);
}

int test_open(const char *path, int flags, ...) __asm__("open");
int test_open64(const char *path, int flags, ...) __asm__("open64");

int test_open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    unsigned mode = va_arg(more, unsigned); /* of no meaning where no file is made */
    va_end(more);
    return open_held(path, flags, mode);
}

int test_open64(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    unsigned mode = va_arg(more, unsigned);
    va_end(more);
    return open_held(path, flags, mode);
}

static int begin(void **state)
{
    hold = false;
    return hosted_begin(state);
}

static int end(void **state)
{
    hold = false;
    return hosted_finish(state);
}

static void start_held(uint32_t self)
{
    hold = true;
    ready = stopping = false;
    hosted_start(self);
    isle_wait(held > 0);
    isle_wait(ready);
}

/* ---- the trainer ---- */

static struct diloco *t;

static void *begin_training(void *unused)
{
    struct diloco_start go = {.size = sizeof(struct diloco_start)};
    (void)unused;
    t = adder_attach(hosted.worker, "layer");
    return diloco_begin(t, &go) == DILOCO_OK ? &hosted : NULL;
}

static void train_from_the_start(int steps)
{
    hosted_start(A);
    assert_non_null(begin_training(NULL));
    assert_int_equal(adder_train(t, steps), DILOCO_OK);
}

static bool says_recovering(void)
{
    json_t *status = hosted_ask("status"), *complaint;
    size_t i;
    bool says = false;
    json_array_foreach (json_object_get(status, "degraded"), i, complaint)
        says |= strcmp(ctl_text(complaint, "code"), "recovering") == 0;
    json_decref(status);
    return says;
}

static long long recovering(const char *key)
{
    json_t *status = hosted_ask("status");
    long long number = (long long)ctl_integer(json_object_get(status, "recovering"), key);
    json_decref(status);
    return number;
}

static double uptime_s(void)
{
    json_t *status = hosted_ask("status");
    double seconds = ctl_number(status, "uptime_s");
    json_decref(status);
    return seconds;
}

/* ---- meanwhile ---- */

static void the_loop_answers_while_the_disk_is_read(void **state)
{
    (void)state;
    json_t *answer;
    train_from_the_start(12);
    isle_wait(hosted_number("versions") == 2 * TENSORS);
    diloco_detach(t);
    hosted_stop();
    start_held(A);
    assert_int_equal(recovering("fragments"), TENSORS);
    assert_int_equal(recovering("read"), 0);
    assert_true(says_recovering());
    assert_int_equal(hosted_number("versions"), 0);
    assert_fails(ERR_STATE, "still reads what it has saved", ctl_ask(hosted.control, "save", &answer));
    hold = false;
    isle_wait(recovering("fragments") == 0);
    assert_false(says_recovering());
    assert_int_equal(hosted_number("versions"), 2 * TENSORS);
    hosted_stop();
}

static void a_trainer_that_comes_meanwhile_waits_and_goes_on(void **state)
{
    (void)state;
    pthread_t coming;
    void *well;
    train_from_the_start(12);
    isle_wait(hosted_number("versions") == 2 * TENSORS);
    diloco_detach(t);
    hosted_stop();
    start_held(A);
    assert_int_equal(pthread_create(&coming, NULL, begin_training, NULL), 0);
    isle_wait(hosted_says("trainer", "state", "starting"));
    assert_int_equal(pthread_tryjoin_np(coming, &well), EBUSY);
    hold = false;
    assert_int_equal(pthread_join(coming, &well), 0);
    assert_non_null(well);
    assert_int_equal(adder_train(t, HOSTED_STEPS - 10), DILOCO_STOP); /* on from the last anchor */
    assert_int_equal(diloco_finish(t), DILOCO_OK);
    adder_assert(HOSTED_STEPS);
    diloco_detach(t);
    hosted_stop();
}

static void who_is_told_to_stop_reads_no_further(void **state)
{
    (void)state;
    train_from_the_start(12);
    isle_wait(hosted_number("versions") == 2 * TENSORS);
    diloco_detach(t);
    hosted_stop();
    start_held(A);
    hosted_signal(SIGTERM);
    isle_wait(stopping);
    overhear_begin();
    hold = false;
    assert_ok(hosted_end());
    assert_null(strstr(overhear_end(), "recovered"));
    hosted_restart(A); /* nothing is lost by it */
    assert_int_equal(hosted_number("versions"), 2 * TENSORS);
    hosted_stop();
}

/* ---- the other islands ---- */

static struct played *other;

static void greet(void)
{
    played_hello(other)->window_kib = WIRE_WINDOW_KIB_MIN;
    played_say(other, B);
}

/* Island b, with initial tensors of every fragment on its disk. */
static void leave_initial_tensors(void)
{
    isle_run_free(hosted.run);
    hosted.run = isle_run_new("engine-start", 2, NULL);
    hosted_conf(B); /* the run spec, whose digest the played one needs */
    other = played_open(hosted.run, A, 0, NULL);
    hosted_start(B);
    greet();
    isle_wait(played_heard_type(other, WIRE_HEARTBEAT));
    played_beat(other);
    played_say(other, B);
    assert_non_null(begin_training(NULL));
    diloco_detach(t);
    hosted_stop();
    isle_wait(played_heard_type(other, WIRE_BYE));
}

/* Of a voter that shows less than it holds a result may be made anew that somebody has applied. */
static void nobody_hears_of_it_before_it_knows_what_it_holds(void **state)
{
    (void)state;
    const struct paxos_message prepare = {.type = WIRE_PREPARE, .epoch = 1, .ballot = (uint64_t)1 << 32 | A};
    struct paxos_message answer;
    leave_initial_tensors();
    start_held(B);
    while (uptime_s() < 1.5) { /* it greets, and says how it stands, several times a second */
        assert_false(played_heard(other));
        assert_false(played_heard_epoch(other, &answer));
    }
    hold = false;
    isle_wait(played_heard_type(other, WIRE_HELLO));
    assert_true(other->in.hello.plan_known);
    greet();
    played_say_epoch(other, B, &prepare);
    isle_wait(played_heard_epoch(other, &answer));
    assert_int_equal(answer.type, WIRE_PROMISE);
    assert_int_equal(answer.rows_count, TENSORS);
    for (uint32_t f = 0; f < TENSORS; f++)
        assert_true(answer.rows[f].hash_known);
    wire_paxos_deinit(&answer);
    hosted_stop();
    played_close(other);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest cases[] = {
        CASE(the_loop_answers_while_the_disk_is_read),
        CASE(a_trainer_that_comes_meanwhile_waits_and_goes_on),
        CASE(who_is_told_to_stop_reads_no_further),
        CASE(nobody_hears_of_it_before_it_knows_what_it_holds),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
