/* SPDX-License-Identifier: Apache-2.0 */
/* replica: a round's arithmetic: what islands send, what owners make of it, what everyone holds afterwards. */
#include "tests/lib/testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "daemon/state/replica.h"
#include "tests/lib/outofmem.h"
#include "tests/lib/shares.h"
#include "tests/lib/smallrun.h"

enum { MEMBERS = 3, FRAME_MAX = 1 << 16, SCRATCH_VALUES = 1 << 16 };

static struct plan *plan;
static struct codec *codec;
static float *scratch;

static const struct outer_round numbers = {.scale = 1, .momentum = 0.9f, .lr = 0.4f};

/* The parts of the plan of one fragment; the last of three members owns half. */
static struct parts three;

static struct replica *member(uint32_t self)
{
    struct replica_conf conf = {.plan = plan,
                                .outer = {.kind = OUTER_NESTEROV, .lr = 0.4f, .momentum = 0.9f},
                                .error_feedback = true,
                                .feedback_decay = 1,
                                .choice = {.id = CODEC_E3M0}};
    struct replica *replica;
    assert_ok(replica_new(&conf, &replica));
    assert_ok(shares_cut(&three, replica, self));
    return replica;
}

struct frame {
    uint8_t bytes[FRAME_MAX];
    size_t count;
};

/* What becomes of a residual when a result is applied. */
enum rule { KEEP, MOVE, CLEAR };

static enum err apply(struct replica *replica, uint32_t f, uint64_t shards, const uint8_t *frame, size_t bytes,
                      enum rule rule)
{
    TRY(replica_apply(replica, f, shards, &numbers, frame, bytes, codec));
    if (rule == MOVE)
        replica_commit(replica, f, shards);
    if (rule == CLEAR)
        replica_forget(replica, f, shards);
    return ERR_OK;
}

/* What member i contributes to shard s when its parameters are the anchor plus noise. */
static void contribute(struct replica *replica, uint32_t s, uint64_t seed, struct frame *frame)
{
    size_t count = plan->fragments[0].values_count;
    float *theta = malloc(count * sizeof *theta);
    struct env_rng rng = env_rng_init(seed, s);
    testlib_fill_normal(&rng, theta, count, 0.01);
    for (size_t i = 0; i < count; i++)
        theta[i] += replica_anchor(replica, 0)[i];
    assert_ok(replica_encode(replica, 0, shares_mask(&three, 0, s), replica_anchor(replica, 0), theta, 1000, codec,
                             frame->bytes, &frame->count));
    free(theta);
}

static void everyone_holds_the_same_after_any_rounds(void **state)
{
    (void)state;
    static struct frame in[MEMBERS], result[MEMBERS];
    struct replica *members[MEMBERS];
    struct digest hash, first;
    size_t bad;
    for (uint32_t i = 0; i < MEMBERS; i++)
        members[i] = member(i);
    for (uint64_t version = 1; version <= 4; version++) {
        for (uint32_t s = 0; s < MEMBERS; s++) {
            struct mean_input inputs[MEMBERS];
            for (uint32_t i = 0; i < MEMBERS; i++) {
                contribute(members[i], s, version * 10 + i, &in[i]);
                inputs[i] = (struct mean_input){
                    .frame = in[i].bytes, .bytes = in[i].count, .weight = 1000.0f + (float)i, .member = i};
            }
            assert_ok(replica_reduce(members[s], 0, inputs, MEMBERS, codec, scratch, result[s].bytes, &result[s].count,
                                     &bad));
            replica_commit_owner(members[s], 0);
        }
        for (uint32_t i = 0; i < MEMBERS; i++) {
            /* One of them was not counted by one of the owners: its anchor is the same all the same. */
            for (uint32_t s = 0; s < MEMBERS; s++)
                assert_ok(apply(members[i], 0, shares_mask(&three, 0, s), result[s].bytes, result[s].count,
                                i == 1 && s == 2 ? KEEP : MOVE));
            assert_ok(replica_hash(members[i], 0, version, 0, &hash));
            if (i == 0)
                first = hash;
            assert_true(digest_equal(&hash, &first));
        }
    }
    for (uint32_t i = 0; i < MEMBERS; i++)
        replica_free(members[i]);
}

