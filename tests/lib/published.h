/* SPDX-License-Identifier: Apache-2.0 */
/*
 * published: the folder of a model as others publish them: config.json and safetensors, whole or in shards.
 *
 * Values follow from the tensor's name alone and are the same in every dtype: small multiples of 1/64. A helper that
 * fails fails the running test.
 */
#ifndef TESTS_LIB_PUBLISHED_H
#define TESTS_LIB_PUBLISHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/dtype.h"
#include "common/llama.h"

/* vocabulary 256, width 32, 2 layers, 4 heads in 2 groups, ff 96, context 64; tied. */
extern const struct llama_config published_small;

struct published {
    struct llama_config config;
    enum dtype dtype;
    size_t shards;    /* 0: one file without an index */
    bool bare;        /* names without "model." */
    const char *less; /* a tensor that is left out; NULL: none */
    const char *wide; /* a tensor that is one row longer; NULL: none */
    const char *more; /* a tensor of one value beside the model's; NULL: none */
    const char *json; /* members of config.json, each with a comma behind it: they come first; NULL: none */
    double scale;     /* of all values; 0: 1. NaN gives NaN */
};

/* Into a new folder under the tests' folder; its path is valid for the process. */
const char *published_write(const char *name, const struct published *what);
/* Whether all numbers are the same. */
bool published_same(const struct llama_config *a, const struct llama_config *b);
/* The i-th value of a tensor. */
float published_value(const char *name, uint64_t i);

#endif
