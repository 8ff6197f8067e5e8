/* SPDX-License-Identifier: Apache-2.0 */
#include "net/config/config_deal.h"
#include "tests/lib/isle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/mem.h"
#include "common/processors.h"
#include "daemon/membership/config_store.h"
#include "daemon/membership/membership_host.h"
#include "daemon/rounds/copy.h"
#include "daemon/rules.h"
#include "tests/lib/begun.h"
#include "tests/lib/proc.h"
#include "tests/lib/testlib.h"

enum { WATCHED_MAX = 8, REST_MS = 10, POLL_MAX = 256, UPLINK = 1000000000 };

const char *const isle_names[ISLE_MAX] = {"a", "b", "c", "d"};

/* Whom isle_turn_all() looks after. */
static struct isle *isles[WATCHED_MAX];
static struct link *links[WATCHED_MAX];

/* ---- the run ---- */

struct isle_run *isle_run_new(const char *name, uint32_t count, const char *sync)
{
    struct isle_run *run = calloc(1, sizeof *run);
    assert_non_null(run);
    run->folder = testlib_folder(name);
    run->path = testlib_file(run->folder, "run.ini",
                             "[run]\nname = isle\nsteps = 1000\n[sync]\ncodec = fp32\nerror_feedback = no\n"
                             "layers_per_fragment = 1\nzstd_level = 0\n%s",
                             sync != NULL ? sync : "interval = 100\n");
    run->count = count;
    for (uint32_t i = 0; i < CONFIG_NONCE_BYTES; i++)
        run->nonce[i] = (uint8_t)env_random_u64();
    assert_ok(runspec_load(run->path, NULL, 0, &run->spec));
    for (uint32_t i = 0; i < count; i++) {
        assert_ok(ident_generate(&run->idents[i]));
        run->uplinks[i] = UPLINK;
    }
    return run;
}

void isle_run_free(struct isle_run *run)
{
    runspec_deinit(&run->spec);
    free(run);
}

static bool is_witness(const struct isle_run *run, uint32_t i)
{
    return run->witness && i == run->count - 1;
}

uint64_t isle_run_tag(const struct isle_run *run)
{
    return wire_run_tag(run->nonce, &run->spec.digest);
}

void isle_listen(struct isle_run *run, uint32_t i)
{
    unsigned port = proc_free_port();
    assert_true(port > 0);
    snprintf(run->addresses[i], sizeof run->addresses[i], "127.0.0.1:%u", port);
}

static void put_down(struct isle_run *run)
{
    struct begun_island islands[ISLE_MAX];
    char state[32], sockets[32];
    for (uint32_t i = 0; i < run->count; i++) {
        snprintf(sockets, sizeof sockets, "s-%s", isle_names[i]);
        snprintf(state, sizeof state, "state-%s", isle_names[i]);
        islands[i] = (struct begun_island){.name = isle_names[i],
                                           .address = run->addresses[i],
                                           .ident = &run->idents[i],
                                           .uplink = run->uplinks[i],
                                           .witness = is_witness(run, i),
                                           .sockets = run->disks_named ? testlib_path(run->folder, sockets) : NULL,
                                           .state = testlib_path(run->folder, state)};
    }
    assert_ok(begun_at_once(islands, run->count, &run->spec, run->nonce));
    run->begun = true;
}

const char *isle_conf(struct isle_run *run, uint32_t i)
{
    char reach[256] = "", name[16];
    const char *own = isle_names[i];
    if (!run->begun)
        put_down(run);
    for (uint32_t k = 0; k < run->count; k++)
        if (k != i && run->addresses[k][0] != '\0')
            snprintf(reach + strlen(reach), sizeof reach - strlen(reach), " %s=%s", isle_names[k], run->addresses[k]);
    snprintf(name, sizeof name, "%s.key", own);
    const char *key = testlib_path(run->folder, name);
    unlink(key);
    assert_ok(ident_save(&run->idents[i], key));
    snprintf(name, sizeof name, "%s.conf", own);
    return testlib_file(
        run->folder, name,
        "[island]\nname = %s\nrun = run.ini\nkey = %s.key\nstate = state-%s\nsockets = s-%s\n"
        "witness = %s\n[net]\nlisten = %s\nreach =%s\nuplink = %llubit\nio_threads = 1\n[worker]\nprogram =\n"
        "[storage]\njobs = 1\n",
        own, own, own, own, is_witness(run, i) ? "yes" : "no", run->addresses[i], reach,
        (unsigned long long)run->uplinks[i]);
}

