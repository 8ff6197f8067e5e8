/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rounds/install.h"

#include <inttypes.h>
#include <string.h>

#include "common/mem.h"
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
    struct vouch_rule rule; /* who has to vouch for it */
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
    struct desk *desk;
    struct keep *keep;
    struct install_job **waits; /* [fragments]: one that waits until nobody reads the anchor */
    struct job_pool jobs, replays;
};

enum err install_new(struct desk *desk, struct keep *keep, struct install **out)
{
    TRY(mem_new(1, sizeof **out, "rounds", out));
    (*out)->desk = desk;
    (*out)->keep = keep;
    (*out)->jobs.job_bytes = sizeof(struct install_job);
    (*out)->replays.job_bytes = sizeof(struct replay_job);
    return mem_new(desk_fragments(desk), sizeof *(*out)->waits, "rounds", &(*out)->waits);
}

void install_free(struct install *install)
{
    if (install == NULL)
        return;
    job_pool_deinit(&install->jobs);
    job_pool_deinit(&install->replays);
    mem_free(install->waits);
    mem_free(install);
}

static enum err run_install(struct job *job, struct jobs_scratch *scratch)
{
    struct install_job *j = (struct install_job *)(void *)job;
    const struct rounds_conf *conf = &j->install->desk->conf;
    (void)scratch;
    const struct state_expected expected = {.version = j->key.version,
                                            .steps = (uint64_t)conf->spec->steps,
                                            .nonce = conf->nonce,
                                            .rule = &j->rule,
                                            .excused = j->excused,
                                            .hash = j->expects ? &j->hash : NULL};
    return state_object_install(conf->replica, conf->plan->plan, j->key.fragment, &expected,
                                slots_state(conf->slots, j->key.fragment), j->bytes, &j->state);
}

static void installed(const struct install_job *j)
{
    struct desk *desk = j->install->desk;
    uint32_t f = j->key.fragment;
    struct desk_fragment *fragment = &desk->fragments[f];
    /* What of ours on its way the state counts: the very contribution, or one that we do not know any more. */
    uint64_t counted = counted_since(replica_counted(desk->conf.replica, f), desk_id(desk), fragment->state.version) &
                       desk_in_flight(desk, f, fragment->state.version);
    fragment->state = j->state;
    replica_clear_residuals(desk->conf.replica, f);
    if (!j->own) /* the ledger does not lead here from any earlier checkpoint */
        keep_on_disk(j->install->keep, f, KEEP_NONE);
    if (counted != 0)
        event_post(
            desk->conf.events,
            &(struct event){.type = EVENT_COUNTED, .fragment = f, .version = j->state.version, .shards = counted});
    if (!j->own)
        desk_judged(desk, j->peer, &j->key, WIRE_RECEIVED);
    desk_post(desk, &(struct sync_event){
                        .type = SYNC_EV_INSTALLED, .fragment = f, .version = j->state.version, .hash = j->state.hash});
    apply_post_held(desk, f);
}

static void done_install(struct job *job)
{
    struct install_job *j = (struct install_job *)(void *)job;
    struct desk *desk = j->install->desk;
    uint32_t f = j->key.fragment;
    slots_free_state(desk->conf.slots, f);
    if (job->err != ERR_OK) {
        log_error("the state of fragment %" PRIu32 " from island %s cannot be used: %s; asking again", f,
                  desk_name(desk, j->peer), job->text);
        desk_judged(desk, j->peer, &j->key, WIRE_REFUSED);
        desk_post(desk,
                  &(struct sync_event){.type = SYNC_EV_NOT_AVAILABLE, .member = j->peer, .key = j->key, .fragment = f});
    } else {
        installed(j);
    }
    job_pool_give(&j->install->jobs, j);
}

/* ---- where our own disk leads ---- */

