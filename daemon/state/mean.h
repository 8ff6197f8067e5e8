/*
 * mean: the mean of contributions to some shards of a fragment, or what the run spec has in its place for outliers.
 *
 * Owns what is remembered of the members from one mean to the next, and memory for trimmed means. Reads frames; never
 * writes one. Private to replica. One job at a time works with it.
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

/* Empty when zeroed. */
struct mean {
    struct outlier_score *scores[MEAN_PIECES]; /* of the members, on these shards */
    float *decoded;                            /* trimmed means and medians: every contribution */
    size_t decoded_room;                       /* values */
};

struct mean_input {
    const uint8_t *frame;
    size_t bytes;
    float weight;
    uint32_t member; /* whose it is, for its score: below what mean_members() was told */
    float factor;    /* out: 1, less where it was scaled down as an outlier, 0 where it was left out */
};

void mean_deinit(struct mean *mean);
/* Bytes for means of up to `inputs` contributions to `values` values. */
uint64_t mean_bytes(const struct outlier_conf *conf, uint64_t values, uint32_t inputs);
/* Room for the scores of so many members. Not while a mean is made of one of the new ones. */
ERR_MUST_CHECK enum err mean_members(struct mean *mean, uint32_t count);
/* The shards are others now: what is remembered was of these no more. */
void mean_forget(struct mean *mean);

/* `out` = the mean of `count` values, inputs in their order. ERR_PROTO: input `*bad` cannot be decoded. ERR_NOMEM. */
ERR_MUST_CHECK enum err mean_make(struct mean *mean, const struct outlier_conf *conf, struct mean_input *inputs,
                                  size_t inputs_count, struct codec *codec, float *out, size_t count, size_t *bad);
/* Which input made a mean too large to encode: the one with the largest magnitude, NaN and Inf above all. `scratch`
 * holds `count` values. */
size_t mean_culprit(const struct mean_input *inputs, size_t inputs_count, struct codec *codec, float *scratch,
                    size_t count);
/* Tokens behind a mean, for one contribution. */
double mean_weight(const struct mean_input *inputs, size_t inputs_count);

#endif
