/* SPDX-License-Identifier: Apache-2.0 */
/* status_json: what status took is what is printed, each under its own key; and docs/FORMATS.md names exactly the keys
 * and words that come. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "daemon/control/complaints.h"
#include "daemon/control/status.h"
#include "net/membership/wire_paxos.h"

enum { MEMBERS = 3, SELF = 1, FRAGMENTS = 2, CODES = COMPLAINT_CODES };

/* A status of nowhere: every number is another one, so that none can stand for another. */
static struct status_peer peers[MEMBERS];
static struct status_fragment fragments[FRAGMENTS];
static struct complaint complaints[CODES];
static struct view_member members[MEMBERS];
static struct view view = {.members = members, .count = MEMBERS, .self = SELF};
static struct dconf conf;
static struct runspec spec;
static struct plan plan = {.params_count = 1001, .fragments_count = FRAGMENTS};
static struct model_plan model = {.plan = &plan};
static struct status_conf from = {
    .conf = &conf, .spec = &spec, .view = &view, .start_ms = 5000, .plan = &model, .memory_bytes = 1002};
static struct status status;

static void fill_peers(void)
{
    static const char *const names[] = {"amber", "birch", "cedar"};
    for (uint32_t i = 0; i < MEMBERS; i++) {
        uint64_t base = 100 * (i + 1);
        members[i] = (struct view_member){.used = true,
                                          .as.role = (uint8_t)(CONFIG_OWNER + i),
                                          .as.voter = i == 0,
                                          .as.address = "",
                                          .as.uplink = base};
        snprintf(members[i].as.name, sizeof members[i].as.name, "%s", names[i]);
        if (i == 0)
            snprintf(members[i].as.address, sizeof members[i].as.address, "host:1");
        snprintf(members[i].key_text, sizeof members[i].key_text, "key of %s", names[i]);
        peers[i] = (struct status_peer){.member = &members[i],
                                        .self = i == SELF,
                                        .catches_up = i == 1,
                                        .up = i != 2,
                                        .note = i == 2 ? "silent" : "",
                                        .fault = i == 0 ? "it lies" : "",
                                        .trainer = i == SELF ? "training" : "finished",
                                        .step = base + 1,
                                        .tokens = base + 2,
                                        .loss = (double)base + 3,
                                        .tokens_per_s = (double)base + 4,
                                        .rtt_ms = (uint32_t)base + 5,
                                        .heard = i != 0,
                                        .heard_s = (double)base + 6,
                                        .sent_bytes = base + 7,
                                        .received_bytes = base + 8,
                                        .unacknowledged_bytes = base + 9,
                                        .outliers = base + 10,
                                        .turned_away = i == 1,
                                        .claims_much = i == 2,
                                        .missed = base + 11};
    }
}

static void fill_fragments(void)
{
    for (uint32_t f = 0; f < FRAGMENTS; f++) {
        uint64_t base = 500 + 100 * f;
        fragments[f] = (struct status_fragment){.params = base + 1,
                                                .tensors = base + 2,
                                                .own = {.version = base + 3, .hash_known = f == 0},
                                                .newest = base + 4,
                                                .state = f == 0 ? SYNC_MIXING : SYNC_REPAIR,
                                                .owner = {.state = OWNER_REDUCING, .round = base + 5},
                                                .feedback_cuts = base + 6};
        fragments[f].own.hash = digest_of(&f, sizeof f);
        bitset_add(&fragments[f].owner.have, f);
        bitset_add(&fragments[f].waiting, 2);
    }
}

static void fill_complaints(void)
{
    for (unsigned i = 0; i < CODES; i++) {
        complaints[i] = (struct complaint){.code = (enum complaint_code)i, .remedy = "do something"};
        snprintf(complaints[i].what, sizeof complaints[i].what, "what %u", i);
    }
}

