/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rules.h"

#include <inttypes.h>

#include <math.h>

struct plan_conf rules_plan(const struct runspec *spec)
{
    static const enum plan_pattern patterns[] = {
        [RUNSPEC_STRIDED] = PLAN_STRIDED, [RUNSPEC_SEQUENTIAL] = PLAN_SEQUENTIAL, [RUNSPEC_BALANCED] = PLAN_BALANCED};
    return (struct plan_conf){.pattern = patterns[spec->pattern],
                              .layers_per_fragment = (uint32_t)spec->layers_per_fragment,
                              .fragments = (uint32_t)spec->fragments,
                              .whole_tensors = codec_on_tensors(rules_codec(spec).id)};
}

struct codec_choice rules_codec(const struct runspec *spec)
{
    return (struct codec_choice){.id = spec->codec == CODEC_ADAPTIVE ? CODEC_UNIFORM : (enum codec_id)spec->codec,
                                 .ratio = (float)(spec->codec == CODEC_TOPK ? spec->keep : spec->step),
                                 .rank = (uint32_t)spec->rank};
}

const char *rules_codec_name(const struct runspec *spec)
{
    return spec->codec == CODEC_ADAPTIVE ? "adaptive" : codec_name(rules_codec(spec).id);
}

struct outer_conf rules_outer(const struct runspec *spec)
{
    static const enum outer_kind kinds[] = {[RUNSPEC_NESTEROV] = OUTER_NESTEROV,
                                            [RUNSPEC_HEAVY_BALL] = OUTER_HEAVY_BALL,
                                            [RUNSPEC_AVERAGE] = OUTER_AVERAGE};
    return (struct outer_conf){.kind = kinds[spec->outer],
                               .lr = (float)spec->outer_lr,
                               .momentum = (float)spec->outer_momentum,
                               .clip = (float)spec->outer_clip,
                               .average_versions = (uint64_t)spec->outer_average,
                               .warmup_versions = (uint64_t)spec->outer_warmup};
}

uint64_t rules_run_slack(const struct runspec *spec)
{
    if (spec->pace == RUNSPEC_LOCKSTEP || spec->late == RUNSPEC_WAIT)
        return UINT64_MAX;
    /* Islands of one speed take turns in being a few steps ahead; that is no reason to skip any. */
    uint64_t quarter = (uint64_t)spec->interval / 4;
    return quarter > 2 ? quarter : 2;
}

bool rules_set_aside(const struct runspec *spec)
{
    return spec->overlap == spec->interval;
}

struct rules_eager rules_eager(const struct runspec *spec)
{
    double m = spec->outer_momentum;
    if (!spec->eager)
        return (struct rules_eager){0};
    double lr = spec->outer == RUNSPEC_AVERAGE ? 1 : spec->outer_lr;
    switch (spec->outer) {
    case RUNSPEC_NESTEROV: return (struct rules_eager){.fresh = lr * (1 + m), .past = lr * m * m, .decay = m};
    case RUNSPEC_HEAVY_BALL: return (struct rules_eager){.fresh = lr, .past = lr * m, .decay = m};
    default: return (struct rules_eager){.fresh = lr};
    }
}

struct outlier_conf rules_outliers(const struct runspec *spec)
{
    static const enum outlier_action actions[] = {[RUNSPEC_OUTLIERS_KEEP] = OUTLIER_KEEP,
                                                  [RUNSPEC_OUTLIERS_DROP] = OUTLIER_DROP,
                                                  [RUNSPEC_OUTLIERS_CLIP] = OUTLIER_CLIP,
                                                  [RUNSPEC_OUTLIERS_TRIMMED] = OUTLIER_TRIMMED,
                                                  [RUNSPEC_OUTLIERS_MEDIAN] = OUTLIER_MEDIAN};
    return (struct outlier_conf){
        .action = actions[spec->outliers], .threshold = spec->outlier_threshold, .trim = (uint32_t)spec->trim};
}

bool rules_judges(const struct runspec *spec)
{
    return spec->outliers == RUNSPEC_OUTLIERS_CLIP || spec->outliers == RUNSPEC_OUTLIERS_DROP;
}