static enum err replay(const struct desk *desk, uint32_t f, uint64_t version, bool mend, struct codec *codec,
                       struct store_fragment *state)
{
    struct replica *shadow, *replica = desk->conf.replica;
    size_t bytes = (size_t)desk->conf.plan->plan->fragments[f].values_count * sizeof(float);
    TRY(replica_shadow(replica, f, &shadow));
    enum err err = recover_replay(desk, f, version, shadow, codec, state);
    if (err == ERR_OK && mend) {
        memcpy(replica_anchor(replica, f), replica_anchor(shadow, f), bytes);
        if (replica_momentum(replica, f) != NULL)
            memcpy(replica_momentum(replica, f), replica_momentum(shadow, f), bytes);
        err = counted_copy(replica_counted(shadow, f), replica_counted(replica, f));
    }
    replica_free(shadow);
    return err;
}

static void unproven(struct desk *desk, uint32_t f, uint64_t version, const char *text)
{
    log_warn("fragment %" PRIu32 ": our disk does not tell whether version %" PRIu64 " is right: %s", f, version, text);
    desk_post(desk, &(struct sync_event){.type = SYNC_EV_UNPROVEN, .fragment = f, .version = version});
}

static enum err run_replay(struct job *job, struct jobs_scratch *scratch)
{
    struct replay_job *j = (struct replay_job *)(void *)job;
    return replay(j->install->desk, j->f, j->version, false, scratch->codec, &j->state);
}

static void done_replay(struct job *job)
{
    struct replay_job *j = (struct replay_job *)(void *)job;
    struct desk *desk = j->install->desk;
    if (job->err != ERR_OK)
        unproven(desk, j->f, j->version, job->text);
    else
        desk_post(desk, &(struct sync_event){
                            .type = SYNC_EV_REPLAYED, .fragment = j->f, .version = j->version, .hash = j->state.hash});
    job_pool_give(&j->install->replays, j);
}

void install_replay(struct install *install, uint32_t f, uint64_t version)
{
    struct replay_job *j = desk_job(install->desk, &install->replays);
    if (j == NULL)
        return;
    j->install = install;
    j->f = f;
    j->version = version;
    desk_submit(install->desk, &j->job, JOBS_STATES, run_replay, done_replay);
}

static enum err run_mend(struct job *job, struct jobs_scratch *scratch)
{
    struct install_job *j = (struct install_job *)(void *)job;
    return replay(j->install->desk, j->key.fragment, j->key.version, true, scratch->codec, &j->state);
}

static void done_mend(struct job *job)
{
    struct install_job *j = (struct install_job *)(void *)job;
    if (job->err != ERR_OK)
        unproven(j->install->desk, j->key.fragment, j->key.version, job->text);
    else
        installed(j);
    job_pool_give(&j->install->jobs, j);
}

/* ---- when nobody reads the anchor ---- */

static void begin(struct install *install, struct install_job *j)
{
    uint32_t f = j->key.fragment;
    bool read = desk_used(install->desk, f) || install->desk->fragments[f].readers > 0;
    install->waits[f] = read ? j : NULL;
    if (!read)
        desk_submit(install->desk, &j->job, JOBS_STATES, j->own ? run_mend : run_install,
                    j->own ? done_mend : done_install);
}

void install_state_in(struct install *install, uint32_t peer, const struct wire_key *key, uint64_t bytes)
{
    struct desk *desk = install->desk;
    struct install_job *j = desk_job(desk, &install->jobs);
    if (j == NULL) {
        desk_judged(desk, peer, key, WIRE_NOT_YET);
        return;
    }
    struct wire_standing said = sync_heard(desk->conf.sync, peer, key->fragment);
    j->install = install;
    j->key = *key;
    j->peer = peer;
    j->bytes = bytes;
    j->expects = said.hash_known && said.version == key->version;
    j->hash = said.hash;
    vouch_rule_of(desk->conf.parts->chain, key->fragment, key->version, &j->rule);
    j->excused =
        sync_excused(desk->conf.sync, key->fragment, key->version, desk_self(desk)) ? desk_id(desk) : VOUCH_NOBODY;
    begin(install, j);
}

void install_mend(struct install *install, uint32_t f, uint64_t version)
{
    struct install_job *j = desk_job(install->desk, &install->jobs);
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
