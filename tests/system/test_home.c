/* SPDX-License-Identifier: Apache-2.0 */
/* One island in one folder: made, started, looked at and stopped by one program, with real daemon and trainer. */
#include "tests/lib/testlib.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "daemon/ctl/ctl_client.h"
#include "net/transport/ident.h"
#include "tests/lib/cli.h"
#include "tests/lib/proc.h"
#include "tests/lib/village.h"

/* Sanitizers and a busy machine take their time. */
enum { PATIENCE_S = 60 };

static const char *home, *text;

#define INIT(...) RUN("dilococtl", "init", "--home", home, __VA_ARGS__)
#define CTL(...) RUN("dilococtl", "--home", home, __VA_ARGS__)

static long long ask(const char *part, const char *key)
{
    assert_int_equal(CTL("status", "--json"), 0);
    json_t *status = cli_parsed();
    long long value = ctl_integer(part != NULL ? json_object_get(status, part) : status, key);
    json_decref(status);
    return value;
}

static void wait_for_versions(long long versions)
{
    for (double waited = 0; ask(NULL, "versions") < versions; waited += 0.05) {
        if (waited > PATIENCE_S) {
            CTL("logs");
            fail_msg("it does not train:\n%s", cli_out);
        }
        proc_sleep_ms(50);
    }
}

/* As our trainer tells it. */
static void assert_machine_is_known(void)
{
    assert_int_equal(CTL("status"), 0);
    assert_prints("machine    1 rank on CPU (");
    assert_int_equal(CTL("status", "--json"), 0);
    json_t *status = cli_parsed();
    const json_t *machine = json_object_get(json_object_get(status, "trainer"), "machine");
    assert_true(ctl_integer(machine, "ranks") == 1 && ctl_integer(machine, "tensor_parallel") == 1);
    assert_true(ctl_integer(machine, "memory_bytes") > 0);
    assert_true(ctl_integer(machine, "memory_total_bytes") > ctl_integer(machine, "memory_bytes"));
    assert_true(ctl_number(machine, "flops_per_token") > 0 && ctl_number(machine, "flops_per_s") > 0);
    assert_true(ctl_number(machine, "peak_flops") == 0 && ctl_number(machine, "mfu") == 0); /* of a CPU */
    json_decref(status);
}

static int daemon_pid(void)
{
    int pid = 0;
    const char *at = strstr(cli_out, "(pid ");
    if (at == NULL || sscanf(at, "(pid %d)", &pid) != 1)
        fail_msg("no number of a process in: %s", cli_out);
    return pid;
}

/* What nobody reaps here is a zombie, and gone all the same: when it has one thread left, which holds no file. */
static bool lives(int pid)
{
    char path[64], state = 0;
    int threads = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false;
    bool read = fscanf(file, "%*d (%*[^)]) %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d",
                       &state, &threads) == 2;
    fclose(file);
    return read && (state != 'Z' || threads > 1);
}

/* Whether the trainer that trains now was begun with this in its environment. */
static bool trainer_has(const char *variable)
{
    char path[64], environment[16384];
    size_t bytes, at = 0;
    bool found = false;
    snprintf(path, sizeof path, "/proc/%lld/environ", ask("trainer", "pid"));
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    bytes = fread(environment, 1, sizeof environment - 1, file);
    fclose(file);
    environment[bytes] = '\0';
    for (; at < bytes && !found; at += strlen(environment + at) + 1)
        found = strncmp(environment + at, variable, strlen(variable)) == 0;
    return found;
}

static void what_will_not_do_is_refused_and_leaves_nothing(void **state)
{
    (void)state;
    char path[200];
    assert_int_equal(INIT("--data", text), 2);
    assert_says("--name NAME");
    assert_int_equal(INIT("--name", "two words", "--data", text), 2);
    assert_says("letters, digits");
    assert_int_equal(INIT("--name", "paris", "--data", "/no/such/text"), 2);
    assert_says("--data /no/such/text: there is no such file");
    assert_int_equal(INIT("--name", "paris", "--data", text, "--ranks", "3"), 2);
    assert_says("[worker] ranks: [train] batch "); /* by the daemon's own eyes, when all was made */
    assert_int_equal(access(home, F_OK), -1);
    memset(path, 'a', sizeof path);
    path[0] = '/';
    path[120] = '\0';
    assert_int_equal(RUN("dilococtl", "init", "--home", path, "--name", "paris", "--data", text), 2);
    assert_says("choose a shorter one");
    assert_int_equal(RUN("dilocod", "--home", path), 2);
    assert_says("choose a shorter one");
    assert_int_equal(CTL("start"), 2);
    assert_says("no island is here");
    assert_int_equal(CTL("stop"), 2);
    assert_says("no island is here");
}

