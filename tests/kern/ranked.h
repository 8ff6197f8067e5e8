/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranked: a small model trained by ranks that share out each batch, and the same by one process that makes every rank's
 * gradients and adds them up in order of rank: the bits must be the same. Where ranks share layers, too, sums come in
 * another order, and the numbers must be near. All run as ranks (worker/launch.h), since a test's own process must stay
 * without threads; what they found is in memory that all share.
 */
#ifndef TESTS_KERN_RANKED_H
#define TESTS_KERN_RANKED_H

#include "kernels/kern_table.h"
#include "worker/crew.h"

enum { RANKED_STEPS = 12, RANKED_VALUES = 60000 };

struct ranked_result {
    double loss[RANKED_STEPS], norm[RANKED_STEPS], end_loss;
    float w[RANKED_VALUES], m[RANKED_VALUES], v[RANKED_VALUES];
    int64_t count;
};

struct ranked_story {
    const struct kern *kern;
    int rows;                    /* of ranks that it is about; one rank plays them all */
    int tp;                      /* ranks of a row; 0 is 1 */
    bool tied, muon, stochastic; /* with the products' copy rounded by chance */
    bool bf16;                   /* products on the CPU; where it cannot, they are in fp32 */
    enum model_recompute recompute;
    const char *folder;           /* for kern_place.choices, a file a rank; NULL: none */
    struct ranked_result *result; /* [GROUP_RANKS_MAX], shared: each rank's */
};

/* NULL if there is no memory. */
struct ranked_result *ranked_memory(void);

/* For launch_run(): with one rank it plays story->rows, else it is one of them. */
enum err ranked_train(void *story, const struct launch_rank *rank);

/* How far `got` is from `want`: the largest share by which a loss differs, and that of all weights (2-norms). */
double ranked_loss_distance(const struct ranked_result *want, const struct ranked_result *got);
double ranked_distance(const struct ranked_result *want, const struct ranked_result *got);

#endif
