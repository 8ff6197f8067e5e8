/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rounds/reduce.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/mem.h"
#include "common/quota.h"
#include "daemon/rules.h"
#include "daemon/state/results.h"
#include "outer_opt/fbits.h"
#include "outer_opt/weights.h"

enum { STORE_AGAIN_MS = 2000 };

struct reduce_fragment {
    uint64_t made_version;   /* of the mean in the slot, stored or not */
    uint64_t made_step;      /* run step that it names */
    uint64_t store_again_ms; /* the disk refused it: when to try again; 0: it did not */
    uint64_t mean_waits;     /* version whose mean waits for jobs that are under way; 0: none */
    struct bitset mean_have; /* from these contributions */
    uint64_t mean_epoch;     /* of the epoch in which it was ordered */
};

struct reduce {
    struct round_context *context;
    struct reduce_fragment *fragments;
    struct job_pool checks, means, stores;
    struct quota lines[VIEW_SLOTS_MAX]; /* in the log, about what a member sends */
};

/* A contribution that came in. */
struct check_job {
    struct job job;
    struct reduce *reduce;
    struct wire_key key;
    uint32_t peer;
    struct slot *slot;
    size_t values_count;
    uint64_t shards;
    struct wire_meta meta;
};

/* What a contribution holds in each of its shards, and weighs there. */
struct load {
    uint64_t tokens[PLAN_SHARDS_MAX];
    float weights[PLAN_SHARDS_MAX];
};

/* The mean over our part. */
struct mean_job {
    struct job job;
    struct reduce *reduce;
    uint32_t f;
    uint64_t version;
    struct slot *slot;
    bool compress;
    struct ident ident; /* ours, as of the part's epoch: it may change while this is at work */
    struct version_part part;
    uint32_t p; /* the part's index */
    struct wire_meta meta;
    struct mean_input inputs[WIRE_CONTRIBUTORS_MAX];
    size_t inputs_count, bad;
    uint64_t steps[WIRE_CONTRIBUTORS_MAX]; /* run steps that the inputs name */
    bool uneven;                           /* a contribution does not hold as much work in each of its shards */
    struct load *loads; /* of each input, where not all of its shards are alike; the job's to free. Else NULL */
    struct replica_reducing reducing;
    uint8_t contributors[WIRE_CONTRIBUTORS_MAX * WIRE_CONTRIBUTOR_BYTES]; /* of `meta` */
    uint8_t spans[WIRE_SPANS_MAX * WIRE_SPAN_BYTES];                      /* of `meta` */
};

/* Our result into the ledger. */
struct store_job {
    struct job job;
    struct reduce *reduce;
    uint32_t f;
    uint64_t version;
    struct slot *slot;
    uint64_t step;          /* that ours names; out: that the one names which the ledger has */
    bool ours;              /* out: it is what the ledger has */
    struct result_id there; /* out: which one it has */
};

enum err reduce_new(struct round_context *context, struct reduce **out)
{
    TRY(mem_new(1, sizeof **out, "rounds", out));
    struct reduce *reduce = *out;
    reduce->context = context;
    reduce->checks.job_bytes = sizeof(struct check_job);
    reduce->means.job_bytes = sizeof(struct mean_job);
    reduce->stores.job_bytes = sizeof(struct store_job);
    return mem_new(round_context_fragments(context), sizeof *reduce->fragments, "rounds", &reduce->fragments);
}

void reduce_free(struct reduce *reduce)
{
    if (reduce == NULL)
        return;
    job_pool_deinit(&reduce->checks);
    job_pool_deinit(&reduce->means);
    job_pool_deinit(&reduce->stores);
    mem_free(reduce->fragments);
    mem_free(reduce);
}

/* ---- a contribution to our part came in ---- */