static void residuals_move_only_when_counted(void **state)
{
    (void)state;
    static struct frame in, result;
    struct replica *one = member(0);
    struct plan_shard range = shares_run(&three, 0, 0);
    size_t bad, n = (size_t)(range.end - range.begin);
    const float *residual = replica_residual(one, 0) + range.begin;
    contribute(one, 0, 1, &in);
    for (size_t i = 0; i < n; i++)
        assert_true(residual[i] == 0); /* nothing has counted it yet */
    struct mean_input input = {.frame = in.bytes, .bytes = in.count, .weight = 5};
    assert_ok(replica_reduce(one, 0, &input, 1, codec, scratch, result.bytes, &result.count, &bad));
    assert_ok(apply(one, 0, shares_mask(&three, 0, 0), result.bytes, result.count, KEEP));
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += fabs(residual[i]);
    assert_true(sum == 0);
    contribute(one, 0, 2, &in);
    assert_ok(apply(one, 0, shares_mask(&three, 0, 0), result.bytes, result.count, MOVE));
    for (size_t i = 0; i < n; i++)
        sum += fabs(residual[i]);
    assert_true(sum > 0);
    assert_ok(apply(one, 0, shares_mask(&three, 0, 0), result.bytes, result.count, CLEAR));
    for (size_t i = 0; i < n; i++)
        assert_true(residual[i] == 0);
    replica_free(one);
}

static double norm_of(const float *values, const float *minus, size_t count)
{
    double square = 0;
    for (size_t i = 0; i < count; i++) {
        double x = (double)values[i] - (minus != NULL ? (double)minus[i] : 0);
        square += x * x;
    }
    return sqrt(square);
}

/* A contribution that is whole and well signed can still hold numbers nobody can average. */
static void the_one_who_sends_nonsense_is_left_out(void **state)
{
    (void)state;
    static struct frame in[MEMBERS], result;
    struct replica *owner = member(0);
    struct mean_input inputs[MEMBERS];
    struct codec *plain;
    size_t bad;
    assert_ok(codec_new(0, &plain));
    struct plan_shard range = shares_run(&three, 0, 0);
    size_t n = (size_t)(range.end - range.begin);
    for (uint32_t culprit = 0; culprit < MEMBERS; culprit++) {
        for (uint32_t i = 0; i < MEMBERS; i++) {
            float *values = calloc(n, sizeof *values);
            /* Beyond bf16, so beyond any scale, above or below. */
            values[n / 2] = i != culprit ? 1.0f : culprit % 2 == 0 ? 3.4e38f : -3.4e38f;
            struct vec_source source = {.minuend = values};
            struct codec_part part = {.count = n, .choice = {.id = CODEC_FP32}};
            assert_ok(codec_encode(plain, &part, 1, &source, NULL, in[i].bytes, &in[i].count, &bad));
            inputs[i] = (struct mean_input){.frame = in[i].bytes, .bytes = in[i].count, .weight = 1e6f, .member = i};
            free(values);
        }
        assert_fails(ERR_NONFINITE, "NaN, Inf",
                     replica_reduce(owner, 0, inputs, MEMBERS, codec, scratch, result.bytes, &result.count, &bad));
        assert_int_equal(bad, culprit);
        in[culprit].bytes[0] ^= 1;
        assert_fails(ERR_PROTO, "",
                     replica_reduce(owner, 0, inputs, MEMBERS, codec, scratch, result.bytes, &result.count, &bad));
        assert_int_equal(bad, culprit);
        in[culprit].bytes[0] ^= 1;
        const uint64_t payload = in[culprit].count - CODEC_HEADER_BYTES + 4; /* a header's last word but the digest */
        memcpy(in[culprit].bytes + 24, &payload, sizeof payload);
        inputs[culprit].bytes += 4;
        for (uint32_t i = 0; i < MEMBERS; i++) /* only a mean that can be encoded is made to its end */
            inputs[i].weight = i == culprit ? 1e-30f : 1e6f;
        assert_fails(ERR_PROTO, "behind its last segment",
                     replica_reduce(owner, 0, inputs, MEMBERS, codec, scratch, result.bytes, &result.count, &bad));
        assert_int_equal(bad, culprit);
    }
    codec_free(plain);
    replica_free(owner);
}

