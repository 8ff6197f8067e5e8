/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs everything in outer_opt/ that makes numbers, with each instruction set's table, cut among a number of threads,
 * and prints one hash per table. tests/num/outer_bits.sh builds it with different compilers and flags and compares.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/blake2b_lanes.h"
#include "common/digest.h"
#include "common/env.h"
#include "common/isa.h"
#include "outer_opt/codec.h"
#include "outer_opt/vec.h"
#include "outer_opt/vhash.h"

enum { BLOCKS = 512, COUNT = BLOCKS * VEC_BLOCK, ROUNDS = 3, ISLANDS = 3 };

/* One island-count of rounds over a range of blocks: encode, mean, encode again, outer steps. */
struct work {
    const struct vec_ops *ops;
    int codec;
    size_t begin, blocks;
};

static float base[COUNT], local[ISLANDS][COUNT], residual[ISLANDS][COUNT], owner_residual[COUNT], mean[COUNT];
static float anchor[4][COUNT], momentum[3][COUNT], decoded[COUNT];
static uint8_t raw[ISLANDS][COUNT * 4], result[COUNT * 4], steps[BLOCKS * 2];
static int8_t levels[COUNT];
static float leveled[COUNT], level_residual[COUNT];

static void *run(void *argument)
{
    const struct work *w = argument;
    const struct vec_codec *codec = &w->ops->codec[w->codec];
    size_t at = w->begin * VEC_BLOCK;
    size_t count = w->blocks * VEC_BLOCK;
    size_t raw_at = w->begin * codec->raw_bytes, bodies_at = raw_at + w->blocks * codec->head_bytes;
    memset(mean + at, 0, count * sizeof *mean);
    for (int i = 0; i < ISLANDS; i++) {
        struct vec_source source = {.minuend = base + at, .subtrahend = local[i] + at, .residual = residual[i] + at};
        codec->encode(&source, w->blocks, raw[i] + raw_at, residual[i] + at);
        codec->decode_add(raw[i] + raw_at, raw[i] + bodies_at, w->blocks, 1000.0f + 37.0f * (float)i, mean + at);
    }
    w->ops->divide(mean + at, count, 3111.0f);
    struct vec_source source = {.minuend = mean + at, .residual = owner_residual + at};
    codec->encode(&source, w->blocks, result + raw_at, owner_residual + at);
    codec->decode(result + raw_at, result + bodies_at, w->blocks, decoded + at);
    source = (struct vec_source){.minuend = mean + at, .residual = level_residual + at};
    w->ops->levels_encode(&source, w->blocks, 1.4f, steps + 2 * w->begin, levels + at, level_residual + at);
    w->ops->levels_decode(steps + 2 * w->begin, levels + at, w->blocks, leveled + at);
    w->ops->scale(leveled + at, count, 0.37f);
    w->ops->add(decoded + at, leveled + at, count, 0.01f);
    w->ops->nesterov(anchor[0] + at, momentum[0] + at, decoded + at, count, 0.7f, 0.9f);
    w->ops->heavy_ball(anchor[1] + at, momentum[1] + at, decoded + at, count, 0.4f, 0.9f);
    w->ops->clipped(anchor[3] + at, momentum[2] + at, decoded + at, count, 1.0f, 0.5f, 1e-3f);
    w->ops->average(anchor[2] + at, decoded + at, count);
    return NULL;
}

static void run_threads(const struct vec_ops *ops, int codec, int threads)
{
    pthread_t ids[8];
    struct work works[8];
    for (int t = 0; t < threads; t++) {
        size_t begin = (size_t)(BLOCKS * t / threads);
        works[t] = (struct work){ops, codec, begin, (size_t)(BLOCKS * (t + 1) / threads) - begin};
        pthread_create(&ids[t], NULL, run, &works[t]);
    }
    for (int t = 0; t < threads; t++)
        pthread_join(ids[t], NULL);
}

static void fill(float *values, uint64_t stream, double sigma)
{
    struct env_rng rng = env_rng_init(2026, stream);
    for (size_t i = 0; i < COUNT; i++) {
        /* Blocks of every magnitude, zeros, subnormals and lone spikes among them. */
        double scale = pow(10, (double)((i / VEC_BLOCK) % 40) - 38);
        values[i] = i / VEC_BLOCK % 41 == 40 ? 0 : (float)(sigma * scale * env_rng_normal(&rng));
    }
    values[5 * VEC_BLOCK + 9] = 1.5e-41f;
}

