#include "worker/aside.h"

void aside_out(const struct aside_rule *rule, float *live, const float *base, float *aside, const float *past,
               size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float moved = live[i] - base[i]; /* -D */
        /* What is not finite is not to live on as 0 * Inf. */
        float kept = rule->keep > 0 ? rule->keep * moved : 0;
        aside[i] = moved - kept;
        live[i] = base[i] + kept;
        if (past != NULL)
            live[i] += rule->fresh * moved - rule->past * past[i];
    }
}

void aside_in(const struct aside_rule *rule, float *live, const float *base, const float *anchor, const float *aside,
              float *past, bool counted, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (past != NULL)
            live[i] -= rule->fresh * aside[i] - rule->past * past[i];
        live[i] += anchor[i] - base[i];
        if (!counted)
            live[i] += aside[i];
        else if (past != NULL)
            past[i] = rule->decay * past[i] - aside[i];
    }
}
