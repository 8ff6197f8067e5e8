/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adder: a trainer through libdiloco whose every step adds one to every value, so that work lost, counted twice or
 * mixed in wrongly is seen in the sum. One at a time; a helper that fails fails the running test.
 */
#ifndef TESTS_LIB_ADDER_H
#define TESTS_LIB_ADDER_H

#include <stddef.h>
#include <stdint.h>

#include "worker/libdiloco/diloco.h"

enum { ADDER_TENSORS = 2, ADDER_VALUES = 20480, ADDER_PATIENCE_MS = 20000 };
extern float *adder_tensor[ADDER_TENSORS];

/* Zeros. */
void adder_new(void);
void adder_free(void);

/* Attaches to a daemon's worker socket, and registers; the second tensor under this name. */
struct diloco *adder_attach(const char *socket_path, const char *name);
/* DILOCO_OK, or DILOCO_STOP at the end of the run. One step, and what comes after it, is waited for for a while only
 * (tests/lib/patience.h). */
int adder_train(struct diloco *trainer, int steps);
/* That all of them, or these, have one value. */
void adder_assert(float value);
void adder_assert_values(const float *values, size_t count, float value);

#endif
