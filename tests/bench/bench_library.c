/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What libdiloco costs a trainer whose model is large: attaching, and each call of diloco_step(), held against memcpy
 * of as many bytes right after it. One island, whose daemon has the rounds to itself; a trainer in C with the layers of
 * a GPT, and, where there is PyTorch, models of library.py.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/env.h"
#include "common/fsio.h"
#include "net/ident.h"
#include "outer_opt/schedule.h"
#include "tests/bench/bench.h"
#include "tests/lib/proc.h"
#include "worker/libdiloco/diloco.h"

enum { INTERVAL = 20, GROUP = 3, INTERVALS = 5, CALLS_MAX = INTERVAL * INTERVALS * 4, FRAGMENTS_MAX = 16, PARTS = 12 };
enum { SMALL_VALUES = 4 << 20 }; /* of smaller fragments the caches decide */
#define FOLDER "build/bench/library"

/* Of one kind of call: how often its time was so many times memcpy's, with "
        "a mix %.1f ms, %.2f (%.2f); %d and %d calls\n"
        "             diloco_keep() %.2f s, room for %.1f bytes a value\n",
        name, (double)found->values / 1e6, found->attach_s, found->attach_cpu_s, found->bytes_per_value,
        1000 * found->idle_s, 1000 * bench_median(found->snapshot.own_s, found->snapshot.count),
        bench_median(found->snapshot.over_memcpy, found->snapshot.count), snapshot_worst,
        1000 * bench_median(found->mix.own_s, found->mix.count), bench_median(found->mix.over_memcpy, found->mix.count),
        mix_worst, found->snapshot.count, found->mix.count, found->keep_s, found->keep_bytes_per_value);
    fflush(stdout);
}

static json_t *measure(const char *programs, const char *name, uint64_t width, uint64_t layers)
{
    struct model model = {.width = width, .layers = layers};
    struct found *found = mmap(NULL, sizeof *found, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int daemon = found != MAP_FAILED ? start_island(programs) : -1;
    json_t *figures = NULL;
    if (daemon > 0) {
        int pid = fork();
        if (pid == 0)
            _exit(work(FOLDER "/s/worker.sock", &model, found) ? 0 : 1);
        if (proc_wait(pid, 300) < 0)
            kill(pid, SIGKILL);
        end_island(daemon);
    }
    if (found != MAP_FAILED && found->done && found->snapshot.count > 0 && found->mix.count > 0) {
        print(name, found);
        figures = json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "values", (json_int_t)found->values,
                            "attach_s", found->attach_s, "attach_cpu_s", found->attach_cpu_s, "bytes_per_value",
                            found->bytes_per_value, "idle_s", found->idle_s, "snapshot_over_memcpy",
                            bench_median(found->snapshot.over_memcpy, found->snapshot.count), "snapshot_worst",
                            worst(&found->snapshot), "mix_over_memcpy",
                            bench_median(found->mix.over_memcpy, found->mix.count), "mix_worst", worst(&found->mix));
    } else {
        fprintf(stderr, "bench: library %s did not come to its end; see " FOLDER "/a.log\n", name);
    }
    if (found != MAP_FAILED)
        munmap(found, sizeof *found);
    return figures != NULL ? figures : json_null();
}

void bench_library(json_t *summary, const char *programs)
{
    json_t *all = json_object();
    json_object_set_new(all, "c_85m", measure(programs, "C, GPT-2's width and depth", 768, 12));
    json_object_set_new(all, "c_256m", measure(programs, "C", 1280, 13));
    json_object_set_new(summary, "library", all);
}
