/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/state/memory.h"

#include <inttypes.h>
#include <unistd.h>

#include "daemon/state/slots.h"
#include "net/wire_object.h"
#include "outer_opt/recipe.h"

/* A state is an anchor and its momentum; a fragment has two areas shared with the trainer. */
enum { STATE_ARRAYS = 2, SHARED_AREAS = 2 };
/* How often the digests of a state's leaves are there at most: in a copy, and in the heads for four who read it. */
enum { STATE_HEADS = 5 };

/* What jobs_set_scratch() gives a thread: a piece of a mean, what a segment is larger than usual, and PowerSGD's
 * factors, as floats and as the halves that are sent. */
static uint64_t scratch_bytes(const struct replica_conf *conf)
{
    uint64_t factors = recipe_factor_values_max(conf->plan, &conf->choice);
    uint64_t segment = recipe_segment_values_max(conf->plan, &conf->choice);
    return (replica_piece_values(conf) + segment - CODEC_SEGMENT + factors + factors / 2) * sizeof(float);
}

static uint64_t object_bytes(const struct memory_conf *conf, uint32_t f, uint64_t shards)
{
    struct plan_share share;
    plan_share(conf->replica->plan, f, shards, &share);
    return wire_object_bytes_max(recipe_frame_bytes_max(conf->replica->plan, &conf->replica->choice, f, &share), shards,
                                 conf->members_count);
}

/* What a fragment takes as it is cut now. */
static void add_parts(struct memory *memory, const struct memory_conf *conf, uint32_t f)
{
    struct chain_part parts[CHAIN_PARTS_MAX];
    uint64_t masks[CHAIN_PARTS_MAX], own = 0;
    uint32_t count = parts_usual(conf->parts, f, parts);
    for (uint32_t p = 0; p < count; p++) {
        masks[p] = parts[p].shards;
        own |= parts[p].owner == conf->self ? parts[p].shards : 0;
        memory->frames += 2 * object_bytes(conf, f, masks[p]); /* what we send for it, and its result */
    }
    if (own != 0) /* what all others send for ours, and its result once more */
        memory->frames += conf->members_count * object_bytes(conf, f, own);
    memory->replica += replica_cut_bytes(conf->replica, f, masks, count, own, conf->members_count);
}

struct memory memory_of(const struct memory_conf *conf)
{
    const struct plan *plan = conf->replica->plan;
    struct memory memory = {.replica = replica_bytes(conf->replica)};
    for (uint32_t f = 0; f < plan->fragments_count; f++) {
        uint64_t values = plan->fragments[f].values_count;
        add_parts(&memory, conf, f);
        memory.shared += SHARED_AREAS * values * sizeof(float);
    }
    memory.frames += conf->job_threads * scratch_bytes(conf->replica);
    memory.frames += slots_bytes(plan->fragments_count, conf->members_count);
    uint64_t state = STATE_ARRAYS * plan->values_count_max * sizeof(float);
    memory.states = (MEMORY_STATES_SERVED + MEMORY_STATES_FETCHED) *
                    (state + STATE_HEADS * digest_tree_leaves(state) * DIGEST_BYTES);
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
