/* SPDX-License-Identifier: Apache-2.0 */
/* The command lines: exit status, one clear error for each mistake, output for people and for programs. */
#include "tests/lib/testlib.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "common/processors.h"
#include "tests/lib/cli.h"
#include "tests/lib/cluster.h"
#include "tests/lib/proc.h"

static const char *folder;

static void every_program_explains_itself(void **state)
{
    (void)state;
    static const char *const programs[] = {"dilocod", "dilococtl", "diloco-worker", "diloco-gateway"};
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        assert_int_equal(RUN(programs[i], "--version"), 0);
        assert_prints(DILOCO_VERSION);
        assert_int_equal(RUN(programs[i], "--help"), 0);
        assert_prints("usage: ");
        assert_int_equal(RUN(programs[i], "--hlep"), 2);
        assert_says("--hlep");
    }
    assert_int_equal(RUN("diloco-worker", "tarin"), 2);
    assert_says("no command \"tarin\"");
    assert_int_equal(RUN("dilococtl", "statsu"), 2);
    assert_says("no command \"statsu\"");
    assert_int_equal(RUN("dilococtl", "statsu", "--help"), 2);
    assert_says("no command \"statsu\"");
    assert_int_equal(RUN("dilococtl", "join", "--help"), 0); /* and no option of another command */
    assert_prints("join TOKEN");
    assert_prints("--witness");
    assert_null(strstr(cli_out, "--expires"));
    assert_int_equal(RUN("diloco-worker", "train"), 2);
    assert_says("needs --run, --data and --out");
}

