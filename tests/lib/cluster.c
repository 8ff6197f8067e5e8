/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/cluster.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/mem.h"
#include "common/runspec.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/dconf.h"
#include "net/transport/ident.h"
#include "tests/lib/begun.h"
#include "tests/lib/proc.h"
#include "tests/lib/testlib.h"

/* Sanitizers and a busy machine take their time; nothing waits this long unless something is wrong. */
enum { PATIENCE_S = 120 };

static const char *build_folder(void)
{
    const char *build = getenv("BUILD");
    return build != NULL ? build : "build/gcc";
}

void cluster_configure(struct cluster *cluster, uint32_t i, const struct cluster_options *options)
{
    struct cluster_island *island = &cluster->island[i];
    FILE *file = fopen(island->conf, "w");
    assert_non_null(file);
    char arguments[800] = "";
    const char *data = options->data != NULL ? options->data : "synthetic";
    /* The synthetic one is not ours: what it is to know stands with it, in a line that may not be long; and it runs
     * where its configuration lies. */
    if (options->program == NULL)
        snprintf(arguments, sizeof arguments, " --run run.ini --mark %c --data '%s'", island->name[0], data);
    bool witness = options->witness && i == cluster->count - 1;
    fprintf(file,
            "[island]\nname = %s\nrun = run.ini\nkey = %s.key\nstate = state-%s\nsockets = s-%s\nlog = debug\n"
            "witness = %s\n",
            island->name, island->name, island->name, island->name, witness ? "yes" : "no");
    if (i > 0)
        fprintf(file, "joined = joined-%s\n", island->name);
    fprintf(file, "[net]\nlisten = %s:%u\n", island->host, island->port);
    if (!witness)
        fprintf(file, "[worker]\nprogram = %s/%s%s\ndata = %s\nthreads = 1\ncheckpoint_every = 10\n", build_folder(),
                options->program != NULL ? options->program : "tests/system/tool_synth", arguments, data);
    if (options->more != NULL)
        fprintf(file, "%s\n", options->more);
    assert_int_equal(fclose(file), 0);
}

/* A failed test never reaches cluster_free(): what it started is ended when the program ends. */
static struct cluster *living[64];

static void end_all(void)
{
    for (size_t i = 0; i < sizeof living / sizeof living[0]; i++)
        if (living[i] != NULL)
            cluster_free(living[i]);
}

static void remember(struct cluster *cluster)
{
    static bool registered;
    if (!registered)
        atexit(end_all);
    registered = true;
    for (size_t i = 0; i < sizeof living / sizeof living[0]; i++) {
        if (living[i] == NULL) {
            living[i] = cluster;
            return;
        }
    }
}

static void forget(const struct cluster *cluster)
{
    for (size_t i = 0; i < sizeof living / sizeof living[0]; i++)
        if (living[i] == cluster)
            living[i] = NULL;
}

struct cluster *cluster_new(const char *name, uint32_t count, const struct cluster_options *options)
{
    struct cluster *cluster = calloc(1, sizeof *cluster);
    assert_non_null(cluster);
    assert_true(count <= CLUSTER_MAX);
    remember(cluster);
    cluster->folder = testlib_folder(name);
    cluster->count = count;
    cluster->witness = options->witness;
    snprintf(cluster->run, sizeof cluster->run, "%s/run.ini", cluster->folder);
    assert_ok(fsio_replace(cluster->run, options->run, strlen(options->run), 0644));
    for (uint32_t i = 0; i < count; i++) {
        struct cluster_island *island = &cluster->island[i];
        struct ident ident;
        snprintf(island->name, sizeof island->name, "%c", (char)('a' + i));
        snprintf(island->conf, sizeof island->conf, "%s/%s.conf", cluster->folder, island->name);
        snprintf(island->log, sizeof island->log, "%s/%s.log", cluster->folder, island->name);
        snprintf(island->state, sizeof island->state, "%s/state-%s", cluster->folder, island->name);
        snprintf(island->sockets, sizeof island->sockets, "%s/s-%s", cluster->folder, island->name);
        snprintf(island->control, sizeof island->control, "%s/control.sock", island->sockets);
        snprintf(island->key, sizeof island->key, "%s/%s.key", cluster->folder, island->name);
        assert_ok(ident_generate(&ident));
        assert_ok(ident_save(&ident, island->key));
        snprintf(island->public_key, sizeof island->public_key, "%s", ident.public_text);
        snprintf(island->host, sizeof island->host, "127.0.0.1");
        island->port = proc_free_port();
        assert_true(island->port > 0);
    }
    for (uint32_t i = 0; i < count; i++)
        cluster_configure(cluster, i, options);
    return cluster;
}

