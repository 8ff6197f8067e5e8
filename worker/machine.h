/* SPDX-License-Identifier: Apache-2.0 */
/*
 * machine: what the trainer runs on, as it tells the daemon for `dilococtl status`. The train loop asks when all is
 * open; nothing is owned or kept here.
 */
#ifndef WORKER_MACHINE_H
#define WORKER_MACHINE_H

#include <stdint.h>

#include "kernels/kern.h"
#include "worker/libdiloco/diloco.h"

enum { MACHINE_NAME_BYTES = 96 };

struct machine_conf {
    const struct kern *kern;
    struct kern_dev *dev;
    int ranks, tensor_parallel;
    int devices;            /* that the ranks have together: several may have one */
    uint64_t memory_bytes;  /* that training takes, of a rank */
    double flops_per_token; /* of the whole model */
};

/* The device's name goes into `name`, which the result points to. What the device does not say is 0 there. */
struct diloco_machine machine_of(const struct machine_conf *conf, char name[MACHINE_NAME_BYTES]);

#endif