static void one_command_makes_an_island_that_trains(void **state)
{
    (void)state;
    struct ident ident;
    assert_int_equal(INIT("--name", "paris", "--data", text, "--run", village_spec(10), "--listen", homes_somewhere()),
                     0);
    assert_prints("Island paris is made");
    assert_ok(ident_load(testlib_path(home, "island.key"), &ident));
    assert_prints(ident.public_text);
    assert_prints("dilocod runs: island paris (pid ");
    assert_prints("watch");
    assert_true(lives(daemon_pid()));
    wait_for_versions(6);
    assert_int_equal(CTL("status"), 0);
    assert_prints("island     paris, 1 of 1 islands here");
    assert_machine_is_known();
    assert_int_equal(CTL("logs"), 0);
    assert_prints("island paris of 1 is ready");
    setenv("DILOCO_HOME", home, 1);
    assert_int_equal(RUN("dilococtl", "peers"), 0);
    assert_prints(ident.public_text);
    unsetenv("DILOCO_HOME");
}

static void a_second_start_and_a_second_init_change_nothing(void **state)
{
    (void)state;
    assert_int_equal(CTL("start"), 0);
    assert_prints("dilocod runs already: island paris");
    int pid = daemon_pid();
    assert_int_equal(INIT("--name", "paris", "--data", text), 1);
    assert_says("an island is here already");
    assert_int_equal(RUN("dilocod", "--home", home), 1);
    assert_says("already (pid ");
    assert_says("stop it with: dilococtl --home ");
    assert_true(lives(pid));
    assert_int_equal(CTL("status"), 0);
}

static void shell(const char *format, const char *from, const char *to)
{
    char command[600];
    snprintf(command, sizeof command, format, from, to);
    assert_int_equal(system(command), 0);
}

/* Its mark comes along with no copy, so it is known that it has forgotten what came after. */
static void a_copy_of_the_folder_that_is_put_back_is_noticed(void **state)
{
    (void)state;
    const char *copy = testlib_path(village_folder(), "copy");
    shell("cp -a %1$s %2$s", home, copy);
    assert_int_equal(CTL("start"), 0);
    CTL("logs");
    assert_null(strstr(cli_out, "this disk is in doubt"));
    wait_for_versions(ask(NULL, "versions") + 3);
    assert_int_equal(CTL("stop"), 0);
    shell("rm -r %1$s && mv %2$s %1$s", home, copy);
    assert_int_equal(CTL("start"), 0);
    CTL("logs");
    assert_non_null(strstr(cli_out, "this disk is in doubt"));
    wait_for_versions(ask(NULL, "versions") + 3); /* alone it has nobody to ask */
    assert_int_equal(CTL("stop"), 0);
}

/* Nothing is running when it is made, so that its disk is as sure as the first one's. */
static void a_copy_beside_the_first_one_is_refused(void **state)
{
    (void)state;
    const char *copy = testlib_path(village_folder(), "beside");
    shell("cp -a %1$s %2$s", home, copy);
    assert_true(homes_configure(copy, "net", "listen", homes_somewhere()));
    assert_int_equal(CTL("start"), 0);
    int pid = daemon_pid();
    assert_int_equal(RUN("dilocod", "--home", copy), 2);
    assert_says("if this folder is a copy, with this island's key");
    assert_true(lives(pid));
    wait_for_versions(ask(NULL, "versions") + 3);
    assert_int_equal(CTL("stop"), 0);
    shell("rm -r %1$s", copy, "");
}

