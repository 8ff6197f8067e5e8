#include "tests/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

int main(int argc, char **argv)
{
    const char *programs = "build/gcc";
    const char *path = "build/bench/summary.json";
    const struct args_option options[] = {
        {"programs", ARGS_STRING, &programs, "FOLDER", "where dilocod is"},
        {"out", ARGS_STRING, &path, "FILE", "where the summary goes"},
    };
    if (digest_init() != ERR_OK || args_parse(argc, argv, options, 2, NULL) != ERR_OK ||
        fsio_mkdirs("build/bench", 0755) != ERR_OK) {
        fprintf(stderr, "bench: %s\n", err_text());
        return 2;
    }
    json_t *summary = json_object();
    bench_train(summary);
    bench_codec(summary);
    bench_roundtrip(summary, programs);
    bench_unequal(summary);
    bench_even(summary);
    if (json_dump_file(summary, path, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(5)) != 0) {
        fprintf(stderr, "bench: cannot write %s\n", path);
        return 1;
    }
    json_decref(summary);
    printf("\nfigures  %s\n", path);
    return 0;
}
