/* SPDX-License-Identifier: Apache-2.0 */
/* replica_encode and replica_apply: in pieces, in whatever order and on however many threads, a contribution has the
 * same bits and leaves the same residual, and an outer step makes the same anchor, as those made at once. */
#include "tests/lib/testlib.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "daemon/state/replica.h"

enum { ROUNDS = 3, THREADS = 3, GUARD = 4 << 20, KINDS = 6, SHARDS_EACH = 5 };

/* Tensors longer than segments, and more of them than there are pieces at a time. */
static const struct plan_tensor tensors[] = {
    {.name = "a", .layer = -1, .count = 1500 * 1000, .rows = 1500},
    {.name = "b", .layer = -1, .count = 900, .sensitive = true},
    {.name = "c", .layer = -1, .count = 40 * 500, .rows = 500},
    {.name = "d", .layer = -1, .count = 1100 << 10},
    {.name = "e", .layer = -1, .count = 90, .sensitive = true},
    {.name = "f", .layer = -1, .count = 99 << 10},
};

static const struct kind {
    struct codec_choice choice;
    bool adaptive;
} kinds[KINDS] = {{{.id = CODEC_FP32}, false}, {{.id = CODEC_UNIFORM, .ratio = 1.4f}, false},
                  {{.id = CODEC_E3M0}, false}, {{.id = CODEC_TOPK, .ratio = 1.0f / 64}, false},
                  {{.id = CODEC_E3M0}, true},  {{.id = CODEC_POWERSGD, .rank = 2}, false}};

static uint8_t guard[GUARD]; /* behind each frame's room */

/* An island whose fragment is in two parts, which lie between each other. */
struct island {
    struct replica *replica;
    struct codec *codec[THREADS];
    uint64_t mask[2];
    uint8_t *frame[2];
    size_t room[2], bytes[2];
    size_t pieces; /* of all so far */
};

static struct plan *new_plan(bool whole_tensors)
{
    struct plan *plan;
    const struct plan_conf conf = {.pattern = PLAN_BALANCED, .fragments = 1, .whole_tensors = whole_tensors};
    assert_ok(plan_new(tensors, sizeof tensors / sizeof *tensors, &conf, &plan));
    return plan;
}

static struct island new_island(const struct plan *plan, const struct kind *kind)
{
    struct island island = {0};
    const struct replica_conf conf = {.plan = plan,
                                      .outer = {.kind = OUTER_NESTEROV},
                                      .choice = kind->choice,
                                      .adaptive = kind->adaptive,
                                      .error_feedback = true,
                                      .feedback_decay = 1,
                                      .feedback_limit = 0.7f,
                                      .outliers = {.action = OUTLIER_KEEP}};
    const uint64_t all = plan_shards(plan, 0);
    for (uint32_t s = 0; s < PLAN_SHARDS_MAX; s++)
        island.mask[s / SHARDS_EACH % 2] |= all & (uint64_t)1 << s;
    assert_ok(replica_new(&conf, &island.replica));
    assert_ok(replica_cut(island.replica, 0, island.mask, 2, island.mask[0]));
    for (int t = 0; t < THREADS; t++) {
        assert_ok(codec_new(1, &island.codec[t]));
        assert_ok(codec_reserve(island.codec[t], replica_factor_values(island.replica),
                                replica_segment_values(island.replica)));
    }
    for (int p = 0; p < 2; p++) {
        island.room[p] = replica_frame_bytes_max(island.replica, 0, island.mask[p]);
        island.frame[p] = malloc(island.room[p] + GUARD);
        memcpy(island.frame[p] + island.room[p], guard, GUARD);
    }
    return island;
}

static void end_island(struct island *island)
{
    for (int t = 0; t < THREADS; t++)
        codec_free(island->codec[t]);
    for (int p = 0; p < 2; p++)
        free(island->frame[p]);
    replica_free(island->replica);
}

/* ---- ways to run pieces ---- */

typedef enum err one_piece(void *user, size_t i, struct codec *codec);
typedef enum err way(struct island *island, size_t pieces, one_piece *run, void *user);

static enum err backwards(struct island *island, size_t pieces, one_piece *run, void *user)
{
    enum err first = ERR_OK;
    for (size_t i = pieces; i-- > 0;) {
        enum err err = run(user, i, island->codec[i % THREADS]);
        first = err != ERR_OK ? err : first;
    }
    return first;
}

struct thread {
    pthread_t id;
    _Atomic size_t *next;
    size_t pieces;
    one_piece *run;
    void *user;
    struct codec *codec;
    enum err err;
};

static void *some_pieces(void *argument)
{
    struct thread *t = argument;
    for (size_t i; (i = atomic_fetch_add(t->next, 1)) < t->pieces;) {
        enum err err = t->run(t->user, i, t->codec);
        t->err = err != ERR_OK ? err : t->err;
    }
    return NULL;
}