/* ---- the parts ---- */

static enum err open_link(struct isle *isle)
{
    const struct link_conf conf = {.ident = &isle->run->idents[isle->self],
                                   .listen = isle->conf.listen,
                                   .run_tag = wire_run_tag(isle->configs.view.nonce, &isle->run->spec.digest),
                                   .rate_limit = isle->conf.rate_limit,
                                   .congestion = isle->conf.congestion,
                                   .io_threads = (int)isle->conf.io_threads};
    return link_new(&conf, &isle->link);
}

static enum err open_objects(struct isle *isle)
{
    const struct objects_conf conf = {.spec = &isle->run->spec,
                                      .view = &isle->configs.view,
                                      .config_log = isle->configs.config_log,
                                      .events = isle->events,
                                      .trainer = isle->trainer,
                                      .link = isle->link,
                                      .rate_limit = isle->conf.rate_limit};
    return objects_new(&conf, &isle->objects);
}

static enum err open_membership(struct isle *isle)
{
    const struct membership_host_conf conf = {.folder = isle->conf.state_folder,
                                              .spec = &isle->run->spec,
                                              .view = &isle->configs.view,
                                              .config_log = isle->configs.config_log,
                                              .keyring = &isle->keyring,
                                              .vote = isle->vote,
                                              .events = isle->events,
                                              .jobs = isle->jobs,
                                              .link = isle->link,
                                              .trainer = isle->trainer,
                                              .start_ms = isle->now_ms};
    TRY(membership_host_new(&conf, &isle->host));
    isle->membership = membership_host_membership(isle->host);
    return ERR_OK;
}

static enum err open_peers(struct isle *isle, uint64_t session)
{
    const struct peers_conf conf = {.conf = &isle->conf,
                                    .spec = &isle->run->spec,
                                    .view = &isle->configs.view,
                                    .config_log = isle->configs.config_log,
                                    .vote = isle->vote,
                                    .link = isle->link,
                                    .objects = isle->objects,
                                    .host = isle->host,
                                    .events = isle->events,
                                    .trainer = isle->trainer,
                                    .session = session,
                                    .start_ms = isle->now_ms};
    return peers_new(&conf, &isle->peers);
}

enum err isle_open_islands(struct isle *isle, uint64_t session)
{
    enum err err = open_link(isle);
    if (err == ERR_OK)
        err = open_objects(isle);
    if (err == ERR_OK)
        err = open_membership(isle);
    if (err == ERR_OK)
        err = open_peers(isle, session);
    if (err != ERR_OK)
        isle_close_islands(isle);
    return err;
}

void isle_close_islands(struct isle *isle)
{
    peers_free(isle->peers);
    membership_host_free(isle->host);
    objects_free(isle->objects);
    link_free(isle->link);
    isle->peers = NULL;
    isle->host = NULL;
    isle->membership = NULL;
    isle->objects = NULL;
    isle->link = NULL;
}

struct status_conf isle_status_conf(const struct isle *isle)
{
    return (struct status_conf){.conf = &isle->conf,
                                .spec = &isle->run->spec,
                                .view = &isle->configs.view,
                                .configs = &isle->configs,
                                .vote = isle->vote,
                                .ledger = isle->ledger,
                                .link = isle->link,
                                .objects = isle->objects,
                                .host = isle->host,
                                .membership = isle->membership,
                                .peers = isle->peers,
                                .trainer = isle->trainer,
                                .plan = isle->plan,
                                .sync = isle->sync,
                                .rounds = isle->rounds,
                                .replica = isle->replica,
                                .parts = &isle->parts};
}

