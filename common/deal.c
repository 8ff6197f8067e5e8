/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules. Lists are numbered as the configurations decided them; list k + 1 differs from list k. With H the
 * interval, n units in list k, and c the counted step of the configuration that has list k + 1:
 *
 *     step(k + 1)     = max(step(k), c + 2 H + 1)
 *     position(k + 1) = position(k) + (step(k + 1) - step(k)) * n
 *
 * At step s a member draws its units by the newest list, of those it knows, with step <= s, and only if s is at most
 * 2 H beyond h: the largest run step that is counted here when it draws. Else it draws from its reserve.
 *
 * No window of a pass is drawn by two members, and a member draws one twice only from its own reserve, or where the
 * work of the first time is lost and it goes on from an earlier step. Assumed is:
 *
 * - A1. A result that is applied anywhere was durable, in its epoch, at a set of voters that commits, none of which had
 *   sealed; and of the voters whose seals decide the next configuration one is in each such set (docs/PROTOCOL.md, 9).
 * - A2. c is at least the run step of every result that is durable at enough voters to decide when they seal; and c
 *   never falls from one configuration to the next.
 * - A3. h is the largest of: the run steps of results that were applied here one by one, each of an epoch whose
 *   configuration was known here by then; and the c of a configuration that is known here.
 * - A4. One trainer draws for an id, ids are never given twice, and all have the same windows.
 *
 * (1) A list that a member does not know when it draws by dealing at step s begins after s. Let e be the newest
 *     configuration that it knows. A result that moved h is of an epoch d <= e. By A1 a voter that sealed d held it, so
 *     by A2 the c of d + 1, and of all later ones, is at least its step. So h <= c(e') for each e' > e, and a list that
 *     comes with e' begins at c(e') + 2 H + 1 or later: after h + 2 H >= s.
 * (2) So whoever draws by dealing at step s does it by the same list: the newest of all with step <= s. (A member may
 *     have forgotten lists older than those it knows, or never heard of them: then it has none with step <= s, and
 *     draws from its reserve.)
 * (3) List k is in force from step(k) to step(k + 1) - 1, so it has exactly the positions from position(k) to
 *     position(k + 1) - 1, n of them at each step, each of one member. Where step(k + 1) = step(k), list k never is in
 *     force and has none. So a position is one member's, at one step: one window of one pass.
 * (4) The reserve is no position's, and the pieces of two ids share no window of a pass. Whoever has been through its
 *     piece of a pass goes on with its pieces of the passes after it: these are its own as well, and other windows of
 *     the corpus. So it sees one again only when the others have come as far, or its results have moved on a little and
 *     it is beyond them anew.
 *
 * A state that was taken over is not counted (A3), though its hash is certified: its certificate names no epoch, and
 * voters whom a member knows from configuration e may have signed a version made in e + 1, which it has not heard of.
 * If that moved h, the member would draw by the old list where the others draw by the new one.
 *
 * Positions and turns are taken modulo 2^64: no run comes that far.
 */
#include "common/deal.h"

#include <stdlib.h>
#include <string.h>

#include "common/env.h"

/* Of the reserve the first half is cut into so many pieces, for the first ids; each further level takes half of what is
 * left, and cuts that into twice as many. So every id that will ever be given has a piece, and nobody's changes. */
enum { RESERVE_PIECES = 8 };

/* ---- how a configuration comes by its list ---- */

uint64_t deal_units(const struct deal_share *shares, uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += shares[i].units;
    return sum;
}

static int compare_units(const void *left, const void *right)
{
    uint32_t l = *(const uint32_t *)left, r = *(const uint32_t *)right;
    return l < r ? -1 : l > r;
}