static enum err on_threads(struct island *island, size_t pieces, one_piece *run, void *user)
{
    _Atomic size_t next = 0;
    struct thread threads[THREADS];
    enum err err = ERR_OK;
    for (int t = 0; t < THREADS; t++) {
        threads[t] =
            (struct thread){.next = &next, .pieces = pieces, .run = run, .user = user, .codec = island->codec[t]};
        assert_int_equal(pthread_create(&threads[t].id, NULL, some_pieces, &threads[t]), 0);
    }
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t].id, NULL);
        err = threads[t].err != ERR_OK ? threads[t].err : err;
    }
    return err;
}

static enum err encoding_piece(void *user, size_t i, struct codec *codec)
{
    return replica_encode_piece(user, i, codec);
}

static enum err applying_piece(void *user, size_t i, struct codec *codec)
{
    return replica_apply_piece(user, i, codec);
}

static enum err encode_by(struct island *island, int p, const float *base, const float *theta, way *how)
{
    struct replica_encoding e;
    enum err err = ERR_OK;
    replica_encode_begin(island->replica, 0, island->mask[p], base, theta, island->codec[0], island->frame[p], &e);
    for (replica_encode_next(&e); err == ERR_OK && e.pieces > 0;) {
        island->pieces += e.pieces;
        for (size_t i = 0; i < e.pieces; i++)
            assert_true(codec_on_tensors(e.piece[i].part.choice.id) || e.piece[i].part.count <= CODEC_SEGMENT);
        err = how(island, e.pieces, encoding_piece, &e);
        if (err == ERR_OK)
            replica_encode_next(&e);
    }
    return replica_encode_end(&e, err, 1000, &island->bytes[p]);
}

static enum err apply_by(struct island *island, int p, const struct outer_round *round, const uint8_t *frame,
                         size_t bytes, way *how)
{
    struct replica_applying a;
    enum err err = replica_apply_begin(island->replica, 0, island->mask[p], round, frame, bytes, &a);
    while (err == ERR_OK && (err = replica_apply_next(&a)) == ERR_OK && a.pieces > 0)
        err = how(island, a.pieces, applying_piece, &a);
    return err;
}

/* ---- the same bits ---- */

static void assert_same(const struct island *a, const struct island *b, size_t count)
{
    for (int p = 0; p < 2; p++) {
        assert_int_equal(a->bytes[p], b->bytes[p]);
        assert_memory_equal(a->frame[p], b->frame[p], a->bytes[p]);
        assert_memory_equal(b->frame[p] + b->room[p], guard, GUARD);
    }
    assert_memory_equal(replica_anchor(a->replica, 0), replica_anchor(b->replica, 0), count * sizeof(float));
    assert_memory_equal(replica_momentum(a->replica, 0), replica_momentum(b->replica, 0), count * sizeof(float));
    assert_memory_equal(replica_residual(a->replica, 0), replica_residual(b->replica, 0), count * sizeof(float));
}

/* Drawing takes longer than all the rest: a few over and over. */
static void fill(int round, float *values, size_t count)
{
    enum { DRAWN = 5003 };
    float drawn[DRAWN];
    struct env_rng rng = env_rng_init((uint64_t)round, 7);
    testlib_fill_normal(&rng, drawn, DRAWN, 0.01);
    for (size_t i = 0; i < count; i++)
        values[i] = drawn[i % DRAWN];
}

static void one_round(struct island *island, const float *base, const float *theta, way *how)
{
    const struct outer_round round = {.scale = 1, .momentum = 0.9f, .lr = 0.7f};
    for (int p = 0; p < 2; p++)
        assert_ok(how != NULL ? encode_by(island, p, base, theta, how)
                              : replica_encode(island->replica, 0, island->mask[p], base, theta, 1000, island->codec[0],
                                               island->frame[p], &island->bytes[p]));
    for (int p = 0; p < 2; p++) {
        assert_ok(how != NULL ? apply_by(island, p, &round, island->frame[p], island->bytes[p], how)
                              : replica_apply(island->replica, 0, island->mask[p], &round, island->frame[p],
                                              island->bytes[p], island->codec[0]));
        replica_commit(island->replica, 0, island->mask[p]);
    }
}

static void pieces_make_the_same_bits_in_any_order(void **state)
{
    (void)state;
    static way *const ways[] = {NULL, backwards, on_threads};
    enum { WAYS = sizeof ways / sizeof *ways };
    for (size_t k = 0; k < KINDS; k++) {
        struct plan *plan = new_plan(codec_on_tensors(kinds[k].choice.id));
        const size_t count = (size_t)plan->values_count_max;
        float *base = malloc(count * sizeof *base), *theta = malloc(count * sizeof *theta);
        struct island island[WAYS];
        for (size_t w = 0; w < WAYS; w++)
            island[w] = new_island(plan, &kinds[k]);
        for (int round = 0; round < ROUNDS; round++) {
            memcpy(base, replica_anchor(island[0].replica, 0), count * sizeof *base);
            fill(round, theta, count);
            for (size_t w = 0; w < WAYS; w++)
                one_round(&island[w], base, theta, ways[w]);
            for (size_t w = 1; w < WAYS; w++)
                assert_same(&island[0], &island[w], count);
        }
        assert_true(kinds[k].choice.id != CODEC_UNIFORM || island[1].pieces > 2 * ROUNDS * REPLICA_PIECES / 2);
        for (size_t w = 0; w < WAYS; w++)
            end_island(&island[w]);
        free(base);
        free(theta);
        plan_free(plan);
    }
}