static void a_nan_of_ours_names_its_tensor(void **state)
{
    (void)state;
    static struct frame frame;
    struct replica *one = member(0);
    size_t count = plan->fragments[0].values_count;
    float *theta = calloc(count, sizeof *theta);
    theta[plan->tensors[1].offset + 7] = NAN;
    enum err err = ERR_OK;
    for (uint32_t s = 0; s < MEMBERS && err == ERR_OK; s++)
        err = replica_encode(one, 0, shares_mask(&three, 0, s), replica_anchor(one, 0), theta, 1000, codec, frame.bytes,
                             &frame.count);
    assert_int_equal(err, ERR_NONFINITE);
    assert_non_null(strstr(err_text(), "second"));
    free(theta);
    replica_free(one);
}

/* ---- residuals ---- */

/* A member of a run of three fragments, full of numbers; residuals are kept as they are. */
static struct replica *filled(const struct smallrun *run, uint32_t self)
{
    struct replica_conf conf = smallrun_conf(run);
    struct replica *replica;
    conf.feedback_decay = 1;
    conf.feedback_limit = 0;
    assert_ok(replica_new(&conf, &replica));
    assert_ok(shares_cut(&run->parts, replica, self));
    for (uint32_t f = 0; f < SMALLRUN_FRAGMENTS; f++)
        smallrun_fill(replica, run, f, 1);
    return replica;
}

static float *copy_of(const float *values, uint64_t count)
{
    float *copy = malloc((size_t)count * sizeof *copy);
    memcpy(copy, values, (size_t)count * sizeof *copy);
    return copy;
}

/* Encodes what lies between the anchor and parameters that are all zero; returns the residual there will be if this
 * contribution is counted. */
static float *encode_again(struct replica *replica, const struct smallrun *run, uint32_t f, uint32_t s,
                           struct frame *frame)
{
    struct plan_shard range = shares_run(&run->parts, f, s);
    size_t n = (size_t)(range.end - range.begin);
    float *theta = calloc((size_t)run->plan->plan->fragments[f].values_count, sizeof *theta);
    float *left = malloc(n * sizeof *left);
    assert_ok(replica_encode(replica, f, shares_mask(&run->parts, f, s), replica_anchor(replica, f), theta, 1000, codec,
                             frame->bytes, &frame->count));
    assert_ok(codec_decode(codec, frame->bytes, frame->count, left, n));
    for (size_t i = 0; i < n; i++)
        left[i] = replica_anchor(replica, f)[range.begin + i] + replica_residual(replica, f)[range.begin + i] - left[i];
    free(theta);
    return left;
}