static void fill_epoch(void)
{
    view.epoch = 41;
    static const struct order order = {.kind = ORDER_GRANT, .subject = 1, .number = 7};
    status.epoch.orders[0] = (struct membership_pending){.order = &order,
                                                         .by = "c",
                                                         .about = "b",
                                                         .ours = true,
                                                         .takes_approval = true,
                                                         .approvals = 2,
                                                         .needed = 3,
                                                         .agreed = true,
                                                         .for_ms = 46};
    status.epoch.orders_count = 1;
}

static void fill_spec(void)
{
    conf.name = "birch";
    spec.name = "a-run";
    spec.steps = 900;
    spec.interval = 901;
    spec.overlap = 902;
    spec.quorum = 903;
    spec.error_feedback = true;
    spec.codec = CODEC_INT8;
    spec.digest = digest_of("spec", 4);
}

static const struct ipc_machine a_machine = {.device = "a device",
                                             .ranks = 71,
                                             .tensor_parallel = 72,
                                             .memory_bytes = 73,
                                             .memory_total_bytes = 74,
                                             .flops_per_token = 75,
                                             .peak_flops = 76};

static int fill(void **state)
{
    (void)state;
    fill_spec();
    fill_peers();
    fill_fragments();
    fill_complaints();
    status = (struct status){.from = &from,
                             .now_ms = 7500,
                             .phase = TRAINER_FINISHING,
                             .trainer = {.pid = 1,
                                         .step = 2,
                                         .tokens = 3,
                                         .tokens_counted = 9,
                                         .loss = 4,
                                         .tokens_per_s = 5,
                                         .lr = 6,
                                         .grad_norm = 7,
                                         .machine = a_machine,
                                         .flops_per_s = 77,
                                         .mfu = 78,
                                         .other_base = "another"},
                             .rounds = {.compressing = true, .saving = ROUNDS_EXPORT_DONE, .saved = "there"},
                             .ledger = {.records = 21, .bytes = 22},
                             .objects_sent_bytes = 23,
                             .refused = {.strangers = 24},
                             .uplink_bits = 25,
                             .capped = "a setting",
                             .islands = MEMBERS,
                             .islands_up = 26,
                             .epoch = {.voters = 42,
                                       .voters_heard = 43,
                                       .voters_sure = 41,
                                       .votes = true,
                                       .doubt = "why",
                                       .sealed_ms = 44,
                                       .requested_ms = 45,
                                       .waits = "an answer",
                                       .advice = "a third",
                                       .orders_advice = "a second"},
                             .left_s = 33,
                             .quorum = 34,
                             .contributors = 35,
                             .step = 27,
                             .sent_bytes = 28,
                             .received_bytes = 29,
                             .versions = 30,
                             .version_min = 31,
                             .version_max = 32,
                             .anchors_known = true,
                             .arriving = {.fragments = 51, .bytes = 52, .bytes_due = 53},
                             .anchors = digest_of("all", 3),
                             .peers = peers,
                             .fragments = fragments,
                             .fragments_count = FRAGMENTS,
                             .complaints = complaints,
                             .complaints_count = CODES};
    fill_epoch();
    status.pause = (struct status_pause){.is = true, .by = "aspen", .order = 99};
    status.trainer.process_name = "running";
    status.trainer.failures = 8;
    status.load = (struct status_load){.cores = 0.5, .seconds = 81, .loop_s = 82, .links_s = 83};
    status.recovery = (struct rounds_recovery){.fragments = 96, .fragments_done = 97, .versions = 98};
    status.load.lag_ms = 94;
    status.load.lag_ms_max = 95;
    for (int work = 0; work < JOBS_WORKS; work++)
        status.load.jobs_s[work] = 84 + work;
    return 0;
}

/* ---- what is printed ---- */

static void assert_number(const json_t *object, const char *key, double value)
{
    const json_t *item = json_object_get(object, key);
    if (!json_is_number(item) || json_number_value(item) != value)
        fail_msg("\"%s\" is %g, not %g", key, json_number_value(item), value);
}

