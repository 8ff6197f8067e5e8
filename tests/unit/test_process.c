/* SPDX-License-Identifier: Apache-2.0 */
/* process: the trainer's process is started with what the configuration says, watched, started again when it fails, and
 * neither ended nor lost with the daemon. Time is the test's; programs are shell scripts, and this test itself. */
#include "tests/lib/testlib.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/mem.h"
#include "daemon/trainer/process.h"
#include "tests/lib/script.h"

/* OWN_STATUS: what this program ends with when it is started as a trainer. DEADLINE_MS: for what a process does. */
enum { OWN_STATUS = 7, DEADLINE_MS = 10000, BACKOFF_MS = 1000, BACKOFF_MAX_MS = 60000, HEALTHY_MS = 60000 };

static struct dconf conf;
static const char *folder;
static uint64_t now_ms;

static int begin(void **state)
{
    (void)state;
    folder = testlib_folder("process");
    script_open(folder);
    conf = script_conf();
    conf.worker_folder = conf.worker_program = "";
    conf.threads = 3;
    conf.checkpoint_every = 4;
    conf.eval_every = 5;
    now_ms = 1000000;
    return 0;
}

static int end(void **state)
{
    (void)state;
    script_close();
    return 0;
}

/* A shell script as the trainer's program. */
static void use_script(const char *name, const char *body)
{
    conf.worker_program = script_make(name, body);
}

static struct process *make(void)
{
    struct process *process;
    assert_ok(process_new(&conf, &process));
    return process;
}

/* Waits as the daemon's loop does. */
static void wait_end(struct process *process)
{
    struct pollfd item;
    assert_int_equal(process_poll(process, &item, 0), 0);
    assert_int_equal(process_poll(process, &item, 1), 1);
    process_run(process, now_ms); /* it still runs, or not; this must not block */
    if (process_poll(process, &item, 1) == 1)
        assert_int_equal(poll(&item, 1, DEADLINE_MS), 1);
    process_run(process, now_ms);
    assert_false(process_running(process));
    assert_int_equal(process_poll(process, &item, 1), 0);
}

static void assert_state(const struct process *process, enum process_state state, unsigned failures)
{
    struct process_info info = process_info(process);
    assert_string_equal(process_state_name(info.state), process_state_name(state));
    assert_int_equal(info.state, state);
    assert_int_equal(info.failures, failures);
    assert_int_equal(process_running(process), state == PROCESS_RUNNING || state == PROCESS_LEAVING);
    assert_int_equal(info.pid > 0, process_running(process));
}

static struct process *make_running(const char *body)
{
    use_script("diloco-worker", body);
    struct process *process = make();
    assert_ok(process_start(process, now_ms));
    return process;
}

/* And waits until the program says that it is ready. */
static struct process *make_started(const char *body)
{
    struct process *process = make_running(body);
    script_wait_ready();
    return process;
}

static void end_and_free(struct process *process)
{
    process_leave(process);
    assert_true(process_end(process));
    wait_end(process);
    process_free(process);
}

static bool file_is_there(const char *name)
{
    return access(testlib_path(folder, name), F_OK) == 0;
}

/* ---- starting ---- */

static void nothing_happens_where_none_is_configured(void **state)
{
    (void)state;
    struct pollfd item;
    conf.autostart = true;
    struct process *process = make();
    assert_state(process, PROCESS_NONE, 0);
    assert_string_equal(process_info(process).note, "");
    assert_ok(process_autostart(process, now_ms));
    assert_fails(ERR_STATE, "no trainer is configured", process_start(process, now_ms));
    process_leave(process);
    assert_false(process_end(process));
    process_stop(process);
    process_tick(process, now_ms + BACKOFF_MAX_MS);
    process_run(process, now_ms);
    assert_int_equal(process_poll(process, &item, 1), 0);
    assert_state(process, PROCESS_NONE, 0);
    process_free(process);
    process_free(NULL);
}

