/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runspec: the one document that defines a run: model, data format, inner and outer optimizer, schedule, codec.
 *
 * Every island of a run holds the same run spec; its digest is the run's identity and travels in every message, so
 * two islands with different specs refuse each other instead of diverging. What may differ between islands (paths,
 * threads, addresses) stands in the daemon's configuration, but for two keys that a trainer alone needs as well and
 * that are not under the digest: [run] init and [train] precision. docs/PROTOCOL.md has the formulas, docs/DECISIONS.md
 * the reasons.
 */
#ifndef COMMON_RUNSPEC_H
#define COMMON_RUNSPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "common/codec_id.h"
#include "common/conf.h"
#include "common/digest.h"
#include "common/err.h"

enum runspec_format { RUNSPEC_BYTES, RUNSPEC_TOKENS, RUNSPEC_UINT16, RUNSPEC_UINT32 };
enum runspec_inner { RUNSPEC_ADAMW, RUNSPEC_SGD, RUNSPEC_MUON };
enum runspec_precision { RUNSPEC_PRECISION_FP32, RUNSPEC_PRECISION_BF16 };
enum runspec_pattern { RUNSPEC_STRIDED, RUNSPEC_SEQUENTIAL, RUNSPEC_BALANCED };
enum runspec_offsets { RUNSPEC_SPREAD, RUNSPEC_ZERO };
enum runspec_late { RUNSPEC_MERGE, RUNSPEC_WAIT };
enum runspec_pace { RUNSPEC_RUN, RUNSPEC_LOCKSTEP };
enum runspec_outliers {
    RUNSPEC_OUTLIERS_KEEP,
    RUNSPEC_OUTLIERS_DROP,
    RUNSPEC_OUTLIERS_CLIP,
    RUNSPEC_OUTLIERS_TRIMMED,
    RUNSPEC_OUTLIERS_MEDIAN
};
enum runspec_outer { RUNSPEC_NESTEROV, RUNSPEC_HEAVY_BALL, RUNSPEC_AVERAGE };

struct runspec {
    struct digest digest; /* of the canonical text of everything below */

    char *name;
    int64_t steps;  /* that the run begins with; how long it is now: runspec_length() */
    int64_t length; /* what orders have made of them since; 0: nothing. Not under the digest */
    int64_t seed;
    char *init;        /* of this machine: not under the digest */
    char *init_digest; /* what it holds, as origin.h has it; "": nothing, the run begins from its seed */

    int64_t vocab, width, layers, heads, kv_heads, ff, context;
    double rope_theta, norm_eps, init_std;
    bool tied;

    int format; /* enum runspec_format */
    double held_out;

    int inner;     /* enum runspec_inner */
    int precision; /* enum runspec_precision; of this machine: not under the digest */
    int64_t batch, accumulate, warmup;
    double lr, lr_final, beta1, beta2, eps, weight_decay, clip;

    int64_t interval, warm_interval, warm_steps;
    double growth;
    bool growth_correction;
    int pattern; /* enum runspec_pattern */
    int64_t layers_per_fragment, fragments;
    int offsets; /* enum runspec_offsets */
    int64_t overlap;
    double mix;
    bool eager;
    int late;  /* enum runspec_late */
    int pace;  /* enum runspec_pace */
    int codec; /* enum codec_id */
    double step, keep;
    int64_t rank;
    bool error_feedback;
    double feedback_decay, feedback_limit;
    int64_t zstd_level;
    int outliers; /* enum runspec_outliers */
    double outlier_threshold;
    int64_t trim;
    double weight_max;
    int64_t quorum;
    uint64_t grace_ms;

    int outer; /* enum runspec_outer */
    double outer_lr, outer_momentum, outer_clip;
    bool staleness_penalty;
    int64_t outer_average, outer_warmup;
};

/* The table of keys, for --help, documentation and tests. */
extern const struct conf_schema runspec_schema;

/* Reads and checks a run spec, fills derived values (ff, kv_heads) and the digest. ERR_CONF names the fault and its
 * place. Free with runspec_deinit(). */
ERR_MUST_CHECK enum err runspec_load(const char *path, const struct conf_override *overrides, size_t overrides_count,
                                     struct runspec *spec);
/* The same from text, as runspec_text() gives it; `name` stands for the file in errors. */
ERR_MUST_CHECK enum err runspec_parse(const char *text, const char *name, struct runspec *spec);
ERR_MUST_CHECK enum err runspec_parse_with(const char *text, const char *name, const struct conf_override *overrides,
                                           size_t overrides_count, struct runspec *spec);

/* The canonical text: what the digest covers, and what files carry along. Caller frees with mem_free(). */
ERR_MUST_CHECK enum err runspec_text(const struct runspec *spec, char **text);

void runspec_deinit(struct runspec *spec);

/* Steps of the run as orders have it (docs/PROTOCOL.md, "Orders"); where none says anything, the run spec's. */
uint64_t runspec_length(const struct runspec *spec);

/* Intervals of the whole run: so many rounds each fragment has. */
uint64_t runspec_rounds(const struct runspec *spec);
/* Of a run whose outer momentum has too few rounds to be of use: how many, and what to set instead; "" else. */
enum { RUNSPEC_ADVICE_BYTES = 320, RUNSPEC_ROUNDS_FEW = 50 };
void runspec_advice(const struct runspec *spec, char text[RUNSPEC_ADVICE_BYTES]);

/* Inner learning rate at run step 1, 2, ...: linear warm-up to `lr`, then cosine to lr * lr_final at the
 * run's last step: where its length changes, later steps follow the new one. */
double runspec_lr(const struct runspec *spec, uint64_t step);

#endif