static void assert_text(const json_t *object, const char *key, const char *text)
{
    const char *got = json_string_value(json_object_get(object, key));
    if (got == NULL || strcmp(got, text) != 0)
        fail_msg("\"%s\" is \"%s\", not \"%s\"", key, got != NULL ? got : "missing", text);
}

static void assert_hash(const json_t *object, const char *key, const struct digest *hash)
{
    char hex[DIGEST_HEX_BYTES];
    assert_text(object, key, digest_hex(hash, hex));
}

static void assert_order(const json_t *order)
{
    assert_text(order, "kind", "grant");
    assert_text(order, "island", "b");
    assert_text(order, "text", "grant b");
    assert_text(order, "by", "c");
    assert_number(order, "number", 7);
    assert_number(order, "approvals", 2);
    assert_number(order, "needed", 3);
    assert_number(order, "for_ms", 46);
    assert_true(json_is_true(json_object_get(order, "ours")));
    assert_true(json_is_true(json_object_get(order, "agreed")));
}

static void assert_processor(const json_t *processor)
{
    assert_number(processor, "cores", 0.5);
    assert_number(processor, "seconds", 81);
    assert_number(processor, "loop", 82);
    assert_number(processor, "links", 83);
    for (int work = 0; work < JOBS_WORKS; work++)
        assert_number(processor, jobs_work_name((enum jobs_work)work), 84 + work);
    assert_int_equal(json_object_size(processor), 4 + JOBS_WORKS);
}

static void assert_loop(const json_t *json)
{
    const json_t *recovering = json_object_get(json, "recovering");
    assert_number(recovering, "fragments", 96);
    assert_number(recovering, "read", 97);
    assert_number(recovering, "versions", 98);
    assert_number(json, "loop_lag_ms", 94);
    assert_number(json, "loop_lag_ms_max", 95);
}

static void a_status_says_what_was_taken(void **state)
{
    (void)state;
    json_t *json = status_json(&status);
    const json_t *run = json_object_get(json, "run"), *trainer = json_object_get(json, "trainer");
    assert_text(json, "island", "birch");
    assert_text(json, "software", "diloco " DILOCO_VERSION);
    assert_text(run, "name", "a-run");
    assert_number(run, "steps", 900);
    assert_hash(run, "id", &spec.digest);
    assert_number(run, "interval", 901);
    assert_number(run, "overlap", 902);
    assert_number(run, "quorum", 903);
    assert_number(json, "quorum", 34);
    assert_number(json, "contributors", 35);
    assert_text(run, "codec", "int8");
    assert_true(json_is_true(json_object_get(run, "error_feedback")));
    assert_text(trainer, "state", "finishing");
    assert_text(trainer, "process", "running");
    static const char *const numbers[] = {"pid",          "step", "tokens",    "loss",
                                          "tokens_per_s", "lr",   "grad_norm", "failures"};
    for (int i = 0; i < 8; i++)
        assert_number(trainer, numbers[i], i + 1);
    assert_number(trainer, "tokens_counted", 9);
    static const char *const machine[] = {"ranks",           "tensor_parallel", "memory_bytes", "memory_total_bytes",
                                          "flops_per_token", "peak_flops",      "flops_per_s",  "mfu"};
    for (int i = 0; i < 8; i++)
        assert_number(json_object_get(trainer, "machine"), machine[i], 71 + i);
    assert_text(json_object_get(trainer, "machine"), "device", "a device");
    assert_text(trainer, "other_base", "another");
    assert_number(json, "uptime_s", 2.5);
    assert_number(json, "islands", MEMBERS);
    assert_number(json, "params", 1001);
    assert_number(json, "memory_bytes", 1002);
    assert_processor(json_object_get(json, "processor"));
    assert_loop(json);
    assert_number(json, "fragments", FRAGMENTS);
    static const char *const more[] = {"ledger_records", "ledger_bytes", "payload_sent", "strangers_refused",
                                       "uplink_bit_s",   "islands_up",   "step",         "bytes_sent",
                                       "bytes_received", "versions",     "version_min",  "version_max"};
    for (int i = 0; i < 12; i++)
        assert_number(json, more[i], 21 + i);
    assert_hash(json, "anchors", &status.anchors);
    assert_number(json_object_get(json, "arriving"), "fragments", 51);
    assert_number(json_object_get(json, "arriving"), "bytes", 52);
    assert_number(json_object_get(json, "arriving"), "bytes_due", 53);
    assert_true(json_is_true(json_object_get(json, "compressing")));
    assert_number(json, "epoch", 41);
    assert_number(json, "voters", 42);
    assert_number(json, "voters_heard", 43);
    assert_number(json, "voters_sure", 41);
    assert_true(json_is_true(json_object_get(json, "votes")));
    assert_text(json, "doubt", "why");
    assert_number(json, "sealed_ms", 44);
    assert_number(json, "requested_ms", 45);
    assert_text(json, "waits", "an answer");
    assert_text(json, "advice", "a third");
    assert_text(json, "orders_advice", "a second");
    assert_number(json, "left_s", 33);
    assert_order(json_array_get(json_object_get(json, "orders"), 0));
    assert_text(json, "capped", "a setting");
    assert_text(json, "saving", "done");
    assert_text(json, "saved", "there");
    json_decref(json);
    status.anchors_known = false;
    status.left_s = -1;
    json = status_json(&status);
    assert_true(json_is_null(json_object_get(json, "anchors")));
    assert_true(json_is_null(json_object_get(json, "left_s")));
    json_decref(json);
    status.anchors_known = true;
}

