/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An island on an empty folder joins three others, each behind a slow line of its own: its state comes from all of them
 * at once; one of them is killed in the middle; and at last there is only one. The trainers of the three have done
 * their steps, so what is on the lines is the state alone, and can be counted.
 */
#include "tests/lib/testlib.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "common/env.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "tests/lib/cluster.h"
#include "tests/lib/proc.h"
#include "tests/lib/wan.h"

/* The joiner is the last one, and has no line of its own. A state is anchor and momentum. */
enum {
    SOURCES = 3,
    JOINER = SOURCES,
    ISLANDS = SOURCES + 1,
    FRAGMENTS = 3,
    LARGE = 2,
    VALUES = 600000,
    RATE_BITS = 8000000
};
enum { STATE_BYTES = LARGE * VALUES * 8 };

#define SPEC(steps, interval)                                          \
    "[run]\nname = catchup\nsteps = " #steps "\n[model]\nlayers = 2\n" \
    "[sync]\ninterval = " #interval "\nlayers_per_fragment = 1\noverlap = 2\nlate = merge\n"
/* Goes on within [worker]. Old results are soon let go, or the joiner would come by those. */
#define MORE "[net]\naway = 1s\n[storage]\ncheckpoint = 1s\nledger_keep = 1MiB\nledger_segment = 64KiB\n"
static const char data[] = "sleep=20 keep=1 size=600000";

static char no_namespaces[200];
static uint64_t whole_bytes; /* that a state takes on the lines, headers and all */
static struct wan lines[SOURCES];

static char *log_of(struct cluster *cluster)
{
    char *text;
    size_t bytes;
    assert_ok(fsio_read(cluster->island[JOINER].log, 1u << 30, &text, &bytes));
    return text;
}

/* What the joiner said of the fragments that came since it has been started. */
struct arrivals {
    int count;
    uint64_t bytes, again;
    unsigned givers_least;
};

static struct arrivals arrivals(struct cluster *cluster, int before)
{
    char *text = log_of(cluster);
    struct arrivals all = {.givers_least = ISLANDS};
    int seen = 0;
    for (const char *at = text; (at = strstr(at, " is here after ")) != NULL; at++) {
        double s;
        unsigned long long bytes, again;
        unsigned givers;
        assert_int_equal(
            sscanf(at, " is here after %lf s: %llu bytes from %u islands, and %llu bytes", &s, &bytes, &givers, &again),
            4);
        if (seen++ < before)
            continue;
        all.count++;
        all.bytes += bytes;
        all.again += again;
        if (bytes > STATE_BYTES / FRAGMENTS) /* one is of a few leaves only */
            all.givers_least = givers < all.givers_least ? givers : all.givers_least;
    }
    mem_free(text);
    return all;
}

static void wait_for_arrivals(struct cluster *cluster, int before, int count)
{
    for (int i = 0; i < 1200 && arrivals(cluster, before).count < count; i++)
        proc_sleep_ms(50);
    if (arrivals(cluster, before).count < count)
        cluster_print_logs(cluster);
    assert_int_equal(arrivals(cluster, before).count, count);
}

/* Bytes that every source has put on its line since the last look. */
static void look_at_lines(uint64_t bytes[SOURCES])
{
    static uint64_t last[SOURCES];
    for (int i = 0; i < SOURCES; i++) {
        uint64_t now = lines[i].far > 0 ? wan_sent_bytes(&lines[i], 1) : last[i];
        bytes[i] = now - last[i];
        last[i] = now;
    }
}

static void burn(struct cluster *cluster, uint32_t i)
{
    assert_int_equal(cluster_end(cluster, i, SIGKILL), 128 + SIGKILL);
    proc_kill_trainer(cluster->island[i].state);
}

static void burn_joiner(struct cluster *cluster)
{
    char command[300];
    burn(cluster, JOINER);
    snprintf(command, sizeof command, "rm -rf %s", cluster->island[JOINER].state);
    assert_int_equal(system(command), 0);
}

static void begin_lines(struct cluster *cluster, const struct cluster_options *options)
{
    char why[300];
    for (unsigned i = 0; i < SOURCES; i++) {
        const struct wan_conf line = {.rate_bits = RATE_BITS, .queue_ms = 200, .number = i};
        if (!wan_begin(&line, testlib_path(cluster->folder, "line.log"), &lines[i], why, sizeof why))
            fail_msg("%s", why);
        snprintf(cluster->island[i].host, sizeof cluster->island[i].host, "%s", wan_line_host(&lines[i], 1));
        cluster->island[i].space = lines[i].far;
    }
    snprintf(cluster->island[JOINER].host, sizeof cluster->island[JOINER].host, "%s", wan_host(0));
    for (uint32_t i = 0; i < ISLANDS; i++)
        cluster_configure(cluster, i, options);
}

/* Four islands, of which one is lost; it will come back without a trainer, or its own work would go on the lines. */
static struct cluster *begin(const char *name, const char *spec)
{
    struct cluster_options options = {.run = spec, .data = data, .more = MORE};
    struct cluster *cluster = cluster_new(name, ISLANDS, &options);
    begin_lines(cluster, &options);
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < ISLANDS; i++)
        cluster_wait(cluster, i, cluster_versions_reach, FRAGMENTS, "some versions");
    burn_joiner(cluster);
    options.more = "autostart = no\n" MORE;
    cluster_configure(cluster, JOINER, &options);
    return cluster;
}

static void end(struct cluster *cluster)
{
    cluster_free(cluster);
    for (int i = 0; i < SOURCES; i++)
        wan_end(&lines[i]);
}