/* Its mark lies where the sockets do. A disk of a test is not in doubt, unless that is what the test is about. */
static void open_vote(struct isle *isle)
{
    char mark[400];
    snprintf(mark, sizeof mark, "%s/vote.mark", isle->conf.run_folder);
    struct vote_conf conf = {.folder = isle->conf.state_folder, .mark = mark};
    assert_ok(fsio_mkdirs(isle->conf.run_folder, 0755));
    assert_ok(vote_open(&conf, ledger_at(isle->ledger), &isle->vote));
    if (!isle->run->doubt && vote_doubt(isle->vote) != VOTE_SURE)
        assert_ok(vote_settle(isle->vote, isle->configs.view.members[isle->configs.view.self].as.incarnation, 0));
}

static void open_parts(struct isle *isle)
{
    struct ledger_conf ledger = {.folder = isle->conf.state_folder,
                                 .run_id = isle->run->spec.digest,
                                 .nonce = isle->configs.view.nonce,
                                 .segment_bytes = isle->conf.ledger_segment,
                                 .keep_bytes = isle->conf.ledger_keep};
    struct trainer_conf trainer = {
        .conf = &isle->conf, .spec = &isle->run->spec, .view = &isle->configs.view, .start_ms = isle->now_ms};
    assert_ok(events_new(&isle->events));
    assert_ok(ledger_open(&ledger, &isle->ledger));
    open_vote(isle);
    const struct jobs_conf jobs = {.threads = processors_jobs(isle->conf.job_threads)};
    assert_ok(jobs_new(&jobs, &isle->jobs));
    trainer.events = isle->events;
    assert_ok(trainer_new(&trainer, &isle->trainer));
    assert_ok(isle_open_islands(isle, 1000 + isle->self + 100 * isle->run->opened[isle->self]++));
}

struct isle *isle_open(struct isle_run *run, uint32_t self, const struct conf_override *overrides,
                       size_t overrides_count)
{
    struct isle *isle = calloc(1, sizeof *isle);
    assert_non_null(isle);
    isle->run = run;
    isle->self = self;
    isle->now_ms = 1000000;
    isle->seen = calloc(ISLE_SEEN_MAX, sizeof *isle->seen);
    isle->beats = calloc(ISLE_BEATS_MAX, sizeof *isle->beats);
    assert_true(isle->seen != NULL && isle->beats != NULL);
    assert_ok(dconf_load(isle_conf(run, self), overrides, overrides_count, &isle->conf));
    isle->keyring.ident = run->idents[self];
    assert_ok(config_store_open(&isle->conf, &isle->keyring, &run->spec, &isle->configs));
    open_parts(isle);
    for (size_t i = 0; i < WATCHED_MAX; i++)
        if (isles[i] == NULL) {
            isles[i] = isle;
            return isle;
        }
    fail_msg("more than %d islands at a time", WATCHED_MAX);
    return NULL;
}

void isle_close(struct isle *isle)
{
    for (size_t i = 0; i < WATCHED_MAX; i++)
        if (isles[i] == isle)
            isles[i] = NULL;
    jobs_free(isle->jobs);
    isle_close_islands(isle);
    certificates_free(isle->certificates);
    trainer_free(isle->trainer);
    rounds_free(isle->rounds);
    sync_free(isle->sync);
    slots_free(isle->slots);
    replica_free(isle->replica);
    model_plan_free(isle->plan);
    ledger_close(isle->ledger);
    events_free(isle->events);
    vote_close(isle->vote);
    config_store_close(&isle->configs);
    conf_deinit(&dconf_schema, &isle->conf);
    free(isle->seen);
    free(isle->beats);
    free(isle);
}

/* ---- the plan ---- */

struct model_plan *isle_model_plan(const struct isle_run *run)
{
    struct ipc_tensor tensors[1 + ISLE_LAYERS];
    struct model_plan *plan;
    tensors[0] = (struct ipc_tensor){.name = "embed", .dims = 2, .layer = -1, .shape = {ISLE_LARGE_VALUES / 64, 64}};
    for (int i = 0; i < ISLE_LAYERS; i++) {
        tensors[1 + i] = (struct ipc_tensor){.dims = 2, .layer = i, .shape = {ISLE_SMALL_VALUES / 64, 64}};
        snprintf(tensors[1 + i].name, sizeof tensors[1 + i].name, "layers.%d.weight", i);
    }
    assert_ok(model_plan_new(&run->spec, tensors, 1 + ISLE_LAYERS, &plan));
    assert_int_equal(plan->plan->fragments_count, ISLE_FRAGMENTS);
    return plan;
}

