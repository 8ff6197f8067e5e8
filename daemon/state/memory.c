/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/state/memory.h"

#include <inttypes.h>
#include <sys/statvfs.h>

#include "daemon/rules.h"
#include "daemon/state/slots.h"
#include "net/transport/wire_object.h"
#include "outer_opt/recipe.h"

/* A state is an anchor and its momentum; a fragment has two areas shared with the trainer. */
enum { STATE_ARRAYS = 2, SHARED_AREAS = 2 };
/* How often the digests of a state's leaves are there at most: in a copy, and in the heads for four who read it. */
enum { STATE_HEADS = 5 };

_Static_assert((int)SLOTS_SPARES == (int)MEMORY_STATES_FETCHED,
               "states on their way in, and the memory of the last ones");

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
    struct version_part parts[VERSION_PARTS_MAX];
    uint64_t masks[VERSION_PARTS_MAX], own = 0;
    uint32_t count = parts_usual(conf->parts, f, parts);
    for (uint32_t p = 0; p < count; p++) {
        masks[p] = parts[p].shards;
        own |= parts[p].id.owner == conf->self ? parts[p].shards : 0;
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

enum err memory_check(const struct memory *memory, uint64_t params_count, const struct mem_limit *there)
{
    const double gib = 1073741824;
    uint64_t needed = memory->replica + memory->shared + memory->frames;
    if (needed <= there->bytes)
        return ERR_OK;
    if (there->group)
        return err_set(ERR_NOMEM,
                       "the model's %" PRIu64
                       " parameters need %.1f GiB here, and the daemon's control group is limited "
                       "to %.1f GiB: raise that limit (MemoryMax= of its service, the container's, the batch job's)",
                       params_count, (double)needed / gib, (double)there->bytes / gib);
    return err_set(ERR_NOMEM,
                   "the model's %" PRIu64
                   " parameters need %.1f GiB here, and this machine has %.1f GiB: a machine with "
                   "more memory is needed, or a smaller model",
                   params_count, (double)needed / gib, (double)there->bytes / gib);
}

/* ---- the disk ---- */

/* Anchor and momentum of a fragment; and its whole file, with as much for residuals as when all shards are ours. */
static uint64_t state_bytes(const struct replica_conf *conf, uint32_t f)
{
    uint64_t arrays = conf->outer.kind == OUTER_AVERAGE ? 1 : STATE_ARRAYS;
    return arrays * conf->plan->fragments[f].values_count * sizeof(float);
}

static uint64_t file_bytes(const struct replica_conf *conf, uint32_t f)
{
    enum { RESIDUALS = 2 };
    uint64_t residuals = conf->error_feedback ? RESIDUALS : 0;
    return state_bytes(conf, f) + residuals * conf->plan->fragments[f].values_count * sizeof(float);
}

static uint64_t version_bytes(const struct replica_conf *conf, uint32_t f)
{
    struct plan_share share;
    plan_share(conf->plan, f, parts_filled(conf->plan, f), &share);
    return recipe_frame_bytes_max(conf->plan, &conf->choice, f, &share);
}

struct memory_disk memory_disk_of(const struct replica_conf *conf, uint64_t ledger_keep, uint64_t versions)
{
    struct memory_disk disk = {0};
    uint64_t largest = 0, uncovered = 0, served = 0, anchors = 0, states = 0;
    for (uint32_t f = 0; f < conf->plan->fragments_count; f++) {
        uint64_t state = state_bytes(conf, f), file = file_bytes(conf, f), one = version_bytes(conf, f);
        uint64_t kept = versions > 0 ? versions : rules_versions(state, one);
        disk.checkpoints += file;
        largest = file > largest ? file : largest;
        uncovered += state + one;
        states += state;
        served += kept * one;
        anchors += conf->plan->fragments[f].values_count * sizeof(float);
    }
    uint64_t most = ledger_keep > states ? ledger_keep : states;
    served = served < most ? served : most;
    disk.checkpoints += largest;
    disk.ledger = uncovered > served ? uncovered : served;
    disk.exported = 2 * anchors;
    return disk;
}

enum err memory_disk_check(const struct memory_disk *disk, uint64_t params_count, const char *folder)
{
    const double mib = 1048576;
    struct statvfs there;
    if (statvfs(folder, &there) != 0)
        return ERR_OK;
    uint64_t needed = disk->checkpoints + disk->ledger + disk->exported;
    uint64_t left = (uint64_t)there.f_bavail * there.f_frsize;
    if (needed <= left)
        return ERR_OK;
    return err_set(ERR_NOSPACE,
                   "the model's %" PRIu64 " parameters need %.1f MiB of disk in %s (%.1f for checkpoints, %.1f for "
                   "results, %.1f for exported anchors), and %.1f MiB are free there; free some space, or set [island] "
                   "state to a folder on a larger disk",
                   params_count, (double)needed / mib, folder, (double)disk->checkpoints / mib,
                   (double)disk->ledger / mib, (double)disk->exported / mib, (double)left / mib);
}
