/* SPDX-License-Identifier: Apache-2.0 */
/* What attaching costs a PyTorch training loop; the loop, and what is measured, is attached.py. */
#include <stdio.h>

#include "tests/bench/bench.h"

#define LOG "build/bench/attached.log"

static const char *const keys[] = {"pytorch_attached_over_alone", "pytorch_attached_over_alone_one_island",
                                   "pytorch_attached"};

static void skip(json_t *summary, const char *why)
{
    printf("attached     skipped: %s\n", why);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        json_object_set_new(summary, keys[i], json_null());
}

static double at(const json_t *figures, const char *key, size_t index)
{
    return json_number_value(json_array_get(json_object_get(figures, key), index));
}

static double percent(const json_t *figures, const char *key, size_t index)
{
    return 100 * (1 - at(figures, key, index));
}

/* Costs, so that the first quartile of a speed is the third of its cost. */
static void print(const char *islands, const json_t *figures)
{
    const json_t *calls = json_object_get(figures, "step_call_us");
    printf("attached     PyTorch, %.1f M parameters, steps of %.0f ms, %s: costs %.2f %% (%.2f to %.2f) of tokens/s\n",
           json_number_value(json_object_get(figures, "parameters")) / 1e6,
           1000 * json_number_value(json_object_get(figures, "step_s")), islands, percent(figures, "rate", 1),
           percent(figures, "rate", 2), percent(figures, "rate", 0));
    printf("             %.2f %% (%.2f to %.2f) of processor time, of it the loop %.2f %% (%.2f to %.2f); "
           "step() %.2f ms, with a snapshot %.1f ms, with a mix %.1f ms\n",
           percent(figures, "processor", 1), percent(figures, "processor", 2), percent(figures, "processor", 0),
           percent(figures, "processor_of_loop", 1), percent(figures, "processor_of_loop", 2),
           percent(figures, "processor_of_loop", 0), at(calls, "nothing", 1) / 1000, at(calls, "snapshot", 1) / 1000,
           at(calls, "mix", 1) / 1000);
}

void bench_attached(json_t *summary)
{
    const char *why;
    json_t *figures = bench_python("tests/bench/attached.py", LOG, &why);
    if (figures == NULL) {
        skip(summary, why);
        return;
    }
    print("one island", json_object_get(figures, "one"));
    print("two islands", json_object_get(figures, "two"));
    json_object_set_new(summary, keys[0], json_real(at(json_object_get(figures, "two"), "rate", 1)));
    json_object_set_new(summary, keys[1], json_real(at(json_object_get(figures, "one"), "rate", 1)));
    json_object_set_new(summary, keys[2], figures);
}
