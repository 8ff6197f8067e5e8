/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rounds/squeeze.h"

enum { TRY_AGAIN = 32, VALUES_MIN = 4096 };

static double transfer_s(const struct squeeze_side *side, double bits_per_s)
{
    return side->seconds + 8 * side->bytes / bits_per_s;
}

bool squeeze_best(const struct squeeze *squeeze, double bits_per_s)
{
    /* On an unknown link, or before both were tried: fewer bytes are what one has a codec for. */
    if (bits_per_s <= 0 || squeeze->side[0].samples == 0 || squeeze->side[1].samples == 0)
        return true;
    return transfer_s(&squeeze->side[1], bits_per_s) <= transfer_s(&squeeze->side[0], bits_per_s);
}

bool squeeze_next(struct squeeze *squeeze, double bits_per_s)
{
    bool best = squeeze_best(squeeze, bits_per_s);
    squeeze->asked++;
    if (bits_per_s <= 0)
        return true;
    if (squeeze->side[1].samples == 0 || squeeze->side[0].samples == 0)
        return squeeze->side[1].samples <= squeeze->side[0].samples;
    return squeeze->asked % TRY_AGAIN == 0 ? !best : best;
}

void squeeze_note(struct squeeze *squeeze, bool with, uint64_t values, double seconds, uint64_t bytes)
{
    struct squeeze_side *side = &squeeze->side[with];
    if (values < VALUES_MIN)
        return; /* more about the clock than about the codec */
    double weight = side->samples == 0 ? 1 : 0.2;
    side->seconds += weight * (seconds / (double)values - side->seconds);
    side->bytes += weight * ((double)bytes / (double)values - side->bytes);
    side->samples++;
}
