/* SPDX-License-Identifier: Apache-2.0 */
/* replica, as epochs begin: parts and owners change from one version to the next, and nothing is lost or added twice.
 */
#include "tests/lib/testlib.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "common/mem.h"
#include "tests/lib/outofmem.h"
#include "tests/lib/pages.h"
#include "tests/lib/roster.h"
#include "tests/lib/shares.h"
#include "tests/lib/smallrun.h"

enum {
    MEMBERS = SMALLRUN_MEMBERS,
    FRAME_MAX = 1 << 16,
    SCRATCH_VALUES = 1 << 16,
    F = 0,
    VERSIONS = 8,
    SECOND = 3,
    THIRD = 6
};

static struct codec *codec;
static float *scratch;
static const struct outer_round numbers = {.scale = 1, .momentum = 0.9f, .lr = 0.4f};

struct frame {
    uint8_t bytes[FRAME_MAX];
    size_t count;
};

static uint64_t of_all(const struct smallrun *run)
{
    return plan_shards(run->plan->plan, F);
}

/* Shards `from` to `to` - 1. */
static uint64_t mask(uint32_t from, uint32_t to)
{
    return (((uint64_t)1 << (to - from)) - 1) << from;
}

static struct replica *replica_of(const struct smallrun *run)
{
    struct replica_conf conf = smallrun_conf(run);
    struct replica *replica;
    conf.feedback_decay = 1;
    conf.feedback_limit = 0; /* which is held against a part's norm */
    assert_ok(replica_new(&conf, &replica));
    return replica;
}

static float *noise(const struct smallrun *run, uint64_t seed, uint64_t stream)
{
    size_t count = (size_t)run->plan->plan->fragments[F].values_count;
    struct env_rng rng = env_rng_init(seed, stream);
    float *values = calloc(count, sizeof *values);
    testlib_fill_normal(&rng, values, count, 1e-2);
    return values;
}

/* ---- a run whose owners change ---- */

struct part {
    uint32_t owner;
    uint64_t shards;
    bool carried;
};

/* Who makes version `version`, in a run of three epochs; in the first version of the last one, what member 1 had made
 * in the one before is carried. `now`: of the epoch that version ends in. */
static uint32_t moving_parts(uint64_t version, bool now, uint64_t all, struct part *parts)
{
    const uint64_t first = mask(0, 3), middle = 5u << 3, rest = all & ~first & ~middle;
    if (version < SECOND) {
        memcpy(parts, ((struct part[]){{0, first, false}, {1, middle, false}, {2, rest, false}}), 3 * sizeof *parts);
        return 3;
    }
    if (version < THIRD || (version == THIRD && !now)) { /* member 2 has gone */
        memcpy(parts, ((struct part[]){{0, rest, false}, {1, first | middle, false}}), 2 * sizeof *parts);
        return 2;
    }
    bool carried = version == THIRD;
    memcpy(
        parts,
        ((struct part[]){{1, first | middle, carried}, {0, rest & mask(4, 8), false}, {2, rest & ~mask(4, 8), false}}),
        3 * sizeof *parts);
    if (!carried)
        parts[0].shards = first | middle;
    return 3;
}

static uint32_t one_owner(uint64_t all, struct part *parts)
{
    parts[0] = (struct part){1, all, false};
    return 1;
}

struct world {
    const struct smallrun *run;
    struct replica *members[MEMBERS];
    struct frame in[MEMBERS];
    struct frame result[MEMBERS]; /* by part */
};

static void cut(struct world *w, const struct part *parts, uint32_t count)
{
    for (uint32_t i = 0; i < MEMBERS; i++) {
        uint64_t masks[MEMBERS], own = 0;
        uint32_t n = 0;
        for (uint32_t p = 0; p < count; p++) {
            if (parts[p].carried)
                continue;
            masks[n++] = parts[p].shards;
            own |= parts[p].owner == i ? parts[p].shards : 0;
        }
        assert_ok(replica_cut(w->members[i], F, masks, n, own));
    }
}