void cluster_configure_after(struct cluster *cluster, uint32_t i, const char *line, const char *more)
{
    const char *path = cluster->island[i].conf;
    char *text, *changed;
    size_t bytes;
    assert_ok(fsio_read(path, 1 << 16, &text, &bytes));
    const char *at = strstr(text, line);
    assert_non_null(at);
    at += strlen(line);
    assert_ok(mem_printf(&changed, "%.*s%s%s", (int)(at - text), text, more, at));
    assert_ok(fsio_replace(path, changed, strlen(changed), 0644));
    mem_free(changed);
    mem_free(text);
}

/* As their configurations have them. */
void cluster_begin(struct cluster *cluster)
{
    struct dconf conf[CLUSTER_MAX];
    struct ident ident[CLUSTER_MAX];
    struct begun_island islands[CLUSTER_MAX];
    struct runspec spec;
    bool begun = cluster->begun || cluster->count == 1;
    cluster->begun = true;
    if (begun)
        return;
    for (uint32_t i = 0; i < cluster->count; i++) {
        assert_ok(dconf_load(cluster->island[i].conf, NULL, 0, &conf[i]));
        assert_ok(ident_load(conf[i].key_path, &ident[i]));
        islands[i] = (struct begun_island){.name = conf[i].name,
                                           .address = dconf_address(&conf[i]),
                                           .ident = &ident[i],
                                           .uplink = conf[i].uplink,
                                           .witness = conf[i].witness,
                                           .state = conf[i].state_folder,
                                           .sockets = conf[i].run_folder,
                                           .joined = i > 0 ? conf[i].joined : NULL};
    }
    assert_ok(runspec_load(cluster->run, NULL, 0, &spec));
    assert_ok(begun_write(islands, cluster->count, &spec, NULL));
    runspec_deinit(&spec);
    for (uint32_t i = 0; i < cluster->count; i++)
        conf_deinit(&dconf_schema, &conf[i]);
}

void cluster_start(struct cluster *cluster, uint32_t i)
{
    cluster_begin(cluster);
    struct cluster_island *island = &cluster->island[i];
    char program[300];
    snprintf(program, sizeof program, "%s/dilocod", build_folder());
    const char *argv[] = {program, "--config", island->conf, NULL};
    island->pid = proc_start_in(island->space, argv, island->log);
    assert_true(island->pid > 0);
}

void cluster_start_all(struct cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->count; i++)
        cluster_start(cluster, i);
}

int cluster_wait_end(struct cluster *cluster, uint32_t i, double seconds)
{
    struct cluster_island *island = &cluster->island[i];
    int status = proc_wait(island->pid, seconds);
    if (status >= 0)
        island->pid = 0;
    return status;
}

int cluster_end(struct cluster *cluster, uint32_t i, int signal)
{
    struct cluster_island *island = &cluster->island[i];
    if (island->pid == 0)
        return 0;
    kill(island->pid, signal);
    int status = cluster_wait_end(cluster, i, PATIENCE_S);
    if (status < 0) {
        cluster_print_logs(cluster);
        fail_msg("island %s does not end", island->name);
    }
    return status;
}

void cluster_free(struct cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->count; i++)
        if (cluster->island[i].pid != 0)
            kill(cluster->island[i].pid, SIGTERM);
    for (uint32_t i = 0; i < cluster->count; i++) {
        if (cluster->island[i].pid != 0 && cluster_wait_end(cluster, i, 30) < 0) {
            kill(cluster->island[i].pid, SIGKILL);
            cluster_wait_end(cluster, i, 5);
        }
        proc_kill_trainer(cluster->island[i].state); /* a trainer outlives a killed daemon */
    }
    forget(cluster);
    free(cluster);
}

/* ---- questions ---- */

