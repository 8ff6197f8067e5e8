/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replica: this island's copy of the run's state as numbers: anchor, momentum and residuals of every fragment, and the
 * arithmetic of a round on them.
 *
 * Everything goes by masks of shards (outer_opt/plan.h): a part of a fragment's version is a mask, and one codec frame.
 * Who owns it is not known here. What encoding takes depends on the masks, so replica_cut() says which there are now.
 *
 * Memory: 4 bytes per value for the anchor, 4 for the momentum (not with `average`), and with error feedback 8 more
 * for the residual and the one pending, and of our own shards 4 for the owner's residual and 4 for the one pending;
 * with PowerSGD the factors too, and for trimmed means and medians 4 bytes per value of our own shards and contributor;
 * with adaptive codecs about 16 KiB for each part and 1.3 for each tensor in it. What belongs to own shards and to
 * parts is allocated when they are cut, and a trimmed mean's when there are more contributors than ever.
 * The functions run on job threads; two jobs may work on different shards of a fragment at a time, never on one. Where
 * it is said, the loop's thread calls, and no job of the fragment is under way.
 *
 * Owns: the run's state on this island: anchor, momentum, residuals, the ledger, checkpoints, memory for encoded
 * objects.
 * Called by: daemon, daemon/control, daemon/membership, daemon/rounds, daemon/trainer, daemon/transfer.
 * Never includes: daemon/peers/, daemon/transfer/, daemon/membership/, daemon/trainer/, daemon/rounds/,
 * daemon/control/, <zmq.h>, <sys/socket.h>.
 */
#ifndef DAEMON_STATE_REPLICA_H
#define DAEMON_STATE_REPLICA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"
#include "daemon/state/dedup.h"
#include "daemon/state/mean.h"
#include "daemon/state/part_cut.h"
#include "outer_opt/codec.h"
#include "outer_opt/codec_types.h"
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
};

struct replica;

ERR_MUST_CHECK enum err replica_new(const struct replica_conf *conf, struct replica **out);
void replica_free(struct replica *replica);

/* A second place for the anchor and momentum of fragment `f` alone, zeros, to see what its results lead to; it can be
 * loaded, applied to, measured and hashed, and nothing else. Freed by replica_free(). */
ERR_MUST_CHECK enum err replica_shadow(const struct replica *replica, uint32_t f, struct replica **out);

/* Bytes replica_new() takes. */
uint64_t replica_bytes(const struct replica_conf *conf);

/* ---- the present parts ---- */

/* From now on fragment `f` is encoded in these parts, disjoint masks, and we reduce `own`: one of them, or 0. Carried
 * parts are in none. The loop's thread calls, and nothing is encoding or reducing; costs nothing where nothing has
 * changed. ERR_NOMEM: all is as before. Residuals and pending values stay. The owner's residual follows the shards:
 * those in `own`, and those in no part, keep theirs; new ones begin at zero; what others own now is forgotten. A mean
 * that is not committed is, too, where `own` changes. A mask that stays keeps its part's usual norm and the codecs
 * chosen for its tensors. */
ERR_MUST_CHECK enum err replica_cut(struct replica *replica, uint32_t f, const uint64_t *masks, uint32_t count,
                                    uint64_t own);
/* Whether it is cut like that already. */
bool replica_cut_is(const struct replica *replica, uint32_t f, const uint64_t *masks, uint32_t count, uint64_t own);
/* Bytes that takes, with up to `inputs` contributions to a mean. */
uint64_t replica_cut_bytes(const struct replica_conf *conf, uint32_t f, const uint64_t *masks, uint32_t count,
                           uint64_t own, uint32_t inputs);

/* Bytes of a fragment's anchor and momentum. */
uint64_t replica_state_bytes(const struct replica *replica, uint32_t f);
/* Values of some shards. A frame holds them run behind run. */
size_t replica_values(const struct replica *replica, uint32_t f, uint64_t shards);
/* Largest frame of them, as contribution or as result. */
size_t replica_frame_bytes_max(const struct replica *replica, uint32_t f, uint64_t shards);
/* For codec_reserve(). */
size_t replica_factor_values(const struct replica *replica);
size_t replica_segment_values(const struct replica *replica);
/* What a mean is made in: values of one piece. */
size_t replica_piece_values(const struct replica_conf *conf);
const struct replica_conf *replica_conf(const struct replica *replica);

/* Whole arrays of a fragment; NULL where there is none (momentum with `average`, residual without feedback). */
float *replica_anchor(struct replica *replica, uint32_t f);
float *replica_momentum(struct replica *replica, uint32_t f);
float *replica_residual(struct replica *replica, uint32_t f);
/* The residual of our own encodings of means: the shards it is of, and their values, run behind run; NULL where there
 * are none. Borrowed until the next replica_cut() or replica_commit_owner(). */