/* All contribute to a part, and its owner makes the result. */
static void make(struct world *w, const struct part *part, float *const *theta, struct frame *result)
{
    struct mean_input inputs[MEMBERS];
    size_t bad;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        assert_ok(replica_encode(w->members[i], F, part->shards, replica_anchor(w->members[i], F), theta[i], 100, codec,
                                 w->in[i].bytes, &w->in[i].count));
        inputs[i] = (struct mean_input){
            .frame = w->in[i].bytes, .bytes = w->in[i].count, .weight = (float)(i + 1), .member = i};
    }
    assert_ok(replica_reduce(w->members[part->owner], F, inputs, MEMBERS, codec, scratch, result->bytes, &result->count,
                             &bad));
    replica_commit_owner(w->members[part->owner], F);
}

static void take_version(struct world *w, uint64_t version, bool moving)
{
    struct part parts[MEMBERS], before[MEMBERS];
    uint64_t all = of_all(w->run);
    float *theta[MEMBERS];
    uint32_t count = moving ? moving_parts(version, true, all, parts) : one_owner(all, parts);
    for (uint32_t i = 0; i < MEMBERS; i++)
        theta[i] = noise(w->run, version, i);
    if (moving && version == THIRD) { /* all had contributed when the epoch began, and one result was made */
        uint32_t had = moving_parts(version, false, all, before);
        cut(w, before, had);
        for (uint32_t i = 0; i < MEMBERS; i++)
            assert_ok(replica_encode(w->members[i], F, before[0].shards, replica_anchor(w->members[i], F), theta[i],
                                     100, codec, w->in[i].bytes, &w->in[i].count));
        make(w, &before[1], theta, &w->result[0]);
    }
    cut(w, parts, count);
    for (uint32_t p = 0; p < count; p++)
        if (!parts[p].carried)
            make(w, &parts[p], theta, &w->result[p]);
    for (uint32_t p = 0; p < count; p++)
        for (uint32_t i = 0; i < MEMBERS; i++) {
            assert_ok(replica_apply(w->members[i], F, parts[p].shards, &numbers, w->result[p].bytes, w->result[p].count,
                                    codec));
            replica_commit(w->members[i], F, parts[p].shards);
        }
    for (uint32_t i = 0; i < MEMBERS; i++)
        free(theta[i]);
}

/* The hash after all versions, the same on every member after each. */
static struct digest after_versions(const struct smallrun *run, bool moving)
{
    static struct world w;
    struct digest first, hash;
    w.run = run;
    for (uint32_t i = 0; i < MEMBERS; i++)
        w.members[i] = replica_of(run);
    for (uint64_t version = 1; version <= VERSIONS; version++) {
        take_version(&w, version, moving);
        assert_ok(replica_hash(w.members[0], F, version, 0, &first));
        for (uint32_t i = 1; i < MEMBERS; i++) {
            assert_ok(replica_hash(w.members[i], F, version, 0, &hash));
            assert_true(digest_equal(&hash, &first));
        }
    }
    for (uint32_t i = 0; i < MEMBERS; i++)
        replica_free(w.members[i]);
    return first;
}

/* Values are averaged one by one: who does it, and in which parts, changes no bit of a codec that is exact; and under
 * any codec all hold the same. */
static void owners_that_change_lead_to_the_same_anchors(void **state)
{
    (void)state;
    static const char *const codecs[] = {
        "codec = fp32\n", "codec = e3m0\nerror_feedback = yes\n", "codec = adaptive\nerror_feedback = yes\n",
        "codec = topk\nerror_feedback = yes\n", "codec = uniform\nerror_feedback = yes\noutliers = trimmed\n"};
    for (size_t k = 0; k < sizeof codecs / sizeof codecs[0]; k++) {
        struct smallrun run = smallrun_new(codecs[k]);
        struct digest moving = after_versions(&run, true), alone = after_versions(&run, false);
        assert_true(k != 0 || digest_equal(&moving, &alone));
        smallrun_free(&run);
    }
}

