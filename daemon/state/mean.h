/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mean: the mean of contributions to some shards of a fragment, or the run spec's robust form of it against outliers.
 *
 * It is made piece by piece, so that neither it nor a contribution is ever whole in memory. Owns memory for that;
 * nothing is remembered from one mean to the next. Reads frames; never writes one. Private to replica. One job at a
 * time works with it; mean_look() and mean_read() are for several threads, each with another input or place.
 */
#ifndef DAEMON_STATE_MEAN_H
#define DAEMON_STATE_MEAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "outer_opt/codec.h"
#include "outer_opt/direction.h"
#include "outer_opt/outlier.h"
#include "outer_opt/plan.h"

enum { MEAN_MEMBERS_MAX = OUTLIER_INPUTS_MAX };
/* So many pieces of a mean can be made at a time. */
enum { MEAN_PLACES = 16 };

struct mean_input {
    const uint8_t *frame;
    size_t bytes;
    float weight;          /* of all of it: where shards weigh differently, the average by their values; or 0 */
    const float *by_shard; /* what it weighs in each, by number; borrowed. NULL, with all inputs: all alike */
    uint32_t member;       /* whose it is; the caller's */
    bool owner, turned;    /* for direction.h: its maker owns shards; it is turned away */
    float norm;            /* out: of its values, where it was looked at; else 0 */
    bool judges, judged;   /* out: it says where the others should point; it is judged by where it points */
    float cosine;          /* out: to the mean of the others, where that was judged; else 0 */
    float factor;          /* out: 1, less where it was scaled down as an outlier, 0 where it was left out */
};

/* Empty when zeroed. */
struct mean {
    struct codec_reader *readers; /* of the inputs: behind the placed values, then at each place */
    double *squares;              /* of the inputs, as mean_look() found them; below 0: it is damaged */
    /* Of the inputs, against the sum of those that judge them: so far, then at each place. */
    struct direction_sums *directions;
    size_t inputs_room;
    float *decoded; /* trimmed means and medians: a piece of every contribution */
    size_t decoded_room;
    /* of the mean that is made; borrowed */
    const struct outlier_conf *conf;
    struct mean_input *inputs;
    size_t inputs_count, count; /* values */
    uint64_t placed;            /* of these, so many have a place */
    uint64_t at[MEAN_PLACES];   /* where the values of each place begin */
    struct mean_span {
        uint64_t end;   /* before this value */
        uint32_t shard; /* inputs weigh as in this one */
    } spans[PLAN_SHARDS_MAX];
    uint32_t spans_count; /* 0: all weigh the same everywhere */
    bool directed;        /* some are judged by their direction: */
    uint64_t seed, pieces_count;
    bool looks[MEAN_PLACES]; /* by what is at this place */
};

void mean_deinit(struct mean *mean);
/* Bytes for means of up to `inputs` contributions, in pieces of up to `piece` values. */
uint64_t mean_bytes(const struct outlier_conf *conf, uint64_t piece, uint32_t inputs);

/* Begins the mean of `count` values over these inputs, in their order; they are read until it is made. ERR_PROTO: input
 * `*bad` is no frame of so many. ERR_NOMEM. */
ERR_MUST_CHECK enum err mean_begin(struct mean *mean, const struct outlier_conf *conf, struct mean_input *inputs,
                                   size_t inputs_count, size_t count, size_t *bad);
/* Where inputs say what they weigh by shard, once after mean_begin(): the values are those of these shards of fragment
 * `f`. */
void mean_weigh_shards(struct mean *mean, const struct plan *plan, uint32_t f, uint64_t shards);
/* With a rule for outliers each input is looked at first: how many there are to look at; looks at one; and, after all,
 * judges their norms, and says who judges the directions. ERR_PROTO: it cannot be decoded. */
size_t mean_looks(const struct mean *mean);
ERR_MUST_CHECK enum err mean_look(struct mean *mean, size_t i, struct codec *codec);
void mean_judge(struct mean *mean);
/* The first input that mean_look() could not decode. */
size_t mean_looked_bad(const struct mean *mean);

/* Into how many places values can be put: MEAN_PLACES, but one for trimmed means and medians. */
size_t mean_places(const struct mean *mean);
/* The mean's next `count` values are to be read from this place. With the last of them the inputs must end, too.
 * ERR_PROTO: input `*bad` does not have them. */
ERR_MUST_CHECK enum err mean_place(struct mean *mean, size_t place, size_t count, size_t *bad);
/* The input that was put there, once. ERR_PROTO: input `*bad` cannot be decoded. ERR_NOMEM. */
ERR_MUST_CHECK enum err mean_read(struct mean *mean, size_t place, struct codec *codec, float *out, size_t count,
                                  size_t *bad);
/* All places have been read, for this time: takes what was found there of directions, in their order. Before any is
 * used again, and at the end. */
void mean_gather(struct mean *mean);
/* After the last value: the inputs' cosines. */
void mean_cosines(struct mean *mean);
/* Which input made a mean of `count` values too large to encode: the one with the largest magnitude, NaN and Inf above
 * all. */
size_t mean_culprit(const struct mean_input *inputs, size_t inputs_count, size_t count, struct codec *codec);
/* Tokens behind a mean, for one contribution that weighs anything. */
double mean_weight(const struct mean_input *inputs, size_t inputs_count);

#endif