static enum err run_check(struct job *job, struct jobs_scratch *scratch)
{
    struct check_job *j = (struct check_job *)(void *)job;
    const struct round_context *context = j->reduce->context;
    const uint8_t *frame;
    size_t frame_bytes;
    struct wire_object what;
    (void)scratch;
    TRY(wire_object_open(j->slot->data, j->slot->bytes, &what, &j->meta, &frame, &frame_bytes));
    TRY(round_context_check_object(context, &what, &j->key, j->shards));
    TRY(round_context_check_step(context, &j->meta));
    return codec_check(frame, frame_bytes, j->values_count);
}

static bool may_log(struct reduce *reduce, uint32_t member)
{
    return log_line_of_one(&reduce->lines[member], reduce->context->now_ms);
}

static void log_other_base(struct reduce *reduce, uint32_t member, uint32_t f, uint64_t version)
{
    const struct round_context *context = reduce->context;
    if (!may_log(reduce, member))
        return;
    log_error("island %s contributes to fragment %" PRIu32 " from another version %" PRIu64
              " than ours; not counted, one of us has to repair",
              round_context_name(context, member), f, version - 1);
}

static void done_check(struct job *job)
{
    struct check_job *j = (struct check_job *)(void *)job;
    struct round_context *context = j->reduce->context;
    uint32_t f = j->key.fragment;
    uint64_t version = j->key.version;
    struct sync_event event = {
        .type = SYNC_EV_CONTRIBUTION, .fragment = f, .version = version, .epoch = j->key.epoch, .member = j->peer};
    enum wire_done status = WIRE_RECEIVED;
    j->slot->busy = false;
    j->slot->version = version;
    if (job->err != ERR_OK) {
        if (may_log(j->reduce, j->peer))
            log_error("the contribution of island %s to fragment %" PRIu32 ", version %" PRIu64
                      " is damaged and not counted: %s",
                      round_context_name(context, j->peer), f, version, job->text);
        event.type = SYNC_EV_CONTRIBUTION_REFUSED;
        status = WIRE_REFUSED;
    } else if (!sync_base_agrees(context->conf.sync, f, version, &j->meta.base_hash)) {
        log_other_base(j->reduce, j->peer, f, version);
        event.type = SYNC_EV_CONTRIBUTION_REFUSED;
        status = WIRE_REFUSED;
    }
    round_context_judged(context, j->peer, &j->key, status);
    round_context_post(context, &event);
    job_pool_give(&j->reduce->checks, j);
}

void reduce_contribution_in(struct reduce *reduce, uint32_t peer, const struct wire_key *key, uint64_t bytes)
{
    struct round_context *context = reduce->context;
    struct version_part part;
    if (round_context_part(context, key, &part) == VERSION_PARTS_MAX) { /* an epoch has begun meanwhile */
        round_context_judged(context, peer, key, WIRE_NOT_NEEDED);
        return;
    }
    struct check_job *j = round_context_job(context, &reduce->checks);
    if (j == NULL) {
        round_context_judged(context, peer, key, WIRE_NOT_YET);
        return;
    }
    j->values_count = (size_t)round_context_values(context, key->fragment, part.shards);
    j->reduce = reduce;
    j->key = *key;
    j->shards = part.shards;
    j->peer = peer;
    j->slot = slots_in(context->conf.slots, key->fragment, peer);
    j->slot->bytes = (size_t)bytes;
    j->slot->busy = true;
    round_context_submit(context, &j->job, JOBS_CHECK, run_check, done_check);
}

/* ---- the mean over our part ---- */

/* On whichever thread. */
static enum err mean_piece(void *user, size_t i, struct jobs_scratch *scratch)
{
    struct mean_job *j = user;
    TRY(round_context_set_compression(j->reduce->context, j->compress, scratch->codec));
    return replica_reduce_piece(&j->reducing, i, scratch->codec, scratch->values);
}

