#include "daemon/state/memory.h"

#include <inttypes.h>
#include <unistd.h>

#include "net/wire_object.h"
#include "outer_opt/recipe.h"

/* A state is an anchor and its momentum; a fragment has two areas shared with the trainer. */
enum { STATE_ARRAYS = 2, SHARED_AREAS = 2 };

/* What jobs_set_scratch() gives a thread: the largest share's values, and PowerSGD's factors, as floats and as the
 * halves that are sent. */
static uint64_t scratch_bytes(const struct replica_conf *conf, uint64_t share_values)
{
    uint64_t factors = recipe_factor_values_max(conf->plan, &conf->choice);
    return (share_values + factors + factors / 2) * sizeof(float);
}

static uint64_t object_bytes_max(const struct replica_conf *conf, uint32_t f, const struct plan_share *share)
{
    return wire_object_bytes_max(recipe_frame_bytes_max(conf->plan, &conf->choice, f, share), conf->members_count);
}

struct memory memory_of(const struct replica_conf *conf, uint32_t job_threads)
{
    const struct plan *plan = conf->plan;
    struct memory memory = {.replica = replica_bytes(conf)};
    uint64_t share_most = 0;
    for (uint32_t f = 0; f < plan->fragments_count; f++) {
        uint64_t values = plan->fragments[f].values_count;
        struct plan_share own, share;
        plan_share(plan, f, &conf->map, conf->self, &own);
        memory.shared += SHARED_AREAS * values * sizeof(float);
        for (uint32_t i = 0; i < conf->members_count; i++) {
            plan_share(plan, f, &conf->map, i, &share);
            share_most = share.values_count > share_most ? share.values_count : share_most;
            /* what we send for it and its result; and for our own what everyone sends, too */
            memory.frames += 2 * object_bytes_max(conf, f, &share) + object_bytes_max(conf, f, &own);
        }
        memory.states += STATE_ARRAYS * values * sizeof(float);
    }
    memory.frames += job_threads * scratch_bytes(conf, share_most);
    memory.states += MEMORY_STATES_SERVED * STATE_ARRAYS * plan->values_count_max * sizeof(float);
    return memory;
}

uint64_t memory_sum(const struct memory *memory)
{
    return memory->replica + memory->shared + memory->frames + memory->states;
}

enum err memory_check(const struct memory *memory, uint64_t params_count, uint64_t there_bytes)
{
    uint64_t needed = memory->replica + memory->shared + memory->frames;
    if (needed > there_bytes)
        return err_set(ERR_NOMEM,
                       "the model's %" PRIu64 " parameters need %.1f GiB here, and this machine has %.1f GiB",
                       params_count, (double)needed / 1073741824, (double)there_bytes / 1073741824);
    return ERR_OK;
}

uint64_t memory_there_bytes(void)
{
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}