/* Anchors, and what members have left over, after some versions of parts that stay. */
static struct digest after_rounds(const struct smallrun *run, const struct shardmap *map)
{
    static struct world w;
    static const uint64_t even[MEMBERS] = {1, 1, 1};
    struct config config = shares_config(even, MEMBERS);
    struct config_log *config_log;
    config.map = *map;
    assert_ok(config_log_new(&config_log));
    roster_add(config_log, &config);
    const struct parts owners = {.plan = run->plan->plan, .config_log = config_log};
    struct version_part all[VERSION_PARTS_MAX];
    struct part parts[MEMBERS];
    struct digest_state digest;
    uint32_t count = parts_of(&owners, F, 1, all);
    digest_begin(&digest);
    w.run = run;
    for (uint32_t p = 0; p < count; p++)
        parts[p] = (struct part){roster_number(all[p].id.owner), all[p].shards, false};
    for (uint32_t i = 0; i < MEMBERS; i++)
        w.members[i] = replica_of(run);
    cut(&w, parts, count);
    for (uint64_t version = 1; version <= 3; version++) {
        float *theta[MEMBERS];
        for (uint32_t i = 0; i < MEMBERS; i++)
            theta[i] = noise(run, version, i);
        for (uint32_t p = 0; p < count; p++)
            make(&w, &parts[p], theta, &w.result[p]);
        for (uint32_t p = 0; p < count; p++)
            for (uint32_t i = 0; i < MEMBERS; i++) {
                assert_ok(replica_apply(w.members[i], F, parts[p].shards, &numbers, w.result[p].bytes,
                                        w.result[p].count, codec));
                (i == 1 ? replica_forget : replica_commit)(w.members[i], F, parts[p].shards);
            }
        for (uint32_t i = 0; i < MEMBERS; i++)
            free(theta[i]);
    }
    for (uint32_t i = 0; i < MEMBERS; i++) {
        size_t bytes = (size_t)run->plan->plan->fragments[F].values_count * sizeof(float);
        digest_add(&digest, replica_anchor(w.members[i], F), bytes);
        digest_add(&digest, replica_residual(w.members[i], F), bytes);
        replica_free(w.members[i]);
    }
    config_log_free(config_log);
    return digest_end(&digest);
}

/* Codecs work on blocks, and shards are cut between them: one run of shards or many, the same numbers come out. */
static void the_same_anchors_come_of_any_owners(void **state)
{
    (void)state;
    struct smallrun run = smallrun_new("codec = e3m0\nerror_feedback = yes\n");
    struct shardmap runs = config_log_last(run.config_log)->map, scattered = runs, alone = runs;
    for (uint32_t slot = 0; slot < SHARDMAP_SLOTS; slot++) {
        scattered.owner[slot] = roster_id(slot * slot % 7 % MEMBERS);
        alone.owner[slot] = roster_id(1);
    }
    struct digest want = after_rounds(&run, &runs);
    for (size_t k = 0; k < 2; k++) {
        struct digest got = after_rounds(&run, k == 0 ? &scattered : &alone);
        assert_true(digest_equal(&got, &want));
    }
    smallrun_free(&run);
}

/* ---- what we contribute ---- */

static void decode_at(const struct smallrun *run, uint64_t shards, const struct frame *frame, float *whole)
{
    struct plan_share share;
    float *values = scratch;
    plan_share(run->plan->plan, F, shards, &share);
    assert_ok(codec_decode(codec, frame->bytes, frame->count, scratch, (size_t)share.values_count));
    for (uint32_t r = 0; r < share.runs_count; r++) {
        size_t n = (size_t)(share.run[r].end - share.run[r].begin);
        memcpy(whole + share.run[r].begin, values, n * sizeof *values);
        values += n;
    }
}

/* Parts {A, B, C}; all is encoded; an epoch begins that carries A and makes B and C one part; that is encoded anew,
 * from more work. Whatever was counted and what is left over are the outer gradient, in every shard. */