uint64_t replica_owner_shards(const struct replica *replica, uint32_t f);
float *replica_owner_residual(struct replica *replica, uint32_t f);
/* Takes one over, as it was saved: of `shards`, run behind run. Without error feedback there is none. ERR_NOMEM. */
ERR_MUST_CHECK enum err replica_set_owner_residual(struct replica *replica, uint32_t f, uint64_t shards,
                                                   const float *values);

/* A trainer's snapshot of a fragment; the arrays are borrowed, whole fragments. */
struct replica_snapshot {
    const float *base, *theta;
    uint64_t step, tokens;                    /* run step it was taken after; tokens its trainer had trained by then */
    uint64_t counted_tokens[PLAN_SHARDS_MAX]; /* by shard: of these tokens, those that results count */
};

/* Our contribution to one part: base - theta + residual, encoded; the new residual is kept pending, cut down to
 * feedback_limit where it is more. `tokens` were trained for it. ERR_NONFINITE names the tensor. `base` and `theta`
 * are whole fragments. */
ERR_MUST_CHECK enum err replica_encode(struct replica *replica, uint32_t f, uint64_t shards, const float *base,
                                       const float *theta, uint64_t tokens, struct codec *codec, uint8_t *frame,
                                       size_t *frame_bytes);

/* The same in pieces, for several threads, to the same bits: begin; next, and all `pieces` it says, in any order, each
 * with the codec of its thread, until it says none; end, which is told the first error, and says what replica_encode()
 * does. The arrays stay as they are meanwhile. */
enum { REPLICA_PIECES = 16 };
struct replica_encoding {
    size_t pieces;
    /* replica's */
    struct replica *replica;
    uint32_t fragment;
    struct part_cut *cut;
    struct vec_source source;
    float *left; /* the new residual; NULL: none */
    struct part_cut_place place;
    struct codec_writer writer;
    struct encoding_piece {
        struct codec_part part;
        struct codec_writer writer;
        size_t fault;
        bool failed;
    } piece[REPLICA_PIECES];
};
void replica_encode_begin(struct replica *replica, uint32_t f, uint64_t shards, const float *base, const float *theta,
                          struct codec *codec, uint8_t *frame, struct replica_encoding *out);
void replica_encode_next(struct replica_encoding *encoding);
ERR_MUST_CHECK enum err replica_encode_piece(struct replica_encoding *encoding, size_t i, struct codec *codec);
ERR_MUST_CHECK enum err replica_encode_end(struct replica_encoding *encoding, enum err err, uint64_t tokens,
                                           size_t *frame_bytes);

/* The weighted mean of the inputs, in their order, over our own part, or what the run spec has in its place for
 * outliers; encoded; the new residual is kept pending. ERR_PROTO: input `*bad` cannot be decoded. ERR_NONFINITE: it
 * holds numbers that no mean can be made of. ERR_NOMEM: trimmed means take some. `scratch` holds
 * replica_piece_values(). */
ERR_MUST_CHECK enum err replica_reduce(struct replica *replica, uint32_t f, struct mean_input *inputs,
                                       size_t inputs_count, struct codec *codec, float *scratch, uint8_t *frame,
                                       size_t *frame_bytes, size_t *bad);
/* The same in pieces, for several threads, to the same bits: begin; next, and all `pieces` it says, in any order, each
 * with the codec and scratch of its thread, until it says none; end, which is told the first error, and says what
 * replica_reduce() does. Inputs, frame and fragment stay as they are meanwhile. */
struct replica_reducing {
    size_t pieces;
    /* replica's */
    struct replica *replica;
    uint32_t fragment;
    enum { REDUCING_BEGUN, REDUCING_LOOKS, REDUCING_MAKES } stage;
    struct mean_input *inputs;
    size_t inputs_count, count;
    const float *residual;       /* of earlier encodings; NULL: none */
    float *left;                 /* the new one */
    struct part_cut_place place; /* where the next piece begins */
    struct codec_writer writer;
    double square_sum; /* of the mean */
    size_t bad;
    struct reducing_piece {
        struct codec_part part;
        uint64_t at;
        struct codec_writer writer;
        double square_sum;
        size_t bad;
        bool failed;
    } piece[MEAN_PLACES];
};
ERR_MUST_CHECK enum err replica_reduce_begin(struct replica *replica, uint32_t f, struct mean_input *inputs,
                                             size_t inputs_count, uint8_t *frame, struct replica_reducing *out);
ERR_MUST_CHECK enum err replica_reduce_next(struct replica_reducing *reducing);
ERR_MUST_CHECK enum err replica_reduce_piece(struct replica_reducing *reducing, size_t i, struct codec *codec,
                                             float *scratch);