bool rules_by_value(const struct runspec *spec)
{
    return spec->outliers == RUNSPEC_OUTLIERS_TRIMMED || spec->outliers == RUNSPEC_OUTLIERS_MEDIAN;
}

uint64_t rules_warm_until(const struct runspec *spec)
{
    return (uint64_t)(spec->warmup > spec->warm_steps ? spec->warmup : spec->warm_steps);
}

static double lr_at(const void *user, uint64_t step)
{
    return runspec_lr(user, step);
}

struct schedule rules_schedule(const struct runspec *spec, uint32_t fragments)
{
    return (struct schedule){.interval = (uint64_t)spec->interval,
                             .fragments = fragments,
                             .spread = spec->offsets == RUNSPEC_SPREAD,
                             .warm_interval = (uint64_t)spec->warm_interval,
                             .warm_until = (uint64_t)spec->warm_steps,
                             .growth = spec->growth,
                             .steps = runspec_length(spec),
                             .lr_warmup = (uint64_t)spec->warmup,
                             .lr = lr_at,
                             .user = spec};
}

uint64_t rules_furthest(const struct runspec *spec, uint32_t fragments, uint64_t step)
{
    struct schedule schedule = rules_schedule(spec, fragments > 0 ? fragments : 1);
    uint64_t due = schedule_next_due(&schedule, 0, schedule_next_due(&schedule, 0, step));
    return due + (uint64_t)(spec->interval + spec->overlap); /* other fragments follow within an interval */
}

uint64_t rules_horizon(const struct runspec *spec)
{
    struct schedule schedule = rules_schedule(spec, 1);
    uint64_t longest = (uint64_t)(spec->warm_interval > spec->interval ? spec->warm_interval : spec->interval);
    for (uint64_t due = 0, next; spec->growth > 0 && due < (uint64_t)spec->steps; due = next) {
        next = schedule_next_due(&schedule, 0, due);
        longest = next - due > longest ? next - due : longest;
    }
    return longest < UINT32_MAX / 2 ? 2 * longest : UINT32_MAX;
}

static double lr_sum(const struct runspec *spec, uint64_t begin, uint64_t end)
{
    double sum = 0;
    for (uint64_t step = begin + 1; step <= end; step++)
        sum += runspec_lr(spec, step);
    return sum;
}

/* Beyond these nothing was meant, and whoever checks a result would refuse it. */
static const double lr_ratio_most = 1e4;

struct outer_round rules_round(const struct runspec *spec, uint32_t fragments, uint32_t fragment, uint64_t version,
                               uint64_t begin, uint64_t end)
{
    const struct outer_conf conf = rules_outer(spec);
    struct outer_round round = outer_round_of(&conf, version);
    uint64_t base = (uint64_t)spec->interval;
    if (spec->growth <= 0 || !spec->growth_correction || spec->outer == RUNSPEC_AVERAGE ||
        begin >= runspec_length(spec))
        return round;
    struct schedule schedule = rules_schedule(spec, fragments);
    uint64_t due = schedule_next_due(&schedule, fragment, begin);
    end = end < due ? end : due;
    if (end <= begin + base)
        return round;
    double reference = lr_sum(spec, begin, begin + base);
    double ratio = reference > 0 ? lr_sum(spec, begin, end) / reference : 0;
    if (!(ratio > 0 && ratio < lr_ratio_most))
        return round;
    return outer_round_corrected(round, pow((double)round.momentum, (double)(end - begin) / (double)base), ratio);
}

enum { VERSIONS_MIN = 2, VERSIONS_MAX = 1024 };

uint64_t rules_versions(uint64_t state_bytes, uint64_t version_bytes)
{
    uint64_t worth = version_bytes > 0 ? state_bytes / version_bytes : VERSIONS_MAX;
    worth = worth > VERSIONS_MIN ? worth : VERSIONS_MIN;
    return worth < VERSIONS_MAX ? worth : VERSIONS_MAX;
}
