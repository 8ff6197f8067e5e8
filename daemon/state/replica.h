/*
 * replica: this island's copy of the run's state as numbers: anchor, momentum and residuals of every fragment, and the
 * arithmetic of a round on them.
 *
 * Memory: 4 bytes per value for the anchor, 4 for the momentum (not with `average`), and with error feedback 8 more
 * for the residual and the one pending, and 8 per value of the own shares; with PowerSGD the factors too, and for
 * trimmed means and medians 4 bytes per value of the own shares and member; with adaptive codecs about 16 KiB for
 * each share and 1.3 for each tensor. All allocated by replica_new().
 * The functions run on job threads; two jobs may work on different shares of a fragment at a time, never on one.
 */
#ifndef DAEMON_STATE_REPLICA_H
#define DAEMON_STATE_REPLICA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bitset.h"
#include "common/digest.h"
#include "common/err.h"
#include "outer_opt/codec.h"
#include "outer_opt/outer.h"
#include "outer_opt/outlier.h"
#include "outer_opt/plan.h"

struct replica_conf {
    const struct plan *plan; /* borrowed */
    struct outer_conf outer;
    struct codec_choice choice;
    bool adaptive; /* tensor by tensor the codec that serves it best, at the error `choice` would make */
    bool error_feedback;
    float feedback_decay; /* share of a residual that is kept from one round to the next; 1: all */
    float feedback_limit; /* largest residual over the usual outer gradient, as norms; 0: none */
    struct outlier_conf outliers;
    struct shardmap map; /* owners are members, by number */
    uint32_t members_count, self;
};

struct replica;

ERR_MUST_CHECK enum err replica_new(const struct replica_conf *conf, struct replica **out);
void replica_free(struct replica *replica);

/* A second place for the anchor and momentum of fragment `f` alone, zeros, to see what its results lead to; it can be
 * loaded, applied to, measured and hashed, and nothing else. Freed by replica_free(). */
ERR_MUST_CHECK enum err replica_shadow(const struct replica *replica, uint32_t f, struct replica **out);

/* Bytes replica_new() takes. */
uint64_t replica_bytes(const struct replica_conf *conf);

/* What a member owns of a fragment. A frame holds the values of a share, run behind run. */
void replica_share(const struct replica *replica, uint32_t f, uint32_t member, struct plan_share *out);
size_t replica_share_values(const struct replica *replica, uint32_t f, uint32_t member);
size_t replica_own_values(const struct replica *replica, uint32_t f);
/* The member that owns a shard. */
uint32_t replica_owner(const struct replica *replica, uint32_t f, uint32_t shard);
/* The members that own a part of a fragment. */
struct bitset replica_owners(const struct replica *replica, uint32_t f);
/* Values of the largest share of any fragment and member. */
size_t replica_share_max(const struct replica *replica);
/* Largest frame of a share, as contribution or as result. */
size_t replica_frame_bytes_max(const struct replica *replica, uint32_t f, uint32_t member);
/* For codec_reserve_factors() of codecs that encode. */
size_t replica_factor_values(const struct replica *replica);

/* Whole arrays of a fragment; NULL where there is none (momentum with `average`, residual without feedback). */
float *replica_anchor(struct replica *replica, uint32_t f);
float *replica_momentum(struct replica *replica, uint32_t f);
float *replica_residual(struct replica *replica, uint32_t f);
/* The residual of our own encodings of means, over the values of our share, run behind run. */
float *replica_owner_residual(struct replica *replica, uint32_t f);

/* A trainer's snapshot of a fragment; the arrays are borrowed, whole fragments. */
struct replica_snapshot {
    const float *base, *theta;
    uint64_t step, tokens;                    /* run step it was taken after; tokens its trainer had trained by then */
    uint64_t counted_tokens[PLAN_SHARDS_MAX]; /* by shard: of these tokens, those that results count */
};

/* Our contribution to one member's share: base - theta + residual, encoded; the new residual is kept pending, cut down
 * to feedback_limit where it is more. `tokens` were trained for it. ERR_NONFINITE names the tensor. `base` and `theta`
 * are whole fragments. */
ERR_MUST_CHECK enum err replica_encode(struct replica *replica, uint32_t f, uint32_t member, const float *base,
                                       const float *theta, uint64_t tokens, struct codec *codec, uint8_t *frame,
                                       size_t *frame_bytes);

struct replica_input {
    const uint8_t *frame;
    size_t bytes;
    float weight;
    uint32_t member; /* whose it is, for its score */
    float factor;    /* out: 1, less where it was scaled down as an outlier, 0 where it was left out */
};
/* The weighted mean of the inputs, in their order, over our share, or what the run spec has in its place for outliers;
 * encoded; the new residual is kept pending. ERR_PROTO: input `*bad` cannot be decoded. ERR_NONFINITE: it holds
 * numbers that no mean can be made of. `scratch` holds the share's values. */
ERR_MUST_CHECK enum err replica_reduce(struct replica *replica, uint32_t f, struct replica_input *inputs,
                                       size_t inputs_count, struct codec *codec, float *scratch, uint8_t *frame,
                                       size_t *frame_bytes, size_t *bad);
/* The run has warmed up: from now on an outer gradient that grows faster than the tokens behind it makes no room for a
 * larger residual. */
void replica_settle(struct replica *replica, uint32_t f);
/* How often a residual of that fragment was cut down to feedback_limit. */
uint64_t replica_feedback_cuts(const struct replica *replica, uint32_t f);

/* Our contribution to a member's share counts: its residual is added to the next one. */
void replica_commit(struct replica *replica, uint32_t f, uint32_t member);
/* Our result became the truth: the owner's residual moves. */
void replica_commit_owner(struct replica *replica, uint32_t f);

/* What becomes of a share's residual when a result is applied. */
enum replica_residual_rule {
    REPLICA_KEEP,  /* the result does not count us */
    REPLICA_MOVE,  /* it counts the contribution we encoded last */
    REPLICA_CLEAR, /* it counts one whose residual is not known any more */
};
/* One outer step on one member's share. */
ERR_MUST_CHECK enum err replica_apply(struct replica *replica, uint32_t f, uint32_t member,
                                      const struct outer_round *round, const uint8_t *frame, size_t frame_bytes,
                                      enum replica_residual_rule rule, struct codec *codec, float *scratch);

/* Sums of squares over a share. */
struct replica_size {
    double delta, momentum;
};
/* Of a result, and of the momentum before it is applied. */
ERR_MUST_CHECK enum err replica_measure(struct replica *replica, uint32_t f, uint32_t member, const uint8_t *frame,
                                        size_t frame_bytes, struct codec *codec, float *scratch,
                                        struct replica_size *size);

/* Norm of a fragment's anchor. */
double replica_norm(const struct replica *replica, uint32_t f);

/* Hash of a fragment as `version`. */
ERR_MUST_CHECK enum err replica_hash(struct replica *replica, uint32_t f, uint64_t version, struct digest *hash);

/* All zeros, as after replica_new(). */
void replica_clear(struct replica *replica, uint32_t f);

/* Forgets all residuals of a fragment. */
void replica_clear_residuals(struct replica *replica, uint32_t f);

#endif