json_t *cluster_ask(struct cluster *cluster, uint32_t i, const char *request)
{
    json_t *answer;
    return ctl_ask(cluster->island[i].control, request, &answer) == ERR_OK ? answer : NULL;
}

void cluster_orders(struct cluster *cluster, uint32_t i, const char *request)
{
    json_t *answer = cluster_ask(cluster, i, request);
    if (answer == NULL)
        fail_msg("island %s does not take \"%s\": %s", cluster->island[i].name, request, err_text());
    json_decref(answer);
}

void cluster_refuses(struct cluster *cluster, uint32_t i, const char *request, const char *why)
{
    json_t *answer = cluster_ask(cluster, i, request);
    if (answer != NULL || strstr(err_text(), why) == NULL)
        fail_msg("to \"%s\" island %s says \"%s\", not \"%s\"", request, cluster->island[i].name,
                 answer != NULL ? "yes" : err_text(), why);
    json_decref(answer);
}

const char *cluster_trainer(struct cluster *cluster, uint32_t i)
{
    static char state[64];
    json_t *status = cluster_ask(cluster, i, "status");
    snprintf(state, sizeof state, "%s", ctl_text(json_object_get(status, "trainer"), "state"));
    json_decref(status);
    return state;
}

long long cluster_status_number(struct cluster *cluster, uint32_t i, const char *key)
{
    json_t *status = cluster_ask(cluster, i, "status");
    long long value = (long long)ctl_integer(status, key);
    json_decref(status);
    return value;
}

long long cluster_trainer_number(struct cluster *cluster, uint32_t i, const char *key)
{
    json_t *status = cluster_ask(cluster, i, "status");
    long long value = (long long)ctl_integer(json_object_get(status, "trainer"), key);
    json_decref(status);
    return value;
}

int cluster_trainer_pid(struct cluster *cluster, uint32_t i)
{
    return (int)cluster_trainer_number(cluster, i, "pid");
}

bool cluster_trainer_finished(struct cluster *cluster, uint32_t i, long long unused)
{
    (void)unused;
    return strcmp(cluster_trainer(cluster, i), "finished") == 0;
}

bool cluster_training(struct cluster *cluster, uint32_t i, long long unused)
{
    (void)unused;
    return strcmp(cluster_trainer(cluster, i), "training") == 0;
}

bool cluster_versions_reach(struct cluster *cluster, uint32_t i, long long versions)
{
    return cluster_status_number(cluster, i, "versions") >= versions;
}

bool cluster_peers_up(struct cluster *cluster, uint32_t i, long long islands)
{
    return cluster_status_number(cluster, i, "islands_up") == islands;
}

bool cluster_degraded(struct cluster *cluster, uint32_t i, long long wanted)
{
    json_t *status = cluster_ask(cluster, i, "status");
    bool degraded = json_array_size(json_object_get(status, "degraded")) > 0;
    bool answered = status != NULL;
    json_decref(status);
    return answered && degraded == (wanted != 0);
}

void cluster_wait(struct cluster *cluster, uint32_t i, cluster_predicate *predicate, long long value, const char *what)
{
    for (double waited = 0; waited < PATIENCE_S; waited += 0.05) {
        if (predicate(cluster, i, value))
            return;
        int status = cluster->island[i].pid != 0 ? cluster_wait_end(cluster, i, 0) : -1;
        if (status >= 0) {
            cluster_print_logs(cluster);
            fail_msg("island %s ended with %d while waiting for: %s", cluster->island[i].name, status, what);
        }
        proc_sleep_ms(50);
    }
    cluster_print_logs(cluster);
    json_t *fragments = cluster_ask(cluster, i, "fragments");
    char *text = fragments != NULL ? json_dumps(fragments, JSON_COMPACT) : NULL;
    print_message("fragments of %s: %s\n", cluster->island[i].name, text != NULL ? text : "no answer");
    free(text);
    json_decref(fragments);
    fail_msg("island %s: %s did not happen", cluster->island[i].name, what);
}

/* ---- logs ---- */

static char *read_log(struct cluster *cluster, uint32_t i)
{
    char *text;
    size_t bytes;
    return fsio_read(cluster->island[i].log, 1u << 30, &text, &bytes) == ERR_OK ? text : NULL;
}