static void make_sync(struct isle *isle)
{
    bool votes = membership_votes(isle->membership);
    for (uint32_t f = 0; f < ISLE_FRAGMENTS; f++)
        isle->shards_counts[f] = isle->plan->plan->fragments[f].shards_count;
    struct sync_conf conf = {.config_log = isle->configs.config_log,
                             .fragments_count = ISLE_FRAGMENTS,
                             .shards_counts = isle->shards_counts,
                             .rule = {.quorum = (uint32_t)isle->run->spec.quorum, .grace_ms = isle->run->spec.grace_ms},
                             .view = config_store_sync_view(&isle->configs, votes)};
    assert_ok(sync_new(&conf, &isle->sync));
}

static void make_rounds(struct isle *isle)
{
    struct rounds_conf conf = {.spec = &isle->run->spec,
                               .view = &isle->configs.view,
                               .ident = &isle->run->idents[isle->self],
                               .nonce = isle->configs.view.nonce,
                               .plan = isle->plan,
                               .parts = &isle->parts,
                               .folder = isle->conf.state_folder,
                               .save_evidence = config_store_save_evidence,
                               .compress_auto = isle->conf.compress_auto,
                               .replica = isle->replica,
                               .ledger = isle->ledger,
                               .slots = isle->slots,
                               .jobs = isle->jobs,
                               .events = isle->events,
                               .sync = isle->sync};
    assert_ok(rounds_new(&conf, &isle->rounds));
}

static void make_certificates(struct isle *isle)
{
    const struct view *view = &isle->configs.view;
    const struct certificates_conf conf = {.config_log = isle->configs.config_log,
                                           .ident = &isle->run->idents[isle->self],
                                           .nonce = view->nonce,
                                           .id = view->members[view->self].as.id,
                                           .fragments_count = ISLE_FRAGMENTS};
    assert_ok(certificates_new(&conf, &isle->certificates));
}

void isle_make_plan(struct isle *isle)
{
    struct isle_run *run = isle->run;
    isle->plan = isle_model_plan(run);
    struct replica_conf replica = {
        .plan = isle->plan->plan, .outer = rules_outer(&run->spec), .choice = rules_codec(&run->spec)};
    isle->parts = (struct parts){.plan = isle->plan->plan, .config_log = isle->configs.config_log};
    assert_ok(events_reserve(isle->events, ISLE_FRAGMENTS, run->count));
    if (is_witness(run, isle->self)) {
        make_sync(isle);
        return;
    }
    assert_ok(replica_new(&replica, &isle->replica));
    struct slots_conf slots = {
        .replica = isle->replica, .fragments_count = ISLE_FRAGMENTS, .members_count = run->count};
    assert_ok(slots_new(&slots, &isle->slots));
    make_sync(isle);
    make_rounds(isle);
    make_certificates(isle);
}

enum err isle_tell_plan(struct isle *isle)
{
    const struct transfer_plan plan = {.plan = isle->plan,
                                       .replica = isle->replica,
                                       .parts = &isle->parts,
                                       .ledger = isle->ledger,
                                       .slots = isle->slots,
                                       .sync = isle->sync,
                                       .shards_counts = isle->shards_counts,
                                       .rounds = isle->rounds,
                                       .certificates = isle->certificates};
    TRY(objects_plan_known(isle->objects, &plan));
    TRY(membership_host_plan_known(isle->host, isle->sync, ISLE_FRAGMENTS, isle->shards_counts));
    return peers_plan_known(isle->peers, &plan);
}

void isle_know_plan(struct isle *isle)
{
    isle_make_plan(isle);
    struct trainer_plan trainer = {.plan = isle->plan, .replica = isle->replica, .sync = isle->sync};
    if (!is_witness(isle->run, isle->self))
        trainer_plan_known(isle->trainer, &trainer);
    assert_ok(isle_tell_plan(isle));
}

/* ---- epochs ---- */

