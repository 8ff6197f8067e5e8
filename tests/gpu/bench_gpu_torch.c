/* SPDX-License-Identifier: Apache-2.0 */
/* The same models in PyTorch, after all else: it may be slow to begin, and gets no more time than is left. */
#include <stdio.h>
#include <string.h>

#include "tests/gpu/bench_gpu.h"

/* Seconds: the most that a model may take, the least that are worth beginning with, and what is kept for its end. */
enum { ANSWER_BYTES = 4096, MOST_S = 130, LEAST_S = 15, END_S = 10 };

/* What the script has printed; NULL: not run, and `why` says the reason. The caller decrefs. */
static json_t *run_torch(struct bench_gpu *b, const struct bench_shape *shape, char *why, size_t why_bytes)
{
    char command[1024], line[ANSWER_BYTES], last[ANSWER_BYTES] = "";
    double left = bench_gpu_left(b) - END_S;
    int limit = left > MOST_S ? MOST_S : (int)left;
    if (left < LEAST_S) {
        snprintf(why, why_bytes, "no time left");
        return NULL;
    }
    /* With the libraries of the machine, not with those that our programs may have brought along. */
    snprintf(command, sizeof command,
             "LD_LIBRARY_PATH=\"$DILOCO_GPU_LIBRARY_PATH\" timeout -k 5 %d python3 '%s' --width %lld --layers %lld "
             "--heads %lld --ff %lld --context %lld --batch %lld --vocab %lld --seconds %.1f 2>&1",
             limit, b->torch, (long long)shape->width, (long long)shape->layers, (long long)shape->heads,
             (long long)shape->ff, (long long)shape->context, (long long)shape->batch, (long long)bench_gpu_vocab(b),
             bench_gpu_measured_s(b));
    fflush(stdout);
    FILE *pipe = popen(command, "re");
    if (pipe == NULL) {
        snprintf(why, why_bytes, "no shell is to be had");
        return NULL;
    }
    while (fgets(line, sizeof line, pipe) != NULL)
        if (strspn(line, " \n") != strlen(line))
            snprintf(last, sizeof last, "%s", line);
    int status = pclose(pipe);
    last[strcspn(last, "\n")] = '\0';
    json_t *answer = status == 0 ? json_loads(last, 0, NULL) : NULL;
    if (answer == NULL && bench_gpu_left(b) < left + END_S - limit)
        snprintf(why, why_bytes, "not done within %d s", limit);
    else if (answer == NULL)
        snprintf(why, why_bytes, "%.200s", last[0] != '\0' ? last : "it has said nothing");
    return answer;
}

static enum err compare(struct bench_gpu *b, const struct bench_shape *shape, json_t *row)
{
    char why[256];
    double ours = json_number_value(json_object_get(row, "tokens_per_s"));
    json_t *answer = run_torch(b, shape, why, sizeof why);
    double theirs = json_number_value(json_object_get(answer, "tokens_per_s"));
    if (theirs > 0) {
        printf("  %-12s %.0f tokens/s at batch %lld, by %s: ours is %.2f of it (aim 1.0)\n", shape->name, theirs,
               (long long)json_integer_value(json_object_get(answer, "batch")),
               json_string_value(json_object_get(answer, "version")), ours / theirs);
        json_object_set_new(row, "ratio_to_torch", json_real(ours / theirs));
        json_object_set(row, "torch", answer);
    } else {
        printf("  %-12s skipped: %s\n", shape->name, why);
        json_object_set_new(row, "torch_skipped", json_string(why));
    }
    json_decref(answer);
    fflush(stdout);
    return bench_gpu_keep(b);
}

/* The row of a model that was measured; NULL: it was not. */
static json_t *row_of(struct bench_gpu *b, const char *name)
{
    size_t i;
    json_t *row;
    json_array_foreach (json_object_get(b->summary, "models"), i, row) {
        if (strcmp(json_string_value(json_object_get(row, "name")), name) == 0 &&
            json_object_get(row, "tokens_per_s") != NULL)
            return row;
    }
    return NULL;
}

enum err bench_gpu_torch(struct bench_gpu *b)
{
    size_t count;
    const struct bench_shape *list = bench_gpu_shapes(b, &count);
    printf("PyTorch      %s\n", b->torch != NULL ? "the same models" : "skipped: not asked for");
    for (size_t i = 0; b->torch != NULL && i < count; i++) {
        json_t *row = row_of(b, list[i].name);
        if (row != NULL)
            TRY(compare(b, &list[i], row));
    }
    return ERR_OK;
}
