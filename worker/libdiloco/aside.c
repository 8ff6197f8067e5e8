/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/libdiloco/aside.h"

#include <math.h>

void aside_out(const struct aside_rule *rule, float *live, const float *base, float *aside, const float *past,
               size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float moved = live[i] - base[i]; /* -D */
        /* What is not finite is not to live on as 0 * Inf. */
        float kept = rule->keep > 0 ? rule->keep * moved : 0;
        aside[i] = moved - kept;
        live[i] = base[i] + kept;
        if (past != NULL && isfinite(moved))
            live[i] += rule->fresh * moved - rule->past * past[i];
    }
}

/* Takes what aside_out() added on account back. */
static float without_estimate(const struct aside_rule *rule, float live, float aside, const float *past)
{
    return past != NULL && isfinite(aside) ? live - (rule->fresh * aside - rule->past * *past) : live;
}

void aside_in(const struct aside_rule *rule, float *live, const float *base, const float *anchor, const float *aside,
              float *past, bool counted, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float *own_past = past != NULL ? &past[i] : NULL;
        float anchor_moved = anchor[i] - base[i];
        live[i] = without_estimate(rule, live[i], aside[i], own_past);
        if (counted)
            live[i] += rule->keep > 0 ? anchor_moved - rule->keep * anchor_moved : anchor_moved;
        else
            live[i] += anchor_moved + aside[i];
        if (counted && past != NULL)
            past[i] = rule->decay * past[i] - aside[i];
    }
}

void aside_off(const struct aside_rule *rule, float *live, const float *aside, const float *past, bool restore,
               size_t count)
{
    for (size_t i = 0; i < count; i++) {
        live[i] = without_estimate(rule, live[i], aside[i], past != NULL ? &past[i] : NULL);
        if (restore)
            live[i] += aside[i];
    }
}
