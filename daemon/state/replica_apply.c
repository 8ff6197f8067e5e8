/* SPDX-License-Identifier: Apache-2.0 */
/* One outer step on some shards, in pieces. */
#include "daemon/state/replica.h"
#include "daemon/state/replica_core.h"

enum err replica_apply_begin(struct replica *replica, uint32_t f, uint64_t shards, const struct outer_round *round,
                             const uint8_t *frame, size_t frame_bytes, struct replica_applying *out)
{
    *out = (struct replica_applying){.replica = replica, .fragment = f, .round = *round};
    plan_share(replica->conf.plan, f, shards, &out->share);
    /* It could be decoded when it came; if these are the same bytes, no part of it stays undone. */
    TRY(codec_intact(frame, frame_bytes));
    return codec_read_begin(frame, frame_bytes, (size_t)out->share.values_count, &out->reader);
}

/* A piece ends with a segment, so that none is decoded twice. */
static enum err cut_piece(struct replica_applying *a, struct applying_piece *piece)
{
    size_t count;
    *piece = (struct applying_piece){.reader = a->reader, .at = a->at};
    while (a->reader.values_left > 0 && piece->count < CODEC_SEGMENT) {
        TRY(codec_read_skip_segment(&a->reader, &count));
        piece->count += count;
    }
    a->at += piece->count;
    return ERR_OK;
}

enum err replica_apply_next(struct replica_applying *a)
{
    for (a->pieces = 0; a->pieces < REPLICA_PIECES && a->reader.values_left > 0; a->pieces++)
        TRY(cut_piece(a, &a->piece[a->pieces]));
    return a->pieces == 0 ? codec_read_end(&a->reader) : ERR_OK;
}

/* The run that value `*at` of the share lies in; `*at` becomes its place in the fragment. */
static const struct plan_shard *run_of(const struct plan_share *share, uint64_t *at)
{
    const struct plan_shard *run = share->run;
    uint64_t before = 0;
    for (; *at - before >= run->end - run->begin; run++)
        before += run->end - run->begin;
    *at = run->begin + (*at - before);
    return run;
}

enum err replica_apply_piece(struct replica_applying *a, size_t i, struct codec *codec)
{
    const struct replica_fragment *fragment = &a->replica->fragments[a->fragment];
    struct codec_reader reader = a->piece[i].reader;
    uint64_t at = a->piece[i].at;
    const struct plan_shard *run = run_of(&a->share, &at), *last = &a->share.run[a->share.runs_count - 1];
    for (size_t left = a->piece[i].count; left > 0;) {
        float *delta;
        size_t count;
        TRY(codec_read_segment(codec, &reader, &delta, &count));
        left -= count;
        while (count > 0) {
            size_t take = run->end - at < count ? (size_t)(run->end - at) : count;
            float *momentum = fragment->momentum != NULL ? fragment->momentum + at : NULL;
            outer_step(&a->replica->conf.outer, &a->round, fragment->anchor + at, momentum, delta, take);
            delta += take;
            count -= take;
            at += take;
            if (at == run->end && run != last)
                at = (++run)->begin;
        }
    }
    return ERR_OK;
}

enum err replica_apply(struct replica *replica, uint32_t f, uint64_t shards, const struct outer_round *round,
                       const uint8_t *frame, size_t frame_bytes, struct codec *codec)
{
    struct replica_applying a;
    enum err err = replica_apply_begin(replica, f, shards, round, frame, frame_bytes, &a);
    while (err == ERR_OK && (err = replica_apply_next(&a)) == ERR_OK && a.pieces > 0)
        for (size_t i = 0; err == ERR_OK && i < a.pieces; i++)
            err = replica_apply_piece(&a, i, codec);
    return err;
}
