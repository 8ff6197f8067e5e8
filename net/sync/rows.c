/* SPDX-License-Identifier: Apache-2.0 */
#include "net/sync/rows.h"

#include <string.h>

/* Rows that are repeated though nothing changed, so that a lost heartbeat does not matter for long. */
enum { REFRESH = 16 };

static bool row_differs(const struct rows_said *a, const struct rows_said *b)
{
    const struct wire_standing *left = &a->row.at, *right = &b->row.at;
    return left->version != right->version || left->contributed != right->contributed ||
           left->abstained != right->abstained || a->epoch != b->epoch || a->held != b->held ||
           left->hash_known != right->hash_known || !digest_equal(&left->hash, &right->hash) ||
           a->row.vouched != b->row.vouched || left->repairing != right->repairing;
}

/* The results of the next version that we acknowledge. */
static uint64_t held_parts(const struct sync *sync, uint32_t f)
{
    const struct chain_part *parts;
    struct digest digest;
    bool acknowledged;
    uint64_t held = 0;
    uint32_t count = sync_parts(sync, f, &parts);
    for (uint32_t p = 0; p < count; p++)
        if (sync_held(sync, f, p, &digest, &acknowledged) && acknowledged)
            held |= (uint64_t)1 << p;
    return held;
}

/* While it is open whether our state is right, nobody is to build on our word. */
static bool sure_of(const struct sync *sync, uint32_t f)
{
    return sync_known(sync, f) && sync_state(sync, f) != SYNC_REPAIR && !sync_in_doubt(sync, f);
}

static struct rows_said own_row(const struct sync *sync, struct vouches *vouches, uint32_t f, uint64_t epoch)
{
    struct rows_said said = {
        .row = {.fragment = f, .at = sync_own(sync, f)}, .epoch = epoch, .held = held_parts(sync, f)};
    const struct wire_standing *at = &said.row.at;
    said.row.vouched = sure_of(sync, f) && vouches_own(vouches, f, at->version, &at->hash, said.row.signature);
    return said;
}

/* Whether there is room for one more, with all that it may hold. */
static bool room(const struct wire_heartbeat *beat, uint32_t rows_kept)
{
    return beat->fragments_count + rows_kept < WIRE_FRAGMENTS_MAX &&
           beat->held_count + WIRE_HELD_OF_ONE_MAX <= WIRE_HELD_MAX;
}

static void put(const struct sync *sync, const struct rows_said *said, struct wire_heartbeat *beat)
{
    const struct chain_part *parts;
    struct digest digest;
    bool acknowledged;
    struct wire_fragment *row = &beat->fragments[beat->fragments_count++];
    *row = said->row;
    row->held_first = beat->held_count;
    uint32_t count = sync_parts(sync, row->fragment, &parts);
    for (uint32_t p = 0; p < count; p++) {
        if (!(said->held >> p & 1) || !sync_held(sync, row->fragment, p, &digest, &acknowledged))
            continue;
        struct wire_held *held = &beat->held[beat->held_count++];
        held->owner = parts[p].id.owner;
        memcpy(held->tag, digest.byte, sizeof held->tag);
        row->held_count++;
    }
}

void rows_fill(const struct sync *sync, struct vouches *vouches, uint32_t fragments, struct rows_said *said,
               uint32_t *refresh, struct wire_heartbeat *beat)
{
    for (uint32_t f = 0; f < fragments && room(beat, REFRESH); f++) {
        struct rows_said row = own_row(sync, vouches, f, beat->epoch);
        if (!row_differs(&row, &said[f]))
            continue;
        put(sync, &row, beat);
        said[f] = row;
    }
    uint32_t changed = beat->fragments_count;
    for (uint32_t k = 0; k < REFRESH && k < fragments && room(beat, 0); k++) {
        uint32_t f = (*refresh)++ % fragments;
        bool there = false;
        for (uint32_t i = 0; i < changed && !there; i++)
            there = beat->fragments[i].fragment == f;
        if (there)
            continue;
        said[f] = own_row(sync, vouches, f, beat->epoch);
        put(sync, &said[f], beat);
    }
}
