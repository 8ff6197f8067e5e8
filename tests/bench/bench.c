/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/bench.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/args.h"
#include "common/digest.h"
#include "common/fsio.h"

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return a < b ? -1 : a > b;
}

double bench_median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, ascending);
    return values[count / 2];
}

double bench_cpu_s(int pid)
{
    clockid_t clock;
    struct timespec took;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &took) != 0)
        return 0;
    return (double)took.tv_sec + (double)took.tv_nsec * 1e-9;
}

double bench_peak_bytes(int pid)
{
    char path[64], line[200];
    double kib = 0;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "VmHWM:", 6) == 0)
            kib = strtod(line + 6, NULL);
    if (file != NULL)
        fclose(file);
    return kib * 1024;
}

static bool wanted(const char *only, const char *name)
{
    return only == NULL || strcmp(only, name) == 0;
}

int main(int argc, char **argv)
{
    const char *programs = "build/gcc";
    const char *path = "build/bench/summary.json";
    const char *only = NULL, *line = NULL;
    const struct args_option options[] = {
        {"programs", ARGS_STRING, &programs, "FOLDER", "where dilocod is"},
        {"out", ARGS_STRING, &path, "FILE", "where the summary goes"},
        {"only", ARGS_STRING, &only, "NAME",
         "train, codec, exchange, sizes, unequal, even, members, line, attached, nodes, gate or library"},
        {"line", ARGS_STRING, &line, "TEXT", "of the lines, exchanges or sizes, only those with this in their name"},
    };
    if (digest_init() != ERR_OK || args_parse(argc, argv, options, sizeof options / sizeof *options, NULL) != ERR_OK ||
        fsio_mkdirs("build/bench", 0755) != ERR_OK) {
        fprintf(stderr, "bench: %s\n", err_text());
        return 2;
    }
    json_t *summary = json_object();
    if (wanted(only, "train"))
        bench_train(summary);
    if (wanted(only, "codec"))
        bench_codec(summary);
    if (wanted(only, "exchange"))
        bench_exchange(summary, programs, line);
    if (wanted(only, "sizes"))
        bench_sizes(summary, programs, line);
    if (wanted(only, "unequal"))
        bench_unequal(summary);
    if (wanted(only, "even"))
        bench_even(summary);
    if (wanted(only, "members"))
        bench_members(summary);
    if (wanted(only, "line"))
        bench_line(summary, line);
    if (wanted(only, "attached"))
        bench_attached(summary);
    if (wanted(only, "nodes"))
        bench_nodes(summary);
    if (wanted(only, "gate"))
        bench_gate(summary);
    if (wanted(only, "library"))
        bench_library(summary, programs);
    if (json_dump_file(summary, path, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(5)) != 0) {
        fprintf(stderr, "bench: cannot write %s\n", path);
        return 1;
    }
    json_decref(summary);
    printf("\nfigures  %s\n", path);
    return 0;
}
