/* SPDX-License-Identifier: Apache-2.0 */
/* replica_reduce: a mean made in pieces has the same bits in whatever order they are made and on however many threads,
 * and they are those of the mean made at once. */
#include "tests/lib/testlib.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "daemon/state/replica.h"
#include "outer_opt/outer.h"

enum { INPUTS = 4, ROUNDS = 3, THREADS = 3, GUARD = 64, KINDS = 6, ACTIONS = 3 };

/* Tensors longer than segments, and more of them than there are places. */
static const struct plan_tensor tensors[] = {
    {.name = "a", .layer = -1, .count = 300 * 1000, .rows = 1000},
    {.name = "b", .layer = -1, .count = 900, .sensitive = true},
    {.name = "c", .layer = -1, .count = 40 * 500, .rows = 500},
    {.name = "d", .layer = -1, .count = 129 << 10},
    {.name = "e", .layer = -1, .count = 90, .sensitive = true},
    {.name = "f", .layer = -1, .count = 9 << 10},
    {.name = "g", .layer = -1, .count = 90, .sensitive = true},
    {.name = "h", .layer = -1, .count = 9 << 10},
    {.name = "i", .layer = -1, .count = 90, .sensitive = true},
    {.name = "j", .layer = -1, .count = 9 << 10},
    {.name = "k", .layer = -1, .count = 90, .sensitive = true},
    {.name = "l", .layer = -1, .count = 9 << 10},
    {.name = "m", .layer = -1, .count = 90, .sensitive = true},
    {.name = "n", .layer = -1, .count = 9 << 10},
    {.name = "o", .layer = -1, .count = 90, .sensitive = true},
    {.name = "p", .layer = -1, .count = 9 << 10},
};

static const struct kind {
    struct codec_choice choice;
    bool adaptive;
} kinds[KINDS] = {{{.id = CODEC_FP32}, false}, {{.id = CODEC_UNIFORM, .ratio = 1.4f}, false},
                  {{.id = CODEC_E3M0}, false}, {{.id = CODEC_TOPK, .ratio = 1.0f / 64}, false},
                  {{.id = CODEC_E3M0}, true},  {{.id = CODEC_POWERSGD, .rank = 2}, false}};

static const enum outlier_action actions[ACTIONS] = {OUTLIER_KEEP, OUTLIER_CLIP, OUTLIER_TRIMMED};

struct frame {
    uint8_t *bytes;
    size_t count;
};

/* One owner of all there is, and what it makes its means with. */
struct owner {
    struct replica *replica;
    struct codec *codec[THREADS];
    float *scratch[THREADS];
    struct frame result;
    size_t room, pieces; /* of the last mean */
};

static struct plan *new_plan(bool whole_tensors)
{
    struct plan *plan;
    const struct plan_conf conf = {.pattern = PLAN_BALANCED, .fragments = 1, .whole_tensors = whole_tensors};
    assert_ok(plan_new(tensors, sizeof tensors / sizeof *tensors, &conf, &plan));
    return plan;
}

static struct owner new_owner(const struct plan *plan, const struct kind *kind, enum outlier_action action)
{
    struct owner owner = {0};
    const struct replica_conf conf = {.plan = plan,
                                      .outer = {.kind = OUTER_AVERAGE},
                                      .choice = kind->choice,
                                      .adaptive = kind->adaptive,
                                      .error_feedback = true,
                                      .feedback_decay = 1,
                                      .feedback_limit = 1,
                                      .outliers = {.action = action, .threshold = 3, .trim = 1}};
    const uint64_t all = plan_shards(plan, 0);
    assert_ok(replica_new(&conf, &owner.replica));
    assert_ok(replica_cut(owner.replica, 0, &all, 1, all));
    for (int t = 0; t < THREADS; t++) {
        assert_ok(codec_new(1, &owner.codec[t]));
        assert_ok(
            codec_reserve(owner.codec[t], replica_factor_values(owner.replica), replica_segment_values(owner.replica)));
        owner.scratch[t] = malloc(replica_piece_values(&conf) * sizeof *owner.scratch[t]);
    }
    owner.room = replica_frame_bytes_max(owner.replica, 0, all);
    owner.result.bytes = malloc(owner.room + GUARD);
    return owner;
}