static void it_starts_by_itself_if_the_configuration_says_so(void **state)
{
    (void)state;
    use_script("diloco-worker", script_sleeps);
    struct process *process = make();
    assert_state(process, PROCESS_STOPPED, 0);
    assert_ok(process_autostart(process, now_ms));
    process_tick(process, now_ms + BACKOFF_MAX_MS);
    assert_state(process, PROCESS_STOPPED, 0);
    process_free(process);
    conf.autostart = true;
    process = make();
    assert_state(process, PROCESS_STOPPED, 0);
    assert_ok(process_autostart(process, now_ms));
    assert_state(process, PROCESS_RUNNING, 0);
    int pid = process_info(process).pid;
    assert_ok(process_autostart(process, now_ms)); /* once */
    assert_int_equal(process_info(process).pid, pid);
    script_wait_ready();
    end_and_free(process);
}

static void assert_arguments(const char *rest)
{
    char *text, want[1024];
    size_t bytes;
    struct process *process = make_started("echo \"$@\" >\"${0%/*}/arguments\"\necho ready >\"$5\"\nexec sleep 60");
    assert_ok(fsio_read(testlib_path(folder, "arguments"), sizeof want, &text, &bytes));
    snprintf(want, sizeof want,
             "train --run some/run.ini --data %s --out %s/worker --attach some/sockets/worker.sock --device %s%s\n",
             conf.data, folder, conf.device, rest);
    assert_string_equal(text, want);
    mem_free(text);
    end_and_free(process);
}

static void it_is_told_all_that_the_configuration_says(void **state)
{
    (void)state;
    assert_arguments(" --threads 3 --checkpoint-every 4 --eval-every 5");
    conf.stream = "1/2";
    conf.device = "cuda";
    conf.eval_every = 10000000000;
    assert_arguments(" --stream 1/2 --threads 3 --checkpoint-every 4 --eval-every 10000000000");
    conf.ranks = 2;
    assert_arguments(" --ranks 2 --stream 1/2 --threads 3 --checkpoint-every 4 --eval-every 10000000000");
    conf.devices = "0-3"; /* as many as they are */
    assert_arguments(" --devices 0-3 --stream 1/2 --threads 3 --checkpoint-every 4 --eval-every 10000000000");
}

/* "SigBlk:" of /proc/PID/status. */
static uint64_t blocked_signals(int pid)
{
    char path[64], line[256];
    uint64_t mask = UINT64_MAX;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "SigBlk:", 7) == 0)
            assert_int_equal(sscanf(line + 7, "%" SCNx64, &mask), 1);
    fclose(file);
    return mask;
}

/* A terminal's Ctrl-C is not for it, and the signals that the daemon waits for are its own again. */
static void it_has_a_session_of_its_own_and_hears_signals(void **state)
{
    (void)state;
    sigset_t blocked, before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGINT);
    assert_int_equal(sigprocmask(SIG_BLOCK, &blocked, &before), 0);
    struct process *process = make_started(script_sleeps);
    int pid = process_info(process).pid;
    assert_int_equal(getsid(pid), pid);
    assert_int_equal(blocked_signals(pid), 0);
    assert_int_equal(sigprocmask(SIG_SETMASK, &before, NULL), 0);
    end_and_free(process);
}

static void a_bare_name_is_first_looked_for_beside_our_own_program(void **state)
{
    (void)state;
    char self[512];
    ssize_t bytes = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(bytes > 0);
    self[bytes] = '\0';
    char line[600], part[64];
    snprintf(line, sizeof line, "%s train", strrchr(self, '/') + 1);
    conf.worker_program = line;
    struct process *process = make();
    assert_ok(process_start(process, now_ms));
    wait_end(process);
    snprintf(part, sizeof part, "ended with status %d", OWN_STATUS);
    assert_non_null(strstr(process_info(process).note, part));
    process_free(process);
    conf.worker_program = "false"; /* not beside us: somewhere on the path */
    process = make();
    assert_ok(process_start(process, now_ms));
    wait_end(process);
    assert_non_null(strstr(process_info(process).note, "ended with status 1;"));
    assert_string_equal(strrchr(process_info(process).path, '/'), "/false");
    process_free(process);
}

