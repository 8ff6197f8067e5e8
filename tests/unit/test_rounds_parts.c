/* rounds, as an epoch begins: the parts of a version become others while our contributions to it are on their way. */
#include "tests/lib/testlib.h"

#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "tests/lib/rig.h"

enum { F = 0, SELF = 1, MEMBERS = 3, VALUES_MAX = 4096, EVENTS_MAX = 64 };

static const char coarse[] = "codec = e3m0\nerror_feedback = yes\nfeedback_limit = 0\nfeedback_decay = 1\n";

/* ---- in the place of daemon/state/parts.c: the parts that a test says ---- */

static struct chain_part now[CHAIN_PARTS_MAX];
static uint32_t now_count;

uint32_t parts_of(const struct parts *parts, uint32_t f, uint64_t version, struct chain_part out[CHAIN_PARTS_MAX])
{
    (void)parts;
    (void)f;
    (void)version;
    memcpy(out, now, sizeof now);
    return now_count;
}

uint32_t parts_find(const struct parts *parts, uint32_t f, uint64_t version, uint64_t epoch, uint32_t owner,
                    struct chain_part *out)
{
    (void)parts;
    (void)f;
    (void)version;
    for (uint32_t p = 0; p < now_count; p++)
        if (now[p].owner == owner && now[p].epoch == epoch) {
            *out = now[p];
            return p;
        }
    return CHAIN_PARTS_MAX;
}

struct bitset parts_owners(const struct parts *parts, uint32_t f, uint64_t version)
{
    struct bitset owners = {{0}};
    (void)parts;
    (void)f;
    (void)version;
    for (uint32_t p = 0; p < now_count; p++)
        bitset_add(&owners, now[p].owner);
    return owners;
}

uint64_t parts_shards(const struct parts *parts, uint32_t f, uint64_t version, const struct bitset *owners)
{
    uint64_t shards = 0;
    (void)parts;
    (void)f;
    (void)version;
    for (uint32_t p = 0; p < now_count; p++)
        shards |= bitset_has(owners, now[p].owner) ? now[p].shards : 0;
    return shards;
}

/* ---- set-up ---- */

/* The fragments have nine shards each; three parts of an epoch, and two of the next one's, which carries the first. */
static const uint64_t first = 0x015, second = 0x00a, third = 0x1e0;

static void before_the_epoch(void)
{
    now_count = 3;
    now[0] = (struct chain_part){.owner = 0, .shards = first};
    now[1] = (struct chain_part){.owner = 1, .shards = second};
    now[2] = (struct chain_part){.owner = 2, .shards = third};
}

static void after_it(void)
{
    now_count = 2;
    now[0] = (struct chain_part){.owner = 0, .shards = first, .carried = true};
    now[1] = (struct chain_part){.owner = 1, .shards = second | third, .epoch = 1};
}

static struct rig *open_rig(const char *folder, int threads)
{
    before_the_epoch();
    struct rig *rig = rig_new(folder, coarse, MEMBERS, SELF, threads);
    assert_int_equal(rig->plan->plan->fragments[F].shards_count, 9);
    return rig;
}

/* The core of today knows no epochs: here it is left out, and what is posted is kept. */
static struct event posted[EVENTS_MAX];
static size_t posted_count;

static void take_events(struct rig *rig)
{
    struct event event;
    while (event_take(rig->events, &event)) {
        assert_true(posted_count < EVENTS_MAX);
        posted[posted_count++] = event;
        if (event.type == EVENT_UNREAD)
            rounds_unread(rig->rounds, event.fragment);
    }
}

static void settle(struct rig *rig)
{
    take_events(rig);
    while (jobs_pending(rig->jobs) > 0) {
        rig_wait_ended(rig);
        assert_true(jobs_take_back(rig->jobs));
        take_events(rig);
    }
}

static const struct event *last(enum event_type type)
{
    for (size_t i = posted_count; i-- > 0;)
        if (posted[i].type == type)
            return &posted[i];
    return NULL;
}

static size_t how_many(enum event_type type)
{
    size_t count = 0;
    for (size_t i = 0; i < posted_count; i++)
        count += posted[i].type == type;
    return count;
}

static void train(struct rig *rig, uint64_t seed, float amount, uint64_t tokens)
{
    rig_train(rig, F, seed, amount);
    rig->snapshot[F].step = 10;
    rig->snapshot[F].tokens = tokens;
}

/* The values of our contribution in a slot, at their places in the fragment. */
static void decode_out(struct rig *rig, uint32_t p, uint64_t shards, float *whole)
{
    static float values[VALUES_MAX];
    struct wire_meta meta;
    struct plan_share share;
    size_t bytes, at = 0;
    const uint8_t *frame = rig_open_slot(slots_out(rig->slots, F, p), WIRE_CONTRIBUTION, &meta, &bytes);
    plan_share(rig->plan->plan, F, shards, &share);
    rig_decode(frame, bytes, values, (size_t)share.values_count);
    for (uint32_t r = 0; r < share.runs_count; r++) {
        size_t n = (size_t)(share.run[r].end - share.run[r].begin);
        memcpy(whole + share.run[r].begin, values + at, n * sizeof *values);
        at += n;
    }
}

