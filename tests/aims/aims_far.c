/* SPDX-License-Identifier: Apache-2.0 */
/* Over a line of known delay: what an epoch's change takes beyond two round trips, a certificate beyond one. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/aims/aims.h"
#include "tests/lib/cluster.h"
#include "tests/lib/far.h"
#include "tests/lib/proc.h"
#include "tests/lib/said.h"
#include "tests/lib/testlib.h"
#include "tests/lib/wan.h"

enum { ISLANDS = 3, NEAR = 0, LOST = 1, TIMES = 3, DELAY_MS = 100, CERTIFICATES = 8, PATIENCE_S = 30 };
static const double round_trip_s = 2 * DELAY_MS / 1000.0;

/* A round of each fragment takes a second. */
static const char run_spec[] = "[run]\nname = aims\nsteps = 100000000\n[model]\nlayers = 2\n"
                               "[sync]\ninterval = 50\nlayers_per_fragment = 1\noverlap = 2\nlate = merge\n";

static struct cluster *begin(struct wan *wan)
{
    char why[300];
    const struct wan_conf line = {.rate_bits = 100000000, .queue_ms = 200, .delay_ms = DELAY_MS};
    struct cluster_options options = {.run = run_spec, .data = "sleep=20"};
    struct cluster *cluster = far_cluster_new("far", ISLANDS, &options, &line, wan, why, sizeof why);
    if (cluster == NULL)
        skip_because(why);
    cluster_start_all(cluster);
    return cluster;
}

/* From the first PREPARE of the near one to its next epoch: two of three are left, with the line between them. */
static void note_change(struct cluster *cluster, double since_s)
{
    const char *log = cluster->island[NEAR].log;
    double begun_s = said_wait(log, since_s, " has begun, with ", NULL, PATIENCE_S);
    double prepared_s = said_first(log, since_s, "debug: epoch message 9, ", " to id ");
    assert_true(begun_s > 0 && prepared_s > 0);
    double beyond_s = begun_s - prepared_s - 2 * round_trip_s;
    print_message("an epoch's change: %.0f ms, at a round trip of %.0f ms\n", 1000 * (begun_s - prepared_s),
                  1000 * round_trip_s);
    aims_note(AIM_EPOCH_CHANGE, 1000 * beyond_s);
}

/* From the near one's own result, durable at home, to the version that it makes: where the far one's result was there
 * long before, its certificate is what was waited for. */
static void note_certificates(struct cluster *cluster, double since_s)
{
    const char *log = cluster->island[NEAR].log;
    for (int k = 0; k < CERTIFICATES; k++) {
        double stored_s = said_wait(log, since_s, "debug: fragment 0 ", ": the result of island 0 is", PATIENCE_S);
        double applied_s = said_wait(log, stored_s, "debug: fragment 0 ", " hash ", PATIENCE_S);
        double other_s = said_first(log, stored_s - round_trip_s, "debug: fragment 0 ", ": the result of island 2 is");
        assert_true(stored_s > 0 && applied_s > 0 && other_s > 0);
        print_message("a certificate: %.0f ms; the other result %+.0f ms\n", 1000 * (applied_s - stored_s),
                      1000 * (other_s - stored_s));
        aims_note(AIM_CERTIFICATE, 1000 * (applied_s - stored_s - round_trip_s));
        since_s = applied_s;
    }
}

void aims_far(void **state)
{
    (void)state;
    struct wan wan;
    struct cluster *cluster = begin(&wan);
    for (int k = 0; k < TIMES; k++) {
        for (uint32_t i = 0; i < ISLANDS; i++)
            cluster_wait(cluster, i, cluster_degraded, 0, "all to be well");
        proc_sleep_ms(3000);
        double since_s = said_now_s();
        assert_int_equal(cluster_end(cluster, LOST, SIGKILL), 128 + SIGKILL);
        proc_kill_trainer(cluster->island[LOST].state);
        note_change(cluster, since_s);
        proc_sleep_ms(1500); /* the round that the loss held up */
        note_certificates(cluster, said_now_s());
        cluster_start(cluster, LOST);
        assert_true(said_wait(cluster->island[NEAR].log, since_s, "takes part again", NULL, PATIENCE_S) > 0);
    }
    cluster_free(cluster);
    wan_end(&wan);
}