/* Whatever was encoded since: a result that does not name us leaves the residual as it was, to the bit. */
static void a_residual_stays_as_it_is_when_a_result_does_not_count_us(void **state)
{
    (void)state;
    static struct frame frame;
    struct smallrun run = smallrun_new("codec = e3m0\nerror_feedback = yes\n");
    struct replica *one = filled(&run, 0);
    uint64_t count = run.plan->plan->fragments[1].values_count;
    float *before = copy_of(replica_residual(one, 1), count), *anchor = copy_of(replica_anchor(one, 1), count);
    for (uint32_t s = 0; s < SMALLRUN_MEMBERS; s++) {
        for (int times = 0; times < 2; times++) { /* encoded anew, as after a round that closed without us */
            free(encode_again(one, &run, 1, s, &frame));
            assert_memory_equal(replica_residual(one, 1), before, count * sizeof(float));
        }
        assert_ok(apply(one, 1, shares_mask(&run.parts, 1, s), frame.bytes, frame.count, KEEP));
        assert_memory_equal(replica_residual(one, 1), before, count * sizeof(float));
    }
    assert_memory_not_equal(replica_anchor(one, 1), anchor, count * sizeof(float));
    free(before);
    free(anchor);
    replica_free(one);
    smallrun_free(&run);
}

/* Of one shard of one fragment, and of no other. */
static void a_residual_moves_for_the_shard_that_counts_us_alone(void **state)
{
    (void)state;
    static struct frame frame;
    struct smallrun run = smallrun_new("codec = e3m0\nerror_feedback = yes\n");
    struct replica *one = filled(&run, 0), *other = filled(&run, 0);
    struct plan_shard range = shares_run(&run.parts, 1, 2);
    size_t n = (size_t)(range.end - range.begin);
    free(encode_again(one, &run, 1, 0, &frame)); /* pending for other shards, too */
    free(encode_again(one, &run, 1, 1, &frame));
    float *left = encode_again(one, &run, 1, 2, &frame);
    assert_ok(apply(one, 1, shares_mask(&run.parts, 1, 2), frame.bytes, frame.count, MOVE));
    for (size_t i = 0; i < n; i++)
        assert_float_equal(replica_residual(one, 1)[range.begin + i], left[i], 1e-5);
    assert_true(norm_of(replica_residual(one, 1) + range.begin, NULL, n) > 0);
    /* Brought over by hand, there is no other difference. */
    memcpy(replica_residual(other, 1) + range.begin, replica_residual(one, 1) + range.begin, n * sizeof(float));
    assert_ok(apply(other, 1, shares_mask(&run.parts, 1, 2), frame.bytes, frame.count, KEEP));
    struct digest mine = smallrun_digest(one, &run), theirs = smallrun_digest(other, &run);
    assert_true(digest_equal(&mine, &theirs));
    /* One that is not known any more is forgotten, there and nowhere else. */
    assert_ok(apply(one, 1, shares_mask(&run.parts, 1, 2), frame.bytes, frame.count, CLEAR));
    memset(replica_residual(other, 1) + range.begin, 0, n * sizeof(float));
    assert_ok(apply(other, 1, shares_mask(&run.parts, 1, 2), frame.bytes, frame.count, KEEP));
    mine = smallrun_digest(one, &run);
    theirs = smallrun_digest(other, &run);
    assert_true(digest_equal(&mine, &theirs));
    free(left);
    replica_free(one);
    replica_free(other);
    smallrun_free(&run);
}

/* One input of weight: its frame is of the anchor, so the mean is what that frame decodes to. */
static void reduce_one(struct replica *owner, const struct frame *in, struct frame *out, float *mean, size_t n)
{
    struct mean_input input = {.frame = in->bytes, .bytes = in->count, .weight = 3};
    size_t bad;
    assert_ok(replica_reduce(owner, 1, &input, 1, codec, scratch, out->bytes, &out->count, &bad));
    assert_ok(codec_decode(codec, in->bytes, in->count, mean, n));
}