static void configuration_errors_name_line_reason_and_remedy(void **state)
{
    (void)state;
    static const struct {
        const char *line, *says;
    } rows[] = {
        {"[net]\nratelimit = 1Mbit", "rate_limit"},
        {"[net]\nwindow = 16Mbit", "16Mbit"},
        {"[net]\nlisten = 7600", "\"7600\" is not host:port, as in *:7600"},
        {"[net]\nlisten = *:76000", "is not host:port"},
        {"[worker]\ndevice = gpu", "[worker] device: \"gpu\" is none; there are: cpu, cuda, auto"},
        {"[island]\nsockets = /run/an/unusually/long/name/of/a/folder/that/nobody/would/call/so/but/a/test/which/looks/"
         "for/what/becomes/of/it",
         "a socket's path"},
        {"[net]\nio_threads = 99", "1 .. 16"},
        {"[net]\nio_threads = many", "many"},
        {"[nets]\nlisten = x", "nets"},
        {"[island]\nname = again", "twice"},
        {"[storage]\ncheckpoint = 10", "unit"},
        {"[net]\nreach = oslo", "[net] reach: \"oslo\" is not NAME=HOST:PORT"},
        {"[net]\nreach = rome=r:1 oslo=o:99999", "[net] reach: \"oslo=o:99999\" is not NAME=HOST:PORT"},
        {"[net]\ninviter = o,s=o:1", "[net] inviter: \"o,s=o:1\" is not NAME=HOST:PORT"},
        {"[peer b]\npublic_key = PUAXw-hDiVqStwqnTRt-vJyYLM8uxJaMwM1V8Sr0Zgw",
         "bad.conf:8: [peer b]: a configuration lists no other islands any more: take these sections out"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *path = testlib_file(folder, "bad.conf",
                                        "[island]\nname = a\nrun = r\nkey = k\n[worker]\ndata = d\n%s\n", rows[i].line);
        assert_int_equal(RUN("dilocod", "--check-config", "--config", path), 2);
        assert_says("bad.conf");
        assert_says(rows[i].says);
    }
    assert_int_equal(RUN("dilocod", "--check-config", "--config", "no/such.conf"), 2);
    assert_says("no/such.conf");
    assert_int_equal(RUN("dilocod", "--config", "conf/dilocod.conf", "--set", "net.windw=1MiB", "--check-config"), 2);
    assert_says("window");
    assert_int_equal(
        RUN("dilocod", "--config", "conf/dilocod.conf", "--set", "worker.tensor_parallel=2", "--check-config"), 2);
    assert_says("[worker] tensor_parallel: 2 processes cannot share each layer where ranks makes 1 in all");
}

static void assert_refused_before_the_start(const struct cluster *cluster, const char *set, const char *says)
{
    const char *conf = cluster->island[0].conf;
    if (set != NULL)
        assert_int_equal(RUN("dilocod", "--check-config", "--config", conf, "--set", set), 2);
    else
        assert_int_equal(RUN("dilocod", "--check-config", "--config", conf), 2);
    assert_says(says);
}

/* Enough for a batch of the usual size. */
static const char *long_text(void)
{
    static char text[100001];
    memset(text, 'a', sizeof text - 1);
    return text;
}

/* What would only be seen when the trainer is started, or a port opened. */
static void what_a_start_would_stumble_over_is_found_before(void **state)
{
    (void)state;
    char text[600];
    struct cluster_options options = {
        .run = "[run]\nname = x\nsteps = 9\n[sync]\nquorum = 2\n", .program = "diloco-worker", .data = "text.*"};
    struct cluster *cluster = cluster_new("cli-check", 2, &options);
    assert_refused_before_the_start(cluster, NULL, "text.*: there is no such file");
    testlib_file(cluster->folder, "text.1", "some text\n");
    testlib_file(cluster->folder, "text.2", "some text\n");
    assert_refused_before_the_start(cluster, NULL, "the trainer would not start: ");
    assert_says("are too few");
    testlib_file(cluster->folder, "text.2", "%s", long_text());
    if (access("/dev/nvidiactl", F_OK) != 0)
        assert_refused_before_the_start(cluster, "worker.device=cuda", "the trainer would not start: device cuda");
    assert_int_equal(RUN("dilocod", "--check-config", "--config", cluster->island[0].conf), 0);
    snprintf(text, sizeof text, "worker.program=%s/nowhere", cluster->folder);
    assert_refused_before_the_start(cluster, text, "[worker] program");
    assert_refused_before_the_start(cluster, "worker.program=no-such-program", "there is no program no-such-program");
    snprintf(text, sizeof text, "worker.program=%s", cluster->run);
    assert_refused_before_the_start(cluster, text, "[worker] program");
    assert_refused_before_the_start(cluster, "worker.devices=0-1",
                                    "[worker] devices: 0-1 names GPUs, but device is cpu");
    assert_refused_before_the_start(cluster, "worker.ranks=3", "cannot be shared out evenly among 3 ranks");
    cluster_free(cluster);
}

static void what_is_printed_can_be_read_again(void **state)
{
    (void)state;
    assert_int_equal(RUN("dilocod", "--print-config", "--config", "conf/dilocod.conf", "--set", "net.window=1MiB"), 0);
    assert_prints("window = 1MiB");
    const char *path = testlib_path(folder, "again.conf");
    assert_ok(fsio_replace(path, cli_out, strlen(cli_out), 0644));
    char *first = strdup(cli_out);
    assert_int_equal(RUN("dilocod", "--print-config", "--config", path), 0);
    assert_string_equal(cli_out, first);
    free(first);
    assert_int_equal(RUN("diloco-worker", "spec"), 0);
    path = testlib_path(folder, "again.ini");
    assert_ok(fsio_replace(path, cli_out, strlen(cli_out), 0644));
    first = strdup(cli_out);
    assert_int_equal(RUN("diloco-worker", "spec", "--run", path), 0);
    assert_string_equal(cli_out, first);
    free(first);
    assert_int_equal(RUN("diloco-worker", "spec", "--run", path, "--set", "model.width=100", "--set", "model.heads=3"),
                     2);
    assert_says("is not a multiple of heads");
}

static void keys_are_made_once_and_kept_private(void **state)
{
    (void)state;
    struct stat status;
    const char *path = testlib_path(folder, "island.key");
    assert_int_equal(RUN("dilococtl", "keygen", path), 0);
    assert_prints("Its public key is ");
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    assert_int_equal(RUN("dilococtl", "keygen", path), 1);
    assert_says("exists already");
    assert_int_equal(RUN("dilococtl", "keygen"), 2);
    assert_says("needs a file");
}

static void assert_has(const json_t *object, const char *const *keys)
{
    for (; *keys != NULL; keys++)
        if (json_object_get(object, *keys) == NULL)
            fail_msg("no \"%s\" in the answer", *keys);
}

static void answers_for_programs(const char *socket)
{
    static const char *const in_status[] = {"island", "run", "trainer", "degraded", "anchors", "versions", NULL};
    static const char *const in_peer[] = {"name", "public_key", "up", "trainer", "rtt_ms", "bytes_sent", NULL};
    static const char *const in_fragment[] = {"fragment", "params", "version", "state", "hash", "waiting_for", NULL};
    assert_int_equal(RUN("dilococtl", "status", "--json", "--socket", socket), 0);
    json_t *json = cli_parsed();
    assert_has(json, in_status);
    json_decref(json);
    assert_int_equal(RUN("dilococtl", "peers", "--json", "--socket", socket), 0);
    json = cli_parsed();
    assert_int_equal(json_array_size(json_object_get(json, "peers")), 2);
    assert_has(json_array_get(json_object_get(json, "peers"), 0), in_peer);
    json_decref(json);
    assert_int_equal(RUN("dilococtl", "fragments", "--json", "--socket", socket), 0);
    json = cli_parsed();
    assert_int_equal(json_array_size(json_object_get(json, "fragments")), 3);
    assert_has(json_array_get(json_object_get(json, "fragments"), 0), in_fragment);
    json_decref(json);
}

static void answers_for_people(const char *socket, const char *conf)
{
    assert_int_equal(RUN("dilococtl", "status", "--config", conf), 0);
    assert_prints("island     a, 2 of 2 islands here");
    assert_prints("trainer    training");
    assert_int_equal(RUN("dilococtl", "peers", "--socket", socket), 0);
    assert_prints("self");
    assert_prints("up");
    assert_int_equal(RUN("dilococtl", "fragments", "--socket", socket), 0);
    assert_prints("waiting for");
    assert_int_equal(RUN("dilococtl", "status", "extra", "--socket", socket), 2);
    assert_says("\"extra\" was not expected");
}

/* The exit status is the verdict. */
static void a_monitor_asks(struct cluster *cluster)
{
    const char *socket = cluster->island[0].control;
    cluster_wait(cluster, 0, cluster_degraded, 0, "all to be well");
    assert_int_equal(RUN("dilococtl", "status", "--check", "--socket", socket), 0);
    assert_prints("good: 2 of 2 islands, step ");
    assert_int_equal(RUN("dilococtl", "pause", "--socket", socket), 0);
    assert_int_equal(RUN("dilococtl", "status", "--check", "--socket", socket), 0); /* as was asked */
    assert_int_equal(RUN("dilococtl", "resume", "--socket", socket), 0);
    assert_int_equal(cluster_end(cluster, 1, SIGKILL), 128 + SIGKILL);
    cluster_wait(cluster, 0, cluster_degraded, 1, "the other one to be missed");
    assert_int_equal(RUN("dilococtl", "status", "--check", "--socket", socket), 1);
    assert_prints("degraded: 1 of the 2 islands that vote are heard, no majority: no round closes until b is back");
    assert_int_equal(strcspn(cli_out, "\n") + 1, strlen(cli_out)); /* one event is one line */
    assert_int_equal(RUN("dilococtl", "status", "--check", "--json", "--socket", socket), 1);
    json_t *json = cli_parsed();
    assert_true(json_array_size(json_object_get(json, "degraded")) > 1);
    json_decref(json);
    cluster_start(cluster, 1);
    cluster_wait(cluster, 0, cluster_degraded, 0, "all to be well again");
    assert_int_equal(RUN("dilococtl", "peers", "--check", "--socket", socket), 2);
    assert_says("--check is for status");
}

/* Live, until it is ended: one object a line. */
static void watch_goes_on_until_it_is_ended(const char *socket)
{
    const char *path = testlib_path(folder, "watch.out");
    const char *argv[] = {cli_program("dilococtl"), "watch", "--json", "--interval", "50", "--socket", socket, NULL};
    int pid = proc_start(argv, path);
    assert_true(pid > 0);
    assert_int_equal(proc_wait(pid, 1), -1);
    kill(pid, SIGTERM);
    assert_int_equal(proc_wait(pid, 5), 128 + SIGTERM);
    char *text;
    size_t bytes, lines = 0;
    assert_ok(fsio_read(path, 16 << 20, &text, &bytes));
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"), lines++) {
        json_t *json = json_loads(line, 0, NULL);
        assert_non_null(json_object_get(json, "status"));
        assert_non_null(json_object_get(json, "fragments"));
        json_decref(json);
    }
    assert_true(lines >= 3);
    mem_free(text);
}

