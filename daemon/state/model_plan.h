/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model_plan: the tensors of the run's model as trainers register them, and the plan made from them; in memory, as
 * text for the state folder and for peers that have no trainer.
 */
#ifndef DAEMON_STATE_MODEL_PLAN_H
#define DAEMON_STATE_MODEL_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "common/ipc.h"
#include "common/runspec.h"
#include "outer_opt/plan.h"

enum { MODEL_PLAN_TEXT_MAX = 16 << 20 };

struct model_plan {
    struct ipc_tensor *tensors;
    uint32_t tensors_count;
    struct plan *plan;
    char *text; /* one line per tensor: name, layer, shape */
};

/* Copies the tensors and makes the plan the run spec asks for. */
ERR_MUST_CHECK enum err model_plan_new(const struct runspec *spec, const struct ipc_tensor *tensors,
                                       uint32_t tensors_count, struct model_plan **out);
/* From text, which may come from a peer: ERR_PROTO if it is malformed. */
ERR_MUST_CHECK enum err model_plan_parse(const struct runspec *spec, const char *text, size_t bytes,
                                         struct model_plan **out);
void model_plan_free(struct model_plan *plan);

/* Says where two plans begin to differ: "tensor 3 is x (layer 1, 48 x 32), the run has y (layer 1, 300)". */
void model_plan_difference(const struct model_plan *run, const struct model_plan *other, char *text, size_t text_bytes);

#endif
