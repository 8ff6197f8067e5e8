/*
 * mean: the mean of contributions to some shards of a fragment, or what the run spec has in its place for outliers.
 *
 * It is made piece by piece, so that neither it nor a contribution is ever whole in memory. Owns what is remembered of
 * the members from one mean to the next, and memory for trimmed means. Reads frames; never writes one. Private to
 * replica. One job at a time works with it.
 */
#ifndef DAEMON_STATE_MEAN_H
#define DAEMON_STATE_MEAN_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "outer_opt/codec.h"
#include "outer_opt/outlier.h"

/* Scores stand in pieces that never move, so that there can be more while jobs read. */
enum { MEAN_MEMBERS_MAX = OUTLIER_INPUTS_MAX, MEAN_PIECE = 64, MEAN_PIECES = MEAN_MEMBERS_MAX / MEAN_PIECE };

struct mean_input {
    const uint8_t *frame;
    size_t bytes;
    float weight;
    uint32_t member; /* whose it is, for its score: below what mean_members() was told */
    float factor;    /* out: 1, less where it was scaled down as an outlier, 0 where it was left out */
};

/* Empty when zeroed. */
struct mean {
    struct outlier_score *scores[MEAN_PIECES]; /* of the members, on these shards */
    struct codec_reader *readers;              /* of the inputs */
    size_t readers_room;
    float *decoded; /* trimmed means and medians: a piece of every contribution */
    size_t decoded_room;
    /* of the mean that is made; borrowed */
    const struct outlier_conf *conf;
    struct mean_input *inputs;
    size_t inputs_count;
};

void mean_deinit(struct mean *mean);
/* Bytes for means of up to `inputs` contributions, in pieces of up to `piece` values. */
uint64_t mean_bytes(const struct outlier_conf *conf, uint64_t piece, uint32_t inputs);
/* Room for the scores of so many members. Not while a mean is made of one of the new ones. */
ERR_MUST_CHECK enum err mean_members(struct mean *mean, uint32_t count);
/* The shards are others now: what is remembered was of these no more. */
void mean_forget(struct mean *mean);

/* Begins the mean of `count` values over these inputs, in their order; they are read until it is made. With a rule for
 * outliers each is looked at first. ERR_PROTO: input `*bad` cannot be decoded. ERR_NOMEM. */
ERR_MUST_CHECK enum err mean_begin(struct mean *mean, const struct outlier_conf *conf, struct mean_input *inputs,
                                   size_t inputs_count, size_t count, struct codec *codec, size_t *bad);
/* Its next `count` values. After the last of them the inputs must end, too. */
ERR_MUST_CHECK enum err mean_next(struct mean *mean, struct codec *codec, float *out, size_t count, size_t *bad);
/* Which input made a mean of `count` values too large to encode: the one with the largest magnitude, NaN and Inf above
 * all. */
size_t mean_culprit(const struct mean_input *inputs, size_t inputs_count, size_t count, struct codec *codec);
/* Tokens behind a mean, for one contribution. */
double mean_weight(const struct mean_input *inputs, size_t inputs_count);

#endif