static void it_is_stopped_and_goes_on_from_where_it_was(void **state)
{
    (void)state;
    assert_int_equal(CTL("start"), 0);
    int pid = daemon_pid();
    int trainer = (int)ask("trainer", "pid");
    wait_for_versions(9);
    long long versions = ask(NULL, "versions");
    assert_int_equal(CTL("stop"), 0);
    assert_prints("dilocod has stopped (pid ");
    assert_int_equal(daemon_pid(), pid);
    assert_false(lives(pid) || lives(trainer));
    assert_int_equal(CTL("status"), 3);
    assert_int_equal(CTL("stop"), 0);
    assert_prints("dilocod does not run\n");
    assert_int_equal(CTL("start"), 0);
    assert_prints("dilocod runs: island paris");
    wait_for_versions(1); /* before its anchors are read it has none */
    assert_true(ask(NULL, "versions") >= versions);
    wait_for_versions(versions + 3);
    assert_int_equal(CTL("stop", "--json"), 0);
    json_t *said = cli_parsed();
    assert_true(ctl_integer(said, "pid") > 0);
    json_decref(said);
}

static void kill_daemon(int pid)
{
    kill(pid, SIGKILL);
    for (int i = 0; lives(pid) && i < 500; i++)
        proc_sleep_ms(10);
}

/* The trainer of a killed daemon goes on, for the next one; who stops the island means it, too. */
static void the_trainer_of_a_killed_daemon_is_stopped_as_well(void **state)
{
    (void)state;
    assert_int_equal(CTL("start"), 0);
    int killed = daemon_pid();
    wait_for_versions(ask(NULL, "versions") + 3);
    int trainer = (int)ask("trainer", "pid");
    assert_true(trainer > 1);
    kill_daemon(killed);
    assert_int_equal(CTL("start"), 0); /* by which it is taken over */
    assert_int_equal(ask("trainer", "pid"), trainer);
    wait_for_versions(ask(NULL, "versions") + 3);
    assert_machine_is_known();
    assert_int_equal(CTL("start"), 0);
    kill_daemon(daemon_pid());
    assert_true(lives(trainer));
    assert_int_equal(CTL("stop"), 0);
    assert_prints("the trainer that it had left has ended (pid ");
    assert_int_equal(daemon_pid(), trainer);
    assert_false(lives(trainer));
    assert_int_equal(CTL("stop"), 0);
    assert_prints("dilocod does not run\n");
}

/* Or trainers that share a machine's cores crawl. */
static void a_trainers_threads_wait_asleep_unless_the_environment_says(void **state)
{
    (void)state;
    unsetenv("OMP_WAIT_POLICY");
    assert_int_equal(CTL("start"), 0);
    wait_for_versions(ask(NULL, "versions") + 3);
    assert_true(trainer_has("OMP_WAIT_POLICY=passive"));
    assert_int_equal(CTL("stop"), 0);
    setenv("GOMP_SPINCOUNT", "0", 1);
    assert_int_equal(CTL("start"), 0);
    unsetenv("GOMP_SPINCOUNT");
    wait_for_versions(ask(NULL, "versions") + 3);
    assert_true(trainer_has("GOMP_SPINCOUNT=0"));
    assert_false(trainer_has("OMP_WAIT_POLICY="));
    assert_int_equal(CTL("stop"), 0);
}

/* After a daemon was killed its number stays behind, and may be anybody's one day. */
static void whom_a_stale_file_names_is_not_ended(void **state)
{
    (void)state;
    int status, pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    testlib_file(home, "dilocod.pid", "%d\n", pid);
    assert_int_equal(CTL("stop"), 0);
    assert_prints("dilocod does not run\n");
    assert_int_equal(CTL("start"), 0);
    int killed = daemon_pid();
    assert_int_not_equal(killed, pid);
    kill_daemon(killed);
    testlib_file(home, "dilocod.pid", "%d\n", pid);
    assert_int_equal(CTL("stop"), 0);
    assert_prints("dilocod does not run");
    assert_int_equal(CTL("start"), 0);
    assert_int_equal(CTL("stop"), 0);
    assert_prints("dilocod has stopped");
    proc_sleep_ms(50);
    assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
}

