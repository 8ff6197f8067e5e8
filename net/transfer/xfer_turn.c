/* SPDX-License-Identifier: Apache-2.0 */
#include "net/transfer/xfer_turn.h"

/* As in the header: 1/LEAST of a line; of a window 1/BEHIND what is unacknowledged, 1/BESIDE what waits. */
enum { LEAST = 24, BESIDE = 8, BEHIND = 2 };

/* Results first: the others stand still without them. States and plans last: nobody stands still for them. */
static int urgency(uint32_t kind)
{
    return kind == WIRE_RESULT ? 0 : kind == WIRE_CONTRIBUTION ? 1 : 2;
}

static bool in_a_hurry(const struct outgoing *o)
{
    return o->key.kind == WIRE_RESULT || o->key.kind == WIRE_CONTRIBUTION;
}

static bool before(const struct outgoing *left, const struct outgoing *right)
{
    int l = urgency(left->key.kind);
    int r = urgency(right->key.kind);
    return l != r ? l < r : left->order < right->order;
}

static bool may_go(const struct outgoing *o, uint64_t now_ms)
{
    return o->used && now_ms >= o->not_before_ms && (o->ask || (!o->hold && o->cursor < o->total));
}

/* For each peer what goes first. Questions before bytes: they are small, and something waits for the answer. */
static void choose_first(struct xfer_turn *turn, struct outgoing *outgoing, uint32_t count, uint64_t now_ms)
{
    for (uint32_t i = 0; i < turn->peers_count; i++)
        turn->ways[i].first[XFER_IN_A_HURRY] = turn->ways[i].first[XFER_IN_NO_HURRY] = NULL;
    for (uint32_t i = 0; i < count; i++) {
        struct outgoing *o = &outgoing[i];
        if (!may_go(o, now_ms))
            continue;
        struct outgoing **best =
            &turn->ways[o->peer].first[o->ask || in_a_hurry(o) ? XFER_IN_A_HURRY : XFER_IN_NO_HURRY];
        if (*best == NULL || (o->ask && !(*best)->ask) || (o->ask == (*best)->ask && before(o, *best)))
            *best = o;
    }
}

/* What is under way to those that answer. They share our line, whoever they are for. */
struct under_way {
    bool hurry, more; /* others stand still for some of it; and for what waits */
    uint64_t rest;    /* bytes that nobody stands still for */
};

static struct under_way look_under_way(const struct outgoing *outgoing, uint32_t count, uint64_t now_ms)
{
    struct under_way look = {.rest = 0};
    for (uint32_t i = 0; i < count; i++) {
        const struct outgoing *o = &outgoing[i];
        if (!o->used || o->hold || now_ms >= o->answered_ms + XFER_ASK_MS)
            continue;
        look.hurry |= in_a_hurry(o) && o->cursor > o->acked;
        look.more |= in_a_hurry(o) && o->cursor < o->total;
        look.rest += in_a_hurry(o) ? 0 : o->cursor - o->acked;
    }
    return look;
}

/* Whether what nobody stands still for has to wait for what of it is under way. */
static bool yields(const struct under_way *look, uint64_t window, uint64_t bytes)
{
    uint64_t most = window / (look->more ? BESIDE : BEHIND);
    return (look->hurry || look->more) && look->rest > 0 && look->rest + bytes > most;
}

/* The next chunk of what is in a hurry, or of what is not, of `most` bytes. */
static struct outgoing *next_of(struct xfer_turn *turn, const struct bitset *blocked, const struct under_way *look,
                                int hurry, uint64_t most, uint64_t *bytes)
{
    for (uint32_t k = 0; k < turn->peers_count; k++) {
        uint32_t peer = (turn->peer + k) % turn->peers_count;
        const struct xfer_turn_way *way = &turn->ways[peer];
        struct outgoing *o = way->first[hurry];
        if (o == NULL || bitset_has(blocked, peer))
            continue;
        *bytes = o->ask ? 0 : o->total - o->cursor < way->chunk ? o->total - o->cursor : way->chunk;
        if (*bytes > 0 && way->outstanding > 0 && way->outstanding + *bytes > way->window)
            continue;
        if (*bytes > most || (hurry == XFER_IN_NO_HURRY && yields(look, way->window, *bytes)))
            continue;
        turn->peer = (peer + 1) % turn->peers_count;
        return o;
    }
    return NULL;
}

struct outgoing *xfer_turn_next(struct xfer_turn *turn, struct outgoing *outgoing, uint32_t count,
                                const struct bitset *blocked, uint64_t now_ms, uint64_t *bytes)
{
    const struct under_way look = look_under_way(outgoing, count, now_ms);
    choose_first(turn, outgoing, count, now_ms);
    struct outgoing *o = next_of(turn, blocked, &look, XFER_IN_NO_HURRY, turn->owed, bytes);
    if (o == NULL)
        o = next_of(turn, blocked, &look, XFER_IN_A_HURRY, UINT64_MAX, bytes);
    return o != NULL ? o : next_of(turn, blocked, &look, XFER_IN_NO_HURRY, UINT64_MAX, bytes);
}

/* Only while something waits that nobody stands still for. */
void xfer_turn_sent(struct xfer_turn *turn, const struct outgoing *o, uint64_t bytes)
{
    bool waits = false;
    for (uint32_t i = 0; i < turn->peers_count && !waits; i++)
        waits = turn->ways[i].first[XFER_IN_NO_HURRY] != NULL;
    if (!waits)
        turn->owed = 0;
    else if (in_a_hurry(o))
        turn->owed = turn->owed < WIRE_CHUNK_BYTES_MAX ? turn->owed + bytes / LEAST : turn->owed;
    else
        turn->owed = turn->owed > bytes ? turn->owed - bytes : 0;
}