/* On all threads that have nothing else to do: of an encoding there is a job for each part, of this but one. */
static enum err reduce_shared(struct mean_job *j, struct jobs_scratch *scratch, size_t *frame_bytes)
{
    enum err err = replica_reduce_begin(j->reduce->context->conf.replica, j->f, j->inputs, j->inputs_count,
                                        wire_object_frame(j->slot->data), &j->reducing);
    while (err == ERR_OK && (err = replica_reduce_next(&j->reducing)) == ERR_OK && j->reducing.pieces > 0)
        err = jobs_share(scratch, j->reducing.pieces, mean_piece, j);
    return replica_reduce_end(&j->reducing, err, scratch->codec, frame_bytes, &j->bad);
}

/* What the inputs weighed, and what became of them. */
static void name_inputs(struct mean_job *j)
{
    uint32_t weights[PLAN_SHARDS_MAX];
    for (uint32_t i = 0; i < j->inputs_count; i++) {
        struct wire_contributor contributor = wire_meta_contributor(&j->meta, i);
        contributor.weight = float_bits(j->inputs[i].weight);
        contributor.norm = float_bits(fminf(j->inputs[i].norm, FLT_MAX));
        contributor.factor = float_bits(j->inputs[i].factor);
        contributor.cosine = float_bits(j->inputs[i].cosine);
        wire_contributor_put(j->contributors, i, &contributor);
        if (j->loads == NULL)
            continue;
        for (uint32_t s = 0; s < PLAN_SHARDS_MAX; s++)
            weights[s] = float_bits(j->loads[i].weights[s]);
        j->meta.spans_count = wire_spans_put(j->spans, j->meta.spans_count, WIRE_SPANS_MAX, contributor.id,
                                             j->part.shards, j->loads[i].tokens, weights);
    }
    j->meta.spans = j->spans;
}

static enum err run_mean(struct job *job, struct jobs_scratch *scratch)
{
    struct mean_job *j = (struct mean_job *)(void *)job;
    const struct round_context *context = j->reduce->context;
    size_t frame_bytes;
    TRY(reduce_shared(j, scratch, &frame_bytes));
    name_inputs(j);
    const struct wire_object what = round_context_object(context, WIRE_RESULT, &j->part);
    struct digest digest;
    return wire_object_seal(&what, &j->meta, &j->ident, j->slot->data, frame_bytes, &j->slot->bytes, &digest);
}

static void done_mean(struct job *job)
{
    struct mean_job *j = (struct mean_job *)(void *)job;
    struct round_context *context = j->reduce->context;
    struct sync_event event = {.type = SYNC_EV_REDUCED, .fragment = j->f};
    mem_free(j->loads);
    j->slot->busy = false;       /* its object has a version when it stands in the ledger */
    if (job->err == ERR_NOMEM) { /* it is nobody's contribution's fault: the daemon ends */
        event_post_fatal(context->conf.events, job->text);
        job_pool_give(&j->reduce->means, j);
        return;
    }
    if (job->err != ERR_OK) {
        event.type = SYNC_EV_DROPPED;
        event.member = j->inputs[j->bad].member;
        if (may_log(j->reduce, event.member))
            log_error("fragment %" PRIu32 ", version %" PRIu64 ": the contribution of island %s cannot be used: %s",
                      j->f, j->version, round_context_name(context, event.member), job->text);
    }
    round_context_post(context, &event);
    job_pool_give(&j->reduce->means, j);
    round_context_use_end(context, event.fragment);
}

/* Where a member's contribution to our part lies. */
static const struct slot *slot_of(const struct mean_job *j, uint32_t member)
{
    const struct round_context *context = j->reduce->context;
    return member == round_context_self(context) ? slots_out(context->conf.slots, j->f, j->p)
                                                 : slots_in(context->conf.slots, j->f, member);
}

