/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sample: text from a model, token by token.
 *
 * Tokens are numbers on the screen, or text by a tokenizer.json (worker/tokenizer.h), whole characters at a time.
 * Owns the model it samples from for the time of one call; diloco-worker calls it. It draws from its own seeded
 * numbers alone, and never writes anywhere but to `out`.
 */
#ifndef WORKER_SAMPLE_H
#define WORKER_SAMPLE_H

#include <stdint.h>
#include <stdio.h>

#include "common/err.h"
#include "common/runspec.h"

struct sample_options {
    const struct runspec *spec;
    const char *params_path;
    const char *tokenizer_path; /* NULL: tokenizer.json beside the parameters, if there is one; "none": numbers */
    const char
        *prompt; /* bytes; may be empty. Of a run on tokens: text, or without a tokenizer numbers with blanks between */
    uint64_t tokens;    /* how many to generate */
    double temperature; /* 0: always the likeliest */
    double top_p;       /* smallest set of likeliest tokens with at least this probability; 1: all */
    uint64_t seed;
    const char *device;
    int threads;
};

/* Writes prompt and continuation to `out` as they come. ERR_NOMEM: the device has too little memory, before any is
 * taken.
 */
ERR_MUST_CHECK enum err sample_run(const struct sample_options *options, FILE *out);

#endif
