/* Two daemons on loopback, one fragment of 16 M parameters, synchronised at every step without overlap: one call of
 * diloco_step() is snapshot, encode, exchange, mean, second encoding, exchange, outer step, hash, anchor back. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/env.h"
#include "common/fsio.h"
#include "net/ident.h"
#include "tests/bench/bench.h"
#include "tests/lib/proc.h"
#include "worker/libdiloco/diloco.h"

enum { COUNT = 16 << 20, ROUNDS = 7, ISLANDS = 2 };
#define FOLDER "build/bench/roundtrip"

static const char run_spec[] = "[run]\nname = roundtrip\nsteps = 1000\n[sync]\ninterval = 1\noverlap = 0\nmix = 0\n"
                               "late = wait\npattern = balanced\nfragments = 1\ncodec = e3m0\nerror_feedback = yes\n";

struct island {
    char conf[64], log[64], socket[96], public_key[64];
    unsigned port;
    int pid;
};

static enum err make_island(struct island *island, int i)
{
    struct ident ident;
    char key[64];
    snprintf(island->conf, sizeof island->conf, FOLDER "/%d.conf", i);
    snprintf(island->log, sizeof island->log, FOLDER "/%d.log", i);
    snprintf(island->socket, sizeof island->socket, FOLDER "/s%d/worker.sock", i);
    snprintf(key, sizeof key, FOLDER "/%d.key", i);
    island->port = proc_free_port();
    TRY(ident_generate(&ident));
    TRY(ident_save(&ident, key));
    memcpy(island->public_key, ident.public_text, sizeof ident.public_text);
    return ERR_OK;
}

static enum err start_islands(struct island *islands, const char *programs)
{
    char program[300];
    snprintf(program, sizeof program, "%s/dilocod", programs);
    TRY(fsio_replace(FOLDER "/run.ini", run_spec, strlen(run_spec), 0644));
    for (int i = 0; i < ISLANDS; i++)
        TRY(make_island(&islands[i], i));
    for (int i = 0; i < ISLANDS; i++) {
        FILE *file = fopen(islands[i].conf, "we");
        if (file == NULL)
            return err_set_errno(ERR_IO, "cannot create %s", islands[i].conf);
        fprintf(file,
                "[island]\nname = i%d\nrun = run.ini\nkey = %d.key\nstate = state%d\nsockets = s%d\n"
                "[net]\nlisten = 127.0.0.1:%u\nwindow = 64MiB\n[worker]\nprogram =\n[peer i%d]\npublic_key = %s\n"
                "address = 127.0.0.1:%u\n",
                i, i, i, i, islands[i].port, 1 - i, islands[1 - i].public_key, islands[1 - i].port);
        fclose(file);
        const char *argv[] = {program, "--config", islands[i].conf, NULL};
        islands[i].pid = proc_start(argv, islands[i].log);
    }
    return ERR_OK;
}

/* One trainer; writes the time of every step but the first to `fd`. */
static int train(const char *socket, int seed, int fd)
{
    float *values = malloc(COUNT * sizeof *values);
    struct diloco_options options = {.size = sizeof(struct diloco_options), .socket_path = socket, .wait_ms = 10000};
    struct diloco_tensor tensor = {.size = sizeof(struct diloco_tensor),
                                   .name = "all",
                                   .data = values,
                                   .dims = 2,
                                   .shape = {4096, COUNT / 4096},
                                   .layer = DILOCO_LAYER_NONE};
    struct diloco_start start = {.size = sizeof(struct diloco_start)};
    struct diloco *d;
    for (size_t i = 0; i < COUNT; i++)
        values[i] = 0.01f * (float)(i % 17);
    if (diloco_attach(&options, &d) != DILOCO_OK || diloco_register(d, &tensor) != DILOCO_OK ||
        diloco_begin(d, &start) != DILOCO_OK)
        return 1;
    struct env_rng rng = env_rng_init((uint64_t)seed, 0);
    for (int step = 0; step < ROUNDS; step++) {
        for (size_t i = 0; i < COUNT; i++)
            values[i] += 1e-4f * (float)((int64_t)(env_rng_u64(&rng) >> 40) - (1 << 23)) / (float)(1 << 23);
        struct diloco_report report = {.size = sizeof(struct diloco_report), .tokens = 1000};
        double begin_s = env_mono_s();
        if (diloco_step(d, &report) != DILOCO_OK)
            return 1;
        double took_s = env_mono_s() - begin_s;
        if (step > 0 && write(fd, &took_s, sizeof took_s) != sizeof took_s)
            return 1;
    }
    diloco_detach(d);
    free(values);
    return 0;
}

/* Starts both trainers and collects their times. */
static int measure(const struct island *islands, double *took)
{
    int fds[2], pids[ISLANDS], count = 0;
    if (pipe(fds) != 0)
        return 0;
    for (int i = 0; i < ISLANDS; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            close(fds[0]);
            _exit(train(islands[i].socket, i, fds[1]));
        }
    }
    close(fds[1]);
    while (count < ISLANDS * (ROUNDS - 1) && read(fds[0], &took[count], sizeof *took) == sizeof *took)
        count++;
    close(fds[0]);
    for (int i = 0; i < ISLANDS; i++)
        proc_wait(pids[i], 60);
    return count;
}

void bench_roundtrip(json_t *summary, const char *programs)
{
    struct island islands[ISLANDS] = {0};
    double took[ISLANDS * ROUNDS];
    if (system("rm -rf " FOLDER) != 0 || fsio_mkdirs(FOLDER, 0755) != ERR_OK ||
        start_islands(islands, programs) != ERR_OK) {
        fprintf(stderr, "bench: %s\n", err_text());
        return;
    }
    int count = measure(islands, took);
    for (int i = 0; i < ISLANDS; i++) {
        kill(islands[i].pid, SIGTERM);
        if (proc_wait(islands[i].pid, 30) < 0)
            kill(islands[i].pid, SIGKILL);
    }
    if (count == 0) {
        fprintf(stderr, "bench: the round trip did not happen; see " FOLDER "/*.log\n");
        return;
    }
    double median = bench_median(took, count);
    printf("round trip   of one 16 M-parameter fragment, two daemons on loopback, e3m0: %.3f s (%.0f M parameters/s)\n",
           median, COUNT / median / 1e6);
    json_object_set_new(summary, "sync_roundtrip_s", json_real(median));
}
