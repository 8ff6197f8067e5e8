/* SPDX-License-Identifier: Apache-2.0 */
/* What it costs to spread an island's ranks over two machines; the ranks, and what is measured, is nodes.py. */
#include <stdio.h>
#include <unistd.h>

#include "tests/bench/bench.h"

#define LOG "build/bench/nodes.log"

static double quartile(const json_t *figures, const char *key, size_t index)
{
    return json_number_value(json_array_get(json_object_get(figures, key), index));
}

static double percent(const json_t *figures, const char *key, size_t index)
{
    return 100 * quartile(figures, key, index);
}

static void print_steps(const char *where, const json_t *figures)
{
    printf("nodes        FSDP2, %.1f M parameters, %s, steps of %.0f ms: attaching costs %.2f %% (%.2f to %.2f), "
           "of a step %.2f %% (%.2f to %.2f) in step()\n",
           json_number_value(json_object_get(figures, "parameters")) / 1e6, where,
           1000 * json_number_value(json_object_get(figures, "step_s")),
           percent(figures, "attached_over_alone", 1) - 100, percent(figures, "attached_over_alone", 0) - 100,
           percent(figures, "attached_over_alone", 2) - 100, percent(figures, "within", 1),
           percent(figures, "within", 0), percent(figures, "within", 2));
}

static void print_line(const char *how, const json_t *figures)
{
    const json_t *line = json_object_get(figures, "of_line");
    printf("nodes        pieces of %.1f M values over a line of 1 Gbit/s, %s: from the other machine %.0f %% "
           "(%.0f to %.0f) of the line, to it %.0f %% (%.0f to %.0f); %.1f bytes a value of a far rank's own\n",
           json_number_value(json_object_get(figures, "values")) / 1e6, how, percent(line, "from", 1),
           percent(line, "from", 0), percent(line, "from", 2), percent(line, "to", 1), percent(line, "to", 0),
           percent(line, "to", 2), json_number_value(json_object_get(figures, "far_bytes_a_value")));
}

void bench_nodes(json_t *summary)
{
    const char *why = "machines are made of namespaces, by root";
    json_t *figures = geteuid() == 0 ? bench_python("tests/bench/nodes.py", LOG, &why) : NULL;
    if (figures == NULL) {
        printf("nodes        skipped: %s\n", why);
        json_object_set_new(summary, "nodes", json_null());
        return;
    }
    print_steps("one machine", json_object_get(figures, "one"));
    print_steps("two machines", json_object_get(figures, "two"));
    print_line("by the ranks' group", json_object_get(figures, "group"));
    print_line("by a gateway", json_object_get(figures, "gateway"));
    json_object_set_new(summary, "nodes", figures);
}