/* It was checked when it came; opening it again only finds the places. `tokens`: out: by shard. */
static bool open_input(const struct mean_job *j, uint32_t member, struct wire_contributor *contributor,
                       uint64_t tokens[PLAN_SHARDS_MAX], struct mean_input *input, struct wire_meta *meta)
{
    const struct slot *slot = slot_of(j, member);
    struct wire_object what;
    *input = (struct mean_input){.member = member,
                                 .owner = j->reduce->context->conf.view->members[member].as.role == CONFIG_OWNER};
    if (wire_object_open(slot->data, slot->bytes, &what, meta, &input->frame, &input->bytes) != ERR_OK)
        return false;
    uint32_t id = what.key.island;
    *contributor = (struct wire_contributor){
        .id = id,
        .tokens = round_context_tokens(j->reduce->context, j->f, j->part.shards, id, meta, tokens),
        .digest = what.digest};
    return true;
}

static int by_step(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

/* The lower median of the steps that the owners' contributions name; of all, where fewer than two are owners'. */
static uint64_t usual_step(const struct mean_job *j)
{
    uint64_t steps[WIRE_CONTRIBUTORS_MAX];
    size_t owners = 0, count = 0;
    for (size_t i = 0; i < j->inputs_count; i++)
        owners += j->inputs[i].owner;
    for (size_t i = 0; i < j->inputs_count; i++)
        if (owners < 2 || j->inputs[i].owner)
            steps[count++] = j->steps[i];
    qsort(steps, count, sizeof *steps, by_step);
    return count > 1 ? steps[(count - 1) / 2] : 0; /* one alone is no measure */
}

/* The run step that our result names: the largest of its contributions, as far as one island alone is believed
 * (daemon/peers/pace.h), or our own names it, or most owners', or a result that is known here. Else one that lies would
 * have all of them believe that the run is near its end. */
static uint64_t named_step(const struct mean_job *j)
{
    const struct round_context *context = j->reduce->context;
    uint64_t line = atomic_load(&context->step_line), usual = usual_step(j), largest = 0;
    uint64_t most = line > usual ? line : usual;
    for (uint32_t f = 0; f < round_context_fragments(context); f++)
        most = context->fragments[f].state.step > most ? context->fragments[f].state.step : most;
    for (size_t i = 0; i < j->inputs_count; i++) {
        bool ours = j->inputs[i].member == round_context_self(context);
        most = ours && j->steps[i] > most ? j->steps[i] : most;
        largest = j->steps[i] > largest ? j->steps[i] : largest;
    }
    return largest < most ? largest : most;
}

/* Adds a member's contribution to the inputs. False: it starts from another version than ours. One that came before our
 * own hash was known could not be compared then. */
static bool add_input(struct mean_job *j, uint32_t member)
{
    uint64_t tokens[PLAN_SHARDS_MAX];
    struct wire_contributor contributor;
    struct mean_input input;
    struct wire_meta meta;
    if (!open_input(j, member, &contributor, tokens, &input, &meta))
        return true;
    if (!sync_base_agrees(j->reduce->context->conf.sync, j->f, j->version, &meta.base_hash))
        return false;
    uint32_t i = (uint32_t)j->inputs_count++;
    j->inputs[i] = input;
    wire_contributor_put(j->contributors, i, &contributor);
    j->meta.contributors = j->contributors;
    j->meta.contributors_count = i + 1;
    j->steps[i] = meta.step;
    j->uneven = j->uneven || meta.spans_count > 0;
    return true;
}

static uint64_t missed_in(const struct mean_job *j, uint32_t i, uint32_t s)
{
    const struct dedup *counted = replica_counted(j->reduce->context->conf.replica, j->f);
    uint64_t last = dedup_last(counted, wire_meta_contributor(&j->meta, i).id, (uint64_t)1 << s);
    return last > 0 && last < j->version ? j->version - 1 - last : 0; /* whom no result has counted has missed none */
}

static bool in_part(const struct mean_job *j, uint32_t s)
{
    return (j->part.shards >> s & 1) != 0;
}

/* Who weighs nothing, by what the results so far have said of its direction. */
static void turn_away(struct mean_job *j)
{
    const struct round_context *context = j->reduce->context;
    struct direction_input makers[WIRE_CONTRIBUTORS_MAX] = {{0}};
    bool weightless[WIRE_CONTRIBUTORS_MAX];
    for (size_t i = 0; i < j->inputs_count; i++)
        makers[i] = (struct direction_input){.owner = j->inputs[i].owner,
                                             .turned = standing_turned_away(&context->standing, j->inputs[i].member)};
    direction_weightless(makers, j->inputs_count, weightless);
    for (size_t i = 0; i < j->inputs_count; i++)
        j->inputs[i].turned = weightless[i] && rules_judges(context->conf.spec);
}

/* What the inputs weigh in a shard: as the tokens of the work that is in it, as far as the others' go. Whoever is
 * turned away is no measure for them. */
static void weigh_shard(const struct mean_job *j, uint32_t s, float *weights)
{
    struct weight_input weighed[WIRE_CONTRIBUTORS_MAX] = {{0}};
    uint32_t of[WIRE_CONTRIBUTORS_MAX], count = 0;
    float bounded[WIRE_CONTRIBUTORS_MAX];
    for (uint32_t i = 0; i < j->inputs_count; i++) {
        weights[i] = 0;
        if (j->inputs[i].turned)
            continue;
        of[count] = i;
        weighed[count++] = (struct weight_input){.tokens = j->loads != NULL ? j->loads[i].tokens[s]
                                                                            : wire_meta_contributor(&j->meta, i).tokens,
                                                 .missed = missed_in(j, i, s),
                                                 .owner = j->inputs[i].owner};
    }
    weights_bound(j->reduce->context->conf.spec->weight_max, weighed, count, bounded);
    for (uint32_t k = 0; k < count; k++)
        weights[of[k]] = bounded[k];
}

/* Whether every input holds as much work in each shard, of as many rounds. In the epoch before, the shards may have
 * been several owners', each of whom counted others. */
static bool all_alike(const struct mean_job *j)
{
    const struct dedup *counted = replica_counted(j->reduce->context->conf.replica, j->f);
    uint64_t shards = j->part.shards;
    for (uint32_t i = 0; !j->uneven && i < j->inputs_count; i++) {
        uint32_t id = wire_meta_contributor(&j->meta, i).id;
        uint64_t last = dedup_last(counted, id, shards);
        if (last > 0 && (dedup_since(counted, id, last - 1) & shards) != shards)
            return false;
    }
    return !j->uneven;
}

static void weigh_alike(struct mean_job *j)
{
    float weights[WIRE_CONTRIBUTORS_MAX];
    uint32_t s = 0;
    while (!in_part(j, s))
        s++;
    weigh_shard(j, s, weights);
    for (uint32_t i = 0; i < j->inputs_count; i++)
        j->inputs[i].weight = weights[i];
}

static void weigh_each_shard(struct mean_job *j)
{
    float weights[WIRE_CONTRIBUTORS_MAX];
    double by_shard[PLAN_SHARDS_MAX];
    for (uint32_t s = 0; s < PLAN_SHARDS_MAX; s++) {
        if (!in_part(j, s))
            continue;
        weigh_shard(j, s, weights);
        for (uint32_t i = 0; i < j->inputs_count; i++)
            j->loads[i].weights[s] = weights[i];
    }
    for (uint32_t i = 0; i < j->inputs_count; i++) {
        for (uint32_t s = 0; s < PLAN_SHARDS_MAX; s++)
            by_shard[s] = (double)j->loads[i].weights[s];
        j->inputs[i].weight = (float)round_context_average(j->reduce->context, j->f, j->part.shards, by_shard);
        j->inputs[i].by_shard = j->loads[i].weights;
    }
}

static enum err weigh_inputs(struct mean_job *j)
{
    turn_away(j);
    if (all_alike(j)) {
        weigh_alike(j);
        return ERR_OK;
    }
    TRY(mem_new(j->inputs_count, sizeof *j->loads, "weights", &j->loads));
    for (uint32_t i = 0; i < j->inputs_count; i++) {
        struct wire_contributor contributor;
        struct mean_input input;
        struct wire_meta meta;
        (void)open_input(j, j->inputs[i].member, &contributor, j->loads[i].tokens, &input, &meta);
    }
    weigh_each_shard(j);
    return ERR_OK;
}

/* Slots of these members in order of their ids, in which a result names them. */
static uint32_t by_id(const struct view *view, const struct bitset *have, uint32_t *members)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < view->count; i++) {
        if (!bitset_has(have, i))
            continue;
        uint32_t at = count++;
        for (; at > 0 && view->members[members[at - 1]].as.id > view->members[i].as.id; at--)
            members[at] = members[at - 1];
        members[at] = i;
    }
    return count;
}

