/* SPDX-License-Identifier: Apache-2.0 */
/* Our contribution to one part, in pieces. */
#include <assert.h>
#include <inttypes.h>
#include <math.h>

#include "daemon/state/replica.h"
#include "daemon/state/replica_core.h"

void replica_encode_begin(struct replica *replica, uint32_t f, uint64_t shards, const float *base, const float *theta,
                          struct codec *codec, uint8_t *frame, struct replica_encoding *out)
{
    struct replica_fragment *fragment = &replica->fragments[f];
    *out = (struct replica_encoding){.replica = replica,
                                     .fragment = f,
                                     .cut = replica_find_cut(fragment, shards),
                                     .source = {.minuend = base, .subtrahend = theta, .residual = fragment->residual},
                                     .left = fragment->pending,
                                     .writer = codec_write_begin(frame)};
    assert(out->cut != NULL); /* replica_cut() was not told of it */
    part_cut_adapt(out->cut, &replica->conf.choice, &out->source, codec);
}

/* Each piece is encoded into a place of its own, as far behind what is written as those before it can get. Adaptive
 * codecs are chosen by what they make of the values, and may get further than a frame has room for with others: one
 * after the other. */
void replica_encode_next(struct replica_encoding *e)
{
    for (size_t i = 0; i < e->pieces; i++)
        codec_write_take(&e->writer, &e->piece[i].writer);
    size_t place = e->writer.at, most = e->replica->conf.adaptive ? 1 : REPLICA_PIECES;
    for (e->pieces = 0; e->pieces < most; e->pieces++) {
        struct encoding_piece *piece = &e->piece[e->pieces];
        *piece = (struct encoding_piece){.failed = false};
        if (!part_cut_next(e->cut, &e->place, &piece->part))
            return;
        piece->writer = codec_write_at(e->writer.frame, place);
        place += codec_part_bytes_max(&piece->part);
    }
}

enum err replica_encode_piece(struct replica_encoding *e, size_t i, struct codec *codec)
{
    struct encoding_piece *piece = &e->piece[i];
    enum err err = codec_write(codec, &piece->writer, &piece->part, &e->source, e->left, &piece->fault);
    piece->failed = err != ERR_OK;
    return err;
}

/* The first piece that something is wrong with. */
static enum err tell_fault(const struct replica_encoding *e, enum err err)
{
    size_t i = 0;
    while (i + 1 < e->pieces && !e->piece[i].failed)
        i++;
    size_t fault = e->piece[i].fault;
    const struct plan_tensor *tensor = plan_tensor_at(e->replica->conf.plan, e->fragment, fault);
    return err_set(err,
                   "tensor %s holds NaN or Inf (near value %" PRIu64 "): fragment %" PRIu32
                   " is not contributed and will be reset to the next anchor; lower the learning rate",
                   tensor != NULL ? tensor->name : "(padding)", tensor != NULL ? fault - tensor->offset : 0,
                   e->fragment);
}

static void restrain(struct replica_encoding *e, uint64_t tokens)
{
    struct replica_fragment *fragment = &e->replica->fragments[e->fragment];
    const struct restraint rule = replica_restraint(e->replica, fragment);
    struct plan_share share;
    plan_share(e->replica->conf.plan, e->fragment, e->cut->shards, &share);
    double norm = rule.limit > 0 ? sqrt(part_cut_square_sum(&e->source, &share)) : 0;
    if (part_cut_restrain(e->cut, &rule, norm, (double)tokens, &share, e->left))
        atomic_fetch_add(&fragment->cut_down, 1);
}

enum err replica_encode_end(struct replica_encoding *e, enum err err, uint64_t tokens, size_t *frame_bytes)
{
    if (err == ERR_NONFINITE)
        return tell_fault(e, err);
    if (err != ERR_OK)
        return err;
    *frame_bytes = codec_write_end(&e->writer);
    if (e->left != NULL)
        restrain(e, tokens);
    return ERR_OK;
}

enum err replica_encode(struct replica *replica, uint32_t f, uint64_t shards, const float *base, const float *theta,
                        uint64_t tokens, struct codec *codec, uint8_t *frame, size_t *frame_bytes)
{
    struct replica_encoding e;
    enum err err = ERR_OK;
    replica_encode_begin(replica, f, shards, base, theta, codec, frame, &e);
    for (replica_encode_next(&e); err == ERR_OK && e.pieces > 0;) {
        for (size_t i = 0; err == ERR_OK && i < e.pieces; i++)
            err = replica_encode_piece(&e, i, codec);
        if (err == ERR_OK)
            replica_encode_next(&e);
    }
    return replica_encode_end(&e, err, tokens, frame_bytes);
}
