/* SPDX-License-Identifier: Apache-2.0 */
/* rounds, as an epoch begins: the parts of a version become others while our contributions to it are on their way. */
#include "tests/lib/testlib.h"

#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "daemon/state/state_object.h"
#include "tests/lib/rig.h"
#include "tests/lib/roster.h"

enum { F = 0, SELF = 1, MEMBERS = 3, SHARDS = 9, VALUES_MAX = 4096, EVENTS_MAX = 64 };

static const char coarse[] = "codec = e3m0\nerror_feedback = yes\nfeedback_limit = 0\nfeedback_decay = 1\n";

/* ---- set-up ---- */

/* The fragments have nine shards each; three parts of an epoch, and two of the next one's, which carries the first. */
static const uint64_t first = 0x015, second = 0x00a, third = 0x1e0;

static void own(struct shardmap *map, uint64_t shards, uint32_t member)
{
    for (uint32_t s = 0; s < SHARDS; s++)
        if ((shards >> s & 1) != 0)
            map->owner[shardmap_slot(F, SHARDS, s)] = rig_id(member);
}

static struct shardmap map_of(uint64_t of_0, uint64_t of_1, uint64_t of_2)
{
    struct shardmap map;
    for (uint32_t slot = 0; slot < SHARDMAP_SLOTS; slot++)
        map.owner[slot] = rig_id(0);
    own(&map, of_0, 0);
    own(&map, of_1, 1);
    own(&map, of_2, 2);
    return map;
}

static struct rig *open_rig_with(const char *folder, const char *sync, int threads)
{
    struct shardmap map = map_of(first, second, third);
    struct rig_conf conf = {.folder = testlib_folder(folder),
                            .sync = sync,
                            .members = MEMBERS,
                            .self = SELF,
                            .threads = threads,
                            .map = &map};
    struct rig *rig = rig_open(&conf);
    rig_begin(rig);
    rig->conf.map = NULL;
    assert_int_equal(rig->plan->plan->fragments[F].shards_count, SHARDS);
    return rig;
}

static struct rig *open_rig(const char *folder, int threads)
{
    return open_rig_with(folder, coarse, threads);
}

/* All stay, and own these. */
static void own_epoch(struct rig *rig, struct shardmap map)
{
    struct config config = roster_next(rig->config_log);
    config.map = map;
    rig_epoch(rig, &config);
}

/* Member 2 is away in the next epoch, and this result of the one before is carried; NULL: none. */
static void begin_epoch(struct rig *rig, struct shardmap map, const struct result_id *carried, uint64_t shards)
{
    struct config config = roster_next(rig->config_log);
    roster_role(&config, 2, CONFIG_AWAY, false);
    config.map = map;
    if (carried != NULL)
        roster_carry(&config, F, roster_number(carried->owner), carried->epoch, shards, &carried->digest);
    rig_epoch(rig, &config);
}

static struct result_id put_result(struct rig *rig, uint32_t owner, bool counts_us);

/* The first part's result is carried into epoch 1; we own the two others. */
static void after_it(struct rig *rig, bool carried_counts)
{
    struct result_id key = put_result(rig, 0, carried_counts);
    rig->hold = ~0u;
    begin_epoch(rig, map_of(first, second | third, 0), &key, first);
}

/* What is posted is kept, and the core left out: rounds alone are looked at. */
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