/* What the core orders of transfer and peers. */
static void carry_out(struct isle *isle)
{
    struct sync_action action;
    while (sync_action(isle->sync, &action)) {
        if (action.type == SYNC_DO_SEND)
            objects_send(isle->objects, &action.key, action.member, isle->now_ms);
        else if (action.type == SYNC_DO_FETCH)
            objects_fetch(isle->objects, &action.key, action.member);
        else if (action.type == SYNC_DO_RETIRE)
            objects_retire(isle->objects, action.fragment, action.version);
        else if (action.type == SYNC_DO_ANNOUNCE)
            peers_announce(isle->peers);
    }
}

struct config isle_next_config(const struct isle *isle)
{
    struct config config;
    assert_ok(config_copy(config_log_last(isle->configs.config_log), &config));
    config.epoch++;
    config.previous = *config_log_last_digest(isle->configs.config_log);
    config.carried_count = config.orders_count = config.words_count = 0;
    return config;
}

void isle_set_owners(struct config *config, const uint32_t *ids, uint32_t count, enum config_role role)
{
    struct shardmap_owner owners[ISLE_MAX];
    for (uint32_t i = 0; i < config->members_count; i++) {
        struct config_member *member = &config->members[i];
        bool owner = false;
        for (uint32_t k = 0; k < count; k++)
            owner |= ids[k] == member->id;
        if (owner || member->role == CONFIG_OWNER) {
            member->role = (uint8_t)(owner ? CONFIG_OWNER : role);
            member->voter = owner;
        }
    }
    for (uint32_t k = 0; k < count; k++)
        owners[k] = (struct shardmap_owner){.id = ids[k], .weight = 1};
    shardmap_assign(&config->map, owners, count);
}

/* A slot may be given anew at once: nobody else has anything there. */
static void release(struct isle *isle, const struct view_changes *changes)
{
    for (uint32_t i = 0; i < isle->configs.view.count; i++)
        if (bitset_has(&changes->removed, i))
            view_release(&isle->configs.view, i);
}

void isle_adopt(struct isle *isle, struct config *config)
{
    uint8_t *bytes;
    size_t count;
    struct view_changes changes;
    config_deal_next(config_log_last(isle->configs.config_log), 0, config);
    assert_ok(config_pack(config, &bytes, &count));
    struct digest digest = config_digest(bytes, count);
    mem_free(bytes);
    assert_ok(config_store_adopt(&isle->configs, config, &digest, &changes));
    assert_ok(objects_members(isle->objects, &changes));
    assert_ok(peers_members(isle->peers, &changes));
    if (isle->sync != NULL) {
        struct sync_view view = config_store_sync_view(&isle->configs, membership_votes(isle->membership));
        if (isle->rounds != NULL)
            assert_ok(rounds_members(isle->rounds, isle->configs.view.count));
        assert_ok(sync_begin_epoch(isle->sync, &view, isle->now_ms));
        carry_out(isle);
    }
    release(isle, &changes);
    if (isle->certificates != NULL)
        certificates_begin_epoch(isle->certificates);
    assert_ok(membership_host_begin(isle->host, isle->now_ms));
}

/* ---- events ---- */

void isle_step(struct isle *isle, const struct sync_event *event)
{
    sync_step(isle->sync, event, isle->now_ms);
    carry_out(isle);
}

static void take_epoch(struct isle *isle)
{
    struct config config;
    struct digest digest;
    if (!membership_take(isle->membership, &config, &digest))
        return;
    isle_adopt(isle, &config);
    assert_true(digest_equal(&digest, config_log_last_digest(isle->configs.config_log)));
    config_deinit(&config);
}

/* Takes out what was posted, as the engine does after each thing that happened. */
static void collect(struct isle *isle)
{
    struct event event;
    while (event_take(isle->events, &event)) {
        if (isle->engine && event.type == EVENT_SYNC && isle->sync != NULL)
            isle_step(isle, &event.sync);
        if (isle->engine && event.type == EVENT_EPOCH)
            take_epoch(isle);
        if (event.type == EVENT_KEPT)
            membership_host_kept(isle->host, isle->now_ms);
        if (event.type == EVENT_SERVE_STATE)
            copy_serve(isle->rounds->copy, event.server.served);
        if (event.type == EVENT_STATE_SERVED)
            objects_state_served(isle->objects, event.server.served, event.server.err, isle->now_ms);
        if (event.type == EVENT_SYNC && event.sync.type == SYNC_EV_HEARTBEAT) {
            struct wire_heartbeat *copy = &isle->beats[isle->beats_count++ % ISLE_BEATS_MAX];
            *copy = *event.sync.beat;
            event.sync.beat = copy;
        }
        assert_true(isle->seen_count < ISLE_SEEN_MAX);
        isle->seen[(isle->seen_head + isle->seen_count++) % ISLE_SEEN_MAX] = event;
    }
}