static void what_was_ordered_of_the_run_is_said(void **state)
{
    (void)state;
    spec.length = 950; /* longer than the run spec says */
    json_t *json = status_json(&status), *peers_json = status_json_peers(&status);
    assert_number(json_object_get(json, "run"), "steps", 950);
    assert_text(json_object_get(json, "paused"), "by", "aspen");
    assert_number(json_object_get(json, "paused"), "order", 99);
    assert_number(peers_json, "steps", 950);
    assert_true(json_is_true(json_object_get(peers_json, "paused")));
    json_decref(json);
    json_decref(peers_json);
    spec.length = 0;
    status.pause = (struct status_pause){.is = false};
    json = status_json(&status);
    assert_number(json_object_get(json, "run"), "steps", 900);
    assert_true(json_is_null(json_object_get(json, "paused")));
    json_decref(json);
}

static void that_nobody_gets_through_is_said_where_it_is(void **state)
{
    (void)state;
    status.undialled = true;
    json_t *json = status_json(&status);
    assert_true(json_is_true(json_object_get(json, "undialled")));
    json_decref(json);
    status.undialled = false;
    json = status_json(&status);
    assert_true(json_is_false(json_object_get(json, "undialled")));
    json_decref(json);
}

static void every_complaint_has_its_code(void **state)
{
    (void)state;
    json_t *json = status_json(&status);
    const json_t *list = json_object_get(json, "degraded");
    assert_int_equal(json_array_size(list), CODES);
    for (unsigned i = 0; i < CODES; i++) {
        const json_t *item = json_array_get(list, i);
        assert_text(item, "code", complaint_name((enum complaint_code)i));
        assert_text(item, "what", complaints[i].what);
        assert_text(item, "remedy", "do something");
    }
    json_decref(json);
}