static void end_owner(struct owner *owner)
{
    for (int t = 0; t < THREADS; t++) {
        codec_free(owner->codec[t]);
        free(owner->scratch[t]);
    }
    free(owner->result.bytes);
    replica_free(owner->replica);
}

/* ---- contributions ---- */

/* Drawing takes longer than all the rest: a few over and over. */
static void fill(struct env_rng *rng, float *values, size_t count, double sigma)
{
    enum { DRAWN = 5003 };
    float drawn[DRAWN];
    testlib_fill_normal(rng, drawn, DRAWN, sigma);
    for (size_t i = 0; i < count; i++)
        values[i] = drawn[i % DRAWN];
}

/* Each by another codec, and so with segments that end elsewhere; the second of many stretches. */
static void contribute(const struct plan *plan, int round, struct frame *frames, struct mean_input *inputs,
                       struct codec *codec)
{
    enum { STRETCHES = 5 };
    static const struct codec_choice choices[INPUTS] = {
        {.id = CODEC_FP32}, {.id = CODEC_INT8}, {.id = CODEC_UNIFORM, .ratio = 2}, {.id = CODEC_E3M0}};
    const size_t count = (size_t)plan->values_count_max;
    float *values = malloc(count * sizeof *values);
    struct env_rng rng = env_rng_init((uint64_t)round, 7);
    for (uint32_t i = 0; i < INPUTS; i++) {
        struct codec_part parts[STRETCHES] = {{.count = count, .choice = choices[i]}};
        size_t parts_count = 1, fault;
        fill(&rng, values, count, i == 2 ? 5 : 0.01);
        for (size_t k = 0; k < count; k++)
            values[k] += i == 3 ? -0.01f : i == 2 ? 5 : 0.01f; /* the last one goes where the others do not */
        for (; i == 1 && parts_count < STRETCHES; parts_count++) {
            struct codec_part *before = &parts[parts_count - 1], *next = &parts[parts_count];
            *next = *before;
            before->count = 99 * CODEC_BLOCK * parts_count;
            next->at = before->at + before->count;
            next->count = count - next->at;
        }
        frames[i].bytes = malloc(codec_frame_bytes_max(parts, parts_count));
        assert_ok(codec_encode(codec, parts, parts_count, &(struct vec_source){.minuend = values}, NULL,
                               frames[i].bytes, &frames[i].count, &fault));
        inputs[i] = (struct mean_input){.frame = frames[i].bytes,
                                        .bytes = frames[i].count,
                                        .weight = 1000 + (float)i,
                                        .member = i,
                                        .owner = i != 1};
    }
    free(values);
}

static void forget(struct frame *frames)
{
    for (uint32_t i = 0; i < INPUTS; i++)
        free(frames[i].bytes);
}

/* From now on each weighs otherwise in some shards: borders lie within segments and within pieces. `by_shard`: room. */
static void weigh_by_shard(struct mean_input *inputs, float by_shard[INPUTS][PLAN_SHARDS_MAX])
{
    for (uint32_t i = 0; i < INPUTS; i++) {
        for (uint32_t s = 0; s < PLAN_SHARDS_MAX; s++)
            by_shard[i][s] = 1000 + (float)(i * (s / 7 % 3));
        inputs[i].by_shard = by_shard[i];
    }
}

/* ---- ways to make a mean ---- */

typedef enum err pieces(struct owner *owner, struct replica_reducing *r);

/* The last one first, each with another thread's memory. */
static enum err backwards(struct owner *owner, struct replica_reducing *r)
{
    enum err first = ERR_OK;
    for (size_t i = r->pieces; i-- > 0;) {
        enum err err = replica_reduce_piece(r, i, owner->codec[i % THREADS], owner->scratch[i % THREADS]);
        first = err != ERR_OK ? err : first;
    }
    return first;
}

struct thread {
    struct owner *owner;
    struct replica_reducing *r;
    _Atomic size_t *next;
    int number;
    enum err err;
};

static void *some_pieces(void *argument)
{
    struct thread *t = argument;
    for (size_t i; (i = atomic_fetch_add(t->next, 1)) < t->r->pieces;) {
        enum err err = replica_reduce_piece(t->r, i, t->owner->codec[t->number], t->owner->scratch[t->number]);
        t->err = err != ERR_OK ? err : t->err;
    }
    return NULL;
}