static void it_is_not_started_twice_or_for_nothing(void **state)
{
    (void)state;
    char part[64];
    char *data = conf.data;
    use_script("diloco-worker", script_sleeps);
    struct process *process = make();
    conf.data = "";
    assert_fails(ERR_CONF, "[worker] data is not set", process_start(process, now_ms));
    assert_state(process, PROCESS_STOPPED, 0);
    conf.data = data;
    assert_ok(process_start(process, now_ms));
    script_wait_ready();
    snprintf(part, sizeof part, "running already (pid %d)", process_info(process).pid);
    assert_fails(ERR_STATE, part, process_start(process, now_ms));
    process_leave(process);
    assert_fails(ERR_STATE, "is being paused", process_start(process, now_ms));
    assert_state(process, PROCESS_LEAVING, 0);
    assert_true(process_end(process));
    wait_end(process);
    assert_state(process, PROCESS_STOPPED, 0);
    assert_ok(process_start(process, now_ms)); /* and again */
    script_wait_ready();
    end_and_free(process);
}

/* ---- failing ---- */

static void assert_note(const struct process *process, int pid, const char *how, const char *again)
{
    char part[128];
    const char *note = process_info(process).note;
    snprintf(part, sizeof part, "the trainer (pid %d) %s", pid, how);
    if (strstr(note, part) == NULL || strstr(note, again) == NULL)
        fail_msg("\"%s\" does not say \"%s\" and \"%s\"", note, part, again);
}

static void it_is_started_again_after_a_pause_that_grows(void **state)
{
    (void)state;
    static const uint64_t pauses_ms[] = {1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000};
    struct process *process = make_running("exit 1");
    for (unsigned i = 0; i < sizeof pauses_ms / sizeof pauses_ms[0]; i++) {
        char again[64];
        int pid = process_info(process).pid;
        assert_state(process, PROCESS_RUNNING, i);
        now_ms += 500; /* what it took to fail */
        wait_end(process);
        assert_state(process, PROCESS_WAITING, i + 1);
        snprintf(again, sizeof again, "started again in %" PRIu64 " s", pauses_ms[i] / 1000);
        assert_note(process, pid, "ended with status 1", again);
        process_tick(process, now_ms + pauses_ms[i] - 1);
        assert_state(process, PROCESS_WAITING, i + 1);
        now_ms += pauses_ms[i];
        process_tick(process, now_ms);
    }
    end_and_free(process);
}

static void pauses_are_short_again_after_a_time_that_went_well(void **state)
{
    (void)state;
    struct process *process = make_running("exit 1");
    for (unsigned failures = 1; failures < 4; failures++) {
        now_ms += HEALTHY_MS; /* not longer than that */
        wait_end(process);
        assert_state(process, PROCESS_WAITING, failures);
        now_ms += BACKOFF_MAX_MS;
        process_tick(process, now_ms);
    }
    now_ms += HEALTHY_MS + 1;
    wait_end(process);
    assert_state(process, PROCESS_WAITING, 1);
    process_tick(process, now_ms + BACKOFF_MS - 1);
    assert_state(process, PROCESS_WAITING, 1);
    process_tick(process, now_ms + BACKOFF_MS);
    assert_state(process, PROCESS_RUNNING, 1);
    end_and_free(process);
}

static void whoever_joins_does_not_wait_for_the_pause(void **state)
{
    (void)state;
    struct process *process = make_running("exit 3");
    wait_end(process);
    now_ms += BACKOFF_MS;
    process_tick(process, now_ms);
    wait_end(process);
    assert_state(process, PROCESS_WAITING, 2);
    assert_ok(process_start(process, now_ms));
    assert_state(process, PROCESS_RUNNING, 0); /* begun anew, failures too */
    wait_end(process);
    assert_state(process, PROCESS_WAITING, 1);
    assert_non_null(strstr(process_info(process).note, "started again in 1 s"));
    process_free(process);
}

