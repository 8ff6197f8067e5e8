/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/demo/demo.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/env.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "tests/lib/proc.h"

/* The last whole line that the trainer wrote; false if there is none. */
static bool last_step(long long *step, double *loss)
{
    char line[512];
    bool found = false;
    FILE *file = fopen(DEMO_PARALLEL "/train.jsonl", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        found = sscanf(line, "{\"step\":%lld,\"loss\":%lf", step, loss) == 2 || found;
    if (file != NULL)
        fclose(file);
    return found;
}

/* Fits 80 columns. */
static void show(const struct demo *demo, double begin_s, bool terminal)
{
    long long step = 0;
    double loss = 0, passed_s = env_mono_s() - begin_s;
    if (!last_step(&step, &loss))
        return;
    printf("%s%5.0f s  step %lld/%lld  loss data-parallel %.3f", terminal ? "\r" : "", env_mono_s() - demo->begin_s,
           step, demo->steps, loss);
    struct demo_held_out held_out = demo_held_out(DEMO_PARALLEL);
    if (!isnan(held_out.loss))
        printf("  held out %.3f", held_out.loss);
    if (step >= 5 && step < demo->steps)
        printf("  %.0f s left", passed_s / (double)step * (double)(demo->steps - step));
    fputs(terminal ? "\033[K" : "\n", stdout);
    fflush(stdout);
}

/* The run's batch, of all islands together. */
static bool whole_batch(char *text, size_t bytes)
{
    char *spec, *at;
    size_t spec_bytes;
    if (fsio_read(DEMO_FOLDER "/run.ini", 1 << 20, &spec, &spec_bytes) != ERR_OK)
        return false;
    at = strstr(spec, "\nbatch = ");
    if (at != NULL)
        snprintf(text, bytes, "train.batch=%ld", DEMO_ISLANDS * strtol(at + 9, NULL, 10));
    mem_free(spec);
    return at != NULL;
}

bool demo_parallel(const struct demo *demo, const volatile sig_atomic_t *interrupted)
{
    char worker[300], batch[40], ranks[12], threads[24], every[24], batches[12];
    enum { LINE_EVERY_S = 5 };
    bool terminal = isatty(STDOUT_FILENO) != 0;
    double begin_s = env_mono_s(), shown_s = begin_s;
    int status;
    if (!whole_batch(batch, sizeof batch))
        return false;
    snprintf(worker, sizeof worker, "%s/diloco-worker", demo->programs);
    snprintf(ranks, sizeof ranks, "%d", DEMO_ISLANDS);
    snprintf(threads, sizeof threads, "%ld", demo->threads);
    snprintf(every, sizeof every, "%lld", demo->eval_every);
    snprintf(batches, sizeof batches, "%d", DEMO_EVAL_BATCHES / DEMO_ISLANDS); /* each is as long as all islands' */
    const char *argv[] = {worker,
                          "train",
                          "--run",
                          DEMO_FOLDER "/run.ini",
                          "--data",
                          DEMO_FOLDER "/corpus",
                          "--out",
                          DEMO_PARALLEL,
                          "--set",
                          batch,
                          "--ranks",
                          ranks,
                          "--threads",
                          threads,
                          "--checkpoint-every",
                          "0",
                          "--eval-every",
                          every,
                          "--eval-batches",
                          batches,
                          NULL};
    int pid = proc_start(argv, DEMO_FOLDER "/data-parallel.log");
    while ((status = proc_wait(pid, 0.25)) < 0) {
        if (terminal || env_mono_s() >= shown_s + LINE_EVERY_S) {
            show(demo, begin_s, terminal);
            shown_s = env_mono_s();
        }
        if (*interrupted != 0) {
            kill(pid, SIGTERM);
            proc_wait(pid, 20);
            break;
        }
    }
    if (terminal)
        putchar('\n');
    return status == 0;
}
