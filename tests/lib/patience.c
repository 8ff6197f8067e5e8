/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/patience.h"

#include "common/env.h"

bool patience_over(struct patience *patience, uint64_t limit_ms)
{
    uint64_t now_ms = env_mono_ms();
    uint64_t since_ms = patience->last_ms > 0 ? now_ms - patience->last_ms : 0;
    patience->last_ms = now_ms;
    patience->spent_ms += since_ms < PATIENCE_LOOK_MS ? since_ms : PATIENCE_LOOK_MS;
    return patience->spent_ms > limit_ms;
}