static void make_mean(struct reduce *reduce, uint32_t f, uint64_t version, const struct bitset *have)
{
    struct round_context *context = reduce->context;
    struct version_part part;
    struct slot *slot = slots_own(context->conf.slots, f);
    uint32_t p = round_context_own_part(context, f, version, &part);
    if (p == VERSION_PARTS_MAX) { /* it is another's to make, or made */
        round_context_post(context, &(struct sync_event){.type = SYNC_EV_OVERTAKEN, .fragment = f});
        return;
    }
    struct mean_job *j =
        round_context_room(context, slot, f, part.shards) ? round_context_job(context, &reduce->means) : NULL;
    if (j == NULL)
        return;
    j->reduce = reduce;
    j->f = f;
    j->version = version;
    j->slot = slot;
    j->ident = *context->conf.ident;
    j->part = part;
    j->p = p;
    uint32_t members[VIEW_SLOTS_MAX], members_count = by_id(context->conf.view, have, members);
    for (uint32_t k = 0; k < members_count; k++) {
        if (add_input(j, members[k]))
            continue;
        log_other_base(reduce, members[k], f, version);
        round_context_post(context, &(struct sync_event){.type = SYNC_EV_DROPPED, .fragment = f, .member = members[k]});
        job_pool_give(&reduce->means, j);
        return;
    }
    j->meta.step = named_step(j);
    if (weigh_inputs(j) != ERR_OK) {
        event_post_fatal(context->conf.events, err_text());
        job_pool_give(&reduce->means, j);
        return;
    }
    struct outer_round round = rules_round(context->conf.spec, round_context_fragments(context), f, version,
                                           context->fragments[f].state.step, j->meta.step);
    memcpy(j->meta.outer, (float[]){round.scale, round.momentum, round.lr}, sizeof j->meta.outer);
    j->compress = round_context_compress(context, false);
    slot->busy = true;
    slot->version = 0;
    reduce->fragments[f].made_version = version;
    reduce->fragments[f].made_step = j->meta.step;
    reduce->fragments[f].store_again_ms = 0; /* what was to be stored from there is overwritten */
    round_context_use_begin(context, f);
    round_context_submit(context, &j->job, JOBS_REDUCE, run_mean, done_mean);
}

