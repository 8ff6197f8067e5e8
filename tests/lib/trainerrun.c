/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/trainerrun.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/mem.h"
#include "daemon/rules.h"
#include "daemon/state/results.h"
#include "net/transport/ident.h"
#include "net/transport/wire_object.h"
#include "tests/lib/roster.h"
#include "tests/lib/shares.h"
#include "tests/lib/testlib.h"

const struct ipc_tensor trainerrun_tensors[TRAINERRUN_TENSORS] = {
    {.name = "embed.weight", .layer = -1, .dims = 2, .shape = {5, 300}},  /* 6 blocks of fragment 0 */
    {.name = "norm.weight", .layer = -1, .dims = 1, .shape = {100}},      /* and 1 */
    {.name = "layers.0.weight", .layer = 0, .dims = 1, .shape = {200}},   /* 1 block: fragment 1 */
    {.name = "layers.1.weight", .layer = 1, .dims = 2, .shape = {2, 250}} /* 2 blocks: fragment 2 */
};

enum { INTERVAL = 6, TEXT_MAX = 2048, OBJECT_MAX = 4096 };

/* ---- set-up ---- */

static void read_spec(struct trainerrun *run, const char *lines)
{
    char text[TEXT_MAX];
    snprintf(text, sizeof text,
             "[run]\nname = small\nsteps = %d\n"
             "[sync]\ninterval = %d\npattern = sequential\nlayers_per_fragment = 1\ncodec = fp32\n%s",
             TRAINERRUN_STEPS, INTERVAL, lines);
    assert_ok(runspec_parse(text, "the small run", &run->spec));
}

/* Ana, bob, who we are, and cyd; or bob alone. All own shards; bob's word is enough for a result to count. */
static void make_view(struct trainerrun *run, uint32_t islands)
{
    static const char *const three[TRAINERRUN_ISLANDS] = {"ana", "bob", "cyd"}, *const one[] = {"bob"};
    static const uint64_t weights[TRAINERRUN_ISLANDS] = {1, 1, 1};
    struct ident ident[TRAINERRUN_ISLANDS];
    struct view_changes changes;
    struct config config = shares_config(weights, islands);
    uint32_t self = islands == 1 ? 0 : 1;
    for (uint32_t i = 0; i < islands; i++) {
        assert_ok(ident_generate(&ident[i]));
        snprintf(config.members[i].name, sizeof config.members[i].name, "%s", islands == 1 ? one[i] : three[i]);
        memcpy(config.members[i].key, ident[i].key, IDENT_KEY_BYTES);
        run->ids[i] = roster_id(i);
    }
    assert_ok(config_log_new(&run->config_log));
    roster_add(run->config_log, &config);
    assert_ok(view_init(NULL, 0, &run->view));
    assert_ok(view_update(&run->view, config_log_last(run->config_log), config_log_last_digest(run->config_log),
                          ident[self].key, &changes));
    assert_int_equal(run->view.self, self);
}

static void make_replica(struct trainerrun *run)
{
    struct replica_conf conf = {
        .plan = run->plan->plan, .outer = rules_outer(&run->spec), .choice = rules_codec(&run->spec)};
    run->parts = (struct parts){.plan = run->plan->plan, .config_log = run->config_log};
    assert_ok(replica_new(&conf, &run->replica));
    assert_ok(shares_cut(&run->parts, run->replica, run->view.self));
}

void trainerrun_open(struct trainerrun *run, const char *folder, uint32_t islands, const char *lines)
{
    *run = (struct trainerrun){0};
    assert_ok(digest_init());
    read_spec(run, lines);
    make_view(run, islands);
    assert_ok(model_plan_new(&run->spec, trainerrun_tensors, TRAINERRUN_TENSORS, &run->plan));
    assert_int_equal(run->plan->plan->fragments_count, TRAINERRUN_FRAGMENTS);
    make_replica(run);
    struct ledger_conf conf = {.folder = folder,
                               .run_id = run->spec.digest,
                               .nonce = run->spec.digest.byte,
                               .segment_bytes = 1 << 20,
                               .keep_bytes = 1 << 20};
    assert_ok(ledger_open(&conf, &run->ledger));
    trainerrun_new_sync(run);
}

void trainerrun_close(struct trainerrun *run)
{
    sync_free(run->sync);
    ledger_close(run->ledger);
    replica_free(run->replica);
    model_plan_free(run->plan);
    view_free(&run->view);
    config_log_free(run->config_log);
    runspec_deinit(&run->spec);
}

struct shared_conf trainerrun_shared_conf(const struct trainerrun *run)
{
    return (struct shared_conf){.spec = &run->spec, .view = &run->view, .plan = run->plan};
}

struct ipc_shm *trainerrun_map(int memfd)
{
    struct stat status;
    assert_int_equal(fstat(memfd, &status), 0);
    void *map = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    assert_true(map != MAP_FAILED);
    return map;
}

/* By the rule as the schedule's header has it, not by its code. */
uint64_t trainerrun_due(uint32_t f, uint64_t step)
{
    uint64_t due = INTERVAL + (uint64_t)f * (INTERVAL / TRAINERRUN_FRAGMENTS);
    while (due <= step)
        due += INTERVAL;
    return due;
}

