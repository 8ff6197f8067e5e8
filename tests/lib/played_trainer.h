/* SPDX-License-Identifier: Apache-2.0 */
/*
 * played_trainer: a trainer as a test plays it, message by message, attached to an island whose engine the test plays,
 * too (tests/lib/isle.h).
 *
 * A helper that fails fails the running test.
 */
#ifndef TESTS_LIB_PLAYED_TRAINER_H
#define TESTS_LIB_PLAYED_TRAINER_H

#include <stddef.h>

#include "common/ipc.h"
#include "tests/lib/isle.h"

struct played_trainer {
    struct isle *isle;
    int socket;
    struct ipc_shm *shm;
    size_t shm_bytes;
};

/* Connects and registers the run's tensors: EVENT_REGISTERED was posted. */
struct played_trainer *played_trainer_open(struct isle *isle);
/* The plan being known: is accepted, gives its initial tensors (zeros) and trains. */
void played_trainer_start(struct played_trainer *trainer);
/* Accepted, it has given its initial tensors, and the jobs that take them over are under way. */
void played_trainer_publish_initial(struct played_trainer *trainer);
void played_trainer_say(struct played_trainer *trainer, const struct ipc_message *message);
void played_trainer_close(struct played_trainer *trainer);

#endif
