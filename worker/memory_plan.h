/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory_plan: what a model takes of a device's memory, known before anything is allocated there: to train it, to
 * evaluate it, or to sample from it.
 *
 * With P parameters, a copy of them for products (2 bytes a value on a GPU, none on the CPU), dp ranks that share
 * masters and moments, and tp ranks that share each layer, a rank takes
 *     P (6 + 12/dp) / tp + activations + logits / tp + workspace        (AdamW or Muon; with SGD 4/dp)
 * where of the activations the residual stream and the norms are whole on every rank, and all others are 1/tp.
 * docs/TRAINER.md, "Memory of the trainer", has it in full. Evaluation and sampling have no gradients and no
 * moments. train and sample ask; nothing is owned or kept here. What a part takes is said by that part, next to where
 * it allocates (model_memory(), inner_memory(), moves_memory()).
 */
#ifndef WORKER_MEMORY_PLAN_H
#define WORKER_MEMORY_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "common/runspec.h"
#include "worker/model/model.h"

struct memory_plan_conf {
    struct model_conf model; /* where it is not for training, there is no optimizer either */
    bool decodes;            /* token by token: sampling */
    bool attached;           /* to a daemon */
    int sharing;             /* ranks that have this device together; 0 is 1 */
};

/* Bytes on the device of one rank. */
struct memory_plan {
    uint64_t parameters; /* masters, and the copy */
    uint64_t gradients;
    uint64_t moments;
    uint64_t activations;
    uint64_t logits;
    uint64_t caches;    /* of decoding; 0 where nothing is sampled */
    uint64_t workspace; /* of operations, attention's and Muon's among them */
    uint64_t exchange;  /* on their way from and to the daemon, and work set aside; 0 where alone */
};

/* Opens and allocates nothing on `dev`, which only says how it works (scratch memory depends on its threads). */
ERR_MUST_CHECK enum err memory_plan(const struct runspec *spec, const struct kern *kern, struct kern_dev *dev,
                                    const struct memory_plan_conf *conf, struct memory_plan *out);
uint64_t memory_plan_sum(const struct memory_plan *plan);

/* Compares with what is free on the device, for all ranks that share it, of which none has allocated yet, and logs it;
 * `*sum` (NULL: not asked for) is what it takes, then, too. ERR_NOMEM where it is too much says what it takes, what
 * there is, and what would fit: in training another --recompute, a smaller batch, or both; in an evaluation a smaller
 * batch; and where one token at a time is too much, that it takes another device. */
ERR_MUST_CHECK enum err memory_plan_check(const struct runspec *spec, const struct kern *kern, struct kern_dev *dev,
                                          const struct memory_plan_conf *conf, uint64_t *sum);

#endif