static enum err on_threads(struct owner *owner, struct replica_reducing *r)
{
    _Atomic size_t next = 0;
    pthread_t ids[THREADS];
    struct thread threads[THREADS];
    enum err err = ERR_OK;
    for (int t = 0; t < THREADS; t++) {
        threads[t] = (struct thread){.owner = owner, .r = r, .next = &next, .number = t};
        assert_int_equal(pthread_create(&ids[t], NULL, some_pieces, &threads[t]), 0);
    }
    for (int t = 0; t < THREADS; t++) {
        pthread_join(ids[t], NULL);
        err = threads[t].err != ERR_OK ? threads[t].err : err;
    }
    return err;
}

static enum err reduce_by(struct owner *owner, struct mean_input *inputs, pieces *make, size_t *bad)
{
    struct replica_reducing r;
    enum err err = replica_reduce_begin(owner->replica, 0, inputs, INPUTS, owner->result.bytes, &r);
    owner->pieces = 0;
    while (err == ERR_OK && (err = replica_reduce_next(&r)) == ERR_OK && r.pieces > 0) {
        owner->pieces += r.pieces;
        err = make(owner, &r);
    }
    return replica_reduce_end(&r, err, owner->codec[0], &owner->result.count, bad);
}

/* ---- the same bits ---- */

static void assert_same(const struct owner *a, const struct owner *b, const struct plan *plan)
{
    assert_int_equal(a->result.count, b->result.count);
    assert_memory_equal(a->result.bytes, b->result.bytes, a->result.count);
    assert_memory_equal(replica_owner_residual(a->replica, 0), replica_owner_residual(b->replica, 0),
                        plan->values_count_max * sizeof(float));
}

static void several_rounds(const struct kind *kind, enum outlier_action action)
{
    static pieces *const ways[] = {backwards, on_threads};
    enum { WAYS = sizeof ways / sizeof *ways };
    struct plan *plan = new_plan(codec_on_tensors(kind->choice.id));
    struct owner at_once = new_owner(plan, kind, action), other[WAYS];
    for (size_t w = 0; w < WAYS; w++)
        other[w] = new_owner(plan, kind, action);
    for (int round = 0; round < ROUNDS; round++) {
        struct frame frames[INPUTS];
        struct mean_input inputs[INPUTS], again[INPUTS];
        float by_shard[INPUTS][PLAN_SHARDS_MAX];
        size_t bad;
        contribute(plan, round, frames, inputs, at_once.codec[0]);
        if (round == 1)
            weigh_by_shard(inputs, by_shard);
        memcpy(again, inputs, sizeof again);
        memset(at_once.result.bytes + at_once.room, 0xa5, GUARD);
        assert_ok(replica_reduce(at_once.replica, 0, inputs, INPUTS, at_once.codec[0], at_once.scratch[0],
                                 at_once.result.bytes, &at_once.result.count, &bad));
        replica_commit_owner(at_once.replica, 0);
        for (size_t w = 0; w < WAYS; w++) {
            memset(other[w].result.bytes + other[w].room, 0xa5, GUARD);
            assert_ok(reduce_by(&other[w], again, ways[w], &bad));
            replica_commit_owner(other[w].replica, 0);
            assert_same(&at_once, &other[w], plan);
            assert_memory_equal(other[w].result.bytes + other[w].room, at_once.result.bytes + at_once.room, GUARD);
            assert_true(kind->choice.id != CODEC_UNIFORM || other[w].pieces > MEAN_PLACES);
            for (size_t i = 0; i < INPUTS; i++)
                assert_true(again[i].factor == inputs[i].factor && again[i].cosine == inputs[i].cosine);
        }
        for (int i = 0; i < GUARD; i++)
            assert_int_equal(at_once.result.bytes[at_once.room + (size_t)i], 0xa5);
        forget(frames);
    }
    for (size_t w = 0; w < WAYS; w++)
        end_owner(&other[w]);
    end_owner(&at_once);
    plan_free(plan);
}

static void pieces_make_the_same_bits_in_any_order(void **state)
{
    (void)state;
    for (size_t k = 0; k < KINDS; k++)
        for (size_t a = 0; a < ACTIONS; a++)
            several_rounds(&kinds[k], actions[a]);
}

