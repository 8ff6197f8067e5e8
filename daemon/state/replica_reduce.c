/* SPDX-License-Identifier: Apache-2.0 */
/* The mean of contributions to our own part, and its encoding, in pieces. */
#include <assert.h>
#include <math.h>

#include "daemon/state/replica.h"
#include "daemon/state/replica_core.h"
#include "outer_opt/outer.h"

static struct replica_fragment *fragment_of(const struct replica_reducing *r)
{
    return &r->replica->fragments[r->fragment];
}

enum err replica_reduce_begin(struct replica *replica, uint32_t f, struct mean_input *inputs, size_t inputs_count,
                              uint8_t *frame, struct replica_reducing *out)
{
    struct replica_fragment *fragment = &replica->fragments[f];
    struct packed *left = &fragment->owner_pending;
    assert(fragment->own.shards != 0);
    *out = (struct replica_reducing){.replica = replica,
                                     .fragment = f,
                                     .stage = REDUCING_BEGUN,
                                     .inputs = inputs,
                                     .inputs_count = inputs_count,
                                     .count = replica_values(replica, f, fragment->own.shards),
                                     .residual = fragment->owner_residual.values,
                                     .left = left->values,
                                     .writer = codec_write_begin(frame)};
    fragment->owner_made = false;
    TRY(mean_begin(&fragment->mean, &replica->conf.outliers, inputs, inputs_count, out->count, &out->bad));
    if (inputs_count > 0 && inputs[0].by_shard != NULL)
        mean_weigh_shards(&fragment->mean, replica->conf.plan, f, fragment->own.shards);
    if (fragment->owner_residual.shards != fragment->own.shards) { /* it has others between them */
        packed_copy(replica->conf.plan, f, &fragment->owner_residual, left);
        out->residual = left->values;
    }
    return ERR_OK;
}

/* ---- cutting ---- */

static bool cut_piece(struct replica_reducing *r, struct reducing_piece *piece)
{
    *piece = (struct reducing_piece){.bad = 0};
    if (!part_cut_next(&fragment_of(r)->own, &r->place, &piece->part))
        return false;
    piece->at = piece->part.at;
    piece->part.at = 0;
    return true;
}

/* The next pieces. Each is encoded into a place of its own, as far behind what is written as those before it can get.
 */
static enum err cut_pieces(struct replica_reducing *r)
{
    struct mean *mean = &fragment_of(r)->mean;
    size_t place = r->writer.at;
    for (r->pieces = 0; r->pieces < mean_places(mean) && cut_piece(r, &r->piece[r->pieces]); r->pieces++) {
        struct reducing_piece *piece = &r->piece[r->pieces];
        TRY(mean_place(mean, r->pieces, (size_t)piece->part.count, &r->bad));
        piece->writer = codec_write_at(r->writer.frame, place);
        place += codec_part_bytes_max(&piece->part);
    }
    return ERR_OK;
}

/* What was made of the last ones, in their order, so that its bits do not depend on threads. */
static void gather_pieces(struct replica_reducing *r)
{
    for (size_t i = 0; i < r->pieces; i++) {
        r->square_sum += r->piece[i].square_sum;
        codec_write_take(&r->writer, &r->piece[i].writer);
    }
}

enum err replica_reduce_next(struct replica_reducing *r)
{
    struct mean *mean = &fragment_of(r)->mean;
    if (r->stage == REDUCING_BEGUN) {
        r->stage = REDUCING_LOOKS;
        r->pieces = mean_looks(mean);
        if (r->pieces > 0)
            return ERR_OK;
    }
    if (r->stage == REDUCING_LOOKS) {
        mean_judge(mean);
        r->stage = REDUCING_MAKES;
        r->pieces = 0;
        if (r->replica->conf.adaptive) { /* codecs are chosen by all of it */
            r->pieces = 1;
            return mean_place(mean, 0, r->count, &r->bad);
        }
    }
    if (r->replica->conf.adaptive)
        r->pieces = 0;
    else {
        gather_pieces(r);
        return cut_pieces(r);
    }
    return ERR_OK;
}

/* ---- making ---- */

