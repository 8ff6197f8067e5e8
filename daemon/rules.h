/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules: a run spec in terms of outer_opt/: plan, codec, schedule, outer optimizer and the numbers of a round.
 */
#ifndef DAEMON_RULES_H
#define DAEMON_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "common/runspec.h"
#include "outer_opt/codec.h"
#include "outer_opt/outer.h"
#include "outer_opt/outlier.h"
#include "outer_opt/plan.h"
#include "outer_opt/schedule.h"

struct plan_conf rules_plan(const struct runspec *spec);
struct codec_choice rules_codec(const struct runspec *spec);
const char *rules_codec_name(const struct runspec *spec);
struct outer_conf rules_outer(const struct runspec *spec);
/* Steps a trainer may be behind the run before it skips to it; UINT64_MAX: it never does. */
uint64_t rules_run_slack(const struct runspec *spec);
/* Whether a contribution's work leaves the live parameters while it is on its way (worker/libdiloco/aside.h). */
bool rules_set_aside(const struct runspec *spec);
/* Factors of a trainer's estimate of the step that is on its way, `fresh` and `past` for an island whose work is all of
 * the mean; all 0 if the run is not Eager. */
struct rules_eager {
    double fresh, past, decay;
};
struct rules_eager rules_eager(const struct runspec *spec);
struct outlier_conf rules_outliers(const struct runspec *spec);
/* Whether contributions are judged one by one, by norm and direction. */
bool rules_judges(const struct runspec *spec);
/* Whether means are taken value by value, without weights. */
bool rules_by_value(const struct runspec *spec);
/* The run step after which neither the inner learning rate nor the interval is warming up. */
uint64_t rules_warm_until(const struct runspec *spec);
/* `spec` is borrowed. */
struct schedule rules_schedule(const struct runspec *spec, uint32_t fragments);
/* The furthest run step at which an island can be when the newest result known is of `step`: of each fragment a round
 * may be on its way, and the next one may be about to be taken in. */
uint64_t rules_furthest(const struct runspec *spec, uint32_t fragments, uint64_t step);

/* How many steps ahead of the newest result data may be dealt (common/deal.h): twice the longest interval. */
uint64_t rules_horizon(const struct runspec *spec);

/* The numbers of the round that makes `version` of `fragment`, one of `fragments`; the contributions before it were
 * made at step `begin`, these at step `end` or before. The interval is what the schedule has between them: an island
 * that came late or skipped steps has not trained longer for it. Computed by the owner and sent with the result:
 * mathematical libraries differ in the last bit. */
struct outer_round rules_round(const struct runspec *spec, uint32_t fragments, uint32_t fragment, uint64_t version,
                               uint64_t begin, uint64_t end);

/* Of how many versions of a fragment results are worth their place: together they are no more than the state, which who
 * lacks more of them fetches, and goes on from by them; at least 2, and at most 1024. `version_bytes`: of one. */
uint64_t rules_versions(uint64_t state_bytes, uint64_t version_bytes);
/* So many versions of a fragment take at least as long to replay as its checkpoint to write, however few bytes their
 * results have. */
enum { RULES_REPLAYED_MAX = 32 };

#endif
