/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_plan: the tensors of the run's model as trainers register them, and the plan made from them; in memory, as
 * text for the state folder and for peers that have no trainer. Frozen tensors, the base that a model is trained upon,
 * are in no fragment: they are here so that all islands train upon the same.
 */
#ifndef DAEMON_STATE_MODEL_PLAN_H
#define DAEMON_STATE_MODEL_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"
#include "common/ipc.h"
#include "common/runspec.h"
#include "outer_opt/plan.h"

enum { MODEL_PLAN_TEXT_MAX = 16 << 20 };

struct model_plan {
    struct ipc_tensor *tensors; /* that are trained; behind them the frozen ones */
    uint32_t tensors_count, frozen_count;
    struct plan *plan;
    char *text; /* one line per tensor: name, layer, shape; of a frozen one its type and sum as well */
    /* Of all that the text says: the plan's, where nothing is frozen. */
    struct digest id;
};

/* Copies the tensors, frozen ones anywhere among them, and makes the plan the run spec asks for. */
ERR_MUST_CHECK enum err model_plan_new(const struct runspec *spec, const struct ipc_tensor *tensors,
                                       uint32_t tensors_count, struct model_plan **out);
/* From text, which may come from a peer: ERR_PROTO if it is malformed. */
ERR_MUST_CHECK enum err model_plan_parse(const struct runspec *spec, const char *text, size_t bytes,
                                         struct model_plan **out);
void model_plan_free(struct model_plan *plan);

/* Whether they differ in frozen tensors alone. */
bool model_plan_same_but_base(const struct model_plan *run, const struct model_plan *other);

/* Says where two plans begin to differ: "tensor 3 is x (layer 1, 48 x 32), the run has y (layer 1, 300)"; of frozen
 * ones: "x has other values", or "x is bfloat16 (48 x 32), the run has float32 (48 x 32)". */
void model_plan_difference(const struct model_plan *run, const struct model_plan *other, char *text, size_t text_bytes);

#endif