static void the_note_says_how_it_ended(void **state)
{
    (void)state;
    static const struct {
        const char *body, *how;
    } cases[] = {{"exit 42", "ended with status 42"},
                 {"exit 0", "ended with status 0"}, /* nobody said that it is done */
                 {"kill -9 $$", "was killed by signal 9 (Killed)"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct process *process = make_running(cases[i].body);
        int pid = process_info(process).pid;
        wait_end(process);
        assert_state(process, PROCESS_WAITING, 1);
        assert_note(process, pid, cases[i].how, "started again in 1 s");
        process_free(process);
    }
}

static void a_program_that_does_not_exist_is_a_failure_like_others(void **state)
{
    (void)state;
    conf.worker_program = "no/such/trainer";
    struct process *process = make();
    assert_ok(process_start(process, now_ms));
    int pid = process_info(process).pid;
    wait_end(process);
    assert_state(process, PROCESS_WAITING, 1);
    assert_note(process, pid, "ended with status 127", "started again in 1 s");
    process_free(process);
}

/* ---- ends that are no failures ---- */

static void its_end_is_no_failure_after_it_said_that_it_is_done(void **state)
{
    (void)state;
    for (int status = 0; status < 2; status++) {
        struct process *process = make_running(status == 0 ? "exit 0" : "exit 1");
        process_finished(process);
        wait_end(process);
        assert_state(process, PROCESS_FINISHED, 0);
        assert_int_equal(process_info(process).ended_badly, status);
        assert_false(file_is_there("worker.pid"));
        process_tick(process, now_ms + BACKOFF_MAX_MS);
        process_leave(process);
        assert_state(process, PROCESS_FINISHED, 0);
        /* It was the one before that was done. */
        assert_ok(process_start(process, now_ms));
        wait_end(process);
        assert_state(process, PROCESS_WAITING, 1);
        process_free(process);
    }
}

static void who_was_asked_to_leave_is_not_started_again(void **state)
{
    (void)state;
    struct process *process = make_running("exit 1");
    wait_end(process); /* it failed once before */
    use_script("diloco-worker", script_answers);
    process_tick(process, now_ms + BACKOFF_MS);
    script_wait_ready();
    process_leave(process);
    script_assert_alive(process_info(process).pid); /* it goes when its work is counted: nobody ends it here */
    process_run(process, now_ms);
    assert_state(process, PROCESS_LEAVING, 1);
    process_leave(process);
    assert_state(process, PROCESS_LEAVING, 1);
    assert_true(process_end(process));
    wait_end(process);
    assert_state(process, PROCESS_STOPPED, 0);
    assert_string_equal(process_info(process).note, "");
    process_tick(process, now_ms + BACKOFF_MAX_MS);
    assert_state(process, PROCESS_STOPPED, 0);
    process_free(process);
    /* Stopped, and not finished, though it also said that it is done. */
    process = make_running("exit 0");
    process_leave(process);
    process_finished(process);
    wait_end(process);
    assert_state(process, PROCESS_STOPPED, 0);
    process_leave(process);
    assert_state(process, PROCESS_STOPPED, 0);
    process_free(process);
}

static void leaving_ends_the_waiting_too(void **state)
{
    (void)state;
    struct process *process = make_running("exit 1");
    wait_end(process);
    assert_state(process, PROCESS_WAITING, 1);
    process_leave(process);
    assert_state(process, PROCESS_STOPPED, 1);
    process_tick(process, now_ms + BACKOFF_MAX_MS);
    assert_state(process, PROCESS_STOPPED, 1);
    process_free(process);
}

/* By a signal that it can answer. */
static void it_is_asked_to_end_and_saves_first(void **state)
{
    (void)state;
    struct process *process = make_started("trap ': >\"${0%/*}/saved\"; exit 0' TERM\necho ready >\"$5\"\n"
                                           "i=0\nwhile [ $((i += 1)) -lt 3000 ]; do sleep 0.01; done");
    assert_true(process_end(process));
    wait_end(process);
    assert_true(file_is_there("saved"));
    assert_state(process, PROCESS_WAITING, 1); /* nobody wanted it gone for good */
    assert_false(process_end(process));
    process_free(process);
}

static void a_daemon_that_stops_takes_it_along_and_starts_none(void **state)
{
    (void)state;
    struct process *process = make_started(script_sleeps);
    process_stop(process);
    wait_end(process);
    assert_state(process, PROCESS_STOPPED, 0);
    process_tick(process, now_ms + BACKOFF_MAX_MS);
    assert_state(process, PROCESS_STOPPED, 0);
    process_free(process);
    process = make_running("exit 1");
    wait_end(process);
    process_stop(process);
    process_tick(process, now_ms + BACKOFF_MAX_MS);
    assert_false(process_running(process)); /* what waited for its pause stays away */
    process_free(process);
}

/* ---- the next daemon ---- */

/* The file with its number has, too, when it was started: field 22 of its line in /proc. */
static void assert_noted(int pid)
{
    char path[64], line[1024], *noted;
    size_t bytes;
    unsigned long long when;
    int number;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    fclose(file);
    char *field = strrchr(line, ')') + 1;
    for (int i = 3; i < 22; i++)
        field = strchr(field + 1, ' ');
    assert_ok(fsio_read(testlib_path(folder, "worker.pid"), 4096, &noted, &bytes));
    assert_int_equal(sscanf(noted, "%d %llu\n", &number, &when), 2);
    assert_int_equal(number, pid);
    assert_true(when == strtoull(field, NULL, 10));
    mem_free(noted);
}

static void the_next_daemon_takes_over_what_still_runs(void **state)
{
    (void)state;
    char line[1200]; /* /proc shows that name among the numbers */
    snprintf(line, sizeof line, "'%s' 1 2 3 4 %s", script_make("tr) 1 2 3 (4", script_answers), script_ready_path());
    conf.worker_program = line;
    struct process *process = make();
    assert_ok(process_start(process, now_ms));
    script_wait_ready();
    int pid = process_info(process).pid;
    assert_noted(pid);
    process_free(process);
    script_assert_alive(pid);
    conf.autostart = true;
    process = make();
    assert_state(process, PROCESS_RUNNING, 0);
    assert_int_equal(process_info(process).pid, pid);
    assert_ok(process_autostart(process, now_ms)); /* it is there */
    assert_int_equal(process_info(process).pid, pid);
    assert_fails(ERR_STATE, "running already", process_start(process, now_ms));
    process_run(process, now_ms);
    assert_state(process, PROCESS_RUNNING, 0);
    script_assert_alive(pid);
    /* Not a child of that daemon: it sees the end, and not how. */
    assert_true(process_end(process));
    now_ms += BACKOFF_MS;
    wait_end(process);
    assert_state(process, PROCESS_WAITING, 1);
    assert_note(process, pid, "ended", "started again in 1 s");
    assert_false(file_is_there("worker.pid"));
    process_free(process);
    assert_int_equal(waitpid(pid, NULL, 0), pid); /* here it was one */
}

static void assert_not_taken_over(void)
{
    struct process *process = make();
    assert_state(process, PROCESS_STOPPED, 0);
    process_free(process);
}

static void a_number_in_a_file_is_not_taken_for_the_trainer(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "trainer\n", "-1 5\n", "0 0\n", "5\n", "99999999999999999999 1\n"};
    use_script("diloco-worker", script_sleeps);
    assert_not_taken_over(); /* no file */
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        testlib_file(folder, "worker.pid", "%s", texts[i]);
        assert_not_taken_over();
    }
    /* The number has gone to another process since: to this one. */
    testlib_file(folder, "worker.pid", "%d 1\n", (int)getpid());
    assert_not_taken_over();
    testlib_file(folder, "worker.pid", "%d\n", (int)getpid());
    assert_not_taken_over();
    testlib_file(folder, "worker.pid", "%d %0300d\n", (int)getpid(), 1);
    assert_not_taken_over();
}