/* By the codec alone, of whole arrays: fp32 loses nothing, so a part is what lies in its shards. */
static void each_value_is_at_its_place(void **state)
{
    (void)state;
    struct plan *plan = new_plan(false);
    const size_t count = (size_t)plan->values_count_max;
    float *base = calloc(count, sizeof *base), *theta = malloc(count * sizeof *theta);
    struct island island = new_island(plan, &kinds[0]);
    const struct outer_round round = {.scale = 1, .momentum = 0, .lr = 1};
    for (size_t i = 0; i < count; i++)
        theta[i] = (float)(i % 8191) + 1;
    for (int p = 0; p < 2; p++)
        assert_ok(encode_by(&island, p, base, theta, on_threads));
    for (int p = 0; p < 2; p++) {
        struct plan_share share;
        plan_share(plan, 0, island.mask[p], &share);
        float *values = malloc((size_t)share.values_count * sizeof *values), *next = values;
        assert_true(share.runs_count > 2);
        assert_ok(codec_decode(island.codec[0], island.frame[p], island.bytes[p], values, (size_t)share.values_count));
        for (uint32_t r = 0; r < share.runs_count; r++)
            for (uint64_t i = share.run[r].begin; i < share.run[r].end; i++)
                assert_true(*next++ == -theta[i]);
        free(values);
        assert_ok(apply_by(&island, p, &round, island.frame[p], island.bytes[p], backwards));
    }
    for (size_t i = 0; i < count; i++)
        assert_true(replica_anchor(island.replica, 0)[i] == theta[i]);
    end_island(&island);
    free(base);
    free(theta);
    plan_free(plan);
}

/* ---- what is wrong ---- */

static void of_several_faults_the_first_is_named(void **state)
{
    (void)state;
    struct plan *plan = new_plan(false);
    const size_t count = (size_t)plan->values_count_max;
    float *base = calloc(count, sizeof *base), *theta = calloc(count, sizeof *theta);
    struct island island = new_island(plan, &kinds[1]);
    struct plan_share share;
    plan_share(plan, 0, island.mask[1], &share);
    const uint64_t first = share.run[1].begin + 1000;
    const struct plan_tensor *tensor = plan_tensor_at(plan, 0, first);
    char text[64];
    theta[first] = NAN;
    theta[share.run[share.runs_count - 1].end - 300] = INFINITY;
    snprintf(text, sizeof text, "tensor %s holds NaN or Inf (near value %llu)", tensor->name,
             (unsigned long long)((first - tensor->offset) / CODEC_BLOCK * CODEC_BLOCK));
    assert_fails(ERR_NONFINITE, text, encode_by(&island, 1, base, theta, backwards));
    assert_fails(ERR_NONFINITE, text, encode_by(&island, 1, base, theta, on_threads));
    assert_ok(encode_by(&island, 0, base, theta, on_threads));
    end_island(&island);
    free(base);
    free(theta);
    plan_free(plan);
}

static void a_frame_that_was_altered_is_not_begun(void **state)
{
    (void)state;
    struct plan *plan = new_plan(false);
    const size_t count = (size_t)plan->values_count_max;
    float *base = calloc(count, sizeof *base), *theta = malloc(count * sizeof *theta);
    struct island island = new_island(plan, &kinds[1]);
    const struct outer_round round = {.scale = 1, .momentum = 0.9f, .lr = 0.7f};
    fill(1, theta, count);
    assert_ok(encode_by(&island, 0, base, theta, on_threads));
    island.frame[0][island.bytes[0] / 2] ^= 1;
    assert_int_equal(apply_by(&island, 0, &round, island.frame[0], island.bytes[0], on_threads), ERR_PROTO);
    assert_memory_equal(replica_anchor(island.replica, 0), base, count * sizeof *base);
    end_island(&island);
    free(base);
    free(theta);
    plan_free(plan);
}

int main(void)
{
    assert_ok(digest_init());
    memset(guard, 0xa5, sizeof guard);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_make_the_same_bits_in_any_order),
        cmocka_unit_test(each_value_is_at_its_place),
        cmocka_unit_test(of_several_faults_the_first_is_named),
        cmocka_unit_test(a_frame_that_was_altered_is_not_begun),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
