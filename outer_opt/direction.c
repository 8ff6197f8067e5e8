/* SPDX-License-Identifier: Apache-2.0 */
#include "outer_opt/direction.h"

#include <float.h>

/* ---- rounds running ---- */

bool direction_turned(uint32_t state)
{
    return state >= DIRECTION_ROUNDS;
}

uint32_t direction_next(uint32_t state, bool below)
{
    if (below)
        return direction_turned(state) ? DIRECTION_ROUNDS : state + 1;
    return direction_turned(state) && state + 1 < DIRECTION_STATES ? state + 1 : 0;
}

/* ---- who judges, and who weighs nothing ---- */

void direction_weightless(const struct direction_input *inputs, size_t count, bool *out)
{
    size_t owners = 0, turned[2] = {0};
    for (size_t i = 0; i < count; i++) {
        owners += inputs[i].owner;
        turned[inputs[i].owner] += inputs[i].turned;
    }
    size_t all = owners > 0 ? owners : count, away = turned[owners > 0];
    for (size_t i = 0; i < count; i++)
        out[i] = inputs[i].turned && 2 * away <= all;
}

bool direction_judges(const struct direction_input *inputs, const bool *weighs, size_t count, bool *judges,
                      bool *judged)
{
    size_t owners = 0, all = 0;
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        all += weighs[i];
        owners += weighs[i] && inputs[i].owner;
    }
    bool by_owners = owners >= DIRECTION_JUDGES_MIN;
    for (size_t i = 0; i < count; i++) {
        judges[i] = weighs[i] && (!by_owners || inputs[i].owner);
        judged[i] = (by_owners || !inputs[i].owner) && (by_owners ? owners : all) - judges[i] >= DIRECTION_JUDGES_MIN;
        any |= judged[i];
    }
    return any;
}

/* ---- pieces ---- */

/* SplitMix64's finish: each bit of the result depends on all of x. */
static uint64_t scatter(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

bool direction_looks(uint64_t seed, uint64_t values, uint64_t piece, uint64_t piece_values)
{
    uint64_t of = values / DIRECTION_VALUES_MIN, pieces = piece_values > 0 ? values / piece_values : 1;
    of = of < DIRECTION_OF ? of : DIRECTION_OF;
    of = of < pieces ? of : pieces;
    of = of > 1 ? of : 1;
    return piece % of == scatter(seed + piece / of) % of;
}

/* ---- cosines ---- */

void direction_add(const bool *judges, const float *weights, const double *along, const double *squares, size_t count,
                   struct direction_sums *sums)
{
    double all = 0, apart = 0; /* T * T; and without what two of them have in common */
    for (size_t i = 0; i < count; i++) {
        double weight = judges[i] ? (double)weights[i] : 0;
        all = all + weight * along[i];
        apart = apart + weight * weight * squares[i];
    }
    for (size_t i = 0; i < count; i++) {
        double own = judges[i] ? (double)weights[i] : 0;
        sums[i].square = sums[i].square + squares[i];
        sums[i].along = sums[i].along + (along[i] - own * squares[i]);
        sums[i].others = sums[i].others + ((all - 2 * own * along[i]) + own * own * squares[i]);
        sums[i].apart = sums[i].apart + (apart - own * own * squares[i]);
    }
}

void direction_add_sums(const struct direction_sums *more, struct direction_sums *sums)
{
    sums->square = sums->square + more->square;
    sums->along = sums->along + more->along;
    sums->others = sums->others + more->others;
    sums->apart = sums->apart + more->apart;
}

double direction_cosine_square(const struct direction_sums *sums)
{
    double along = sums->along, norms = sums->square * sums->others;
    if (!(norms > 0 && norms <= DBL_MAX && sums->others >= DIRECTION_AGREE * sums->apart))
        return 0;
    double cosine = along * along / norms;
    cosine = cosine < 1 ? cosine : 1; /* what is no number is found elsewhere */
    return along < 0 ? -cosine : along > 0 ? cosine : 0;
}