static void each_peer_has_a_row(void **state)
{
    (void)state;
    json_t *json = status_json_peers(&status);
    const json_t *list = json_object_get(json, "peers");
    assert_int_equal(json_array_size(list), MEMBERS);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        const json_t *row = json_array_get(list, i);
        static const char *const numbers[] = {"step",           "tokens",   "loss",       "tokens_per_s",
                                              "rtt_ms",         "",         "bytes_sent", "bytes_received",
                                              "unacknowledged", "outliers", "missed"};
        double base = 100 * (i + 1);
        assert_text(row, "name", members[i].as.name);
        assert_text(row, "public_key", members[i].key_text);
        assert_text(row, "address", members[i].as.address);
        assert_number(row, "uplink_bit_s", base);
        assert_text(row, "role", config_role_name(CONFIG_OWNER + i));
        assert_true(json_is_true(json_object_get(row, "voter")) == (i == 0));
        assert_true(json_is_true(json_object_get(row, "catches_up")) == (i == 1));
        assert_true(json_is_true(json_object_get(row, "turned_away")) == (i == 1));
        assert_true(json_is_true(json_object_get(row, "claims_much")) == (i == 2));
        assert_true(json_is_true(json_object_get(row, "self")) == (i == SELF));
        assert_true(json_is_true(json_object_get(row, "up")) == (i != 2));
        assert_text(row, "note", i == 2 ? "silent" : "");
        assert_text(row, "fault", i == 0 ? "it lies" : "");
        assert_text(row, "trainer", i == SELF ? "training" : "finished");
        for (int k = 0; k < 11; k++)
            if (numbers[k][0] != '\0')
                assert_number(row, numbers[k], base + k + 1);
        if (i == 0)
            assert_true(json_is_null(json_object_get(row, "heard_s")));
        else
            assert_number(row, "heard_s", base + 6);
    }
    json_decref(json);
    members[2].used = false; /* a slot that is nobody's */
    json = status_json_peers(&status);
    assert_int_equal(json_array_size(json_object_get(json, "peers")), MEMBERS - 1);
    json_decref(json);
}

static void each_fragment_has_a_row(void **state)
{
    (void)state;
    json_t *json = status_json_fragments(&status);
    const json_t *list = json_object_get(json, "fragments");
    assert_int_equal(json_array_size(list), FRAGMENTS);
    for (uint32_t f = 0; f < FRAGMENTS; f++) {
        static const char *const numbers[] = {"params", "tensors", "version", "newest", "round", "feedback_cuts"};
        const json_t *row = json_array_get(list, f);
        const json_t *have = json_object_get(row, "have"), *waiting = json_object_get(row, "waiting_for");
        assert_number(row, "fragment", f);
        for (int k = 0; k < 6; k++)
            assert_number(row, numbers[k], 500 + 100 * f + k + 1);
        assert_text(row, "state", f == 0 ? "mixing" : "repair");
        assert_text(row, "owner", "reducing");
        if (f == 0)
            assert_hash(row, "hash", &fragments[f].own.hash);
        else
            assert_true(json_is_null(json_object_get(row, "hash")));
        assert_int_equal(json_array_size(have), 1);
        assert_string_equal(json_string_value(json_array_get(have, 0)), members[f].as.name);
        assert_int_equal(json_array_size(waiting), 1);
        assert_string_equal(json_string_value(json_array_get(waiting, 0)), "cedar");
    }
    json_decref(json);
}

/* ---- what is documented ---- */

enum { WORDS_MAX = 200, WORD_BYTES = 40 };
struct words {
    char word[WORDS_MAX][WORD_BYTES];
    size_t count;
};

static bool has(const struct words *words, const char *word)
{
    for (size_t i = 0; i < words->count; i++)
        if (strcmp(words->word[i], word) == 0)
            return true;
    return false;
}

static void add(struct words *words, const char *word, size_t bytes)
{
    char text[WORD_BYTES];
    snprintf(text, sizeof text, "%.*s", (int)bytes, word);
    if (has(words, text))
        return;
    assert_true(words->count < WORDS_MAX);
    memcpy(words->word[words->count++], text, sizeof text);
}

/* The words between backquotes from one place of docs/FORMATS.md to another. */
static void read_document(const char *begin, const char *end, struct words *words)
{
    char *text;
    size_t bytes;
    words->count = 0;
    assert_ok(fsio_read("docs/FORMATS.md", 1 << 20, &text, &bytes));
    char *at = strstr(text, begin);
    assert_non_null(at);
    char *stop = strstr(at, end);
    assert_non_null(stop);
    while ((at = strchr(at, '`')) != NULL && at < stop) {
        char *close = strchr(at + 1, '`');
        assert_non_null(close);
        add(words, at + 1, (size_t)(close - at - 1));
        at = close + 1;
    }
    mem_free(text);
}