/* A result in the ledger, over some shards, that counts us or does not. */
static void put_result(struct rig *rig, uint32_t owner, uint64_t shards, bool counts_us)
{
    static struct rig_object object;
    static float zeros[VALUES_MAX];
    struct plan_share share;
    struct wire_key key = {.kind = WIRE_RESULT, .fragment = F, .version = 1, .owner = owner, .island = owner};
    struct wire_meta meta = {.step = 10, .contributors_count = 1, .contributors = {{.island = 2, .tokens = 9}}};
    meta.contributors[0].island = counts_us ? SELF : 2;
    memcpy(meta.outer, (float[]){1, 0.9f, 0.4f}, sizeof meta.outer);
    plan_share(rig->plan->plan, F, shards, &share);
    rig_seal(rig, &key, &meta, zeros, (size_t)share.values_count, &object);
    assert_ok(ledger_append(rig->ledger, F, 1, owner, object.byte, object.bytes, false));
}

static bool in(const struct rig *rig, uint64_t shards, size_t i)
{
    for (uint32_t s = 0; s < rig->plan->plan->fragments[F].shards_count; s++) {
        struct plan_shard shard = plan_shard(rig->plan->plan, F, s);
        if (i >= shard.begin && i < shard.end)
            return (shards >> s & 1) != 0;
    }
    return false;
}

/* ---- encode again ---- */

/* What is carried stays as it went out, and its residual pending; the rest goes out anew, from later work. Then, in
 * every value, what a result counts and what is left over are together the outer gradient. */
static void assert_counted_once(bool carried_counts, bool made_counts)
{
    static float counted[VALUES_MAX], early[VALUES_MAX], late[VALUES_MAX], had[VALUES_MAX];
    static uint8_t sent[RIG_OBJECT_BYTES];
    struct rig *rig = open_rig("parts-again", 0);
    size_t count = rig_values(rig, F);
    posted_count = 0;
    rig_pattern(had, count, 77, 0.003f);
    memcpy(replica_residual(rig->replica, F), had, count * sizeof *had);
    train(rig, 1, 0.01f, 100);
    rounds_encode(rig->rounds, F, 1, &rig->snapshot[F]);
    settle(rig);
    for (size_t i = 0; i < count; i++)
        early[i] = rig->base[F][i] - rig->theta[F][i];
    const struct slot *first_out = slots_out(rig->slots, F, 0);
    size_t bytes = first_out->bytes;
    memcpy(sent, first_out->data, bytes);
    after_it();
    train(rig, 2, 0.02f, 200);
    rounds_encode(rig->rounds, F, 1, &rig->snapshot[F]);
    settle(rig);
    for (size_t i = 0; i < count; i++)
        late[i] = rig->base[F][i] - rig->theta[F][i];
    assert_int_equal(how_many(EVENT_ENCODED), 2);
    assert_int_equal(first_out->bytes, bytes);
    assert_memory_equal(first_out->data, sent, bytes); /* it is not made again */
    memset(counted, 0, sizeof counted);
    decode_out(rig, 0, first, counted);
    decode_out(rig, 1, second | third, counted);
    put_result(rig, 0, first, carried_counts);
    put_result(rig, 1, second | third, made_counts);
    rounds_apply(rig->rounds, F, 1);
    settle(rig);
    uint64_t naming = (carried_counts ? first : 0) | (made_counts ? second | third : 0);
    assert_true(last(EVENT_COUNTED)->shards == naming);
    const float *residual = replica_residual(rig->replica, F);
    for (size_t i = 0; i < count; i++) {
        float meant = in(rig, first, i) ? early[i] : late[i];
        if (in(rig, naming, i))
            assert_float_equal(counted[i] + residual[i], meant + had[i], 1e-5);
        else
            assert_true(residual[i] == had[i]);
    }
    rig_close(rig);
}

static void what_is_carried_is_not_sent_again_and_nothing_counts_twice(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++)
        assert_counted_once((k & 1) != 0, (k & 2) != 0);
}

/* Weights are of the tokens of the shards that a part has. */
static void a_part_weighs_the_tokens_of_its_own_shards(void **state)
{
    (void)state;
    struct wire_meta meta;
    size_t bytes;
    struct rig *rig = open_rig("parts-weight", 0);
    posted_count = 0;
    after_it();
    train(rig, 1, 0.01f, 1000);
    for (uint32_t s = 0; s < 9; s++) /* shards of one size */
        rig->snapshot[F].counted_tokens[s] = (second >> s & 1) != 0 ? 700 : (third >> s & 1) != 0 ? 100 : 1000;
    rounds_encode(rig->rounds, F, 1, &rig->snapshot[F]);
    settle(rig);
    rig_open_slot(slots_out(rig->slots, F, 1), WIRE_CONTRIBUTION, &meta, &bytes);
    assert_int_equal(meta.tokens, 1000 - (2 * 700 + 4 * 100) / 6);
    rig_close(rig);
}

