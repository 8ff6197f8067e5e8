/* SPDX-License-Identifier: Apache-2.0 */
/* What the exchange between islands does to parameters. */
#include <math.h>

#include "kernels/cpu/cpu.h"

void CPU(mix)(struct kern_dev *dev, float *live, kern_act *act, const float *anchor, int64_t count, float keep)
{
    float take = 1.0f - keep;
    if (keep == 0) { /* an Inf in the old value is not to survive as 0 * Inf */
        memmove(live, anchor, (size_t)count * sizeof *live);
        cpu_follow(dev, act, live, count);
        return;
    }
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < count; i++)
        live[i] = keep * live[i] + take * anchor[i];
    cpu_follow(dev, act, live, count);
}

void CPU(shift)(struct kern_dev *dev, float *live, kern_act *act, const float *anchor, const float *base, int64_t count)
{
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < count; i++)
        live[i] += anchor[i] - base[i];
    cpu_follow(dev, act, live, count);
}

void CPU(aside_out)(struct kern_dev *dev, float *live, kern_act *act, const float *base, float *aside,
                    const float *past, int64_t count, struct kern_aside rule)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++) {
        float moved = live[i] - base[i];
        float kept = rule.keep > 0 ? rule.keep * moved : 0;
        aside[i] = moved - kept;
        live[i] = base[i] + kept;
        if (past != NULL && isfinite(moved))
            live[i] += rule.fresh * moved - rule.past * past[i];
    }
    cpu_follow(dev, act, live, count);
}

/* Takes what aside_out() added on account back. */
static float without_estimate(struct kern_aside rule, float live, float aside, const float *past, int64_t i)
{
    return past != NULL && isfinite(aside) ? live - (rule.fresh * aside - rule.past * past[i]) : live;
}

void CPU(aside_in)(struct kern_dev *dev, float *live, kern_act *act, const float *base, const float *anchor,
                   const float *aside, float *past, bool counted, int64_t count, struct kern_aside rule)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++) {
        float anchor_moved = anchor[i] - base[i];
        float was = without_estimate(rule, live[i], aside[i], past, i);
        if (counted)
            live[i] = was + (rule.keep > 0 ? anchor_moved - rule.keep * anchor_moved : anchor_moved);
        else
            live[i] = was + (anchor_moved + aside[i]);
        if (counted && past != NULL)
            past[i] = rule.decay * past[i] - aside[i];
    }
    cpu_follow(dev, act, live, count);
}

void CPU(aside_off)(struct kern_dev *dev, float *live, kern_act *act, const float *aside, const float *past,
                    const int32_t *bad, int64_t count, struct kern_aside rule)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count; i++) {
        live[i] = without_estimate(rule, live[i], aside[i], past, i);
        if (*bad == 0)
            live[i] += aside[i];
    }
    cpu_follow(dev, act, live, count);
}

void CPU(find_bad)(struct kern_dev *dev, int32_t *bad, const float *x, int64_t count)
{
    (void)dev;
    int found = 0;
#pragma omp parallel for schedule(static) reduction(| : found)
    for (int64_t i = 0; i < count; i++)
        found |= !isfinite(x[i]);
    if (found)
        *bad = 1;
}