/* What was printed last, from its run spec on, is one. */
static void assert_planned_spec_loads(const char *codec)
{
    const char *begin = strstr(cli_out, "\n[run]\n");
    assert_non_null(begin);
    const char *path = testlib_file(folder, "planned.ini", "%s", begin);
    assert_int_equal(RUN("diloco-worker", "spec", "--run", path), 0);
    char line[40];
    snprintf(line, sizeof line, "\ncodec = %s\n", codec);
    assert_prints(line);
}

static void a_line_is_planned_for(void **state)
{
    (void)state;
    assert_int_equal(RUN("dilococtl", "plan"), 2);
    assert_says("--params");
    assert_int_equal(RUN("dilococtl", "plan", "--params", "1e9", "--step-time", "0.1"), 2);
    assert_says("--bandwidth");
    assert_int_equal(RUN("dilococtl", "plan", "--params", "1e9", "--step-time", "0.1", "--bandwidth", "9 fast"), 2);
    assert_says("no rate");
    assert_int_equal(RUN("dilococtl", "plan", "--params", "1e9", "--step-time", "0.1", "--bandwidth", "1Gbit"), 0);
    assert_prints("DiLoCo, bf16");
    assert_prints("On this link a run trains ");
    assert_planned_spec_loads("uniform");
    assert_int_equal(RUN("dilococtl", "plan", "--params", "1e9", "--step-time", "0.1", "--bandwidth", "1Mbit"), 0);
    assert_planned_spec_loads("uniform");
    const char *path = testlib_path(folder, "plan.svg");
    assert_int_equal(RUN("dilococtl", "plan", "--params", "1e7", "--step-time", "0.5", "--bandwidth", "100Mbit",
                         "--json", "--plot", path),
                     0);
    assert_prints("\"bit_s_needed\"");
    assert_int_equal(access(path, R_OK), 0);
}