/* An order comes while the one before is at work in the parts there were: it waits, and one answer is given. */
static void a_new_cut_waits_for_the_jobs_of_the_old_one(void **state)
{
    (void)state;
    static float got[VALUES_MAX];
    struct rig *rig = open_rig("parts-wait", 1);
    size_t count = rig_values(rig, F);
    posted_count = 0;
    train(rig, 1, 0.01f, 100);
    rounds_encode(rig->rounds, F, 1, &rig->snapshot[F]);
    assert_int_equal(jobs_pending(rig->jobs), 3);
    after_it();
    rig->snapshot[F].tokens = 300;
    rounds_encode(rig->rounds, F, 1, &rig->snapshot[F]);
    assert_int_equal(jobs_pending(rig->jobs), 3); /* nothing was begun */
    settle(rig);
    assert_int_equal(how_many(EVENT_ENCODED), 1);
    assert_int_equal(last(EVENT_ENCODED)->err, ERR_OK);
    assert_int_equal(how_many(EVENT_UNREAD), 1);
    decode_out(rig, 1, second | third, got); /* which is of the new part's size */
    for (size_t i = 0; i < count; i++)
        assert_true(!in(rig, second | third, i) || got[i] != 0);
    rig_close(rig);
}

/* A checkpoint reads the owner's residual: its place does not change under it. */
static void a_new_cut_waits_for_readers(void **state)
{
    (void)state;
    struct rig *rig = open_rig("parts-readers", 1);
    posted_count = 0;
    rig_train(rig, F, 1, 0.01f);
    rounds_checkpoint(rig->rounds, F);
    assert_int_equal(jobs_pending(rig->jobs), 1);
    after_it();
    train(rig, 1, 0.01f, 100);
    rounds_encode(rig->rounds, F, 1, &rig->snapshot[F]);
    assert_int_equal(jobs_pending(rig->jobs), 1); /* nothing was begun */
    settle(rig);
    assert_int_equal(how_many(EVENT_ENCODED), 1);
    rig_close(rig);
}

/* Our own part's mean is ordered while an encoding is at work in the parts there were. */
static void a_mean_waits_for_its_cut(void **state)
{
    (void)state;
    struct wire_meta meta;
    size_t bytes;
    struct bitset have = RIG_SET(SELF);
    struct rig *rig = open_rig("parts-mean", 1);
    posted_count = 0;
    train(rig, 1, 0.01f, 100);
    rounds_encode(rig->rounds, F, 1, &rig->snapshot[F]);
    settle(rig);
    after_it();
    rounds_encode(rig->rounds, F, 1, &rig->snapshot[F]); /* cuts, and is at work */
    before_the_epoch();
    rounds_reduce(rig->rounds, F, 1, &have);
    after_it(); /* by the time it can be made, it is another */
    settle(rig);
    assert_non_null(last(EVENT_SYNC));
    assert_int_equal(last(EVENT_SYNC)->sync.type, SYNC_EV_REDUCED);
    rig_open_slot(slots_own(rig->slots, F), WIRE_RESULT, &meta, &bytes);
    assert_int_equal(meta.contributors_count, 1);
    assert_true(replica_owner_shards(rig->replica, F) == (second | third));
    rig_close(rig);
}

/* Members come while jobs are at work; those that are there stay where they are. */
static void there_is_room_for_more_members_at_any_time(void **state)
{
    (void)state;
    unsigned lately;
    struct rig *rig = open_rig("parts-members", 1);
    const struct slot *slot = slots_in(rig->slots, F, 2);
    posted_count = 0;
    train(rig, 1, 0.01f, 100);
    rounds_encode(rig->rounds, F, 1, &rig->snapshot[F]);
    assert_ok(rounds_members(rig->rounds, BITSET_MAX));
    assert_ok(rounds_members(rig->rounds, MEMBERS)); /* nobody is taken away */
    assert_int_equal(rounds_outliers(rig->rounds, BITSET_MAX - 1, &lately), 0);
    assert_int_equal(slots_in(rig->slots, F, BITSET_MAX - 1)->version, 0);
    assert_ptr_equal(slots_in(rig->slots, F, 2), slot);
    settle(rig);
    assert_int_equal(how_many(EVENT_ENCODED), 1);
    rig_close(rig);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_carried_is_not_sent_again_and_nothing_counts_twice),
        cmocka_unit_test(a_part_weighs_the_tokens_of_its_own_shards),
        cmocka_unit_test(a_new_cut_waits_for_the_jobs_of_the_old_one),
        cmocka_unit_test(a_new_cut_waits_for_readers),
        cmocka_unit_test(a_mean_waits_for_its_cut),
        cmocka_unit_test(there_is_room_for_more_members_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
