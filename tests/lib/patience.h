/* SPDX-License-Identifier: Apache-2.0 */
/*
 * patience: how long a test looks in vain before it fails. It counts looks rather than seconds: of the time between two
 * looks at most PATIENCE_LOOK_MS is spent, so where many share the processors, all have as many looks as ever.
 */
#ifndef TESTS_LIB_PATIENCE_H
#define TESTS_LIB_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

enum { PATIENCE_LOOK_MS = 50 };

/* Zeros: nothing is spent yet, which it is also made again when something has come about. */
struct patience {
    uint64_t last_ms, spent_ms;
};

/* Call it at each look. */
bool patience_over(struct patience *patience, uint64_t limit_ms);

#endif