static void the_whole_run_is_steered(const char *socket)
{
    assert_int_equal(RUN("dilococtl", "pause", "--run", "--socket", socket), 0);
    assert_prints("decided: the run is paused, in epoch ");
    assert_int_equal(RUN("dilococtl", "status", "--socket", socket), 0);
    assert_prints("the run is paused, by a (order ");
    assert_prints("paused with the run, step ");
    assert_int_equal(RUN("dilococtl", "status", "--check", "--socket", socket), 0);
    assert_prints(", the run is paused");
    assert_int_equal(RUN("dilococtl", "pause", "--run", "--socket", socket), 1);
    assert_says("the run is paused already");
    assert_int_equal(RUN("dilococtl", "pause", "--socket", socket), 1);
    assert_says("--now ends it all the same");
    assert_int_equal(RUN("dilococtl", "resume", "--run", "--socket", socket), 0);
    assert_prints("decided: the run goes on, in epoch ");
    assert_int_equal(RUN("dilococtl", "set", "steps=200000", "--socket", socket), 0);
    assert_prints("decided: the run has 200000 steps, in epoch ");
    assert_int_equal(RUN("dilococtl", "set", "steps=200001", "--json", "--socket", socket), 0);
    assert_prints("{\"ok\":\"the run has 200001 steps\",\"epoch\":");
    assert_int_equal(RUN("dilococtl", "set", "steps=1", "--socket", socket), 1);
    assert_says("what is counted stays");
}