static void try_mean(struct reduce *reduce, uint32_t f)
{
    struct reduce_fragment *fragment = &reduce->fragments[f];
    uint64_t version = fragment->mean_waits;
    /* What came was for the parts of another epoch, of which the config log may know nothing any more. */
    bool overtaken = fragment->mean_epoch != reduce->context->conf.view->epoch;
    if (version == 0 || (!overtaken && !round_context_cut(reduce->context, f, version)))
        return;
    fragment->mean_waits = 0;
    if (overtaken) {
        round_context_post(reduce->context, &(struct sync_event){.type = SYNC_EV_OVERTAKEN, .fragment = f});
        return;
    }
    make_mean(reduce, f, version, &fragment->mean_have);
}

void reduce_begin(struct reduce *reduce, uint32_t f, uint64_t version, const struct bitset *have)
{
    reduce->fragments[f].mean_waits = version;
    reduce->fragments[f].mean_have = *have;
    reduce->fragments[f].mean_epoch = reduce->context->conf.view->epoch;
    try_mean(reduce, f);
}

/* ---- our result into the ledger ---- */

static enum err run_store(struct job *job, struct jobs_scratch *scratch)
{
    struct store_job *j = (struct store_job *)(void *)job;
    struct ledger *ledger = j->reduce->context->conf.ledger;
    struct wire_object what;
    (void)scratch;
    TRY(wire_object_peek(j->slot->data, j->slot->bytes, &what));
    struct result_id ours = wire_object_result(&what);
    /* One that we had published before our disk was lost may have come back meanwhile: then that one stands. */
    if (!results_find(ledger, &ours, &j->there))
        j->there = ours;
    j->ours = digest_equal(&j->there.digest, &ours.digest);
    if (j->ours)
        return ledger_append(ledger, &ours, j->slot->data, j->slot->bytes);
    struct result there;
    TRY(result_open(ledger, &j->there, &there));
    j->step = there.meta.step;
    result_close(&there);
    return ledger_sync(ledger);
}