bool cluster_log_has(struct cluster *cluster, uint32_t i, const char *text, double seconds)
{
    for (double waited = 0;; waited += 0.05) {
        char *log = read_log(cluster, i);
        bool has = log != NULL && strstr(log, text) != NULL;
        mem_free(log);
        if (has || waited >= seconds)
            return has;
        proc_sleep_ms(50);
    }
}

void cluster_print_logs(struct cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->count; i++) {
        char *log = read_log(cluster, i);
        if (log == NULL)
            continue;
        size_t length = strlen(log);
        print_message("---- end of %s's log, which is whole in %s ----\n%s\n", cluster->island[i].name,
                      cluster->island[i].log, log + (length > 3000 ? length - 3000 : 0));
        mem_free(log);
    }
}

enum { HASHES_MAX = 20000 };
struct known {
    unsigned fragment;
    unsigned long long version;
    char hash[80];
};

static void compare_log(struct cluster *cluster, uint32_t i, struct known *known, size_t *known_count)
{
    char *log = read_log(cluster, i);
    assert_non_null(log);
    for (char *at = log; (at = strstr(at, "debug: fragment ")) != NULL; at++) {
        struct known row;
        if (sscanf(at, "debug: fragment %u version %llu hash %64s", &row.fragment, &row.version, row.hash) != 3)
            continue;
        size_t k = 0;
        while (k < *known_count && (known[k].fragment != row.fragment || known[k].version != row.version))
            k++;
        if (k == *known_count) {
            assert_true(*known_count < HASHES_MAX);
            known[(*known_count)++] = row;
        } else if (strcmp(known[k].hash, row.hash) != 0) {
            fail_msg("island %s has another hash for fragment %u, version %llu", cluster->island[i].name, row.fragment,
                     row.version);
        }
    }
    mem_free(log);
}

uint32_t cluster_keepers(const struct cluster *cluster)
{
    return cluster->count - cluster->witness;
}

size_t cluster_assert_one_history(struct cluster *cluster, uint32_t count)
{
    struct known *known = calloc(HASHES_MAX, sizeof *known);
    size_t known_count = 0;
    assert_non_null(known);
    for (uint32_t i = 0; i < count; i++)
        compare_log(cluster, i, known, &known_count);
    free(known);
    assert_true(known_count > 0);
    return known_count;
}

void cluster_assert_one_truth(struct cluster *cluster)
{
    char first[80] = "";
    for (uint32_t i = 0; i < cluster_keepers(cluster); i++) {
        json_t *status = cluster_ask(cluster, i, "status");
        const char *anchors = ctl_text(status, "anchors");
        if (i == 0)
            snprintf(first, sizeof first, "%s", anchors);
        if (strlen(anchors) != 64 || strcmp(first, anchors) != 0) {
            cluster_print_logs(cluster);
            fail_msg("island %s ends with anchors %.16s, island a with %.16s", cluster->island[i].name, anchors, first);
        }
        json_decref(status);
    }
    size_t known = cluster_assert_one_history(cluster, cluster_keepers(cluster));
    print_message("%u islands agree on %zu fragment versions\n", cluster_keepers(cluster), known);
}

static bool same_files(const char *left, const char *right)
{
    char *a = NULL, *b = NULL;
    size_t a_bytes = 0, b_bytes = 1;
    bool same = fsio_read(left, 64 << 20, &a, &a_bytes) == ERR_OK &&
                fsio_read(right, 64 << 20, &b, &b_bytes) == ERR_OK && a_bytes == b_bytes && memcmp(a, b, a_bytes) == 0;
    mem_free(a);
    mem_free(b);
    return same;
}

void cluster_assert_one_model(struct cluster *cluster)
{
    char first[300], other[300];
    snprintf(first, sizeof first, "%s/anchor.safetensors", cluster->island[0].state);
    for (uint32_t i = 1; i < cluster_keepers(cluster); i++) {
        snprintf(other, sizeof other, "%s/anchor.safetensors", cluster->island[i].state);
        for (int k = 0; k < 200 && !same_files(first, other); k++)
            usleep(100000);
        if (!same_files(first, other)) {
            cluster_print_logs(cluster);
            fail_msg("%s and %s differ", first, other);
        }
    }
}
