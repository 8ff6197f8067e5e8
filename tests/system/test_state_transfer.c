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

#define SPEC(steps, interval)                                           \
    "[run]\nname = transfer\nsteps = " #steps "\n[model]\nlayers = 2\n" \
    "[sync]\ninterval = " #interval "\nlayers_per_fragment = 1\noverlap = 2\nlate = merge\n"
/* Goes on within [worker]. Old results are soon let go, or the joiner would come by those. */
#define MORE "[net]\naway = 1s\n[storage]\ncheckpoint = 1s\nledger_keep = 1MiB\nledger_segment = 64KiB\n"
static const char data[] = "sleep=20 keep=1 size=600000";

static char no_namespaces[200];
static uint64_t whole_bytes; /* that a state takes on the lines, headers and all */
static struct wan lines[SOURCES];
static struct cluster *running; /* NULL: none; end() ends what a failed test leaves */

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
    struct cluster *cluster = running = cluster_new(name, ISLANDS, &options);
    begin_lines(cluster, &options);
    cluster_start_all(cluster);
    for (uint32_t i = 0; i < ISLANDS; i++)
        cluster_wait(cluster, i, cluster_versions_reach, FRAGMENTS, "some versions");
    burn_joiner(cluster);
    options.more = "autostart = no\n" MORE;
    cluster_configure(cluster, JOINER, &options);
    return cluster;
}