static void add_keys(const json_t *json, struct words *words)
{
    const char *key;
    json_t *value;
    size_t index;
    json_object_foreach ((json_t *)(uintptr_t)json, key, value) {
        add(words, key, strlen(key));
        add_keys(value, words);
    }
    json_array_foreach (json, index, value)
        add_keys(value, words);
}

static void assert_same(const struct words *printed, const struct words *documented)
{
    for (size_t i = 0; i < printed->count; i++)
        if (!has(documented, printed->word[i]))
            fail_msg("\"%s\" is printed, but is not in docs/FORMATS.md", printed->word[i]);
    for (size_t i = 0; i < documented->count; i++)
        if (!has(printed, documented->word[i]))
            fail_msg("\"%s\" is in docs/FORMATS.md, but is not printed", documented->word[i]);
}

static void add_text(struct words *words, const char *text)
{
    add(words, text, strlen(text));
}

static void the_document_names_what_a_status_holds(void **state)
{
    (void)state;
    static struct words printed, documented;
    members[0].as.next_key[0] = 1; /* one asks for another key */
    json_t *json = status_json(&status);
    members[0].as.next_key[0] = 0;
    assert_int_equal(json_array_size(json_object_get(json, "rekeys")), 1);
    add_keys(json, &printed);
    json_decref(json);
    add_text(&printed, "status");
    for (unsigned i = 0; i < TRAINER_PHASES; i++)
        add_text(&printed, trainer_phase_name((enum trainer_phase)i));
    for (unsigned i = 0; i < COMPLAINT_CODES; i++)
        add_text(&printed, complaint_name((enum complaint_code)i));
    for (unsigned i = ROUNDS_EXPORT_NONE; i <= ROUNDS_EXPORT_FAILED; i++) {
        status.rounds.saving = (enum rounds_export_state)i;
        json = status_json(&status);
        add_text(&printed, json_string_value(json_object_get(json, "saving")));
        json_decref(json);
    }
    read_document("`status`: ", "\n`peers`: ", &documented);
    assert_same(&printed, &documented);
}

static void the_document_names_what_peers_and_fragments_hold(void **state)
{
    (void)state;
    static struct words printed, documented;
    json_t *json = status_json_peers(&status);
    add_keys(json, &printed);
    json_decref(json);
    add_text(&printed, "status");
    for (unsigned i = CONFIG_OWNER; i < CONFIG_ROLES; i++)
        add_text(&printed, config_role_name(i));
    for (uint32_t i = 0; i < WIRE_TRAINER_STATES; i++)
        add_text(&printed, wire_trainer_name(i));
    read_document("\n`peers`: ", "\n`fragments`: ", &documented);
    assert_same(&printed, &documented);
    printed.count = 0;
    json = status_json_fragments(&status);
    add_keys(json, &printed);
    json_decref(json);
    add_text(&printed, "feedback_limit"); /* of the run spec */
    for (unsigned i = 0; i < SYNC_STATES; i++)
        add_text(&printed, sync_state_name((enum sync_state)i));
    for (unsigned i = 0; i < OWNER_STATES; i++)
        add_text(&printed, owner_state_name((enum owner_state)i));
    read_document("\n`fragments`: ", "\n## 12.", &documented);
    assert_same(&printed, &documented);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_status_says_what_was_taken, fill),
        cmocka_unit_test_setup(what_was_ordered_of_the_run_is_said, fill),
        cmocka_unit_test_setup(that_nobody_gets_through_is_said_where_it_is, fill),
        cmocka_unit_test_setup(every_complaint_has_its_code, fill),
        cmocka_unit_test_setup(each_peer_has_a_row, fill),
        cmocka_unit_test_setup(each_fragment_has_a_row, fill),
        cmocka_unit_test_setup(the_document_names_what_a_status_holds, fill),
        cmocka_unit_test_setup(the_document_names_what_peers_and_fragments_hold, fill),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