static void a_running_island_is_looked_at_and_steered(void **state)
{
    (void)state;
    static const char spec[] = "[run]\nname = cli\nsteps = 100000\n[model]\nlayers = 2\n"
                               "[sync]\ninterval = 10\nlayers_per_fragment = 1\noverlap = 2\n";
    struct cluster_options options = {.run = spec, .data = "sleep=10"};
    struct cluster *cluster = cluster_new("cli", 2, &options);
    const char *socket = cluster->island[0].control;
    assert_int_equal(RUN("dilococtl", "status", "--socket", socket), 3);
    assert_says("is dilocod running");
    assert_int_equal(RUN("dilococtl", "status", "--check", "--socket", socket), 2);
    assert_prints("unreachable: no daemon answers");
    assert_int_equal(RUN("dilocod", "--check-config", "--config", cluster->island[0].conf), 0);
    assert_prints("ok: island a, run cli");
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < 2; i++)
        cluster_wait(cluster, i, cluster_training, 0, "training");
    cluster_wait(cluster, 0, cluster_versions_reach, 3, "some versions");
    answers_for_programs(socket);
    answers_for_people(socket, cluster->island[0].conf);
    watch_goes_on_until_it_is_ended(socket);
    a_monitor_asks(cluster);
    assert_int_equal(RUN("dilococtl", "save", "--socket", socket), 0);
    assert_prints("anchor.safetensors");
    char anchor[600];
    snprintf(anchor, sizeof anchor, "%s/anchor.safetensors", cluster->island[0].state);
    assert_int_equal(access(anchor, R_OK), 0);
    assert_int_equal(RUN("dilococtl", "pause", "--socket", socket), 0);
    assert_prints("trainer: stopped");
    assert_int_equal(RUN("dilococtl", "pause", "--socket", socket), 1);
    assert_int_equal(RUN("dilococtl", "resume", "--socket", socket), 0);
    assert_prints("trainer: training");
    assert_int_equal(RUN("dilococtl", "resume", "--socket", socket), 1);
    assert_says("running already");
    the_whole_run_is_steered(socket);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(cluster_end(cluster, i, SIGTERM), 0);
    cluster_free(cluster);
}

/* Nothing that somebody types is passed over in silence. */
static void what_a_command_does_not_take_it_refuses(void **state)
{
    (void)state;
    const char *home = testlib_path(folder, "nowhere");
#define REFUSES(part, ...)                                  \
    do {                                                    \
        assert_int_equal(RUN("dilococtl", __VA_ARGS__), 2); \
        assert_says(part);                                  \
        assert_int_equal(access(home, F_OK), -1);           \
    } while (0)
    REFUSES("--expires is for invite, and not for status", "status", "--expires", "4h", "--witness");
    REFUSES("--owner is for join TOKEN, and not for init", "init", "--home", home, "--owner", "maybe");
    REFUSES("--run is for init, pause, resume, and not for join TOKEN", "join", "x", "--home", home, "--run",
            "run.ini");
    REFUSES("-f is for logs, and not for watch", "watch", "-f");
    REFUSES("--wait is for ", "pause", "--wait", "9");
    REFUSES("--wait is for resume --run, ", "resume", "--wait", "9", "--socket", "no/such.sock");
    REFUSES("--now adds nothing", "pause", "--run", "--now", "--socket", "no/such.sock");
    REFUSES("set what? ", "set", "--socket", "no/such.sock");
    REFUSES("set what? ", "set", "stepps=3", "--socket", "no/such.sock");
    REFUSES("it needs a token of the run", "join", "--name", "paris");
    REFUSES("to train on here after a pause: dilococtl resume", "join");
    REFUSES("leave one of the two out", "join", "dilo1-x", "--token-file", "f", "--home", home);
    REFUSES("--token-file no/such: cannot open", "join", "--token-file", "no/such", "--home", home);
    REFUSES("--owner maybe: auto, yes or no", "join", "dilo1-x", "--home", home, "--name", "paris", "--owner", "maybe");
    REFUSES("ask for one", "invite", "--list", "--revoke", "abc", "--socket", "no/such.sock");
    REFUSES("ask for one", "invite", "--list", "--note", "for oslo", "--socket", "no/such.sock");
    REFUSES("--interval 0", "watch", "--interval", "0", "--socket", "no/such.sock");
    REFUSES("--devices is for ", "resume", "--devices", "0-1");
    REFUSES("--witness, and --device: a witness has no trainer", "join", "x", "--home", home, "--witness", "--device",
            "cuda");
    REFUSES("[worker] device: \"gpu\" is none", "init", "--home", home, "--name", "paris", "--data", "README.md",
            "--device", "gpu");
    REFUSES("\"more\" was not expected; usage: dilococtl join TOKEN", "join", "x", "more");
}