void deal_limit(struct deal_share *shares, uint32_t count)
{
    uint32_t sorted[DEAL_MEMBERS_MAX], drawing = 0;
    for (uint32_t i = 0; i < count && i < DEAL_MEMBERS_MAX; i++)
        if (shares[i].units > 0)
            sorted[drawing++] = shares[i].units < DEAL_UNITS_MAX ? shares[i].units : DEAL_UNITS_MAX;
    if (drawing == 0)
        return;
    qsort(sorted, drawing, sizeof sorted[0], compare_units);
    uint32_t median = sorted[(drawing - 1) / 2];
    uint32_t limit = median < DEAL_UNITS_MAX / DEAL_MEDIANS ? median * DEAL_MEDIANS : DEAL_UNITS_MAX;
    for (uint32_t i = 0; i < count; i++)
        if (shares[i].units > limit)
            shares[i].units = limit;
}

bool deal_same(const struct deal_share *left, uint32_t left_count, const struct deal_share *right, uint32_t right_count)
{
    if (left_count != right_count)
        return false;
    for (uint32_t i = 0; i < left_count; i++)
        if (left[i].id != right[i].id || left[i].units != right[i].units)
            return false;
    return true;
}

struct deal_start deal_start_next(const struct deal_list *list, uint64_t counted_step, uint64_t horizon)
{
    struct deal_start next = list->start;
    if (next.step < counted_step + horizon + 1)
        next.step = counted_step + horizon + 1;
    next.position += (next.step - list->start.step) * deal_units(list->shares, list->count);
    return next;
}

static int compare_claims(const void *left, const void *right)
{
    const struct deal_claim *l = left, *r = right;
    if (l->step != r->step)
        return l->step < r->step ? -1 : 1;
    return l->id < r->id ? -1 : l->id > r->id;
}

void deal_sort(struct deal_claim *claims, uint32_t count)
{
    if (count > 0)
        qsort(claims, count, sizeof *claims, compare_claims);
}

uint64_t deal_counted_step(uint64_t before, const struct deal_claim *claims, uint32_t count,
                           bool (*enough)(void *user, const struct deal_claim *claims, uint32_t count), void *user)
{
    uint64_t step = 0;
    for (uint32_t i = 0; i < count && (i == 0 || !enough(user, claims, i)); i++)
        step = claims[i].step;
    return step > before ? step : before;
}

/* ---- what one draws ---- */

struct deal deal_of(uint32_t id, uint64_t horizon)
{
    return (struct deal){.id = id, .horizon = horizon};
}

static enum err check_list(const struct deal *deal, const struct deal_list *list)
{
    if (deal->count > 0 && list->start.step < deal->cuts[deal->count - 1].start.step)
        return err_set(ERR_ARG, "a list of who draws which data starts before the one before it");
    if (list->count > DEAL_MEMBERS_MAX)
        return err_set(ERR_ARG, "a list of who draws which data has %u members, above %d", (unsigned)list->count,
                       DEAL_MEMBERS_MAX);
    for (uint32_t i = 1; i < list->count; i++)
        if (list->shares[i].id <= list->shares[i - 1].id)
            return err_set(ERR_ARG, "a list of who draws which data is not in order of id");
    return ERR_OK;
}

/* Room at the end: in the place of one that never is in force, or is the same; or of the oldest. */
static struct deal_cut *make_room(struct deal *deal, uint64_t step)
{
    if (deal->count > 0 && deal->cuts[deal->count - 1].start.step == step)
        return &deal->cuts[deal->count - 1];
    if (deal->count == DEAL_LISTS) {
        memmove(&deal->cuts[0], &deal->cuts[1], (DEAL_LISTS - 1) * sizeof deal->cuts[0]);
        deal->count--;
    }
    return &deal->cuts[deal->count++];
}

enum err deal_add(struct deal *deal, const struct deal_list *list)
{
    struct deal_cut cut = {.start = list->start};
    TRY(check_list(deal, list));
    for (uint32_t i = 0; i < list->count; i++) {
        cut.units += list->shares[i].units;
        cut.before += list->shares[i].id < deal->id ? list->shares[i].units : 0;
        cut.own += list->shares[i].id == deal->id ? list->shares[i].units : 0;
    }
    *make_room(deal, list->start.step) = cut;
    deal_counted(deal, list->counted_step);
    return ERR_OK;
}

void deal_counted(struct deal *deal, uint64_t step)
{
    if (deal->counted < step)
        deal->counted = step;
}