/* The codecs that are more than a loop, as whole frames; on the processor's widest table, like all that calls them. */
static void hash_frames(struct digest_state *state)
{
    static uint8_t frame[COUNT * 4];
    static float factor[512 * 4];
    static const struct codec_choice choices[] = {{CODEC_UNIFORM, 0.7f, 0}, {CODEC_UNIFORM, 1.4f, 0},
                                                  {CODEC_UNIFORM, 1.9f, 0}, /* most steps are at their bound */
                                                  {CODEC_UNIFORM, 2.4f, 0}, {CODEC_TOPK, 0.02f, 0},
                                                  {CODEC_POWERSGD, 0, 4}};
    struct vec_source source = {.minuend = base, .subtrahend = local[0]};
    struct codec *codec;
    size_t bytes, fault;
    fill(base, 500, 1e-3);
    fill(local[0], 501, 1e-3);
    for (size_t i = 0; i < COUNT; i++) { /* squares of the largest would be more than a product of floats can hold */
        base[i] = base[i] > 1e10f || base[i] < -1e10f ? 1 : base[i];
        local[0][i] = local[0][i] > 1e10f || local[0][i] < -1e10f ? -1 : local[0][i];
    }
    if (codec_new(1, &codec) != ERR_OK || codec_reserve(codec, (COUNT / 512 + 512) * 4, COUNT) != ERR_OK)
        exit(1);
    for (size_t k = 0; k < sizeof choices / sizeof choices[0]; k++) {
        struct codec_part part = {
            .count = COUNT, .choice = choices[k], .rows = COUNT / 512, .cols = 512, .factor = factor};
        memset(factor, 0, sizeof factor);
        if (codec_encode(codec, &part, 1, &source, residual[0], frame, &bytes, &fault) != ERR_OK ||
            codec_decode_add(codec, frame, bytes, 1.7f, mean, COUNT) != ERR_OK) {
            fprintf(stderr, "%s\n", err_text());
            exit(1);
        }
        digest_add(state, frame, bytes);
        digest_add(state, residual[0], sizeof residual[0]);
        digest_add(state, mean, sizeof mean);
    }
    codec_free(codec);
}

/* The leaves of the first anchor, each level by its own lanes. */
static struct digest hash_tree(size_t level)
{
    enum { LEAVES = sizeof anchor[0] / DIGEST_LEAF_BYTES };
    static const uint8_t head[BLAKE2B_HEAD_BYTES] = "diloco leaf 1";
    struct digest leaves[LEAVES];
    const uint8_t *bytes = (const uint8_t *)anchor[0];
    for (size_t i = 0; i < LEAVES; i++)
        leaves[i] = digest_tree_leaf(bytes, sizeof anchor[0], i);
#if defined(__x86_64__)
    static const struct blake2b_lanes *const tables[ISA_LEVELS_MAX] = {NULL, &blake2b_lanes_avx2,
                                                                       &blake2b_lanes_avx512};
    for (size_t at = 0; level > 0 && at + tables[level]->lanes <= LEAVES; at += tables[level]->lanes) {
        const uint8_t *messages[BLAKE2B_LANES_MAX];
        uint8_t *digests[BLAKE2B_LANES_MAX];
        for (size_t i = 0; i < tables[level]->lanes; i++) {
            messages[i] = bytes + (at + i) * DIGEST_LEAF_BYTES;
            digests[i] = leaves[at + i].byte;
        }
        tables[level]->hash(head, messages, DIGEST_LEAF_BYTES, digests);
    }
#else
    (void)level, (void)head;
#endif
    return digest_tree_root(leaves, LEAVES, sizeof anchor[0]);
}

static struct digest hash_all(const struct vec_ops *ops, size_t level)
{
    struct digest_state state;
    digest_begin(&state);
    /* Not the raw forms: a range's scales come first, so they depend on how the work was cut. What was quantised is in
     * the residuals to the last bit. */
    digest_add(&state, decoded, sizeof decoded);
    digest_add(&state, residual, sizeof residual);
    digest_add(&state, owner_residual, sizeof owner_residual);
    digest_add(&state, anchor, sizeof anchor);
    digest_add(&state, momentum, sizeof momentum);
    digest_add(&state, level_residual, sizeof level_residual);
    double norm = ops->square_sum(mean, anchor[0], BLOCKS);
    double along = ops->dot(mean, anchor[0], BLOCKS);
    digest_add(&state, &norm, sizeof norm);
    digest_add(&state, &along, sizeof along);
    hash_frames(&state);
    struct digest tree = hash_tree(level);
    struct digest root = vhash_root(&(struct vhash_subject){.fragment = 1, .version = 2, .count = COUNT}, &tree);
    digest_add(&state, root.byte, sizeof root.byte);
    return digest_end(&state);
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 1;
    const struct vec_ops *tables[3];
    size_t tables_count = vec_all(tables, 3);
    if (digest_init() != ERR_OK)
        return 1;
    for (size_t t = 0; t < tables_count; t++) {
        memset(raw, 0, sizeof raw);
        memset(residual, 0, sizeof residual);
        memset(owner_residual, 0, sizeof owner_residual);
        memset(momentum, 0, sizeof momentum);
        memset(level_residual, 0, sizeof level_residual);
        for (int k = 0; k < 4; k++)
            fill(anchor[k], 100, 1);
        for (int round = 0; round < ROUNDS; round++) {
            fill(base, (uint64_t)round, 1);
            for (int i = 0; i < ISLANDS; i++)
                fill(local[i], (uint64_t)(10 + round * ISLANDS + i), 1.1);
            for (int codec = CODEC_FP32; codec < VEC_CODECS; codec++)
                run_threads(tables[t], codec, threads);
        }
        struct digest digest = hash_all(tables[t], t);
        char hex[DIGEST_HEX_BYTES];
        printf("%s %s\n", digest_hex(&digest, hex), tables[t]->name);
    }
    return 0;
}