static void nothing_is_lost_or_added_twice_when_parts_change_in_flight(void **state)
{
    (void)state;
    static struct frame frame[4];
    struct smallrun run = smallrun_new("codec = e3m0\nerror_feedback = yes\n");
    const uint64_t all = of_all(&run), a = mask(1, 4), b = mask(4, 9), c = all & ~a & ~b, rest = b | c;
    const uint64_t before[] = {a, b, c};
    size_t count = (size_t)run.plan->plan->fragments[F].values_count;
    struct replica *one = replica_of(&run);
    float *early = noise(&run, 1, 0), *late = noise(&run, 2, 0), *had = noise(&run, 3, 0);
    float *counted = calloc(count, sizeof *counted);
    const float *base = replica_anchor(one, F);
    memcpy(replica_residual(one, F), had, count * sizeof *had);
    assert_ok(replica_cut(one, F, before, 3, b));
    for (uint32_t p = 0; p < 3; p++)
        assert_ok(replica_encode(one, F, before[p], base, early, 100, codec, frame[p].bytes, &frame[p].count));
    assert_ok(replica_cut(one, F, &rest, 1, 0));
    assert_ok(replica_encode(one, F, rest, base, late, 200, codec, frame[3].bytes, &frame[3].count));
    assert_memory_equal(replica_residual(one, F), had, count * sizeof *had);
    decode_at(&run, a, &frame[0], counted);
    decode_at(&run, rest, &frame[3], counted);
    replica_commit(one, F, a);
    replica_commit(one, F, rest);
    for (uint32_t s = 0; s < run.plan->plan->fragments[F].shards_count; s++) {
        struct plan_shard shard = plan_shard(run.plan->plan, F, s);
        const float *theta = (a >> s & 1) != 0 ? early : late;
        for (uint64_t i = shard.begin; i < shard.end; i++) {
            float meant = 0 - theta[i] + had[i]; /* the anchor is zero */
            assert_float_equal(counted[i] + replica_residual(one, F)[i], meant, 1e-6);
        }
    }
    free(early);
    free(late);
    free(had);
    free(counted);
    replica_free(one);
    smallrun_free(&run);
}

/* ---- what we own ---- */

/* The owner's residual in the values of a whole fragment; zero where it is of none. */
static float *owner_residual(const struct smallrun *run, struct replica *replica)
{
    float *whole = calloc((size_t)run->plan->plan->fragments[F].values_count, sizeof *whole);
    const float *values = replica_owner_residual(replica, F);
    struct plan_share share;
    plan_share(run->plan->plan, F, replica_owner_shards(replica, F), &share);
    for (uint32_t r = 0; r < share.runs_count; r++) {
        size_t n = (size_t)(share.run[r].end - share.run[r].begin);
        memcpy(whole + share.run[r].begin, values, n * sizeof *values);
        values += n;
    }
    return whole;
}

/* A mean over our own part of two contributions that are noise; returns it, in the values of a whole fragment. */
static float *reduce_noise(const struct smallrun *run, struct replica *replica, uint64_t own, uint64_t seed,
                           struct frame *out)
{
    static struct frame in[2];
    size_t bad, count = (size_t)run->plan->plan->fragments[F].values_count;
    float *decoded[2], weights[] = {3, 1};
    struct mean_input inputs[2];
    for (size_t k = 0; k < 2; k++) {
        float *theta = noise(run, seed, k);
        decoded[k] = calloc(count, sizeof *theta);
        assert_ok(
            replica_encode(replica, F, own, replica_anchor(replica, F), theta, 100, codec, in[k].bytes, &in[k].count));
        decode_at(run, own, &in[k], decoded[k]);
        inputs[k] = (struct mean_input){.frame = in[k].bytes, .bytes = in[k].count, .weight = weights[k]};
        free(theta);
    }
    assert_ok(replica_reduce(replica, F, inputs, 2, codec, scratch, out->bytes, &out->count, &bad));
    for (size_t i = 0; i < count; i++)
        decoded[0][i] = (3 * decoded[0][i] + decoded[1][i]) / 4;
    free(decoded[1]);
    return decoded[0];
}

