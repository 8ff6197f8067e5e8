/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/field.h"

#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "common/mem.h"
#include "tests/lib/cluster.h"
#include "tests/lib/proc.h"
#include "tests/lib/testlib.h"
#include "worker/train.h"

enum { STEP_PATIENCE_MS = 200 };

/* Until every trainer is done; false if that takes longer than any machine needs. */
static bool wait_for_all(struct cluster *cluster, int64_t steps)
{
    for (int64_t waited_ms = 0; waited_ms < 60000 + STEP_PATIENCE_MS * steps; waited_ms += 500) {
        uint32_t done = 0;
        for (uint32_t i = 0; i < cluster->count; i++)
            done += cluster_trainer_finished(cluster, i, 0);
        if (done == cluster->count)
            return true;
        proc_sleep_ms(500);
    }
    return false;
}

enum err field_run(const struct lab_conf *conf, struct lab_result *result)
{
    char *text;
    char data[PATH_MAX]; /* a configuration's paths are relative to it */
    memset(result, 0, sizeof *result);
    if (realpath(conf->data, data) == NULL)
        return err_set_errno(ERR_IO, "%s", conf->data);
    TRY(runspec_text(&conf->spec, &text));
    struct cluster_options options = {.run = text, .program = "diloco-worker", .data = data};
    struct cluster *cluster = cluster_new("field", conf->islands, &options);
    mem_free(text);
    cluster_start_all(cluster);
    if (!wait_for_all(cluster, conf->spec.steps)) {
        cluster_print_logs(cluster);
        cluster_free(cluster);
        return err_set(ERR_STATE, "the islands did not come to an end");
    }
    for (uint32_t i = 0; i < conf->islands; i++) {
        result->tokens += (uint64_t)cluster_trainer_number(cluster, i, "tokens");
        result->bytes_sent += (double)cluster_status_number(cluster, i, "payload_sent") / conf->islands;
    }
    result->rounds = (uint64_t)cluster_status_number(cluster, 0, "version_max");
    cluster_assert_one_truth(cluster);
    double params = (double)cluster_status_number(cluster, 0, "params");
    result->bytes_data_parallel = 2.0 * params * (double)conf->spec.steps * 2 * (conf->islands - 1) / conf->islands;
    if (!cluster_log_has(cluster, 0, "the anchor is in", 10))
        return err_set(ERR_STATE, "no anchor was written");
    struct eval_options eval = {.spec = &conf->spec,
                                .params_path = testlib_path(cluster->island[0].state, "anchor.safetensors"),
                                .data_path = conf->data,
                                .device = "cpu",
                                .threads = 1,
                                .batches = LAB_EVAL_WINDOWS / (uint64_t)conf->spec.batch};
    for (uint32_t i = 0; i < conf->islands; i++)
        assert_int_equal(cluster_end(cluster, i, SIGTERM), 0);
    enum err err = train_eval(&eval, &result->val_loss);
    cluster_free(cluster);
    return err;
}
