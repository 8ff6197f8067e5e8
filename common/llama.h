/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llama: what a model of a run spec is called elsewhere: its tensors by name and shape, and the numbers that a
 * config.json has of it.
 *
 * Names, shapes and order are those of the trainer's model (worker/model), which is `LlamaForCausalLM` of the published
 * code: rotary positions in halves, weights (out, in), and no head of its own where it is tied. Pure; any thread.
 */
#ifndef COMMON_LLAMA_H
#define COMMON_LLAMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "common/runspec.h"

enum { LLAMA_NAME_BYTES = 64 };

struct llama_tensor {
    char name[LLAMA_NAME_BYTES];
    uint32_t dims;
    uint64_t shape[2];
    uint64_t count;
};

/* What decides what a model computes, and how long its training went on. */
struct llama_config {
    int64_t vocab, width, layers, heads, kv_heads, ff;
    double rope_theta, norm_eps;
    bool tied;
    int64_t context;
    double init_std;
};

/* All of them, in the model's order; caller frees with mem_free(). */
ERR_MUST_CHECK enum err llama_tensors(const struct llama_config *config, struct llama_tensor **out, size_t *count);
/* By name, byte by byte: an order that no file and no layout decides. */
void llama_sort(struct llama_tensor *tensors, size_t count);

struct llama_config llama_config_of(const struct runspec *spec);
/* Whether a run spec's [model] is this one, whose place is `path`; how long sequences are, and how weights would have
 * begun, may differ. ERR_CONF names the first difference, and what prints a run spec that fits. */
ERR_MUST_CHECK enum err llama_config_check(const struct llama_config *config, const char *path,
                                           const struct runspec *spec);

#endif