/* By hand, without a word on where its files are; the machine's service may run beside it. */
static void what_a_configuration_leaves_out_is_in_the_folder(void **state)
{
    (void)state;
    const char *other = testlib_path(village_folder(), "bare");
    assert_ok(fsio_mkdirs(other, 0755));
    testlib_file(other, "dilocod.conf", "[island]\nname = bare\n[worker]\nautostart = no\n");
    assert_int_equal(RUN("dilocod", "--home", other, "--print-config"), 0);
    static const char *const lines[] = {"key = %s/island.key\n", "run = %s/run.ini\n", "state = %s/state\n",
                                        "sockets = %s/run\n"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char line[300];
        snprintf(line, sizeof line, lines[i], other);
        assert_prints(line);
    }
    assert_int_equal(RUN("dilococtl", "--home", other, "status"), 3);
    assert_says(testlib_path(other, "run/control.sock"));
}

static void a_start_that_fails_shows_why(void **state)
{
    (void)state;
    const char *conf = testlib_path(home, "dilocod.conf"), *run = testlib_path(home, "run.ini");
    assert_ok(fsio_replace(run, "[run]\nname = x\nsteps = many\n", 27, 0644));
    assert_int_equal(CTL("start"), 1);
    assert_says("run.ini:3: [run] steps");
    assert_says("dilocod has ended");
    assert_ok(fsio_replace(conf, "[island]\nnam = x\n", 17, 0644));
    assert_int_equal(CTL("start"), 2);
    assert_says("dilocod.conf:2");
}

/* The nonce as the ledger's head has it, from byte 48 on. */
static void nonce_of(const char *where, uint8_t out[16])
{
    char *bytes;
    size_t count;
    assert_ok(fsio_read(testlib_path(where, "state/ledger-000000000001.log"), 1 << 28, &bytes, &count));
    assert_true(count >= 64);
    memcpy(out, bytes + 48, 16);
    mem_free(bytes);
}

/* Of the same island, key and run spec. */
static void a_run_that_is_begun_anew_is_another_run(void **state)
{
    (void)state;
    uint8_t nonce[3][16];
    const char *oslo = village_home("oslo");
    assert_int_equal(RUN("dilococtl", "init", "--home", oslo, "--name", "oslo", "--data", text, "--no-start"), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(RUN("dilococtl", "--home", oslo, "start"), 0);
        assert_int_equal(RUN("dilococtl", "--home", oslo, "stop"), 0);
        nonce_of(oslo, nonce[i]);
        if (i != 1) /* between the others it only stops */
            continue;
        assert_int_equal(RUN("dilococtl", "--home", oslo, "reset"), 0);
        assert_non_null(strstr(cli_out, "join TOKEN --name oslo --data FILE joins one"));
    }
    assert_memory_equal(nonce[0], nonce[1], 16);
    assert_memory_not_equal(nonce[1], nonce[2], 16);
    assert_int_equal(access(testlib_path(oslo, "state.before-1/founded"), F_OK), 0);
}

int main(void)
{
    assert_ok(digest_init());
    if (!village_open("one"))
        return 1;
    cli_init(testlib_folder("home"));
    home = village_home("paris");
    text = village_text();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_will_not_do_is_refused_and_leaves_nothing),
        cmocka_unit_test(one_command_makes_an_island_that_trains),
        cmocka_unit_test(a_second_start_and_a_second_init_change_nothing),
        cmocka_unit_test(it_is_stopped_and_goes_on_from_where_it_was),
        cmocka_unit_test(a_copy_of_the_folder_that_is_put_back_is_noticed),
        cmocka_unit_test(a_copy_beside_the_first_one_is_refused),
        cmocka_unit_test(a_trainers_threads_wait_asleep_unless_the_environment_says),
        cmocka_unit_test(the_trainer_of_a_killed_daemon_is_stopped_as_well),
        cmocka_unit_test(whom_a_stale_file_names_is_not_ended),
        cmocka_unit_test(what_a_configuration_leaves_out_is_in_the_folder),
        cmocka_unit_test(a_start_that_fails_shows_why),
        cmocka_unit_test(a_run_that_is_begun_anew_is_another_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