static void what_the_trainer_s_commands_do_not_take_they_refuse(void **state)
{
    (void)state;
    static const struct {
        const char *command, *option, *value, *says;
    } rows[] = {
        {"eval", "--ranks", "2", "--ranks is for train, and not for eval"},
        {"eval", "--devices", "0", "--devices is for train, and not for eval"},
        {"eval", "--tensor-parallel", "2", "--tensor-parallel is for train"},
        {"eval", "--out", "x", "--out is for train"},
        {"sample", "--recompute", "norms", "--recompute is for train, and not for sample"},
        {"sample", "--rounding", "nearest", "--rounding is for train"},
        {"sample", "--attach", "x", "--attach is for train"},
        {"sample", "--stream", "0/1", "--stream is for train"},
        {"sample", "--data", "x", "--data is for train, eval, and not for sample"},
        {"eval", "--checkpoint-every", "1", "--checkpoint-every is for train"},
        {"eval", "--eval-every", "1", "--eval-every is for train"},
        {"train", "--params", "x", "--params is for eval, sample, spec, and not for train"},
        {"train", "--prompt", "x", "--prompt is for sample, and not for train"},
        {"spec", "--device", "cuda", "--device is for train, eval, sample, and not for spec"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(RUN("diloco-worker", rows[i].command, rows[i].option, rows[i].value), 2);
        assert_says(rows[i].says);
    }
}

/* One rank is said by leaving it out, and GPUs are not replaced by as many processes on the CPU. */
static void ranks_that_were_not_meant_are_refused(void **state)
{
    (void)state;
    const char *run = strdup(testlib_file(folder, "ranks.ini", "[run]\nname = x\nsteps = 1\n[model]\nlayers = 1\n"));
    const char *out = strdup(testlib_path(folder, "ranks"));
#define TRAIN(...) RUN("diloco-worker", "train", "--run", run, "--data", "README.md", "--out", out, __VA_ARGS__)
    assert_int_equal(TRAIN("--ranks", "0"), 2);
    assert_says("--ranks 0: at least 1");
    assert_int_equal(TRAIN("--ranks", "3"), 2);
    assert_says("[train] batch 8 cannot be shared out evenly among 3 ranks");
    if (access("/dev/nvidiactl", F_OK) != 0) {
        assert_int_equal(TRAIN("--device", "auto", "--devices", "0,1"), 2);
        assert_says("(cuda:");
        assert_says("device cuda");
    }
    assert_int_equal(access(out, F_OK), -1);
    free((void *)(uintptr_t)run);
    free((void *)(uintptr_t)out);
}

static void assert_threads(int width, int batch, long threads)
{
    char run[400], out[400], want[80];
    snprintf(run, sizeof run, "%s",
             testlib_file(folder, "threads.ini",
                          "[run]\nname = x\nsteps = 1\n[model]\nlayers = 1\nheads = 2\nwidth = %d\ncontext = 32\n"
                          "[train]\nbatch = %d\n",
                          width, batch));
    snprintf(out, sizeof out, "%s/threads-%d", folder, width);
    snprintf(want, sizeof want, ", %ld of %ld processors", threads, sysconf(_SC_NPROCESSORS_ONLN));
    assert_int_equal(
        RUN("diloco-worker", "train", "--run", run, "--data", "README.md", "--out", out, "--device", "cpu"), 0);
    assert_says(want);
}

/* To wake a thread for a small product takes longer than the product. */
static void a_small_model_takes_few_threads(void **state)
{
    (void)state;
    assert_threads(16, 1, 1);
#ifdef __SANITIZE_THREAD__
    print_message("skip: that a larger one takes more: with the thread sanitizer there is no OpenMP\n");
#else
    if (processors_here() < 2)
        print_message("skip: that a larger one takes more: there is one processor\n");
    else
        assert_threads(256, 2, 2);
#endif
}

int main(void)
{
    assert_ok(digest_init());
    folder = testlib_folder("cli-files");
    cli_init(folder);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_program_explains_itself),
        cmocka_unit_test(configuration_errors_name_line_reason_and_remedy),
        cmocka_unit_test(what_a_start_would_stumble_over_is_found_before),
        cmocka_unit_test(what_is_printed_can_be_read_again),
        cmocka_unit_test(keys_are_made_once_and_kept_private),
        cmocka_unit_test(what_a_command_does_not_take_it_refuses),
        cmocka_unit_test(what_the_trainer_s_commands_do_not_take_they_refuse),
        cmocka_unit_test(ranks_that_were_not_meant_are_refused),
        cmocka_unit_test(a_small_model_takes_few_threads),
        cmocka_unit_test(a_line_is_planned_for),
        cmocka_unit_test(a_running_island_is_looked_at_and_steered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