/* Starts the joiner, and returns after how many seconds all of its state was there. */
static double join(struct cluster *cluster, int before)
{
    double since_s = env_mono_s();
    cluster_start(cluster, JOINER);
    wait_for_arrivals(cluster, before, FRAGMENTS);
    return env_mono_s() - since_s;
}

static double from_three(struct cluster *cluster)
{
    uint64_t bytes[SOURCES], sum = 0;
    look_at_lines(bytes);
    double took_s = join(cluster, 0);
    look_at_lines(bytes);
    struct arrivals all = arrivals(cluster, 0);
    print_message("from three: %.1f s; on their lines %.2f, %.2f, %.2f MB\n", took_s, (double)bytes[0] / 1e6,
                  (double)bytes[1] / 1e6, (double)bytes[2] / 1e6);
    for (int i = 0; i < SOURCES; i++) {
        assert_true(bytes[i] * 6 > STATE_BYTES); /* a third each, or nearly so */
        sum += bytes[i];
    }
    assert_true(all.bytes >= STATE_BYTES && all.again * 100 <= all.bytes);
    assert_true(all.givers_least > 1);
    assert_true(sum <= all.bytes + all.bytes / 5); /* with headers, encryption and heartbeats */
    whole_bytes = sum;
    return took_s;
}

/* One of them is killed when it has brought a part. What the others bring after that is what was missing. */
static void one_dies(struct cluster *cluster, int before)
{
    uint64_t bytes[SOURCES], until[SOURCES], sum = 0;
    double since_s = env_mono_s();
    look_at_lines(bytes);
    cluster_start(cluster, JOINER);
    for (bool half = false; !half; proc_sleep_ms(20)) {
        uint64_t now = wan_sent_bytes(&lines[1], 1);
        static uint64_t first;
        first = first > 0 ? first : now;
        half = now - first > STATE_BYTES / 6;
        assert_true(env_mono_s() - since_s < 60);
    }
    look_at_lines(until);
    burn(cluster, 1);
    wait_for_arrivals(cluster, before, FRAGMENTS);
    look_at_lines(bytes);
    struct arrivals all = arrivals(cluster, before);
    for (int i = 0; i < SOURCES; i++)
        sum += bytes[i] + until[i];
    print_message("one of them killed after %.2f MB: %.1f s; %.2f MB on all lines; %llu bytes had to come again\n",
                  (double)until[1] / 1e6, env_mono_s() - since_s, (double)sum / 1e6, (unsigned long long)all.again);
    assert_true(all.bytes >= STATE_BYTES);
    assert_true(all.again * 10 <= all.bytes);
    assert_true(sum <= whole_bytes + whole_bytes / 10);
    assert_true(bytes[0] * 8 > STATE_BYTES && bytes[2] * 8 > STATE_BYTES);
}

static void an_empty_island_takes_its_state_from_all(void **state)
{
    (void)state;
    if (no_namespaces[0] != '\0')
        skip_because(no_namespaces);
    struct cluster *cluster = begin("catchup", SPEC(200, 20));
    for (uint32_t i = 0; i < SOURCES; i++)
        cluster_wait(cluster, i, cluster_trainer_finished, 0, "the end of training");
    double three_s = from_three(cluster);
    burn_joiner(cluster);
    one_dies(cluster, FRAGMENTS);
    burn_joiner(cluster);
    burn(cluster, 2);
    double one_s = join(cluster, 2 * FRAGMENTS);
    print_message("from one: %.1f s, %.1f times as long as from three\n", one_s, one_s / three_s);
    for (uint32_t i = 1; i < SOURCES; i++)
        cluster_start(cluster, i);
    for (uint32_t i = 0; i < ISLANDS; i++)
        cluster_wait(cluster, i, cluster_versions_reach, cluster_status_number(cluster, 0, "versions"), "its state");
    cluster_assert_one_truth(cluster);
    end(cluster);
}

/* Rounds on the same lines go on: one after the other, nothing but what is under way would be made before the state is
 * there. */
static void rounds_do_not_wait_for_a_state(void **state)
{
    (void)state;
    if (no_namespaces[0] != '\0')
        skip_because(no_namespaces);
    struct cluster *cluster = begin("catchup-rounds", SPEC(100000, 60));
    for (uint32_t i = 0; i < SOURCES; i++)
        cluster_wait(cluster, i, cluster_versions_reach, 8 * FRAGMENTS, "versions without the one that is lost");
    cluster_start(cluster, JOINER);
    for (int i = 0; i < 1200 && arrivals(cluster, 0).count == 0; i++)
        proc_sleep_ms(20);
    long long first = cluster_status_number(cluster, 0, "versions");
    double since_s = env_mono_s();
    for (int i = 0; i < 1200 && arrivals(cluster, 0).count < FRAGMENTS; i++)
        proc_sleep_ms(50);
    long long made = cluster_status_number(cluster, 0, "versions") - first;
    print_message("%lld versions while the second and third fragment of a state go out, in %.1f s\n", made,
                  env_mono_s() - since_s);
    assert_true(arrivals(cluster, 0).count >= FRAGMENTS);
#ifdef __SANITIZE_THREAD__ /* the processors, not the lines, are what they share then */
    assert_true(made > 0);
#else
    assert_true(made > FRAGMENTS);
#endif
    cluster_wait(cluster, JOINER, cluster_versions_reach, cluster_status_number(cluster, 0, "versions"), "its state");
    end(cluster);
}

int main(void)
{
    assert_ok(digest_init());
    if (!wan_enter(no_namespaces, sizeof no_namespaces) && no_namespaces[0] == '\0')
        snprintf(no_namespaces, sizeof no_namespaces, "no network namespaces");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_island_takes_its_state_from_all),
        cmocka_unit_test(rounds_do_not_wait_for_a_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
