/* SPDX-License-Identifier: Apache-2.0 */
/*
 * losses: what a trainer has said of its loss at each of its last steps. Private to trainer/.
 *
 * Only the loop's thread calls. Nothing is allocated.
 */
#ifndef DAEMON_TRAINER_LOSSES_H
#define DAEMON_TRAINER_LOSSES_H

#include <stdbool.h>
#include <stdint.h>

enum { LOSSES_KEPT = 4096 };

/* In the caller's storage; zero: none. */
struct losses {
    struct {
        uint64_t step;
        double loss;
    } said[LOSSES_KEPT];
};

/* A loss that is 0 or no number is not said. */
void losses_note(struct losses *losses, uint64_t step, double loss);
/* False: it is not known, or not any more. */
bool losses_at(const struct losses *losses, uint64_t step, double *loss);

#endif