static double norm_of(const struct smallrun *run, const float *values)
{
    double square = 0;
    for (uint64_t i = 0; i < run->plan->plan->fragments[F].values_count; i++)
        square += (double)values[i] * (double)values[i];
    return sqrt(square);
}

/* Fails unless the residual in these shards is the one in `want`, or is zero. */
static void assert_residual(const struct smallrun *run, struct replica *replica, uint64_t shards, const float *want)
{
    float *got = owner_residual(run, replica);
    for (uint32_t s = 0; s < run->plan->plan->fragments[F].shards_count; s++) {
        struct plan_shard shard = plan_shard(run->plan->plan, F, s);
        for (uint64_t i = shard.begin; (shards >> s & 1) != 0 && i < shard.end; i++)
            assert_true(got[i] == (want != NULL ? want[i] : 0));
    }
    free(got);
}

static void an_owners_residual_follows_the_shards_it_keeps(void **state)
{
    (void)state;
    static struct frame out;
    struct smallrun run = smallrun_new("codec = e3m0\nerror_feedback = yes\n");
    const uint64_t all = of_all(&run), old = mask(2, 7) | mask(9, 10), new = mask(0, 1) | mask(4, 10);
    const uint64_t kept = old & new;
    const uint64_t before[] = {old, all & ~old}, after[] = {new, all & ~new};
    struct replica *one = replica_of(&run);
    assert_ok(replica_cut(one, F, before, 2, old));
    free(reduce_noise(&run, one, old, 1, &out));
    replica_commit_owner(one, F);
    float *had = owner_residual(&run, one);
    assert_ok(replica_cut(one, F, after, 2, new));
    assert_true(replica_owner_shards(one, F) == new);
    assert_true(norm_of(&run, had) > 0);
    assert_residual(&run, one, kept, had);
    assert_residual(&run, one, all & ~kept, NULL);
    /* And the next result is made with it. */
    float *mean = reduce_noise(&run, one, new, 2, &out), *sent = noise(&run, 0, 0);
    decode_at(&run, new, &out, sent);
    replica_commit_owner(one, F);
    float *left = owner_residual(&run, one);
    for (uint32_t s = 0; s < run.plan->plan->fragments[F].shards_count; s++) {
        struct plan_shard shard = plan_shard(run.plan->plan, F, s);
        for (uint64_t i = shard.begin; (new >> s & 1) != 0 && i < shard.end; i++)
            assert_float_equal(left[i], mean[i] + ((kept >> s & 1) != 0 ? had[i] : 0) - sent[i], 1e-6);
    }
    /* Of nothing, when all is lost; and what comes back begins at zero. */
    assert_ok(replica_cut(one, F, &all, 1, 0));
    assert_true(replica_owner_shards(one, F) == 0);
    assert_ok(replica_cut(one, F, after, 2, new));
    assert_residual(&run, one, all, NULL);
    free(had);
    free(mean);
    free(sent);
    free(left);
    replica_free(one);
    smallrun_free(&run);
}

/* Where some of our shards are carried, only the rest is made; the others' residuals wait, for us or for nobody. */
static void residuals_of_carried_shards_stay_untouched(void **state)
{
    (void)state;
    static struct frame out;
    struct smallrun run = smallrun_new("codec = e3m0\nerror_feedback = yes\n");
    const uint64_t all = of_all(&run), ours = mask(2, 9), carried = mask(3, 5) | mask(8, 9), made = ours & ~carried;
    const uint64_t whole[] = {ours, all & ~ours}, rest[] = {made, all & ~ours};
    struct replica *one = replica_of(&run);
    assert_ok(replica_cut(one, F, whole, 2, ours));
    free(reduce_noise(&run, one, ours, 1, &out));
    replica_commit_owner(one, F);
    float *had = owner_residual(&run, one);
    assert_ok(replica_cut(one, F, rest, 2, made));
    assert_residual(&run, one, ours, had);
    free(reduce_noise(&run, one, made, 2, &out));
    assert_residual(&run, one, ours, had); /* it is not the truth yet */
    replica_commit_owner(one, F);
    assert_residual(&run, one, carried, had);
    float *moved = owner_residual(&run, one);
    assert_ok(replica_cut(one, F, whole, 2, ours)); /* the version after */
    assert_residual(&run, one, ours, moved);
    assert_true(memcmp(moved, had, (size_t)run.plan->plan->fragments[F].values_count * sizeof *moved) != 0);
    free(had);
    free(moved);
    replica_free(one);
    smallrun_free(&run);
}