/* ---- the core ---- */

void trainerrun_new_sync(struct trainerrun *run)
{
    uint32_t shards[TRAINERRUN_FRAGMENTS];
    sync_free(run->sync);
    for (uint32_t f = 0; f < TRAINERRUN_FRAGMENTS; f++)
        shards[f] = run->plan->plan->fragments[f].shards_count;
    struct sync_conf conf = {.config_log = run->config_log,
                             .fragments_count = TRAINERRUN_FRAGMENTS,
                             .shards_counts = shards,
                             .view = roster_view(run->config_log, run->view.self, run->ids, run->view.count)};
    conf.view.commit_quorum = 1;
    assert_ok(sync_new(&conf, &run->sync));
}

struct digest trainerrun_hash(uint32_t f, uint64_t version)
{
    uint64_t what[2] = {f, version};
    return digest_of(what, sizeof what);
}

void trainerrun_restore(struct trainerrun *run, uint32_t f, uint64_t version)
{
    struct digest hash = trainerrun_hash(f, version);
    sync_restore(run->sync, f, version, &hash);
}

void trainerrun_step(struct trainerrun *run, const struct sync_event *event)
{
    struct sync_action action;
    sync_step(run->sync, event, run->now_ms);
    while (sync_action(run->sync, &action))
        continue;
}

void trainerrun_hear(struct trainerrun *run, uint32_t member, uint32_t f, uint64_t version, bool known)
{
    struct wire_heartbeat beat = {.fragments_count = 1};
    beat.fragments[0] = (struct wire_fragment){
        .fragment = f, .at.version = version, .at.hash = trainerrun_hash(f, version), .at.hash_known = known};
    if (!sync_up(run->sync, member))
        trainerrun_step(run, &(struct sync_event){.type = SYNC_EV_PEER_UP, .member = member});
    trainerrun_step(run, &(struct sync_event){.type = SYNC_EV_HEARTBEAT, .member = member, .beat = &beat});
}

/* ---- the ledger ---- */

struct digest trainerrun_result(struct trainerrun *run, uint32_t f, uint64_t version, uint32_t owner,
                                const struct bitset *counted)
{
    static uint8_t object[OBJECT_MAX], contributors[TRAINERRUN_ISLANDS * WIRE_CONTRIBUTOR_BYTES];
    struct ident ident;
    struct wire_object what = {.shards = shares_mask(&run->parts, f, owner)};
    struct wire_meta meta = {.step = trainerrun_due(f, 0) * version, .contributors = contributors};
    size_t bytes;
    what.key = (struct wire_key){.kind = WIRE_RESULT, .fragment = f, .version = version};
    what.key.owner = what.key.island = run->ids[owner];
    for (uint32_t i = 0; i < run->view.count; i++)
        if (bitset_has(counted, i))
            wire_contributor_put(
                contributors, meta.contributors_count++,
                &(struct wire_contributor){.id = run->ids[i], .tokens = 10, .weight = 10, .factor = WIRE_FACTOR_ONE});
    assert_ok(ident_generate(&ident));
    assert_ok(wire_object_seal(&what, &meta, &ident, object, 0, &bytes, &what.digest));
    struct result_id key = wire_object_result(&what);
    assert_ok(ledger_append(run->ledger, &key, object, bytes));
    return what.digest;
}

void trainerrun_commit(struct trainerrun *run, uint32_t f, uint64_t version)
{
    struct result_id keys[TRAINERRUN_ISLANDS];
    struct ledger_commit commit = {.fragment = f, .version = version, .hash = trainerrun_hash(f, version)};
    size_t count = ledger_list(run->ledger, f, version, keys, TRAINERRUN_ISLANDS);
    for (size_t i = 0; i < count; i++)
        commit.parts[commit.parts_count++] = keys[i];
    assert_ok(ledger_append_commit(run->ledger, &commit, false));
    for (size_t i = 0; i < count; i++) {
        struct result result;
        assert_ok(result_open(run->ledger, &keys[i], &result));
        assert_ok(dedup_note(replica_counted(run->replica, f), result.what.shards, version, &result.meta));
        result_close(&result);
    }
}

void trainerrun_epoch(struct trainerrun *run, uint32_t member, enum config_role role, bool voter, bool revoked)
{
    struct config config = roster_next(run->config_log);
    struct view_changes changes;
    struct sync_action action;
    uint8_t key[IDENT_KEY_BYTES];
    memcpy(key, run->view.members[run->view.self].as.key, sizeof key);
    roster_role(&config, member, role, voter);
    roster_map_owners(&config);
    config.members_count -= revoked;
    roster_add(run->config_log, &config);
    assert_ok(view_update(&run->view, config_log_last(run->config_log), config_log_last_digest(run->config_log), key,
                          &changes));
    if (revoked)
        view_release(&run->view, member);
    struct sync_view view = roster_view(run->config_log, run->view.self, run->ids, TRAINERRUN_ISLANDS);
    assert_ok(sync_begin_epoch(run->sync, &view, run->now_ms));
    while (sync_action(run->sync, &action))
        continue;
}