/* By whole arrays and no pieces at all. */
static void they_are_those_of_a_mean_over_whole_arrays(void **state)
{
    (void)state;
    struct plan *plan = new_plan(false);
    struct owner owner = new_owner(plan, &kinds[0], OUTLIER_KEEP);
    const size_t count = (size_t)plan->values_count_max;
    float *sum = calloc(count, sizeof *sum), *made = calloc(count, sizeof *made), weights[INPUTS];
    struct frame frames[INPUTS];
    struct mean_input inputs[INPUTS];
    size_t bad;
    contribute(plan, 1, frames, inputs, owner.codec[0]);
    for (uint32_t i = 0; i < INPUTS; i++) {
        weights[i] = inputs[i].weight;
        assert_ok(codec_decode_add(owner.codec[0], frames[i].bytes, frames[i].count, weights[i], sum, count));
    }
    outer_mean_finish(sum, count, weights, INPUTS);
    assert_ok(reduce_by(&owner, inputs, on_threads, &bad));
    assert_ok(codec_check(owner.result.bytes, owner.result.count, count));
    assert_ok(codec_decode(owner.codec[0], owner.result.bytes, owner.result.count, made, count));
    assert_memory_equal(made, sum, count * sizeof *made);
    forget(frames);
    free(sum);
    free(made);
    end_owner(&owner);
    plan_free(plan);
}

/* As many means as there are shards, each with weights of its own. */
static void each_shard_has_its_own_weights(void **state)
{
    (void)state;
    struct plan *plan = new_plan(false);
    struct owner owner = new_owner(plan, &kinds[0], OUTLIER_KEEP);
    const size_t count = (size_t)plan->values_count_max;
    float *sum = calloc(count, sizeof *sum), *values = calloc(count, sizeof *values), weights[INPUTS];
    float by_shard[INPUTS][PLAN_SHARDS_MAX];
    struct frame frames[INPUTS];
    struct mean_input inputs[INPUTS];
    size_t bad;
    contribute(plan, 1, frames, inputs, owner.codec[0]);
    weigh_by_shard(inputs, by_shard);
    assert_int_equal(plan->fragments[0].shards_count, PLAN_SHARDS_MAX);
    for (uint32_t i = 0; i < INPUTS; i++) {
        assert_ok(codec_decode(owner.codec[0], frames[i].bytes, frames[i].count, values, count));
        for (uint32_t s = 0; s < PLAN_SHARDS_MAX; s++)
            for (uint64_t k = plan_shard(plan, 0, s).begin; k < plan_shard(plan, 0, s).end; k++)
                sum[k] = sum[k] + by_shard[i][s] * values[k];
    }
    for (uint32_t s = 0; s < PLAN_SHARDS_MAX; s++) {
        struct plan_shard shard = plan_shard(plan, 0, s);
        for (uint32_t i = 0; i < INPUTS; i++)
            weights[i] = by_shard[i][s];
        outer_mean_finish(sum + shard.begin, (size_t)(shard.end - shard.begin), weights, INPUTS);
    }
    assert_ok(reduce_by(&owner, inputs, on_threads, &bad));
    assert_ok(codec_decode(owner.codec[0], owner.result.bytes, owner.result.count, values, count));
    assert_memory_equal(values, sum, count * sizeof *values);
    forget(frames);
    free(sum);
    free(values);
    end_owner(&owner);
    plan_free(plan);
}

/* What the owners but `i` add up to, value by value, against what `i` sent; 0 where they have no direction. */
static double cosine_of(const struct plan *plan, const struct mean_input *inputs, float *const *values, uint32_t i)
{
    double along = 0, others = 0, apart = 0, square = 0;
    for (uint32_t s = 0; s < PLAN_SHARDS_MAX; s++) {
        struct plan_shard shard = plan_shard(plan, 0, s);
        for (uint64_t k = shard.begin; k < shard.end; k++) {
            double sum = 0, own = (double)values[i][k];
            for (uint32_t j = 0; j < INPUTS; j++) {
                float weight = inputs[j].by_shard != NULL ? inputs[j].by_shard[s] : inputs[j].weight;
                double share = (double)weight * (double)inputs[j].factor * (double)values[j][k];
                if (j == i || !inputs[j].owner)
                    continue;
                sum += share;
                apart += share * share;
            }
            along += own * sum;
            others += sum * sum;
            square += own * own;
        }
    }
    return others < DIRECTION_AGREE * apart ? 0 : along / sqrt(others * square);
}