/* A mean of the epoch before, which is not durable when the next one cuts anew, was for nothing. */
static void a_mean_of_an_older_cut_moves_nothing(void **state)
{
    (void)state;
    static struct frame out;
    struct smallrun run = smallrun_new("codec = e3m0\nerror_feedback = yes\n");
    const uint64_t all = of_all(&run), ours = mask(2, 9), less = mask(2, 8);
    const uint64_t before[] = {ours, all & ~ours}, after[] = {less, all & ~less};
    struct replica *one = replica_of(&run);
    assert_ok(replica_cut(one, F, before, 2, ours));
    free(reduce_noise(&run, one, ours, 1, &out));
    replica_commit_owner(one, F);
    replica_commit_owner(one, F); /* once */
    float *had = owner_residual(&run, one);
    free(reduce_noise(&run, one, ours, 2, &out));
    assert_ok(replica_cut(one, F, after, 2, less));
    replica_commit_owner(one, F);
    assert_residual(&run, one, less, had);
    assert_true(norm_of(&run, had) > 0);
    free(had);
    replica_free(one);
    smallrun_free(&run);
}

/* Our result was applied, and what it left over is not known any more; what it held is not added again. */
static void what_is_not_known_any_more_is_forgotten_shard_by_shard(void **state)
{
    (void)state;
    static struct frame out;
    struct smallrun run = smallrun_new("codec = e3m0\nerror_feedback = yes\n");
    const uint64_t all = of_all(&run), ours = mask(2, 9), gone = mask(4, 6) | mask(8, 11);
    const uint64_t masks[] = {ours, all & ~ours};
    struct replica *one = replica_of(&run);
    assert_ok(replica_cut(one, F, masks, 2, ours));
    free(reduce_noise(&run, one, ours, 1, &out));
    replica_commit_owner(one, F);
    float *had = owner_residual(&run, one);
    free(reduce_noise(&run, one, ours, 2, &out));
    replica_forget_owner(one, F, all & ~ours); /* none of it is ours */
    assert_residual(&run, one, all, had);
    replica_forget_owner(one, F, gone);
    assert_residual(&run, one, all & ~gone, had);
    assert_residual(&run, one, gone, NULL);
    assert_true(replica_owner_pending(one, F)); /* the mean that was made since stays what it is */
    replica_commit_owner(one, F);
    assert_false(replica_owner_pending(one, F));
    float *moved = owner_residual(&run, one);
    replica_forget_owner(one, F, 0);
    assert_residual(&run, one, all, moved);
    assert_true(norm_of(&run, moved) > 0);
    replica_free(one);
    free(had);
    free(moved);
    smallrun_free(&run);
    run = smallrun_new("codec = fp32\n"); /* without residuals there is nothing to forget */
    one = replica_of(&run);
    assert_ok(replica_cut(one, F, masks, 2, ours));
    replica_forget_owner(one, F, all);
    assert_null(replica_owner_residual(one, F));
    replica_free(one);
    smallrun_free(&run);
}

/* ---- no memory ---- */

struct starved {
    const struct smallrun *run;
    struct replica *replica;
    uint64_t masks[2], own;
};

static enum err cut_starved(void *user)
{
    struct starved *s = user;
    enum err err = replica_cut(s->replica, F, s->masks, 2, s->own);
    if (err != ERR_OK)
        assert_false(replica_cut_is(s->replica, F, s->masks, 2, s->own));
    return err;
}