ERR_MUST_CHECK enum err replica_reduce_end(struct replica_reducing *reducing, enum err err, struct codec *codec,
                                           size_t *frame_bytes, size_t *bad);
/* The run has warmed up: from now on an outer gradient that grows faster than the tokens behind it makes no room for a
 * larger residual. */
void replica_settle(struct replica *replica, uint32_t f);
/* How often a residual of that fragment was cut down to feedback_limit. */
uint64_t replica_feedback_cuts(const struct replica *replica, uint32_t f);

/* A result counts the last encoding for these shards: its residual is added to the next one. Once for an encoding.
 * Where it is all shards, residual and pending one change places, and replica_residual() is another array. */
void replica_commit(struct replica *replica, uint32_t f, uint64_t shards);
/* It counts an encoding that is not known any more: nothing is added there. */
void replica_forget(struct replica *replica, uint32_t f, uint64_t shards);
/* Our result was applied: the residual of the mean that was made last moves. */
void replica_commit_owner(struct replica *replica, uint32_t f);
/* Whether a mean was made in the present parts, and not committed. */
bool replica_owner_pending(const struct replica *replica, uint32_t f);
/* A result of ours was applied whose residual is not known any more: what we had left of these shards is in it. */
void replica_forget_owner(struct replica *replica, uint32_t f, uint64_t shards);

/* One outer step on these shards. Residuals stay as they are. ERR_PROTO: the frame was altered since it was checked
 * (codec_check(), codec_decodable()), and nothing is done. */
ERR_MUST_CHECK enum err replica_apply(struct replica *replica, uint32_t f, uint64_t shards,
                                      const struct outer_round *round, const uint8_t *frame, size_t frame_bytes,
                                      struct codec *codec);

/* The same in pieces, as an encoding is made; there is no end to it but when there are no pieces left. */
struct replica_applying {
    size_t pieces;
    /* replica's */
    struct replica *replica;
    uint32_t fragment;
    struct outer_round round;
    struct plan_share share;
    struct codec_reader reader;
    uint64_t at; /* values that are in pieces already */
    struct applying_piece {
        struct codec_reader reader;
        uint64_t at;
        size_t count;
    } piece[REPLICA_PIECES];
};
ERR_MUST_CHECK enum err replica_apply_begin(struct replica *replica, uint32_t f, uint64_t shards,
                                            const struct outer_round *round, const uint8_t *frame, size_t frame_bytes,
                                            struct replica_applying *out);
ERR_MUST_CHECK enum err replica_apply_next(struct replica_applying *applying);
ERR_MUST_CHECK enum err replica_apply_piece(struct replica_applying *applying, size_t i, struct codec *codec);

/* Sums of squares over some shards. */
struct replica_size {
    double delta, momentum;
};
/* Of a result, and of the momentum before it is applied. */
ERR_MUST_CHECK enum err replica_measure(struct replica *replica, uint32_t f, uint64_t shards, const uint8_t *frame,
                                        size_t frame_bytes, struct codec *codec, struct replica_size *size);

/* Norm of a fragment's anchor. */
double replica_norm(const struct replica *replica, uint32_t f);

/* What the anchor counts: the caller changes it beside what it applies, on one thread. Borrowed. */
struct dedup *replica_counted(struct replica *replica, uint32_t f);
/* All results of `version` are applied and counted: whose contributions pointed elsewhere. Before it is hashed. */
void replica_judge(struct replica *replica, uint32_t f, uint64_t version);

/* Hash of a fragment as `version`, whose newest result is of run step `step`: anchor, momentum and what they count. */
ERR_MUST_CHECK enum err replica_hash(struct replica *replica, uint32_t f, uint64_t version, uint64_t step,
                                     struct digest *hash);
/* The same in pieces, for several threads: begin, each piece once, in any order and by any thread, end. The fragment
 * stays as it is meanwhile. Ended by replica_hash_deinit(), also after ERR_NOMEM. */
struct replica_hashing {
    size_t pieces;
    /* replica's */
    uint32_t fragment;
    uint64_t rows_count;
    size_t values_bytes, bytes, leaves_count;
    struct digest_span spans[3]; /* anchor, momentum, what they count */
    struct digest *leaves;
    uint8_t *rows;
};
ERR_MUST_CHECK enum err replica_hash_begin(struct replica *replica, uint32_t f, struct replica_hashing *out);
void replica_hash_piece(struct replica_hashing *hashing, size_t i);
struct digest replica_hash_end(struct replica_hashing *hashing, uint64_t version, uint64_t step);
void replica_hash_deinit(struct replica_hashing *hashing);

/* All zeros, as after replica_new(). */
void replica_clear(struct replica *replica, uint32_t f);

/* Forgets all residuals of a fragment. */
void replica_clear_residuals(struct replica *replica, uint32_t f);

#endif