/* However weights differ by shard, and of one that weighs nothing, too. Owners are judged by owners alone. */
static void a_cosine_is_that_to_what_the_other_owners_sent(void **state)
{
    (void)state;
    struct plan *plan = new_plan(false);
    struct owner owner = new_owner(plan, &kinds[1], OUTLIER_CLIP);
    const size_t count = (size_t)plan->values_count_max;
    float *values[INPUTS], by_shard[INPUTS][PLAN_SHARDS_MAX];
    struct frame frames[INPUTS];
    struct mean_input inputs[INPUTS];
    size_t bad;
    contribute(plan, 1, frames, inputs, owner.codec[0]);
    for (uint32_t i = 0; i < INPUTS; i++) {
        values[i] = malloc(count * sizeof *values[i]);
        assert_ok(codec_decode(owner.codec[0], frames[i].bytes, frames[i].count, values[i], count));
    }
    for (int way = 0; way < 3; way++) {
        if (way == 1)
            weigh_by_shard(inputs, by_shard);
        for (uint32_t i = 0; way == 2 && i < INPUTS; i++)
            inputs[i].by_shard = NULL;
        inputs[3].weight = way == 2 ? 0 : inputs[3].weight;
        inputs[3].turned = way == 2;
        assert_ok(reduce_by(&owner, inputs, on_threads, &bad));
        for (uint32_t i = 0; i < INPUTS; i++) {
            bool judged = way < 2 || !inputs[i].owner || i == 3; /* of two others that weigh anything */
            double want = judged ? cosine_of(plan, inputs, values, i) : 0;
            if (fabs((double)inputs[i].cosine - want) > 1e-4)
                fail_msg("way %d: cosine %u is %g, not %g", way, i, (double)inputs[i].cosine, want);
        }
        assert_true(inputs[3].cosine < DIRECTION_LEAST);
    }
    for (uint32_t i = 0; i < INPUTS; i++)
        free(values[i]);
    forget(frames);
    end_owner(&owner);
    plan_free(plan);
}

/* One that holds eight rounds' work in some shards is as large there as that, and no outlier. */
static void a_norm_is_held_against_the_work_of_each_shard(void **state)
{
    (void)state;
    struct plan *plan = new_plan(false);
    struct owner owner = new_owner(plan, &kinds[0], OUTLIER_CLIP);
    const size_t count = (size_t)plan->values_count_max;
    const struct codec_part part = {.count = count, .choice = {.id = CODEC_FP32}};
    float *values = calloc(count, sizeof *values), by_shard[INPUTS][PLAN_SHARDS_MAX];
    struct mean_input inputs[INPUTS];
    struct frame frames[INPUTS];
    size_t bad, fault;
    for (uint32_t i = 0; i < INPUTS; i++) {
        for (uint32_t s = 0; s < PLAN_SHARDS_MAX; s++) {
            by_shard[i][s] = i == 3 && s < 8 ? 8 : 1;
            for (uint64_t k = plan_shard(plan, 0, s).begin; k < plan_shard(plan, 0, s).end; k++)
                values[k] = (i == 3 ? 0.02f : 0.01f) * by_shard[i][s];
        }
        frames[i].bytes = malloc(codec_frame_bytes_max(&part, 1));
        assert_ok(codec_encode(owner.codec[0], &part, 1, &(struct vec_source){.minuend = values}, NULL, frames[i].bytes,
                               &frames[i].count, &fault));
        inputs[i] = (struct mean_input){.frame = frames[i].bytes,
                                        .bytes = frames[i].count,
                                        .weight = i == 3 ? 1.875f : 1, /* on average */
                                        .by_shard = by_shard[i]};
    }
    assert_ok(reduce_by(&owner, inputs, backwards, &bad));
    assert_true(inputs[3].factor == 1 && inputs[3].norm > 5.9f * inputs[0].norm);
    forget(frames);
    free(values);
    end_owner(&owner);
    plan_free(plan);
}