static void a_trainer_that_ended_meanwhile_is_not_taken_over(void **state)
{
    (void)state;
    struct process *process = make_started(script_sleeps);
    int pid = process_info(process).pid;
    process_free(process);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(file_is_there("worker.pid"));
    conf.autostart = true;
    process = make();
    assert_state(process, PROCESS_STOPPED, 0);
    assert_ok(process_autostart(process, now_ms));
    script_wait_ready();
    assert_state(process, PROCESS_RUNNING, 0);
    end_and_free(process);
}

static void where_none_is_configured_none_is_taken_over(void **state)
{
    (void)state;
    struct process *process = make_started(script_sleeps);
    char *program = conf.worker_program;
    conf.worker_program = "";
    struct process *other = make();
    assert_state(other, PROCESS_NONE, 0);
    assert_false(process_end(other));
    process_free(other);
    conf.worker_program = program;
    end_and_free(process);
}

/* ---- what the machine refuses ---- */

static void out_of_memory_starts_nothing(void **state)
{
    (void)state;
    struct process *process;
    enum err err;
    long n = 0;
    use_script("diloco-worker", script_sleeps);
    do {
        mem_fail_after(n++);
        err = process_new(&conf, &process);
        mem_fail_after(-1);
        assert_true(err == ERR_OK ? process != NULL : err == ERR_NOMEM && process == NULL);
    } while (err != ERR_OK);
    assert_true(n > 2);
    n = 0;
    for (;;) {
        mem_fail_after(n++);
        err = process_start(process, now_ms);
        mem_fail_after(-1);
        if (err == ERR_OK)
            break;
        assert_int_equal(err, ERR_NOMEM);
        assert_state(process, PROCESS_STOPPED, 0);
    }
    assert_true(n > 10); /* the arguments */
    script_wait_ready();
    end_and_free(process);
}