static enum err encode_piece(const struct replica_reducing *r, struct reducing_piece *piece, const float *mean,
                             struct codec *codec, struct codec_writer *writer)
{
    size_t fault;
    const struct vec_source source = {.minuend = mean,
                                      .residual = r->residual != NULL ? r->residual + piece->at : NULL};
    piece->square_sum = outer_square_sum(mean, NULL, (size_t)piece->part.count);
    return codec_write(codec, writer, &piece->part, &source, r->left != NULL ? r->left + piece->at : NULL, &fault);
}

/* Adaptive: the mean whole, and its parts one after the other. */
static enum err make_whole(struct replica_reducing *r, struct codec *codec, float *scratch)
{
    struct replica_fragment *fragment = fragment_of(r);
    struct reducing_piece piece;
    TRY(mean_read(&fragment->mean, 0, codec, scratch, r->count, &r->piece[0].bad));
    const struct vec_source source = {.minuend = scratch, .residual = r->residual};
    part_cut_adapt(&fragment->own, &r->replica->conf.choice, &source, codec);
    while (cut_piece(r, &piece)) {
        TRY(encode_piece(r, &piece, scratch + piece.at, codec, &r->writer));
        r->square_sum += piece.square_sum;
    }
    return ERR_OK;
}

static enum err make_piece(struct replica_reducing *r, size_t i, struct codec *codec, float *scratch)
{
    struct reducing_piece *piece = &r->piece[i];
    TRY(mean_read(&fragment_of(r)->mean, i, codec, scratch, (size_t)piece->part.count, &piece->bad));
    return encode_piece(r, piece, scratch, codec, &piece->writer);
}

enum err replica_reduce_piece(struct replica_reducing *r, size_t i, struct codec *codec, float *scratch)
{
    if (r->stage == REDUCING_LOOKS)
        return mean_look(&fragment_of(r)->mean, i, codec);
    enum err err = r->replica->conf.adaptive ? make_whole(r, codec, scratch) : make_piece(r, i, codec, scratch);
    r->piece[i].failed = err != ERR_OK;
    return err;
}

/* ---- the end ---- */

/* The first input that something is wrong with. */
static size_t first_bad(const struct replica_reducing *r)
{
    if (r->stage == REDUCING_LOOKS)
        return mean_looked_bad(&fragment_of(r)->mean);
    for (size_t i = 0; r->stage == REDUCING_MAKES && i < r->pieces; i++)
        if (r->piece[i].failed)
            return r->piece[i].bad;
    return r->bad;
}

enum err replica_reduce_end(struct replica_reducing *r, enum err err, struct codec *codec, size_t *frame_bytes,
                            size_t *bad)
{
    struct replica_fragment *fragment = fragment_of(r);
    struct plan_share all = {.runs_count = r->count > 0, .values_count = r->count, .run = {{.end = r->count}}};
    if (err == ERR_NONFINITE) {
        *bad = mean_culprit(r->inputs, r->inputs_count, r->count, codec);
        return err_set(err, "it holds NaN, Inf or numbers that make the mean larger than the codec can hold");
    }
    if (err != ERR_OK) {
        *bad = first_bad(r);
        return err;
    }
    *frame_bytes = codec_write_end(&r->writer);
    const struct restraint rule = replica_restraint(r->replica, fragment);
    double tokens = mean_weight(r->inputs, r->inputs_count);
    if (r->left != NULL && part_cut_restrain(&fragment->own, &rule, sqrt(r->square_sum), tokens, &all, r->left))
        atomic_fetch_add(&fragment->cut_down, 1);
    fragment->owner_made = r->left != NULL;
    return ERR_OK;
}

enum err replica_reduce(struct replica *replica, uint32_t f, struct mean_input *inputs, size_t inputs_count,
                        struct codec *codec, float *scratch, uint8_t *frame, size_t *frame_bytes, size_t *bad)
{
    struct replica_reducing r;
    enum err err = replica_reduce_begin(replica, f, inputs, inputs_count, frame, &r);
    while (err == ERR_OK && (err = replica_reduce_next(&r)) == ERR_OK && r.pieces > 0)
        for (size_t i = 0; err == ERR_OK && i < r.pieces; i++)
            err = replica_reduce_piece(&r, i, codec, scratch);
    return replica_reduce_end(&r, err, codec, frame_bytes, bad);
}