/* What a result does not say stays in the residual, piece by piece at its place. */
static void what_is_left_over_is_added_to_the_next_mean(void **state)
{
    (void)state;
    struct plan *plan = new_plan(false);
    struct owner owner = new_owner(plan, &kinds[1], OUTLIER_KEEP), exact = new_owner(plan, &kinds[0], OUTLIER_KEEP);
    const size_t count = (size_t)plan->values_count_max;
    float *before = calloc(count, sizeof *before), *mean = calloc(count, sizeof *mean),
          *made = calloc(count, sizeof *made);
    for (int round = 0; round < ROUNDS; round++) {
        struct frame frames[INPUTS];
        struct mean_input inputs[INPUTS];
        size_t bad;
        contribute(plan, round, frames, inputs, owner.codec[0]);
        assert_ok(reduce_by(&exact, inputs, backwards, &bad));
        assert_ok(reduce_by(&owner, inputs, on_threads, &bad));
        replica_commit_owner(owner.replica, 0);
        assert_ok(codec_decode(owner.codec[0], exact.result.bytes, exact.result.count, mean, count));
        assert_ok(codec_decode(owner.codec[0], owner.result.bytes, owner.result.count, made, count));
        const float *left = replica_owner_residual(owner.replica, 0);
        for (size_t i = 0; i < count; i++)
            assert_float_equal(made[i] + left[i], mean[i] + before[i], 1e-5);
        memcpy(before, left, count * sizeof *before);
        forget(frames);
    }
    free(before);
    free(mean);
    free(made);
    end_owner(&owner);
    end_owner(&exact);
    plan_free(plan);
}

/* ---- what is damaged ---- */

/* Where segment `number` of a frame begins. */
static size_t segment_at(const struct frame *frame, int number)
{
    size_t at = CODEC_HEADER_BYTES;
    for (; number > 0; number--) {
        uint32_t bytes;
        memcpy(&bytes, frame->bytes + at + 8, sizeof bytes);
        at += 12 + bytes;
    }
    return at;
}

static enum err reduce_in_some_way(struct owner *owner, struct mean_input *inputs, int way, size_t *bad)
{
    if (way > 0)
        return reduce_by(owner, inputs, way == 1 ? backwards : on_threads, bad);
    return replica_reduce(owner->replica, 0, inputs, INPUTS, owner->codec[0], owner->scratch[0], owner->result.bytes,
                          &owner->result.count, bad);
}

/* In its segment's header, which is read when pieces are cut, and in what only decoding finds. */
static void who_sent_what_is_damaged_is_named(void **state)
{
    (void)state;
    static const struct {
        size_t offset;
        const char *told;
    } damages[] = {{4, "geometry"}, {0, "unknown codec"}};
    for (size_t d = 0; d < sizeof damages / sizeof *damages; d++) {
        for (size_t a = 0; a < ACTIONS; a++) {
            for (int way = 0; way < 3; way++) {
                struct plan *plan = new_plan(false);
                struct owner owner = new_owner(plan, &kinds[1], actions[a]);
                struct frame frames[INPUTS];
                struct mean_input inputs[INPUTS];
                size_t bad = 99;
                contribute(plan, 1, frames, inputs, owner.codec[0]);
                frames[2].bytes[segment_at(&frames[2], 3) + damages[d].offset] = 0xee;
                frames[3].bytes[segment_at(&frames[3], 3) + damages[d].offset] = 0xee;
                enum err err = reduce_in_some_way(&owner, inputs, way, &bad);
                if (way < 2)
                    assert_fails(ERR_PROTO, damages[d].told, err);
                assert_int_equal(err, ERR_PROTO);
                assert_int_equal(bad, 2);
                assert_false(replica_owner_pending(owner.replica, 0));
                forget(frames);
                end_owner(&owner);
                plan_free(plan);
            }
        }
    }
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_make_the_same_bits_in_any_order),
        cmocka_unit_test(they_are_those_of_a_mean_over_whole_arrays),
        cmocka_unit_test(each_shard_has_its_own_weights),
        cmocka_unit_test(a_cosine_is_that_to_what_the_other_owners_sent),
        cmocka_unit_test(a_norm_is_held_against_the_work_of_each_shard),
        cmocka_unit_test(what_is_left_over_is_added_to_the_next_mean),
        cmocka_unit_test(who_sent_what_is_damaged_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