static void flush(struct isle *isle)
{
    peers_flush(isle->peers, isle->now_ms);
    membership_host_look(isle->host, isle->now_ms);
    objects_flush(isle->objects, isle->now_ms);
}

void isle_turn(struct isle *isle)
{
    while (jobs_take_back(isle->jobs))
        collect(isle);
    while (trainer_take(isle->trainer, isle->now_ms))
        collect(isle);
    peers_look(isle->peers, isle->now_ms);
    while (peers_take(isle->peers, isle->now_ms))
        collect(isle);
    collect(isle);
    flush(isle);
}

void isle_tick(struct isle *isle)
{
    peers_tick(isle->peers, isle->uplink_bits, isle->now_ms);
    struct bitset holders = peers_plan_holders(isle->peers);
    objects_tick(isle->objects, &holders, isle->now_ms);
    membership_host_tick(isle->host, peers_silent(isle->peers), peers_shut_out(isle->peers), isle->now_ms);
    collect(isle);
    trainer_tick(isle->trainer, isle->now_ms, true, &(struct run_end_found){.end = RUN_OVER});
    collect(isle);
    if (isle->rounds != NULL)
        rounds_tick(isle->rounds, isle->now_ms, 0, UINT64_MAX);
    collect(isle);
    flush(isle);
}

bool isle_took(struct isle *isle, enum event_type type, struct event *out)
{
    collect(isle);
    while (isle->seen_count > 0) {
        *out = isle->seen[isle->seen_head];
        isle->seen_head = (isle->seen_head + 1) % ISLE_SEEN_MAX;
        isle->seen_count--;
        if (out->type == type)
            return true;
    }
    return false;
}

bool isle_took_sync(struct isle *isle, enum sync_event_type type, struct event *out)
{
    while (isle_took(isle, EVENT_SYNC, out))
        if (out->sync.type == type)
            return true;
    return false;
}

/* ---- waiting ---- */

void isle_watch(struct link *link)
{
    for (size_t i = 0; i < WATCHED_MAX; i++)
        if (links[i] == NULL) {
            links[i] = link;
            return;
        }
    fail_msg("more than %d links at a time", WATCHED_MAX);
}

void isle_unwatch(struct link *link)
{
    for (size_t i = 0; i < WATCHED_MAX; i++)
        if (links[i] == link)
            links[i] = NULL;
}

static size_t add_fds(const struct isle *isle, zmq_pollitem_t *items)
{
    struct pollfd fds[8] = {{.fd = jobs_fd(isle->jobs), .events = POLLIN}};
    size_t count = 1 + trainer_poll(isle->trainer, fds + 1, 7);
    for (size_t i = 0; i < count; i++)
        items[i] = (zmq_pollitem_t){.fd = fds[i].fd, .events = ZMQ_POLLIN};
    return count;
}

void isle_turn_all(void)
{
    zmq_pollitem_t items[POLL_MAX];
    struct link_event event;
    size_t count = 0;
    for (size_t i = 0; i < WATCHED_MAX; i++) {
        if (isles[i] != NULL) {
            count += link_poll_items(isles[i]->link, items + count, POLL_MAX / WATCHED_MAX);
            count += add_fds(isles[i], items + count);
        }
        if (links[i] != NULL)
            count += link_poll_items(links[i], items + count, POLL_MAX / WATCHED_MAX);
    }
    zmq_poll(items, (int)count, REST_MS);
    for (size_t i = 0; i < WATCHED_MAX; i++) {
        if (isles[i] != NULL)
            isle_turn(isles[i]);
        if (links[i] == NULL)
            continue;
        link_tick(links[i]);
        while (link_event(links[i], &event)) {
        }
    }
}