uint64_t deal_last_step(const struct deal *deal)
{
    return deal->counted + deal->horizon;
}

/* The newest that has begun; NULL: none has. */
static const struct deal_cut *cut_at(const struct deal *deal, uint64_t step)
{
    for (uint64_t i = deal->count; i-- > 0;)
        if (deal->cuts[i].start.step <= step)
            return &deal->cuts[i];
    return NULL;
}

/* The step at which one that draws of its own at `step` began to, as far as the lists say: where dealing ends; or where
 * it was told of the list that it waits for; or where the list began that has nothing more for it. */
static uint64_t reserve_begin(const struct deal *deal, uint64_t step, const struct deal_cut *cut)
{
    const struct deal_cut *next = cut != NULL ? cut + 1 : deal->cuts;
    uint64_t begin = cut != NULL ? cut->start.step : 0;
    if (step > deal_last_step(deal))
        begin = deal_last_step(deal) + 1;
    else if (next < deal->cuts + deal->count && next->start.step > begin + deal->horizon + 1)
        begin = next->start.step - deal->horizon - 1;
    return begin < step ? begin : step;
}

struct deal_place deal_place(const struct deal *deal, uint64_t step, uint32_t unit, uint32_t units)
{
    struct deal_place place = {.id = (uint32_t)deal->id, .turn = step * units + unit};
    const struct deal_cut *cut = cut_at(deal, step);
    place.since = place.turn - reserve_begin(deal, step, cut) * units;
    if (cut == NULL) {
        place.position = deal->count > 0 ? deal->cuts[0].start.position : 0;
        return place;
    }
    place.position = cut->start.position + (step - cut->start.step) * cut->units;
    if (unit >= cut->own || step > deal_last_step(deal))
        return place;
    place.dealt = true;
    place.since = 0;
    place.position += cut->before + unit;
    return place;
}

/* ---- which window that is ---- */

/* The piece of an id, from `*begin` on; returns its length. */
static uint64_t piece_of(uint32_t id, uint64_t begin, uint64_t end, uint64_t *piece_begin)
{
    uint64_t pieces = RESERVE_PIECES, at = id;
    for (; at >= pieces && begin < end; pieces *= 2) {
        at -= pieces;
        begin += (end - begin + 1) / 2;
    }
    uint64_t half = (end - begin + 1) / 2;
    *piece_begin = begin + half * at / pieces;
    return begin + half * (at + 1) / pieces - *piece_begin;
}

struct deal_window deal_window(const struct deal_place *place, uint64_t windows)
{
    uint64_t reserve = windows / DEAL_RESERVE, dealt = windows - reserve, begin;
    struct deal_window window = {.pass = place->position / dealt, .index = place->position % dealt};
    if (place->dealt)
        return window;
    uint64_t length = piece_of(place->id, dealt, windows, &begin);
    window.shared = length == 0;
    if (window.shared) {
        begin = reserve > 0 ? dealt : 0;
        length = reserve > 0 ? reserve : windows;
    }
    window.pass += place->since / length;
    window.index = begin + place->turn % length;
    return window;
}

/* ---- in which order ---- */

enum { SHUFFLE_ROUNDS = 4 };

uint64_t deal_key(uint64_t seed, uint64_t pass)
{
    return env_mix64(seed ^ env_mix64(pass + 1));
}

/* A Feistel network on the next even power of two, walked until it lands inside. Random access, no table, the same
 * everywhere. */
uint64_t deal_shuffled(uint64_t index, uint64_t windows, uint64_t key)
{
    unsigned half_bits = 1;
    while ((uint64_t)1 << (2 * half_bits) < windows)
        half_bits++;
    uint64_t mask = ((uint64_t)1 << half_bits) - 1;
    do {
        uint64_t left = index >> half_bits;
        uint64_t right = index & mask;
        for (uint64_t round = 0; round < SHUFFLE_ROUNDS; round++) {
            uint64_t next = left ^ (env_mix64(right ^ env_mix64(key + round)) & mask);
            left = right;
            right = next;
        }
        index = left << half_bits | right;
    } while (index >= windows);
    return index;
}
