/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rounds/install.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "common/log.h"
#include "common/mem.h"
#include "common/quota.h"
#include "daemon/rounds/apply.h"
#include "daemon/rounds/recover.h"
#include "daemon/state/state_object.h"

/* A state that came in, or the one that our own disk leads to. */
struct install_job {
    struct job job;
    struct install *install;
    struct wire_key key; /* fragment and version, if it is our own */
    uint32_t peer;
    bool own;
    uint64_t bytes;
    bool expects; /* `hash` is what the peer announced */
    struct digest hash;
    struct certificate_rule rule; /* who has to certify it */
    uint32_t excused;
    struct store_fragment state; /* out */
};

/* Where our disk leads. */
struct replay_job {
    struct job job;
    struct install *install;
    uint32_t f;
    uint64_t version;
    struct store_fragment state; /* out */
};

struct install {
    struct round_context *context;
    struct keep *keep;
    struct install_job **waits; /* [fragments]: one that waits until nobody reads the anchor */
    struct install_job **kept;  /* [fragments]: one that is on its way to the disk */
    struct job_pool jobs, replays;
    struct quota lines[VIEW_SLOTS_MAX]; /* in the log, about what a member sends */
};

enum err install_new(struct round_context *context, struct keep *keep, struct install **out)
{
    TRY(mem_new(1, sizeof **out, "rounds", out));
    (*out)->context = context;
    (*out)->keep = keep;
    (*out)->jobs.job_bytes = sizeof(struct install_job);
    (*out)->replays.job_bytes = sizeof(struct replay_job);
    TRY(mem_new(round_context_fragments(context), sizeof *(*out)->kept, "rounds", &(*out)->kept));
    return mem_new(round_context_fragments(context), sizeof *(*out)->waits, "rounds", &(*out)->waits);
}

void install_free(struct install *install)
{
    if (install == NULL)
        return;
    job_pool_deinit(&install->jobs);
    job_pool_deinit(&install->replays);
    mem_free(install->waits);
    mem_free(install->kept);
    mem_free(install);
}

static enum err run_install(struct job *job, struct jobs_scratch *scratch)
{
    struct install_job *j = (struct install_job *)(void *)job;
    const struct rounds_conf *conf = &j->install->context->conf;
    (void)scratch;
    const struct state_expected expected = {.version = j->key.version,
                                            .steps = atomic_load(&j->install->context->steps_most),
                                            .nonce = conf->nonce,
                                            .rule = &j->rule,
                                            .excused = j->excused,
                                            .hash = j->expects ? &j->hash : NULL};
    return state_object_install(conf->replica, conf->plan->plan, j->key.fragment, &expected,
                                slots_state(conf->slots, j->key.fragment), j->bytes, &j->state);
}

/* The core hears of it. */
static void tell_installed(const struct install_job *j)
{
    struct round_context *context = j->install->context;
    uint32_t f = j->key.fragment;
    if (!j->own)
        round_context_judged(context, j->peer, &j->key, WIRE_RECEIVED);
    round_context_post(context, &(struct sync_event){.type = SYNC_EV_INSTALLED,
                                                     .fragment = f,
                                                     .version = j->state.version,
                                                     .step = j->state.step,
                                                     .hash = j->state.hash});
    apply_post_listed(context, f);
}

static void installed(const struct install_job *j)
{
    struct round_context *context = j->install->context;
    uint32_t f = j->key.fragment;
    struct round_context_fragment *fragment = &context->fragments[f];
    /* What of ours on its way the state counts: the very contribution, or one that we do not know any more. */
    uint64_t counted =
        dedup_since(replica_counted(context->conf.replica, f), round_context_id(context), fragment->state.version) &
        round_context_in_flight(context, f, fragment->state.version);
    fragment->state = j->state;
    replica_clear_residuals(context->conf.replica, f);
    round_context_counted(context, f, true);
    if (!j->own) /* the ledger does not lead here from any earlier checkpoint */
        keep_on_disk(j->install->keep, f, KEEP_NONE);
    if (counted != 0)
        event_post(
            context->conf.events,
            &(struct event){.type = EVENT_COUNTED, .fragment = f, .version = j->state.version, .shards = counted});
}

/* Of a state from elsewhere nothing leads to it on our disk: what we acknowledge on top of it would be gone with it. */
static void keep_first(struct install_job *j)
{
    struct install *install = j->install;
    uint32_t f = j->key.fragment;
    if (install->kept[f] != NULL) /* a newer one, while the disk stood: the core hears of this one alone */
        job_pool_give(&install->jobs, install->kept[f]);
    install->kept[f] = j;
    keep_now(install->keep, f);
}

void install_on_disk(struct install *install, uint32_t f)
{
    struct install_job *j = install->kept[f];
    if (j == NULL)
        return;
    install->kept[f] = NULL;
    tell_installed(j);
    job_pool_give(&install->jobs, j);
}