/* Our result is durable; its residual moves when it is applied, which it need not be if an epoch begins. */
static void stored(struct reduce *reduce, uint32_t f, const struct store_job *j)
{
    struct round_context *context = reduce->context;
    context->fragments[f].made = j->ours ? j->there.digest : (struct digest){{0}};
    round_context_post(context, &(struct sync_event){.type = SYNC_EV_STORED,
                                                     .fragment = f,
                                                     .version = j->version,
                                                     .epoch = j->there.epoch,
                                                     .owner = j->there.owner,
                                                     .step = j->step,
                                                     .hash = j->there.digest,
                                                     .member = round_context_self(context)});
}

void reduce_unread(struct reduce *reduce, uint32_t f)
{
    try_mean(reduce, f);
}

static void done_store(struct job *job)
{
    struct store_job *j = (struct store_job *)(void *)job;
    struct reduce *reduce = j->reduce;
    struct reduce_fragment *fragment = &reduce->fragments[j->f];
    uint32_t f = j->f;
    bool there = fragment->made_version == j->version; /* else the next one is being made in its place */
    if (there)
        j->slot->busy = false;
    if (job->err != ERR_OK) {
        round_context_round_refused(reduce->context, j->slot->bytes, job->text);
        fragment->store_again_ms = there ? reduce->context->now_ms + STORE_AGAIN_MS : 0;
    } else {
        round_context_disk_works(reduce->context);
        fragment->store_again_ms = 0;
        j->slot->epoch = j->there.epoch;
        j->slot->version = there && j->ours ? j->version : 0; /* another one that stands is sent from the ledger */
        stored(reduce, f, j);
    }
    job_pool_give(&reduce->stores, j);
    round_context_use_end(reduce->context, f);
}

void reduce_store(struct reduce *reduce, uint32_t f, uint64_t version)
{
    struct round_context *context = reduce->context;
    struct store_job *j = round_context_job(context, &reduce->stores);
    if (j == NULL)
        return;
    j->reduce = reduce;
    j->f = f;
    j->version = version;
    j->slot = slots_own(context->conf.slots, f);
    j->step = reduce->fragments[f].made_step;
    j->slot->busy = true;
    round_context_use_begin(context, f);
    round_context_submit(context, &j->job, JOBS_STORE, run_store, done_store);
}

void reduce_tick(struct reduce *reduce)
{
    for (uint32_t f = 0; f < round_context_fragments(reduce->context); f++) {
        struct reduce_fragment *fragment = &reduce->fragments[f];
        if (fragment->store_again_ms == 0 || reduce->context->now_ms < fragment->store_again_ms)
            continue;
        fragment->store_again_ms = 0;
        reduce_store(reduce, f, fragment->made_version);
    }
}