/* A result in the ledger, of an owner's part in the present epoch, that counts us or does not. */
static struct result_id put_result(struct rig *rig, uint32_t owner, bool counts_us)
{
    static struct rig_object object;
    struct wire_object what;
    struct bitset members = counts_us ? RIG_SET(SELF) : RIG_SET(2);
    rig_result(rig, F, owner, &members, 0, &object);
    rig_append(rig, &object);
    assert_ok(wire_object_peek(object.byte, object.bytes, &what));
    return wire_object_result(&what);
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

/* Who joined with the configuration that carries it has never had the one in which it was made, and an island that goes
 * on forgets it: so the owner's key is known to neither. */
static void a_carried_result_is_known_by_its_digest(void **state)
{
    (void)state;
    static struct rig_object wanted, other;
    struct wire_object what;
    struct bitset all = bitset_first(MEMBERS);
    struct rig *rig = open_rig("parts-by-digest", 0);
    rig_result(rig, F, 0, &all, 0.01f, &wanted);
    rig_result(rig, F, 0, &all, 0.02f, &other);
    assert_ok(wire_object_peek(wanted.byte, wanted.bytes, &what));
    struct result_id carried = wire_object_result(&what);
    begin_epoch(rig, map_of(first, second | third, 0), &carried, first);
    config_log_forget(rig->config_log, 1);
    rig_forget(rig);
    rig_bring(rig, 0, &other);
    rig_settle(rig);
    assert_int_equal(rig_told_count(rig, SYNC_EV_STORED), 0);
    assert_int_equal(rig_posted(rig, EVENT_JUDGED, F)->object.done, WIRE_REFUSED);
    rig_bring(rig, 2, &wanted);
    rig_settle(rig);
    assert_int_equal(rig_told_count(rig, SYNC_EV_STORED), 1);
    assert_int_equal(rig_posted_count(rig, EVENT_EQUIVOCATION), 0);
    rig_close(rig);
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
    encode_begin(rig->rounds->encode, F, 1, &rig->snapshot[F]);
    settle(rig);
    for (size_t i = 0; i < count; i++)
        early[i] = rig->base[F][i] - rig->theta[F][i];
    const struct slot *first_out = slots_out(rig->slots, F, 0);
    size_t bytes = first_out->bytes;
    memcpy(sent, first_out->data, bytes);
    after_it(rig, carried_counts);
    train(rig, 2, 0.02f, 200);
    encode_begin(rig->rounds->encode, F, 1, &rig->snapshot[F]);
    settle(rig);
    for (size_t i = 0; i < count; i++)
        late[i] = rig->base[F][i] - rig->theta[F][i];
    assert_int_equal(how_many(EVENT_ENCODED), 2);
    assert_int_equal(first_out->bytes, bytes);
    assert_memory_equal(first_out->data, sent, bytes); /* it is not made again */
    memset(counted, 0, sizeof counted);
    decode_out(rig, 0, first, counted);
    decode_out(rig, 1, second | third, counted);
    put_result(rig, 1, made_counts);
    apply_begin(rig->rounds->apply, F, 1);
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

/* A process before this one sent what a carried result counts: this one has encoded the rest alone. A state that is
 * taken over counts the carried shards' work, too, and it is not sent again. */
static void assert_a_state_counts(uint64_t shards)
{
    static struct rig_object object;
    static uint8_t row[WIRE_CONTRIBUTOR_BYTES];
    struct wire_meta meta = {.contributors_count = 1, .contributors = row};
    struct store_fragment state = {.version = 0, .step = RIG_STATE_STEP};
    struct bitset voters = RIG_SET(0, SELF);
    struct replica *twin;
    struct rig *rig = open_rig("parts-state", 0);
    after_it(rig, true);
    train(rig, 1, 0.01f, 100);
    posted_count = 0;
    encode_begin(rig->rounds->encode, F, 1, &rig->snapshot[F]);
    settle(rig);
    rig_make_state(rig, F, 0.5f, &twin, &object);
    state.version = 5;
    object.key.version = 5;
    wire_contributor_put(row, 0, &(struct wire_contributor){.id = rig_id(SELF), .digest = {{1}}});
    if (shards != 0)
        assert_ok(dedup_note(replica_counted(twin, F), shards, 1, &meta));
    assert_ok(replica_hash(twin, F, state.version, state.step, &state.hash));
    object.bytes = (size_t)state_object_bytes(twin, F);
    state_object_make(twin, rig->plan->plan, F, &state, object.byte);
    rig_certify(rig, &state.hash, &voters, &object);
    posted_count = 0;
    uint8_t *place;
    assert_ok(slots_take_state(rig->slots, F, object.bytes, &place));
    memcpy(place, object.byte, object.bytes);
    rounds_object_in(rig->rounds, 0, &object.key, object.bytes, false);
    settle(rig);
    assert_int_equal(rounds_state(rig->rounds, F)->version, 5);
    assert_int_equal(how_many(EVENT_COUNTED), shards != 0);
    assert_true(shards == 0 || last(EVENT_COUNTED)->shards == shards);
    replica_free(twin);
    rig_close(rig);
}

static void what_a_carried_result_counts_a_state_counts_too(void **state)
{
    (void)state;
    assert_a_state_counts(0);
    assert_a_state_counts(first);
    assert_a_state_counts(first | second);
}

/* ---- weights ---- */

/* Of what we trained, the results of the epoch before count 700 of 1000 tokens in the shards of the second part, and
 * 100 in those of the third, whose owner was lost: now both are one part, and ours. */
static struct rig *with_two_histories(const char *folder)
{
    struct rig *rig = open_rig_with(folder, "codec = fp32\n", 0);
    posted_count = 0;
    after_it(rig, true);
    train(rig, 1, 0.01f, 1000);
    for (uint32_t s = 0; s < SHARDS; s++)
        rig->snapshot[F].counted_tokens[s] = (second >> s & 1) != 0 ? 700 : (third >> s & 1) != 0 ? 100 : 1000;
    encode_begin(rig->rounds->encode, F, 1, &rig->snapshot[F]);
    settle(rig);
    return rig;
}

/* A contribution of another member to our part lies in its slot. */
static void lay_contribution(struct rig *rig, uint32_t member, uint64_t tokens)
{
    static struct rig_object object;
    struct slot *slot = slots_in(rig->slots, F, member);
    rig_contribution(rig, F, member, tokens, 0.02f, &object);
    assert_ok(slots_room(rig->slots, slot, F, UINT64_MAX));
    memcpy(slot->data, object.byte, object.bytes);
    slot->bytes = object.bytes;
    slot->version = slot->epoch = 1;
}

/* Our result of part `p` is the mean of member 0's contribution and ours, each shard weighed by itself. */
static void assert_mean(struct rig *rig, uint32_t p, uint64_t shards, const float of_0[SHARDS],
                        const float of_us[SHARDS])
{
    static float got[VALUES_MAX], ours[VALUES_MAX], theirs[VALUES_MAX];
    const struct plan *plan = rig->plan->plan;
    struct wire_meta meta;
    size_t bytes, count = replica_values(rig->replica, F, shards), at = 0;
    const uint8_t *frame = rig_open_slot(slots_own(rig->slots, F), WIRE_RESULT, &meta, &bytes);
    rig_decode(frame, bytes, got, count);
    frame = rig_open_slot(slots_out(rig->slots, F, p), WIRE_CONTRIBUTION, &meta, &bytes);
    rig_decode(frame, bytes, ours, count);
    frame = rig_open_slot(slots_in(rig->slots, F, 0), WIRE_CONTRIBUTION, &meta, &bytes);
    rig_decode(frame, bytes, theirs, count);
    for (uint32_t s = 0; s < SHARDS; s++) {
        struct plan_shard shard = plan_shard(plan, F, s);
        for (uint64_t i = shard.begin; (shards >> s & 1) != 0 && i < shard.end; i++, at++)
            assert_true(got[at] == (of_0[s] * theirs[at] + of_us[s] * ours[at]) / (of_0[s] + of_us[s]));
    }
    assert_int_equal(at, count);
}

/* What our result says of a member: on average, and of each shard. NULL: nothing. */
static void assert_named(struct rig *rig, uint32_t member, uint64_t shards, uint64_t tokens, float weight,
                         const uint64_t *by_shard, const float *weights)
{
    struct wire_meta meta;
    struct wire_contributor row;
    struct wire_span span;
    size_t bytes;
    rig_open_slot(slots_own(rig->slots, F), WIRE_RESULT, &meta, &bytes);
    assert_true(wire_meta_find(&meta, rig_id(member), &row));
    assert_true(row.tokens == tokens && testlib_bits_float(row.weight) == weight);
    for (uint32_t s = 0; s < SHARDS; s++) {
        bool there = by_shard != NULL && (shards >> s & 1) != 0;
        assert_int_equal(wire_meta_span(&meta, rig_id(member), s, &span), there);
        assert_true(!there || (span.tokens == by_shard[s] && testlib_bits_float(span.weight) == weights[s]));
    }
}

/* A shard of the mean holds each contribution by the tokens of the work that is in that shard of it. */
static void each_shard_weighs_the_work_that_is_in_it(void **state)
{
    (void)state;
    static const float of_0[SHARDS] = {0, 600, 0, 600, 0, 600, 600, 600, 600};
    static const float of_us[SHARDS] = {0, 300, 0, 300, 0, 900, 900, 900, 900};
    static const uint64_t ours[SHARDS] = {0, 300, 0, 300, 0, 900, 900, 900, 900};
    struct bitset have = RIG_SET(0, SELF);
    struct rig *rig = with_two_histories("parts-work");
    lay_contribution(rig, 0, 600);
    reduce_begin(rig->rounds->reduce, F, 1, &have);
    settle(rig);
    assert_mean(rig, 1, second | third, of_0, of_us);
    assert_named(rig, SELF, second | third, (2 * 300 + 4 * 900) / 6, 700, ours, of_us);
    assert_named(rig, 0, second | third, 600, 600, NULL, NULL); /* all alike: its own row says all */
    rig_close(rig);
}

/* Who holds the work of two rounds in one shard of a part, and of one in the other, may weigh twice as much there. */
static void who_was_not_counted_in_a_shard_may_weigh_more_there(void **state)
{
    (void)state;
    static const float of_0[SHARDS] = {0, 400, 0, 800}, of_us[SHARDS] = {0, 100, 0, 100};
    static const uint64_t tokens[SHARDS] = {0, 100000, 0, 100000};
    struct bitset all = bitset_first(MEMBERS), have = RIG_SET(0, SELF);
    struct rig *rig = open_rig_with("parts-missed", "codec = fp32\n", 0);
    for (int round = 0; round < 2; round++)
        rig_round(rig, F, &all);
    uint8_t row[WIRE_CONTRIBUTOR_BYTES];
    struct wire_meta only = {.contributors = row, .contributors_count = 1};
    wire_contributor_put(row, 0, &(struct wire_contributor){.id = rig_id(0)});
    assert_ok(dedup_note(replica_counted(rig->replica, F), 1 << 3, 1, &only));
    rig->hold = ~0u;
    posted_count = 0;
    uint64_t before = rig->snapshot[F].tokens;
    for (uint32_t s = 0; s < SHARDS; s++)
        rig->snapshot[F].counted_tokens[s] = before;
    train(rig, 1, 0.01f, before + 100);
    encode_begin(rig->rounds->encode, F, 3, &rig->snapshot[F]);
    settle(rig);
    lay_contribution(rig, 0, 100000);
    reduce_begin(rig->rounds->reduce, F, 3, &have);
    settle(rig);
    assert_mean(rig, 1, second, of_0, of_us);
    assert_named(rig, 0, second, 100000, 600, tokens, of_0);
    assert_named(rig, SELF, second, 100, 100, NULL, NULL);
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
    encode_begin(rig->rounds->encode, F, 1, &rig->snapshot[F]);
    assert_int_equal(jobs_pending(rig->jobs), 3);
    after_it(rig, true);
    rig->snapshot[F].tokens = 300;
    encode_begin(rig->rounds->encode, F, 1, &rig->snapshot[F]);
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
    keep_checkpoint(rig->rounds->keep, F);
    assert_int_equal(jobs_pending(rig->jobs), 1);
    after_it(rig, true);
    train(rig, 1, 0.01f, 100);
    encode_begin(rig->rounds->encode, F, 1, &rig->snapshot[F]);
    assert_int_equal(jobs_pending(rig->jobs), 1); /* nothing was begun */
    settle(rig);
    assert_int_equal(how_many(EVENT_ENCODED), 1);
    rig_close(rig);
}

/* The parts of version 1 are others than those of version 2, of which nothing is carried. */
static struct rig *with_a_mean_that_waits(const char *folder)
{
    struct bitset have = RIG_SET(SELF);
    struct rig *rig = open_rig(folder, 1);
    after_it(rig, true);
    posted_count = 0;
    train(rig, 1, 0.01f, 100);
    encode_begin(rig->rounds->encode, F, 1, &rig->snapshot[F]);
    settle(rig);
    encode_begin(rig->rounds->encode, F, 2, &rig->snapshot[F]); /* cuts, and is at work */
    assert_int_equal(jobs_pending(rig->jobs), 2);
    reduce_begin(rig->rounds->reduce, F, 1, &have);
    assert_int_equal(jobs_pending(rig->jobs), 2); /* it is not begun */
    return rig;
}

/* Our own part's mean is ordered while an encoding is at work in the parts there were. */
static void a_mean_waits_for_its_cut(void **state)
{
    (void)state;
    struct wire_meta meta;
    size_t bytes;
    struct rig *rig = with_a_mean_that_waits("parts-mean");
    settle(rig);
    assert_non_null(last(EVENT_SYNC));
    assert_int_equal(last(EVENT_SYNC)->sync.type, SYNC_EV_REDUCED);
    rig_open_slot(slots_own(rig->slots, F), WIRE_RESULT, &meta, &bytes);
    assert_int_equal(meta.contributors_count, 1);
    assert_true((replica_owner_shards(rig->replica, F) & ~first) == (second | third));
    rig_close(rig);
}

/* By the time it can be made, it is another's to make. */
static void a_mean_that_an_epoch_overtakes_is_not_made(void **state)
{
    (void)state;
    struct rig *rig = with_a_mean_that_waits("parts-overtaken");
    uint32_t count;
    const struct part_result *kept = config_carried(config_log_last(rig->config_log), F, &count);
    assert_int_equal(count, 1);
    const struct result_id key = {.owner = kept->id.owner, .epoch = kept->id.epoch, .digest = kept->id.digest};
    begin_epoch(rig, map_of(first | second | third, 0, 0), &key, first);
    settle(rig);
    assert_non_null(last(EVENT_SYNC));
    assert_int_equal(last(EVENT_SYNC)->sync.type, SYNC_EV_OVERTAKEN); /* or the core would wait for it for ever */
    assert_null(slots_own(rig->slots, F)->data);
    rig_close(rig);
}

/* Through the core: the round of our part goes on in the epochs after it. */
static void an_owner_whose_mean_an_epoch_overtakes_goes_on(void **state)
{
    (void)state;
    struct rig *rig = open_rig("parts-wedged", 1);
    static struct rig_object object;
    struct wire_key key = {
        .kind = WIRE_CONTRIBUTION, .fragment = F, .version = 1, .epoch = 3, .owner = rig_id(SELF), .island = rig_id(0)};
    rig_step(rig, &(struct sync_event){.type = SYNC_EV_TRAINER_DOWN, .fragment = F});
    own_epoch(rig, map_of(first, second | third, 0)); /* other parts than the replica is cut for */
    copy_publish(rig->rounds->copy, F, rig->area[F]); /* somebody reads the anchor */
    for (uint32_t i = 0; i < MEMBERS; i += 2) {
        rig_contribution(rig, F, i, 100, 0.01f, &object);
        struct slot *slot = slots_in(rig->slots, F, i);
        assert_ok(slots_room(rig->slots, slot, F, UINT64_MAX));
        memcpy(slot->data, object.byte, object.bytes);
        slot->bytes = object.bytes;
        slot->version = slot->epoch = 1;
        rig_step(rig, &(struct sync_event){
                          .type = SYNC_EV_CONTRIBUTION, .fragment = F, .version = 1, .epoch = 1, .member = i});
    }
    assert_int_equal(sync_owner(rig->sync, F)->state, OWNER_REDUCING);
    own_epoch(rig, map_of(first | second | third, 0, 0)); /* in which we own nothing of it */
    rig_settle(rig);
    assert_int_equal(sync_owner(rig->sync, F)->state, OWNER_COLLECTING);
    own_epoch(rig, map_of(first, second, third)); /* and again some */
    rig_settle(rig);
    assert_int_equal(sync_wants(rig->sync, &key, 0), SYNC_WANT);
    rig_close(rig);
}

/* ---- what our own results leave over ---- */

/* The owner's residual of some shards, run behind run. */
static bool left_nothing(struct rig *rig, uint64_t shards)
{
    const float *values = replica_owner_residual(rig->replica, F);
    uint64_t of = replica_owner_shards(rig->replica, F);
    assert_true((shards & ~of) == 0);
    for (uint32_t s = 0; s < SHARDS; s++) {
        size_t count = replica_values(rig->replica, F, (uint64_t)1 << s);
        if ((shards >> s & 1) != 0 && !rig_all_zero(values, count))
            return false;
        values += (of >> s & 1) != 0 ? count : 0;
    }
    return true;
}

/* Our result of the first epoch is stored; the next one carries it, or not, and gives us more shards. */
static void assert_owner_residual(bool carried)
{
    struct result_id key;
    struct rig *rig = open_rig(carried ? "parts-owner" : "parts-own", 0);
    float *had = replica_owner_residual(rig->replica, F);
    rig_pattern(had, replica_values(rig->replica, F, second), 5, 0.0001f); /* of a version before */
    rig_contribute(rig, F, 0.01f, 100);
    rig_bring_contribution(rig, F, 0, 100, 0.02f);
    rig_bring_contribution(rig, F, 2, 100, 0.02f);
    assert_true(rig_find(rig, F, 1, SELF, &key));
    assert_true(replica_owner_pending(rig->replica, F));
    begin_epoch(rig, map_of(first, second | third, 0), carried ? &key : NULL, second);
    rig_settle(rig);
    assert_false(replica_owner_pending(rig->replica, F)); /* it was another cut's */
    assert_false(left_nothing(rig, second));
    rig_bring_contribution(rig, F, 0, 100, 0.02f);
    assert_true(replica_owner_pending(rig->replica, F));
    assert_false(left_nothing(rig, second)); /* nothing is applied yet */
    rig_bring_result(rig, F, 0, true);
    assert_int_equal(rounds_state(rig->rounds, F)->version, 1);
    /* What a carried result left over is not known any more, and what went into it is not to be added again. */
    assert_int_equal(left_nothing(rig, second), carried);
    assert_false(left_nothing(rig, third));
    rig_close(rig);
}

static void what_a_carried_result_of_ours_held_is_not_added_again(void **state)
{
    (void)state;
    assert_owner_residual(true);
    assert_owner_residual(false);
}

/* ---- members ---- */

/* Members come while jobs are at work; those that are there stay where they are. */
static void there_is_room_for_more_members_at_any_time(void **state)
{
    (void)state;
    unsigned lately;
    struct rig *rig = open_rig("parts-members", 1);
    const struct slot *slot = slots_in(rig->slots, F, 2);
    posted_count = 0;
    train(rig, 1, 0.01f, 100);
    encode_begin(rig->rounds->encode, F, 1, &rig->snapshot[F]);
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
        cmocka_unit_test(a_carried_result_is_known_by_its_digest),
        cmocka_unit_test(what_is_carried_is_not_sent_again_and_nothing_counts_twice),
        cmocka_unit_test(what_a_carried_result_counts_a_state_counts_too),
        cmocka_unit_test(each_shard_weighs_the_work_that_is_in_it),
        cmocka_unit_test(who_was_not_counted_in_a_shard_may_weigh_more_there),
        cmocka_unit_test(a_new_cut_waits_for_the_jobs_of_the_old_one),
        cmocka_unit_test(a_new_cut_waits_for_readers),
        cmocka_unit_test(a_mean_waits_for_its_cut),
        cmocka_unit_test(a_mean_that_an_epoch_overtakes_is_not_made),
        cmocka_unit_test(an_owner_whose_mean_an_epoch_overtakes_goes_on),
        cmocka_unit_test(what_a_carried_result_of_ours_held_is_not_added_again),
        cmocka_unit_test(there_is_room_for_more_members_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
