/* SPDX-License-Identifier: Apache-2.0 */
/* proposer: what it proposes it notes, so that what comes to nothing by its own proposals is told from what others left
 * out; a draft, of which nobody may hold what it rests on, is none. */
#include "tests/lib/testlib.h"

#include <string.h>

#include "common/digest.h"
#include "common/mem.h"
#include "net/membership/proposer.h"
#include "tests/lib/roster.h"
#include "tests/lib/sample_configs.h"

enum { A, B, C, ISLANDS };
enum { START = 5 };

static struct config_log *config_log;
static struct view view;
static struct member_progress progress;
static struct change_requests requests;
static struct order_pool *orders;
static struct promise_reports *reports;
static struct paxos *paxos;
static struct sync *sync;
static struct voting_disk disk;
static struct outbox outbox;
static struct proposer proposer;
static const uint32_t shards[] = {1};
static bool compose;       /* ordered */
static struct digest sent; /* of what the last ACCEPT would have decided */
static enum wire_paxos_type last_sent;

static void step(const struct paxos_event *event);

static void drain(void)
{
    struct paxos_action action;
    uint64_t saved = 0;
    while (paxos_action(paxos, &action)) {
        if (action.type == PAXOS_DO_SAVE)
            saved = action.number;
        compose = compose || action.type == PAXOS_DO_COMPOSE;
        if (action.type != PAXOS_DO_SEND)
            continue;
        last_sent = action.message.type;
        if (last_sent == WIRE_ACCEPT)
            sent = config_digest(action.message.bytes, action.message.bytes_count);
    }
    if (saved != 0)
        step(&(struct paxos_event){.type = PAXOS_EV_SAVED, .number = saved, .good = true});
}

static void step(const struct paxos_event *event)
{
    assert_ok(paxos_step(paxos, event, 1));
    drain();
}

static enum err number(void *user, uint64_t least, uint64_t *out)
{
    assert_null(user);
    *out = least;
    return ERR_OK;
}

static void know_plan(void)
{
    static const uint32_t ids[] = {A, B, C};
    const struct digest hash = digest_of("run", 3);
    struct sync_conf conf = {.config_log = config_log, .fragments_count = 1, .shards_counts = shards};
    conf.view = roster_view(config_log, A, ids, ISLANDS);
    assert_ok(sync_new(&conf, &sync));
    sync_restore(sync, 0, START, &hash);
    assert_ok(member_progress_plan_known(&progress, sync, 1));
}

/* We are a of three, and wish for a longer run; a fragment of the newest configuration is at a version. */
static int begin(void **state)
{
    (void)state;
    static const uint32_t voters[] = {A, B, C};
    const struct order longer = {.kind = ORDER_STEPS, .value = 4321};
    struct config config = configs_first(ISLANDS, false);
    struct view_changes changes;
    struct digest digest;
    configs_start(&config, 0, START);
    digest = configs_digest(&config);
    assert_ok(config_log_new(&config_log));
    assert_ok(config_log_add(config_log, &config, &digest));
    assert_ok(view_init(NULL, 0, &view));
    assert_ok(view_update(&view, config_log_last(config_log), &digest, configs_ident(A)->key, &changes));
    disk = (struct voting_disk){.doubt = VOTE_SURE};
    assert_ok(member_progress_init(&view, config_log, &disk, &progress));
    member_progress_begin(&progress, 1);
    progress.seat[B].up = progress.seat[C].up = true;
    know_plan();
    memset(&requests, 0, sizeof requests);
    assert_ok(order_pool_new(&(struct order_pool_conf){.number = number}, &orders));
    assert_ok(order_pool_give(orders, configs_ident(A), config_log_last(config_log), A, &longer, 1, NULL));
    assert_ok(promise_reports_new(&reports));
    assert_ok(promise_reports_reserve(reports, 1));
    assert_ok(paxos_new(&(struct paxos_conf){.self = A, .seed = 1, .turn_ms = 1000, .again_ms = 400}, &paxos));
    assert_ok(paxos_begin(paxos, 0, voters, ISLANDS, true, NULL, 1));
    compose = false;
    last_sent = 0;
    step(&(struct paxos_event){.type = PAXOS_EV_WANT, .flag = true, .good = true});
    proposer = (struct proposer){.progress = &progress,
                                 .requests = &requests,
                                 .orders = orders,
                                 .reports = reports,
                                 .paxos = paxos,
                                 .outbox = &outbox,
                                 .shards_counts = shards};
    return 0;
}

static int end(void **state)
{
    (void)state;
    paxos_free(paxos);
    promise_reports_free(reports);
    order_pool_free(orders);
    member_progress_deinit(&progress);
    sync_free(sync);
    view_free(&view);
    config_log_free(config_log);
    return 0;
}

/* B promises, with this version of the fragment, and C, which has the newest configuration's. */
static void promise(uint64_t version)
{
    for (uint32_t i = B; i <= C; i++) {
        const struct holding row = {.version = i == B ? version : START, .hash_known = true};
        struct paxos_message out = {.type = WIRE_PROMISE,
                                    .epoch = 1,
                                    .ballot = paxos_ballot(paxos),
                                    .sealed = true,
                                    .incarnation = view.members[i].as.incarnation,
                                    .rows = &row,
                                    .rows_count = 1};
        uint8_t *bytes;
        size_t count;
        struct paxos_message in;
        assert_ok(wire_paxos_pack(&out, &bytes, &count));
        assert_ok(wire_paxos_unpack(WIRE_PROMISE, bytes, count, &in));
        mem_free(bytes);
        promise_reports_answer(reports, NULL, i, &in);
        step(&(struct paxos_event){.type = PAXOS_EV_MESSAGE, .from = i, .good = true, .message = &in});
        wire_paxos_deinit(&in);
    }
    assert_true(compose);
}

/* As it is ordered, at first and later. */
static void compose_for(uint64_t ms)
{
    for (uint64_t at = 1; at <= ms; at += 1000) {
        assert_ok(proposer_compose(&proposer, at));
        drain();
    }
}

static void what_is_proposed_is_noted(void **state)
{
    (void)state;
    promise(START);
    compose_for(5000);
    assert_int_equal(last_sent, WIRE_ACCEPT);
    assert_true(digest_equal(&requests.proposed, &sent));
}

static void a_draft_is_not(void **state)
{
    (void)state;
    promise(START + 2);
    compose_for(5000);
    assert_int_equal(paxos_state(paxos), PAXOS_COMPOSING);
    assert_true(proposer.lacking_count > 0 && last_sent != WIRE_ACCEPT);
    assert_true(digest_equal(&requests.proposed, &(struct digest){{0}}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(what_is_proposed_is_noted, begin, end),
                                       cmocka_unit_test_setup_teardown(a_draft_is_not, begin, end)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