static void without_memory_the_cut_is_as_before(void **state)
{
    (void)state;
    static struct frame out;
    struct smallrun run = smallrun_new("codec = adaptive\nerror_feedback = yes\n");
    const uint64_t all = of_all(&run), ours = mask(2, 9);
    const uint64_t before[] = {ours, all & ~ours};
    struct starved starved = {.run = &run, .replica = replica_of(&run), .masks = {mask(5, 11), all & ~mask(5, 11)}};
    starved.own = starved.masks[0];
    assert_ok(replica_cut(starved.replica, F, before, 2, ours));
    free(reduce_noise(&run, starved.replica, ours, 1, &out));
    replica_commit_owner(starved.replica, F);
    float *had = owner_residual(&run, starved.replica);
    mem_fail_after(3);
    assert_int_equal(cut_starved(&starved), ERR_NOMEM);
    mem_fail_after(-1);
    assert_true(replica_cut_is(starved.replica, F, before, 2, ours));
    assert_residual(&run, starved.replica, all, had);
    free(reduce_noise(&run, starved.replica, ours, 2, &out));
    print_message("%zu allocations failed in turn\n", outofmem_walk(cut_starved, &starved));
    assert_residual(&run, starved.replica, ours & starved.own, had);
    free(had);
    replica_free(starved.replica);
    smallrun_free(&run);
}

/* Whoever makes one must not stand still for it: pages are taken as jobs fill them. */
static void a_large_replica_is_made_and_cut_without_its_memory_being_touched(void **state)
{
    (void)state;
    const struct plan_tensor tensor = {.name = "large", .layer = 0, .count = (uint64_t)4096 * 4096, .rows = 4096};
    const struct plan_conf conf = {.layers_per_fragment = 1};
    struct replica_conf of = {.outer = {.kind = OUTER_NESTEROV, .lr = 0.4f, .momentum = 0.9f},
                              .error_feedback = true,
                              .feedback_decay = 1,
                              .choice = {.id = CODEC_INT8}};
    struct plan *large;
    struct replica *replica;
    if (pages_cleared_at_once()) {
        print_message("skip: the sanitizer's allocator fills what it gives\n");
        skip();
    }
    assert_ok(plan_new(&tensor, 1, &conf, &large));
    of.plan = large;
    assert_ok(replica_new(&of, &replica));
    size_t bytes = (size_t)large->fragments[0].values_count * sizeof(float);
    const uint64_t all = UINT64_MAX >> (64 - large->fragments[0].shards_count);
    assert_ok(replica_cut(replica, 0, &all, 1, all));
    assert_int_equal(pages_resident(replica_anchor(replica, 0), bytes), 0);
    assert_int_equal(pages_resident(replica_momentum(replica, 0), bytes), 0);
    assert_int_equal(pages_resident(replica_residual(replica, 0), bytes), 0);
    assert_int_equal(pages_resident(replica_owner_residual(replica, 0), bytes), 0);
    memset(replica_anchor(replica, 0), 1, bytes);
    replica_clear(replica, 0);
    assert_true(pages_resident(replica_anchor(replica, 0), bytes) < bytes / 4096 / 2);
    assert_true(replica_anchor(replica, 0)[bytes / sizeof(float) - 1] == 0);
    replica_free(replica);
    plan_free(large);
}

int main(void)
{
    assert_ok(digest_init());
    assert_ok(codec_new(1, &codec));
    scratch = malloc(SCRATCH_VALUES * sizeof *scratch);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_large_replica_is_made_and_cut_without_its_memory_being_touched),
        cmocka_unit_test(the_same_anchors_come_of_any_owners),
        cmocka_unit_test(owners_that_change_lead_to_the_same_anchors),
        cmocka_unit_test(nothing_is_lost_or_added_twice_when_parts_change_in_flight),
        cmocka_unit_test(an_owners_residual_follows_the_shards_it_keeps),
        cmocka_unit_test(residuals_of_carried_shards_stay_untouched),
        cmocka_unit_test(a_mean_of_an_older_cut_moves_nothing),
        cmocka_unit_test(what_is_not_known_any_more_is_forgotten_shard_by_shard),
        cmocka_unit_test(without_memory_the_cut_is_as_before),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(scratch);
    codec_free(codec);
    return failed;
}