static void the_owners_residual_moves_when_its_result_is_the_truth(void **state)
{
    (void)state;
    enum { SELF = 2 };
    static struct frame in, out;
    struct smallrun run = smallrun_new("codec = e3m0\nerror_feedback = yes\n");
    struct replica *owner = filled(&run, SELF);
    struct plan_shard range = shares_run(&run.parts, 1, SELF);
    size_t n = (size_t)(range.end - range.begin);
    float *mean = malloc(n * sizeof *mean), *decoded = malloc(n * sizeof *decoded);
    float *before = copy_of(replica_owner_residual(owner, 1), n);
    float *ours = copy_of(replica_residual(owner, 1), run.plan->plan->fragments[1].values_count);
    free(encode_again(owner, &run, 1, SELF, &in));
    for (int times = 0; times < 2; times++) { /* the first was thrown away: a contribution was dropped */
        reduce_one(owner, &in, &out, mean, n);
        assert_memory_equal(replica_owner_residual(owner, 1), before, n * sizeof(float));
    }
    replica_commit_owner(owner, 1);
    assert_ok(codec_decode(codec, out.bytes, out.count, decoded, n));
    for (size_t i = 0; i < n; i++)
        assert_float_equal(replica_owner_residual(owner, 1)[i], mean[i] + before[i] - decoded[i], 1e-5);
    /* The next result is made with it, and with it alone. */
    memcpy(before, replica_owner_residual(owner, 1), n * sizeof(float));
    reduce_one(owner, &in, &out, mean, n);
    replica_commit_owner(owner, 1);
    assert_ok(codec_decode(codec, out.bytes, out.count, decoded, n));
    for (size_t i = 0; i < n; i++)
        assert_float_equal(replica_owner_residual(owner, 1)[i], mean[i] + before[i] - decoded[i], 1e-5);
    assert_memory_equal(replica_residual(owner, 1), ours, run.plan->plan->fragments[1].values_count * sizeof(float));
    free(mean);
    free(decoded);
    free(before);
    free(ours);
    replica_free(owner);
    smallrun_free(&run);
}

static void only_a_share_of_a_residual_is_kept_where_it_decays(void **state)
{
    (void)state;
    static struct frame frame;
    struct smallrun run = smallrun_new("codec = e3m0\nerror_feedback = yes\n");
    struct replica_conf conf = smallrun_conf(&run);
    struct replica *half;
    conf.feedback_decay = 0.5f;
    conf.feedback_limit = 0;
    assert_ok(replica_new(&conf, &half));
    assert_ok(shares_cut(&run.parts, half, 0));
    smallrun_fill(half, &run, 1, 1);
    struct plan_shard range = shares_run(&run.parts, 1, 2);
    float *left = encode_again(half, &run, 1, 2, &frame);
    replica_commit(half, 1, shares_mask(&run.parts, 1, 2));
    for (uint64_t i = range.begin; i < range.end; i++)
        assert_float_equal(replica_residual(half, 1)[i], left[i - range.begin] / 2, 1e-5);
    free(left);
    replica_free(half);
    smallrun_free(&run);
}

static void what_is_cleared_is_as_new(void **state)
{
    (void)state;
    struct smallrun run = smallrun_new("codec = e3m0\nerror_feedback = yes\n");
    struct replica *one = filled(&run, 2), *new = smallrun_replica(&run, 2);
    struct digest before, after, mine, theirs;
    size_t bytes = (size_t)run.plan->plan->fragments[1].values_count * sizeof(float);
    assert_ok(replica_hash(one, 1, 4, 0, &before));
    replica_clear_residuals(one, 1);
    assert_ok(replica_hash(one, 1, 4, 0, &after)); /* anchor and momentum stand */
    assert_true(digest_equal(&before, &after));
    assert_memory_equal(replica_residual(one, 1), replica_residual(new, 1), bytes);
    assert_memory_equal(replica_owner_residual(one, 1), replica_owner_residual(new, 1),
                        replica_values(one, 1, replica_owner_shards(one, 1)) * sizeof(float));
    smallrun_fill(one, &run, 1, 2);
    replica_clear(one, 1);
    /* And the other fragments are untouched. */
    smallrun_fill(new, &run, 0, 1);
    smallrun_fill(new, &run, 2, 1);
    mine = smallrun_digest(one, &run);
    theirs = smallrun_digest(new, &run);
    assert_true(digest_equal(&mine, &theirs));
    replica_free(one);
    replica_free(new);
    smallrun_free(&run);
}

