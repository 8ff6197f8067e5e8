/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/smallrun.h"

#include <stdio.h>

#include "daemon/rules.h"
#include "tests/lib/shares.h"

const struct ipc_tensor smallrun_tensors[SMALLRUN_TENSORS] = {
    {.name = "embedding", .layer = -1, .dims = 2, .shape = {70, 40}},
    {.name = "layer.0.weight", .layer = 0, .dims = 2, .shape = {48, 32}},
    {.name = "layer.0.norm", .layer = 0, .dims = 1, .shape = {300}},
    {.name = "layer.1.weight", .layer = 1, .dims = 2, .shape = {48, 32}},
    {.name = "layer.1.norm", .layer = 1, .dims = 1, .shape = {300}},
};

static const uint64_t weights[SMALLRUN_MEMBERS] = {1, 1, 2};

struct smallrun smallrun_new(const char *more)
{
    struct smallrun run;
    char text[2048];
    snprintf(text, sizeof text, "[run]\nname = small\nsteps = %d\n[sync]\nlayers_per_fragment = 1\n%s", SMALLRUN_STEPS,
             more);
    assert_ok(runspec_parse(text, "text", &run.spec));
    assert_ok(model_plan_new(&run.spec, smallrun_tensors, SMALLRUN_TENSORS, &run.plan));
    assert_int_equal(run.plan->plan->fragments_count, SMALLRUN_FRAGMENTS);
    run.config_log = shares_config_log(weights, SMALLRUN_MEMBERS);
    run.parts = (struct parts){.plan = run.plan->plan, .config_log = run.config_log};
    return run;
}

void smallrun_free(struct smallrun *run)
{
    config_log_free(run->config_log);
    model_plan_free(run->plan);
    runspec_deinit(&run->spec);
}

struct replica_conf smallrun_conf(const struct smallrun *run)
{
    const struct runspec *spec = &run->spec;
    return (struct replica_conf){.plan = run->plan->plan,
                                 .outer = rules_outer(spec),
                                 .choice = rules_codec(spec),
                                 .adaptive = spec->codec == CODEC_ADAPTIVE,
                                 .error_feedback = spec->error_feedback,
                                 .feedback_decay = (float)spec->feedback_decay,
                                 .feedback_limit = (float)spec->feedback_limit,
                                 .outliers = rules_outliers(spec)};
}

struct replica *smallrun_replica(const struct smallrun *run, uint32_t self)
{
    struct replica_conf conf = smallrun_conf(run);
    struct replica *replica;
    assert_ok(replica_new(&conf, &replica));
    assert_ok(shares_cut(&run->parts, replica, self));
    return replica;
}

struct array {
    float *values;
    size_t count;
};

enum { ARRAYS = 4 };

static void list_arrays(struct replica *replica, const struct smallrun *run, uint32_t f, struct array *arrays)
{
    size_t count = (size_t)run->plan->plan->fragments[f].values_count;
    arrays[0] = (struct array){replica_anchor(replica, f), count};
    arrays[1] = (struct array){replica_momentum(replica, f), count};
    arrays[2] = (struct array){replica_residual(replica, f), count};
    arrays[3] = (struct array){replica_owner_residual(replica, f),
                               replica_values(replica, f, replica_owner_shards(replica, f))};
}

void smallrun_fill(struct replica *replica, const struct smallrun *run, uint32_t f, uint64_t seed)
{
    struct array arrays[ARRAYS];
    list_arrays(replica, run, f, arrays);
    for (uint64_t a = 0; a < ARRAYS; a++) {
        struct env_rng rng = env_rng_init(seed, a << 32 | f);
        if (arrays[a].values != NULL)
            testlib_fill_normal(&rng, arrays[a].values, arrays[a].count, 1);
    }
}

struct digest smallrun_digest(struct replica *replica, const struct smallrun *run)
{
    struct digest_state state;
    digest_begin(&state);
    for (uint32_t f = 0; f < SMALLRUN_FRAGMENTS; f++) {
        struct array arrays[ARRAYS];
        list_arrays(replica, run, f, arrays);
        for (size_t a = 0; a < ARRAYS; a++)
            if (arrays[a].values != NULL)
                digest_add(&state, arrays[a].values, arrays[a].count * sizeof(float));
    }
    return digest_end(&state);
}