/* It runs all the same; only the next daemon will not know it. */
static void without_a_place_for_its_number_it_runs_all_the_same(void **state)
{
    (void)state;
    use_script("diloco-worker", script_sleeps);
    conf.state_folder = (char *)(uintptr_t)testlib_path(folder, "none");
    struct process *process = make();
    assert_ok(process_start(process, now_ms));
    script_wait_ready();
    assert_state(process, PROCESS_RUNNING, 0);
    assert_not_taken_over();
    end_and_free(process);
}

/* One that is not watched would never be seen to end. */
static void one_that_cannot_be_watched_is_not_started(void **state)
{
    (void)state;
    struct rlimit limit;
    use_script("diloco-worker", script_sleeps);
    struct process *process = make();
    int free_fd = dup(0);
    assert_true(free_fd >= 0);
    close(free_fd);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    struct rlimit none = {.rlim_cur = (rlim_t)free_fd, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    enum err err = process_start(process, now_ms);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_fails(ERR_IO, "cannot watch", err);
    assert_state(process, PROCESS_STOPPED, 0);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
    assert_ok(process_start(process, now_ms));
    script_wait_ready();
    end_and_free(process);
}

static void every_state_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (int a = PROCESS_NONE; a <= PROCESS_FINISHED; a++)
        for (int b = PROCESS_NONE; b < a; b++)
            assert_string_not_equal(process_state_name((enum process_state)a),
                                    process_state_name((enum process_state)b));
    for (int i = PROCESS_NONE; i <= PROCESS_FINISHED; i++)
        assert_null(strchr(process_state_name((enum process_state)i), ' '));
}

#define in_a_folder(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "train") == 0)
        return OWN_STATUS;
    const struct CMUnitTest tests[] = {
        in_a_folder(nothing_happens_where_none_is_configured),
        in_a_folder(it_starts_by_itself_if_the_configuration_says_so),
        in_a_folder(it_is_told_all_that_the_configuration_says),
        in_a_folder(it_has_a_session_of_its_own_and_hears_signals),
        in_a_folder(a_bare_name_is_first_looked_for_beside_our_own_program),
        in_a_folder(it_is_not_started_twice_or_for_nothing),
        in_a_folder(it_is_started_again_after_a_pause_that_grows),
        in_a_folder(pauses_are_short_again_after_a_time_that_went_well),
        in_a_folder(whoever_joins_does_not_wait_for_the_pause),
        in_a_folder(the_note_says_how_it_ended),
        in_a_folder(a_program_that_does_not_exist_is_a_failure_like_others),
        in_a_folder(its_end_is_no_failure_after_it_said_that_it_is_done),
        in_a_folder(who_was_asked_to_leave_is_not_started_again),
        in_a_folder(leaving_ends_the_waiting_too),
        in_a_folder(it_is_asked_to_end_and_saves_first),
        in_a_folder(a_daemon_that_stops_takes_it_along_and_starts_none),
        in_a_folder(the_next_daemon_takes_over_what_still_runs),
        in_a_folder(a_number_in_a_file_is_not_taken_for_the_trainer),
        in_a_folder(a_trainer_that_ended_meanwhile_is_not_taken_over),
        in_a_folder(where_none_is_configured_none_is_taken_over),
        in_a_folder(out_of_memory_starts_nothing),
        in_a_folder(without_a_place_for_its_number_it_runs_all_the_same),
        in_a_folder(one_that_cannot_be_watched_is_not_started),
        in_a_folder(every_state_has_a_name_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