static void without_feedback_there_are_no_residuals_to_move(void **state)
{
    (void)state;
    static struct frame in, out;
    struct smallrun run = smallrun_new("[outer]\noptimizer = average\n");
    struct replica *one = smallrun_replica(&run, 2);
    struct mean_input input = {.frame = in.bytes, .weight = 1};
    struct replica_size size;
    struct plan_shard own = shares_run(&run.parts, 1, 2);
    float *theta = calloc((size_t)run.plan->plan->fragments[1].values_count, sizeof *theta);
    size_t bad;
    smallrun_fill(one, &run, 1, 1);
    assert_null(replica_momentum(one, 1));
    assert_null(replica_residual(one, 1));
    assert_null(replica_owner_residual(one, 1));
    assert_ok(replica_encode(one, 1, shares_mask(&run.parts, 1, 2), replica_anchor(one, 1), theta, 1000, codec,
                             in.bytes, &in.count));
    replica_commit(one, 1, shares_mask(&run.parts, 1, 2));
    input.bytes = in.count;
    assert_ok(replica_reduce(one, 1, &input, 1, codec, scratch, out.bytes, &out.count, &bad));
    replica_commit_owner(one, 1);
    assert_ok(replica_measure(one, 1, shares_mask(&run.parts, 1, 2), out.bytes, out.count, codec, &size));
    assert_true(size.delta > 0 && size.momentum == 0);
    assert_ok(apply(one, 1, shares_mask(&run.parts, 1, 2), out.bytes, out.count, MOVE));
    assert_ok(apply(one, 1, shares_mask(&run.parts, 1, 2), out.bytes, out.count, CLEAR));
    replica_clear_residuals(one, 1);
    assert_true(norm_of(replica_anchor(one, 1) + own.begin, NULL, (size_t)(own.end - own.begin)) > 0);
    replica_clear(one, 1);
    assert_true(norm_of(replica_anchor(one, 1), NULL, (size_t)run.plan->plan->fragments[1].values_count) == 0);
    free(theta);
    replica_free(one);
    smallrun_free(&run);
}

/* ---- sizes, and what cannot be done ---- */

static void sizes_are_sums_of_squares_before_the_step(void **state)
{
    (void)state;
    static struct frame frame;
    struct smallrun run = smallrun_new("codec = fp32\n");
    struct replica *one = smallrun_replica(&run, 0);
    struct plan_shard range = shares_run(&run.parts, 1, 2);
    struct replica_size size;
    size_t n = (size_t)(range.end - range.begin);
    float *theta = calloc((size_t)run.plan->plan->fragments[1].values_count, sizeof *theta);
    smallrun_fill(one, &run, 1, 1);
    assert_ok(replica_encode(one, 1, shares_mask(&run.parts, 1, 2), replica_anchor(one, 1), theta, 1000, codec,
                             frame.bytes, &frame.count));
    struct digest before = smallrun_digest(one, &run);
    assert_ok(replica_measure(one, 1, shares_mask(&run.parts, 1, 2), frame.bytes, frame.count, codec, &size));
    struct digest after = smallrun_digest(one, &run);
    assert_true(digest_equal(&before, &after));
    double delta = norm_of(replica_anchor(one, 1) + range.begin, NULL, n);
    double momentum = norm_of(replica_momentum(one, 1) + range.begin, NULL, n);
    assert_true(fabs(size.delta / (delta * delta) - 1) < 1e-5);
    assert_true(fabs(size.momentum / (momentum * momentum) - 1) < 1e-5);
    free(theta);
    replica_free(one);
    smallrun_free(&run);
}