/* What a test leaves, at its end or where it has failed: the next one begins with nothing. */
static int end(void **state)
{
    (void)state;
    if (running != NULL)
        cluster_free(running);
    running = NULL;
    for (int i = 0; i < SOURCES; i++)
        if (lines[i].far > 0)
            wan_end(&lines[i]);
    return 0;
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

/* The first source that has brought so much. */
static int first_to_bring(uint64_t bytes)
{
    uint64_t first[SOURCES];
    for (int i = 0; i < SOURCES; i++)
        first[i] = wan_sent_bytes(&lines[i], 1);
    for (int k = 0; k < 6000; k++) {
        for (int i = 0; i < SOURCES; i++)
            if (wan_sent_bytes(&lines[i], 1) - first[i] > bytes)
                return i;
        proc_sleep_ms(10);
    }
    fail_msg("no source has brought %llu bytes in %d looks", (unsigned long long)bytes, 6000);
    return -1;
}

/* One of them is killed when it has brought a sixth of a state; the two others have brought less by then, so half is
 * missing. The two others bring what was missing then, and share it: however
 * late each of them had begun, each brings a quarter of that, or more. Returns who was killed. */
static int one_dies(struct cluster *cluster, int before)
{
    uint64_t until[SOURCES], after[SOURCES], sum = 0, missing = 0;
    double since_s = env_mono_s();
    look_at_lines(until);
    cluster_start(cluster, JOINER);
    int killed = first_to_bring(STATE_BYTES / 6);
    burn(cluster, (uint32_t)killed);
    look_at_lines(until);
    wait_for_arrivals(cluster, before, FRAGMENTS);
    look_at_lines(after);
    struct arrivals all = arrivals(cluster, before);
    print_message("%c killed after", 'a' + killed);
    for (int i = 0; i < SOURCES; i++) {
        sum += until[i] + after[i];
        missing += i != killed ? after[i] : 0;
    }
    for (int i = 0; i < SOURCES; i++)
        print_message(" %c %.2f and %.2f,", 'a' + i, (double)until[i] / 1e6, (double)after[i] / 1e6);
    print_message(" MB before and after; %.1f s; %.2f MB on all lines; %llu bytes had to come again\n",
                  env_mono_s() - since_s, (double)sum / 1e6, (unsigned long long)all.again);
    assert_true(all.bytes >= STATE_BYTES);
    assert_true(all.again * 10 <= all.bytes);
    assert_true(sum <= whole_bytes + whole_bytes / 10);
    for (int i = 0; i < SOURCES; i++)
        assert_true(i == killed || after[i] * 4 > missing);
    return killed;
}

/* When nine tenths of its part are here, what it was just at comes again, and no more. */
static void one_dies_near_the_end(struct cluster *cluster, int before)
{
    uint64_t bytes[SOURCES], sum = 0;
    look_at_lines(bytes);
    cluster_start(cluster, JOINER);
    int killed = first_to_bring(STATE_BYTES / SOURCES * 9 / 10);
    burn(cluster, (uint32_t)killed);
    wait_for_arrivals(cluster, before, FRAGMENTS);
    look_at_lines(bytes);
    struct arrivals all = arrivals(cluster, before);
    for (int i = 0; i < SOURCES; i++)
        sum += bytes[i];
    print_message("%c killed near the end: %.2f MB on all lines; %llu bytes had to come again\n", 'a' + killed,
                  (double)sum / 1e6, (unsigned long long)all.again);
    assert_true(all.bytes >= STATE_BYTES);
    assert_true(all.again <= 8 * DIGEST_LEAF_BYTES); /* two fragments, two ranges of each, and takings over */
    assert_true(sum <= whole_bytes + whole_bytes / 10);
    cluster_start(cluster, (uint32_t)killed);
    cluster_wait(cluster, (uint32_t)killed, cluster_peers_up, ISLANDS, "the others");
}

/* The others bring what it does not any more. */
static void a_line_drops_to_a_tenth(struct cluster *cluster, int before)
{
    const struct wan_conf slow = {.rate_bits = RATE_BITS / 10, .queue_ms = 200}, fast = {RATE_BITS, 200, 0, 0, 0};
    uint64_t bytes[SOURCES], sum = 0;
    look_at_lines(bytes);
    cluster_start(cluster, JOINER);
    int dropped = first_to_bring(STATE_BYTES / 12);
    assert_true(wan_set_rate(&lines[dropped], &slow));
    look_at_lines(bytes);
    wait_for_arrivals(cluster, before, FRAGMENTS);
    look_at_lines(bytes);
    assert_true(wan_set_rate(&lines[dropped], &fast));
    struct arrivals all = arrivals(cluster, before);
    for (int i = 0; i < SOURCES; i++)
        sum += bytes[i];
    print_message("%c drops to a tenth: %.2f of %.2f MB on its line after that; %llu bytes had to come again\n",
                  'a' + dropped, (double)bytes[dropped] / 1e6, (double)sum / 1e6, (unsigned long long)all.again);
    assert_true(all.bytes >= STATE_BYTES);
    assert_true(bytes[dropped] * 6 < sum); /* an equal part would be a third */
    assert_true(all.again * 10 <= all.bytes);
}

static void an_empty_island_takes_its_state_from_all(void **state)
{
    (void)state;
    if (no_namespaces[0] != '\0')
        skip_because(no_namespaces);
    struct cluster *cluster = begin("transfer", SPEC(200, 20));
    for (uint32_t i = 0; i < SOURCES; i++)
        cluster_wait(cluster, i, cluster_trainer_finished, 0, "the end of training");
    double three_s = from_three(cluster);
    burn_joiner(cluster);
    one_dies_near_the_end(cluster, FRAGMENTS);
    burn_joiner(cluster);
    a_line_drops_to_a_tenth(cluster, 2 * FRAGMENTS);
    burn_joiner(cluster);
    uint32_t killed = (uint32_t)one_dies(cluster, 3 * FRAGMENTS);
    uint32_t second = (killed + 1) % SOURCES, left = (killed + 2) % SOURCES;
    burn_joiner(cluster);
    burn(cluster, second);
    double one_s = join(cluster, 4 * FRAGMENTS);
    print_message("from one: %.1f s, %.1f times as long as from three\n", one_s, one_s / three_s);
    cluster_start(cluster, killed);
    cluster_start(cluster, second);
    for (uint32_t i = 0; i < ISLANDS; i++)
        cluster_wait(cluster, i, cluster_versions_reach, cluster_status_number(cluster, left, "versions"), "its state");
    cluster_assert_one_truth(cluster);
}

/* The joiner begins to fetch its state in the middle of rounds, and is too far behind for results. */
static struct cluster *join_rounds(const char *name)
{
    struct cluster *cluster = begin(name, SPEC(100000, 60));
    for (uint32_t i = 0; i < SOURCES; i++)
        cluster_wait(cluster, i, cluster_versions_reach, 8 * FRAGMENTS, "versions without the one that is lost");
    cluster_start(cluster, JOINER);
    return cluster;
}

/* Rounds on the same lines go on: one after the other, nothing but what is under way would be made before the state is
 * there. */
static void rounds_do_not_wait_for_a_state(void **state)
{
    (void)state;
    if (no_namespaces[0] != '\0')
        skip_because(no_namespaces);
    struct cluster *cluster = join_rounds("transfer-rounds");
    assert_true(cluster_log_has(cluster, JOINER, "island a is here", 30));
    long long first = cluster_status_number(cluster, 0, "versions");
    double since_s = env_mono_s();
    for (int i = 0; i < 1200 && arrivals(cluster, 0).count < FRAGMENTS; i++)
        proc_sleep_ms(50);
    long long made = cluster_status_number(cluster, 0, "versions") - first;
    print_message("%lld versions while the fragments of a state go out, in %.1f s\n", made, env_mono_s() - since_s);
    assert_true(arrivals(cluster, 0).count >= FRAGMENTS);
#ifdef __SANITIZE_THREAD__ /* the processors, not the lines, are what they share then */
    assert_true(made > 0);
#else
    assert_true(made > FRAGMENTS);
#endif
    cluster_wait(cluster, JOINER, cluster_versions_reach, cluster_status_number(cluster, 0, "versions"), "its state");
}

/* The sources have moved on when their lines are back, and still have the copy that was under way. */
static void a_state_goes_on_after_a_cut(void **state)
{
    (void)state;
    if (no_namespaces[0] != '\0')
        skip_because(no_namespaces);
    struct cluster *cluster = join_rounds("transfer-cut");
    (void)first_to_bring(STATE_BYTES / 8);
    for (int i = 0; i < SOURCES; i++)
        assert_true(wan_cut(&lines[i], true));
    assert_true(cluster_log_has(cluster, JOINER, "has not been heard of", 10));
    proc_sleep_ms(500);
    for (int i = 0; i < SOURCES; i++)
        assert_true(wan_cut(&lines[i], false));
    for (int i = 0; i < 1200 && arrivals(cluster, 0).count < FRAGMENTS; i++)
        proc_sleep_ms(50);
    assert_true(arrivals(cluster, 0).count >= FRAGMENTS);
    if (cluster_log_has(cluster, JOINER, "bytes are here", 0))
        cluster_print_logs(cluster);
    assert_false(cluster_log_has(cluster, JOINER, "bytes are here", 0)); /* nothing that was here came in vain */
    cluster_wait(cluster, JOINER, cluster_versions_reach, cluster_status_number(cluster, 0, "versions"), "its state");
}

int main(void)
{
    assert_ok(digest_init());
    if (!wan_enter(no_namespaces, sizeof no_namespaces) && no_namespaces[0] == '\0')
        snprintf(no_namespaces, sizeof no_namespaces, "no network namespaces");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(an_empty_island_takes_its_state_from_all, end),
        cmocka_unit_test_teardown(rounds_do_not_wait_for_a_state, end),
        cmocka_unit_test_teardown(a_state_goes_on_after_a_cut, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