static void done_install(struct job *job)
{
    struct install_job *j = (struct install_job *)(void *)job;
    struct round_context *context = j->install->context;
    uint32_t f = j->key.fragment;
    slots_free_state(context->conf.slots, f);
    if (job->err != ERR_OK) {
        if (log_line_of_one(&j->install->lines[j->peer], context->now_ms))
            log_error("the state of fragment %" PRIu32 " from island %s cannot be used: %s; asking again", f,
                      round_context_name(context, j->peer), job->text);
        round_context_judged(context, j->peer, &j->key, WIRE_REFUSED);
        round_context_post(
            context,
            &(struct sync_event){.type = SYNC_EV_NOT_AVAILABLE, .member = j->peer, .key = j->key, .fragment = f});
    } else {
        installed(j);
        keep_first(j);
        return;
    }
    job_pool_give(&j->install->jobs, j);
}

/* ---- where our own disk leads ---- */

static enum err replay(const struct round_context *context, uint32_t f, uint64_t version, bool mend,
                       struct codec *codec, struct store_fragment *state)
{
    struct replica *shadow, *replica = context->conf.replica;
    size_t bytes = (size_t)context->conf.plan->plan->fragments[f].values_count * sizeof(float);
    TRY(replica_shadow(replica, f, &shadow));
    enum err err = recover_replay(context, f, version, shadow, codec, state);
    if (err == ERR_OK && mend) {
        memcpy(replica_anchor(replica, f), replica_anchor(shadow, f), bytes);
        if (replica_momentum(replica, f) != NULL)
            memcpy(replica_momentum(replica, f), replica_momentum(shadow, f), bytes);
        err = dedup_copy(replica_counted(shadow, f), replica_counted(replica, f));
    }
    replica_free(shadow);
    return err;
}

static void unproven(struct round_context *context, uint32_t f, uint64_t version, const char *text)
{
    log_warn("fragment %" PRIu32 ": our disk does not tell whether version %" PRIu64 " is right: %s", f, version, text);
    round_context_post(context, &(struct sync_event){.type = SYNC_EV_UNPROVEN, .fragment = f, .version = version});
}

static enum err run_replay(struct job *job, struct jobs_scratch *scratch)
{
    struct replay_job *j = (struct replay_job *)(void *)job;
    return replay(j->install->context, j->f, j->version, false, scratch->codec, &j->state);
}

static void done_replay(struct job *job)
{
    struct replay_job *j = (struct replay_job *)(void *)job;
    struct round_context *context = j->install->context;
    if (job->err != ERR_OK)
        unproven(context, j->f, j->version, job->text);
    else
        round_context_post(
            context, &(struct sync_event){
                         .type = SYNC_EV_REPLAYED, .fragment = j->f, .version = j->version, .hash = j->state.hash});
    job_pool_give(&j->install->replays, j);
}

void install_replay(struct install *install, uint32_t f, uint64_t version)
{
    struct replay_job *j = round_context_job(install->context, &install->replays);
    if (j == NULL)
        return;
    j->install = install;
    j->f = f;
    j->version = version;
    round_context_submit(install->context, &j->job, JOBS_STATES, run_replay, done_replay);
}

static enum err run_repair(struct job *job, struct jobs_scratch *scratch)
{
    struct install_job *j = (struct install_job *)(void *)job;
    return replay(j->install->context, j->key.fragment, j->key.version, true, scratch->codec, &j->state);
}

static void done_repair(struct job *job)
{
    struct install_job *j = (struct install_job *)(void *)job;
    if (job->err != ERR_OK) {
        unproven(j->install->context, j->key.fragment, j->key.version, job->text);
    } else {
        installed(j);
        tell_installed(j);
    }
    job_pool_give(&j->install->jobs, j);
}

/* ---- when nobody reads the anchor ---- */

static void begin(struct install *install, struct install_job *j)
{
    uint32_t f = j->key.fragment;
    bool read = round_context_used(install->context, f) || install->context->fragments[f].readers > 0;
    install->waits[f] = read ? j : NULL;
    if (!read)
        round_context_submit(install->context, &j->job, JOBS_STATES, j->own ? run_repair : run_install,
                             j->own ? done_repair : done_install);
}

void install_state_in(struct install *install, uint32_t peer, const struct wire_key *key, uint64_t bytes, bool excused)
{
    struct round_context *context = install->context;
    struct install_job *j = round_context_job(context, &install->jobs);
    if (j == NULL) {
        round_context_judged(context, peer, key, WIRE_NOT_YET);
        return;
    }
    struct wire_standing said = sync_heard(context->conf.sync, peer, key->fragment);
    j->install = install;
    j->key = *key;
    j->peer = peer;
    j->bytes = bytes;
    j->expects = said.hash_known && said.version == key->version;
    j->hash = said.hash;
    certificate_rule_of(context->conf.parts->config_log, key->fragment, key->version, &j->rule);
    excused = excused || sync_excused(context->conf.sync, key->fragment, key->version, round_context_self(context));
    j->excused = excused ? round_context_id(context) : CERTIFICATE_NOBODY;
    begin(install, j);
}

void install_repair(struct install *install, uint32_t f, uint64_t version)
{
    struct install_job *j = round_context_job(install->context, &install->jobs);
    if (j == NULL)
        return;
    j->install = install;
    j->key = (struct wire_key){.fragment = f, .version = version};
    j->own = true;
    begin(install, j);
}

void install_unread(struct install *install, uint32_t f)
{
    if (install->waits[f] != NULL)
        begin(install, install->waits[f]);
}

bool install_waits(const struct install *install, uint32_t f)
{
    return install->waits[f] != NULL;
}