static void a_result_that_cannot_be_decoded_changes_nothing(void **state)
{
    (void)state;
    static struct frame frame;
    struct smallrun run = smallrun_new("codec = e3m0\nerror_feedback = yes\n");
    struct replica *one = filled(&run, 0);
    struct replica_size size;
    free(encode_again(one, &run, 1, 2, &frame));
    struct digest before = smallrun_digest(one, &run);
    size_t whole = frame.count;
    for (size_t bytes = 0; bytes < whole; bytes += 1 + whole / 50) {
        assert_int_equal(apply(one, 1, shares_mask(&run.parts, 1, 2), frame.bytes, bytes, MOVE), ERR_PROTO);
        assert_int_equal(replica_measure(one, 1, shares_mask(&run.parts, 1, 2), frame.bytes, bytes, codec, &size),
                         ERR_PROTO);
    }
    /* Whole, and of a shard of another size. */
    assert_int_equal(apply(one, 1, shares_mask(&run.parts, 1, 0), frame.bytes, whole, CLEAR), ERR_PROTO);
    struct digest after = smallrun_digest(one, &run);
    assert_true(digest_equal(&before, &after));
    replica_free(one);
    smallrun_free(&run);
}

/* Made, and cut twice. */
static enum err make_replica(void *user)
{
    const struct smallrun *run = user;
    struct replica_conf conf = smallrun_conf(run);
    struct replica *replica;
    enum err err = replica_new(&conf, &replica);
    assert_true(err == ERR_OK || replica == NULL);
    if (err == ERR_OK)
        err = shares_cut(&run->parts, replica, 1);
    if (err == ERR_OK)
        err = shares_cut(&run->parts, replica, 2);
    replica_free(replica);
    return err;
}

/* With all that can be allocated. */
static void without_memory_there_is_no_replica(void **state)
{
    (void)state;
    static const char *const lines[] = {"codec = powersgd\nerror_feedback = yes\noutliers = trimmed\n",
                                        "codec = adaptive\n"};
    for (size_t i = 0; i < 2; i++) {
        struct smallrun run = smallrun_new(lines[i]);
        print_message("%zu allocations failed in turn\n", outofmem_walk(make_replica, &run));
        smallrun_free(&run);
    }
    replica_free(NULL);
}

int main(void)
{
    assert_ok(digest_init());
    struct plan_tensor tensors[] = {{.name = "first", .layer = -1, .count = 1500},
                                    {.name = "second", .layer = -1, .count = 700}};
    struct plan_conf conf = {.pattern = PLAN_BALANCED, .fragments = 1};
    assert_ok(plan_new(tensors, 2, &conf, &plan));
    struct config_log *config_log = shares_config_log((const uint64_t[MEMBERS]){1, 1, 2}, MEMBERS);
    three = (struct parts){.plan = plan, .config_log = config_log};
    assert_ok(codec_new(1, &codec));
    scratch = malloc(SCRATCH_VALUES * sizeof *scratch);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everyone_holds_the_same_after_any_rounds),
        cmocka_unit_test(residuals_move_only_when_counted),
        cmocka_unit_test(the_one_who_sends_nonsense_is_left_out),
        cmocka_unit_test(a_nan_of_ours_names_its_tensor),
        cmocka_unit_test(a_residual_stays_as_it_is_when_a_result_does_not_count_us),
        cmocka_unit_test(a_residual_moves_for_the_shard_that_counts_us_alone),
        cmocka_unit_test(the_owners_residual_moves_when_its_result_is_the_truth),
        cmocka_unit_test(only_a_share_of_a_residual_is_kept_where_it_decays),
        cmocka_unit_test(what_is_cleared_is_as_new),
        cmocka_unit_test(without_feedback_there_are_no_residuals_to_move),
        cmocka_unit_test(sizes_are_sums_of_squares_before_the_step),
        cmocka_unit_test(a_result_that_cannot_be_decoded_changes_nothing),
        cmocka_unit_test(without_memory_there_is_no_replica),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(scratch);
    codec_free(codec);
    config_log_free(config_log);
    plan_free(plan);
    return failed;
}
